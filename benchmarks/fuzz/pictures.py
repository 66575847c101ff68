"""Pictures where pictures are expected: other formats, enormous ones, and such as start programs."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

from fuzz.case import SECRET, Case

OTHERS = ("BMP", "GIF", "TIFF", "WEBP", "PPM", "ICO", "PCX", "SGI", "TGA", "PDF", "JPEG2000", "DDS", "IM", "XBM",
    "MPO", "ICNS",
          "AVIF", "SPIDER", "MSP", "BLP", "QOI")  # fmt: skip


def sound(height: int, width: int, kind: str = "PNG", seed: int = 0) -> bytes:
    """A picture of random pixels."""
    stream = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    picture = Image.fromarray(values)
    picture = picture.convert("1") if kind in ("XBM", "MSP") else picture.convert("L") if kind == "SPIDER" else picture
    picture = picture.convert("P") if kind == "BLP" else picture
    picture.save(stream, kind)
    return stream.getvalue()


def postscript(height: int, width: int) -> bytes:
    """A program, which Pillow hands to Ghostscript."""
    head = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 {width} {height}\n%%HiResBoundingBox: 0 0 {width} {height}\n"
    return f"{head}%%EndComments\n(%pipe%id) (r) file\n%%EOF\n".encode()


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(height: int, width: int, *between: bytes, depth: int = 8, colour: int = 2, data: bytes | None = None) -> bytes:
    """A PNG file of zeros, with any sizes and any parts before its pixels."""
    row = 1 + -(-width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour] // 8)
    pixels = zlib.compress(bytes(min(row * height, 1 << 28)), 9) if data is None else data
    begin = chunk(b"IHDR", struct.pack(">IIBBBBB", height and width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + begin + b"".join(between) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def hostile(case: Case, height: int, width: int) -> bytes:
    """Something that stands where a picture of this size should."""
    kind = case.pick(
        (
            "postscript",
            "postscript",
            "other",
            "other",
            "large",
            "claims",
            "text",
            "pixels",
            "cut",
            "bytes",
            "modes",
            "svg",
        )
    )
    case.note(f"picture: {kind}")
    if kind == "postscript":
        found = postscript(height, width)
        dos = struct.pack("<IIIIIIIH", 0xC6D3D0C5, 30, len(found), 0, 0, 0, 0, 0xFFFF) + found  # EPS with a binary head
        return case.pick((found, found, dos, b"\r\n" + found))
    if kind == "other":
        other = case.pick(OTHERS)
        try:
            return sound(height, width, other)
        except (OSError, KeyError, ValueError):  # not built in
            return sound(height, width, "BMP")
    if kind == "large":
        side = case.pick((5000, 16_000, 30_000))
        return png(side, side, depth=1, colour=0)
    if kind == "claims":
        one, other = case.pick(
            ((65535, 65535), (1 << 30, 1), (1, 1 << 30), (0, 0), (1 << 31, 1 << 31), (height, width))
        )
        return png(one, other, data=zlib.compress(bytes(1000)))
    if kind == "text":
        bomb = zlib.compress(bytes(1 << 27), 9)
        part = case.pick((chunk(b"zTXt", b"a\0\0" + bomb), chunk(b"iCCP", b"a\0\0" + bomb), chunk(b"iTXt",
            b"a\0\1\0\0\0" + bomb),
                          chunk(b"tEXt", b"a\0" + SECRET[:3].encode() * 100), chunk(b"eXIf",
                              b"MM\0*\0\0\0\x08" + b"\xff" * 999)))  # fmt: skip
        return png(height, width, *[part] * case.pick((1, 40)))
    if kind == "pixels":
        return png(height, width, data=case.pick((zlib.compress(bytes(1 << 28), 9), b"", zlib.compress(b""))))
    if kind == "modes":
        depth, colour = case.pick(((16, 2), (8, 6), (1, 0), (8, 3), (16, 0), (8, 4)))
        return png(height, width, depth=depth, colour=colour)
    if kind == "cut":
        whole = sound(height, width, case.pick(("PNG", "JPEG")))
        return whole[: int(case.random.integers(len(whole)))]
    if kind == "svg":
        return b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><svg>&e;</svg>'
    return case.pick(
        (b"", b"\0" * 100, b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"%PDF-1.4", b"x" * 5_000_000)
    )
