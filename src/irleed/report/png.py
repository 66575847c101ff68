"""Small pictures as data URIs, written here so that a page needs no file beside it."""

import base64
import struct
import zlib

import numpy as np

from irleed._typing import Shaped

COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # by channels: grey, colour, colour with opacity


def data_uri(pixels: Shaped[np.ndarray, "H W C"]) -> str:
    """Bytes as a PNG picture of 1 (grey), 3 (colour) or 4 channels (with opacity), to be used as an address."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    # Every row starts with the number of its filter; 0 is none.
    rows = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    chunks = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    picture = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
