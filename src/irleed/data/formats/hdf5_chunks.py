"""Chunks of an HDF5 dataset that somebody else wrote, each decompressed to the size of a chunk and no further.

HDF5 decompresses a chunk to whatever its bytes become, several times over if the file says so. That may be more than a
chunk has, and any amount of memory; or less, and then values are whatever was in memory before.
"""

import itertools
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from irleed.data.formats.base import refuse

SHUFFLE, DEFLATE, FLETCHER32, LZF = 2, 1, 3, 32000
KNOWN = ((), (SHUFFLE,), (DEFLATE,), (LZF,), (SHUFFLE, DEFLATE), (SHUFFLE, LZF))  # and a checksum before or after
CHECKSUM = 4  # bytes
KEPT = 1 << 25  # bytes of chunks kept in memory, those decompressed last; one of them at least


class Chunks:
    """The chunks of a dataset.

    **Arguments:**

    - `dataset`: h5py's low-level one.
    - `plan`: its creation properties.
    - `itemsize`: bytes of a value in the file.
    - `where`: what messages call it.
    """

    def __init__(self, dataset: Any, plan: Any, itemsize: int, where: str):
        self.where, self._id = where, dataset
        self.shape: tuple[int, ...] = plan.get_chunk()
        self.nbytes = math.prod(self.shape) * itemsize
        self.filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        self._kept: dict[tuple[int, ...], bytes] = {}

    @property
    def checked(self) -> bool:
        """Do chunks have checksums?"""
        return FLETCHER32 in self.filters

    @property
    def compressed(self) -> bool:
        """Are chunks compressed?"""
        return bool({DEFLATE, LZF} & set(self.filters))

    def check(self, most: int) -> bool:
        """Are all chunks stored, of which there are at `most` so many? Refused if they are stored in an odd way."""
        core = tuple(number for number in self.filters if number != FLETCHER32)
        if core not in KNOWN or self.filters.count(FLETCHER32) > 1:
            got, expected = f"the filters {', '.join(map(str, self.filters))}", "gzip or lzf once, after shuffle"
            refuse(self.where, got, expected, "write it again with compression='gzip'")
        expected = math.prod(-(-rows // chunk) for rows, chunk in zip(self._id.shape, self.shape, strict=True))
        if expected > most or self._id.get_num_chunks() != expected:
            return False
        size = self.nbytes + CHECKSUM * self.checked  # of compressed chunks, that shows when they are read
        odd = None if self.compressed else self._id.chunk_iter(lambda chunk: None if chunk.size == size else chunk.size)
        if odd is not None:
            refuse(self.where, f"a chunk of {odd:,} bytes", f"{size:,} bytes each", "copy or write it again")
        return True

    def places(self, begin: int, end: int) -> Iterator[tuple[int, ...]]:
        """Where the chunks begin that hold some of the rows from one to another."""
        rows, *sizes = self.shape
        axes = [range(0, size, chunk) for size, chunk in zip(self._id.shape[1:], sizes, strict=True)]
        return itertools.product(range(begin // rows * rows, end, rows), *axes)

    def verify(self, begin: int, end: int) -> None:
        """Refuse compressed chunks with some of these rows that do not have the size of a chunk."""
        if self.compressed:
            for place in self.places(begin, end):
                self._plain(place)

    def array(self, place: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The values of a chunk that is inflated here: without checksums and lzf, and of a type as NumPy has it."""
        return np.frombuffer(self._plain(place, dtype.itemsize), dtype).reshape(self.shape)

    def _applied(self, skipped: int) -> list[int]:
        return [number for i, number in enumerate(self.filters) if not skipped >> i & 1]

    def _plain(self, place: tuple[int, ...], itemsize: int = 0) -> bytes:
        """A chunk inflated; and of items of a size, in their order. Of lzf there is nothing but its size."""
        if place in self._kept:
            return self._kept[place]
        skipped, raw = self._id.read_direct_chunk(place)
        applied = self._applied(skipped)
        size, found = self.nbytes + CHECKSUM * applied.count(FLETCHER32), len(raw)
        if {DEFLATE, LZF} & set(applied):
            if applied[-1] == FLETCHER32:  # of what was compressed, behind it
                raw, size = raw[:-CHECKSUM], size - CHECKSUM
            raw = _inflated(raw, size) if DEFLATE in applied else raw
            found = len(raw) if DEFLATE in applied else _lzf_size(raw)
        if found != size:
            got, expected = "a chunk that decompresses to another size", f"{size:,} bytes"
            refuse(f"{self.where}, at {place}", got, expected, "copy or write it again")
        if itemsize > 1 and SHUFFLE in applied:
            raw = np.frombuffer(raw, np.uint8).reshape(itemsize, -1).T.tobytes()
        self._kept[place] = raw
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > KEPT:
            del self._kept[next(iter(self._kept))]
        return raw


def _inflated(raw: bytes, size: int) -> bytes:
    """What deflate made into these bytes: one byte more than `size` if it is more."""
    return zlib.decompressobj().decompress(raw, size + 1)


def _lzf_size(raw: bytes) -> int:
    """How many bytes lzf made into these: a byte before each piece says how long it is."""
    place = size = 0
    while place < len(raw):
        control = raw[place]
        if control < 32:  # so many and one bytes as they are
            size, place = size + control + 1, place + control + 2
        elif control < 224:  # bytes that were there before, as many as the first three bits say and two
            size, place = size + (control >> 5) + 2, place + 2
        else:  # and as many as the next byte says
            size, place = size + raw[place + 1] + 9, place + 3
    return size
