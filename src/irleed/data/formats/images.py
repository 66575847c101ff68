"""Compressed pictures as arrays, decoded when they are asked for."""

import io
from typing import Any

import numpy as np
from PIL import Image

from irleed._npz import CORRUPT
from irleed._text import one_line
from irleed._typing import Int
from irleed.data.formats.base import refuse
from irleed.data.sources import Source

FORMATS = ("PNG", "JPEG")  # all that may be decoded: Pillow knows many more, and runs another program for some
MOST_PIXELS = 1 << 25  # of a picture; a frame of 8K video has 33 million

# What Pillow raises on damaged pictures, and on those that claim to be enormous.
DAMAGED = (*CORRUPT, Image.DecompressionBombError, Image.DecompressionBombWarning)


class Pictures(Source):
    """Rows of compressed pictures.

    **Arguments:**

    - `encoded`: where they are read from, each row the bytes of one.
    - `shape`: of each, decoded.
    - `where`: what messages call them.
    """

    def __init__(self, encoded: Source, shape: tuple[int, ...], where: str):
        self.encoded, self.where = encoded, where
        self.shape, self.dtype = (encoded.shape[0], *shape), np.dtype(np.uint8)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These, decoded."""
        values = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for place, (row, data) in enumerate(zip(rows, self.encoded.read(rows), strict=True)):
            values[place] = decoded(data, self.shape[1:], f"{self.where}, row {row}")
        return values


def decoded(data: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """One picture, from its bytes; those of another size are not even decoded."""
    expected = f"uint8 of shape {shape}"
    try:
        with Image.open(io.BytesIO(bytes(data)), formats=FORMATS) as picture:
            if (picture.height, picture.width) != shape[:2]:
                refuse(where, f"{picture.height} x {picture.width} pixels", expected, "make all pictures alike")
            if picture.height * picture.width > MOST_PIXELS:
                got = f"{picture.height} x {picture.width} pixels"
                refuse(where, got, f"at most {MOST_PIXELS:,}", "make the pictures smaller")
            values = np.asarray(picture)
    except DAMAGED as error:
        refuse(where, f"what is no picture ({one_line(error)})", "a whole JPEG or PNG", "copy or write it again")
    if values.shape != shape or values.dtype != np.uint8:
        refuse(where, f"{values.dtype} of shape {values.shape}", expected, "make all pictures alike")
    return values
