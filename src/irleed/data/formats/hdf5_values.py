"""Datasets of an HDF5 file that somebody else wrote, checked before they are read."""

import dataclasses
import functools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed.data.formats.base import library, refuse
from irleed.data.formats.hdf5_chunks import DEFLATE, Chunks
from irleed.data.limits import ALWAYS, EXPANSION, Budget

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
        return np.asarray(library("h5py", "formats").Dataset(self._id)[()])

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
        return np.asarray(library("h5py", "formats").Dataset(self._id)[begin:end])

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
