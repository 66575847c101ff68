"""Datasets of an HDF5 file that somebody else wrote, checked before they are read.

HDF5 decompresses a chunk to whatever its bytes become, several times over if the file says so. That may be more than a
chunk has, and any amount of memory; or less, and then values are whatever was in memory before. So `Chunks` are
decompressed one by one, to the size of a chunk and no further.
"""

import dataclasses
import functools
import itertools
import math
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import ALWAYS, EXPANSION, Budget
from irleed._io.text import printable
from irleed.data.formats import library, refuse

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


OBJECT = 128  # bytes that Python takes for a short text or sequence
COLLECTION = re.compile(rb"GCOL.{4}(.{8})", re.DOTALL)  # of texts and sequences of various lengths, with its size


@dataclasses.dataclass
class Visit:
    """A file that is open, and what a read of it may still take: memory, and entries that are looked up."""

    path: Path
    file: Any  # h5py's
    budget: Budget
    lookups: int

    def count(self, entries: int = 1) -> None:
        """Count entries that are looked up; in a file whose groups contain each other there is no end of them."""
        self.lookups -= entries
        if self.lookups < 0:
            got, expected = "more entries than a file of its size holds", "every group and dataset in one place"
            refuse(self.path, got, expected, "write it again without links")

    @functools.cached_property
    def longest_text(self) -> int:
        """Bytes that no text and no sequence has more of: those of the largest collection of such, or of all the file.

        A large file is not searched: its texts are then read one by one.
        """
        size, largest, before = self.path.stat().st_size, 1, b""
        if size >= ALWAYS:
            return size
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                block = before + block
                for found in COLLECTION.finditer(block):
                    largest = max(largest, int.from_bytes(found[1], "little"))
                before = block[-15:]
        return min(largest, size)


class Values:
    """A dataset with its values in this file, stored in a way that is known."""

    def __init__(self, visit: Visit, dataset: Any, name: str):
        self.visit, self.name, self._id = visit, name, dataset
        self.where = f"{printable(visit.path)}, {printable(name)}"
        h5d, plan = library("h5py", "formats").h5d, dataset.get_create_plist()
        layout = plan.get_layout()
        # Before the shape is asked for: to answer, HDF5 opens the files that a virtual dataset names.
        if layout == h5d.VIRTUAL or plan.get_external_count():
            refuse(self.where, "values in another file", "values in this file", "copy them into one file")
        self.shape: tuple[int, ...] = dataset.shape
        self.chunks = Chunks(dataset, plan, self._itemsize(), self.where) if layout == h5d.CHUNKED else None

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @functools.cached_property
    def dtype(self) -> np.dtype:
        """Of numbers or texts; anything else is refused."""
        h5t, kind = library("h5py", "formats").h5t, self._id.get_type()
        plain = kind.get_class() in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM, h5t.STRING)
        if not plain and not (kind.get_class() == h5t.VLEN and kind.get_super().get_class() == h5t.INTEGER):
            refuse(self.where, "values of an unusual type", "numbers or text", "encode them as numbers")
        return self._id.dtype

    @property
    def nbytes(self) -> int:
        """Bytes, once read; of texts and sequences of various lengths, those that empty ones take."""
        return math.prod(self.shape) * (OBJECT if self.dtype.hasobject else self.dtype.itemsize)

    def claim(self) -> None:
        """Count the memory of all values; refused if it is too much, or if values are missing or oddly stored."""
        self.check()
        self.visit.budget.take(self.where, self.nbytes)

    def check(self) -> None:
        """Refuse values that were not all written, or are stored in a way that could take any amount of memory."""
        if self.chunks is None:
            whole = self._id.get_storage_size() == math.prod(self.shape) * self._itemsize()
        else:
            most = int(ALWAYS * max(1.0, self.visit.budget.expansion / EXPANSION))
            size = max(self.chunks.nbytes, math.prod(self.shape[1:]) * self.dtype.itemsize)
            if size > most:
                got, remedy = f"chunks or rows of {size:,} bytes", "write it with smaller ones"
                remedy = f"{remedy}; if you trust this file, raise the limit with --expansion"
                refuse(self.where, got, f"at most {most:,}", remedy)
            whole = self.chunks.check(self.visit.path.stat().st_size)  # a chunk takes a byte at least
        if not whole:
            refuse(self.where, "values that were never written", "all of them", "write the file again")

    def read(self) -> np.ndarray:
        """All values."""
        self.claim()
        if self.shape:
            return self.rows(0, len(self))
        return np.asarray(self._dataset[()])

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Rows from one to another, of values that were checked."""
        if self.dtype.hasobject:
            return self._texts(begin, end)
        if self.chunks is None or not self._inflatable:
            return self._stored(begin, end)
        values = np.empty((end - begin, *self.shape[1:]), self.dtype)
        for place in self.chunks.places(begin, end):
            low = (max(begin, place[0]), *place[1:])
            room = zip(place, self.chunks.shape, (end, *self.shape[1:]), strict=True)
            high = [min(start + chunk, size) for start, chunk, size in room]
            there = tuple(slice(a - p, b - p) for a, b, p in zip(low, high, place, strict=True))
            here = (slice(low[0] - begin, high[0] - begin), *map(slice, low[1:], high[1:]))
            values[here] = self.chunks.array(place, self.dtype)[there]
        return values

    def in_one_block(self) -> int | None:
        """Where in the file the values begin, if they lie there as NumPy would have them in memory."""
        plain = self.chunks is None and self.dtype.kind in "iuf" and self._as_numpy
        return self._id.get_offset() if plain else None

    @functools.cached_property
    def _dataset(self) -> Any:
        return library("h5py", "formats").Dataset(self._id, readonly=True)  # which is faster

    def _itemsize(self) -> int:
        """Bytes of a value in the file: of those of various lengths, their length, and the address and number of a
        place."""
        h5t, kind = library("h5py", "formats").h5t, self._id.get_type()
        various = kind.get_class() == h5t.VLEN or (kind.get_class() == h5t.STRING and kind.is_variable_str())
        return 8 + self.visit.file.id.get_create_plist().get_sizes()[0] if various else kind.get_size()

    @functools.cached_property
    def _as_numpy(self) -> bool:
        return self._id.get_type() == library("h5py", "formats").h5t.py_create(self.dtype)

    @functools.cached_property
    def _inflatable(self) -> bool:
        """Can chunks be made into an array without HDF5? Those with checksums are left to it."""
        deflated = self.chunks is not None and DEFLATE in self.chunks.filters and not self.chunks.checked
        return deflated and not self.dtype.hasobject and self._as_numpy

    def _stored(self, begin: int, end: int) -> np.ndarray:
        """Rows as HDF5 reads them."""
        if self.chunks is not None:
            self.chunks.verify(begin, end)
        return np.asarray(self._dataset[begin:end])

    def _texts(self, begin: int, end: int) -> np.ndarray:
        """Texts or sequences, a few at a time: many may be in the same place, and be more than the file in all."""
        values, taken = np.empty((end - begin, *self.shape[1:]), object), 0
        most = max(ALWAYS, self.visit.path.stat().st_size)
        step = max(1, ALWAYS // self.visit.longest_text // max(1, math.prod(self.shape[1:])))
        for first in range(begin, end, step):
            last = min(first + step, end)
            part = self._stored(first, last)
            values[first - begin : last - begin] = part
            taken += sum(len(one) * getattr(one, "itemsize", 1) for one in part.flat)
            if taken > most:
                got, expected = f"{taken:,} bytes of text or more", f"at most {most:,}"
                refuse(self.where, got, expected, "write it again, with every text stored once")
        return values
