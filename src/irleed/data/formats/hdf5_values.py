"""Datasets of HDF5 files of unknown origin, checked before they are read.

HDF5 decompresses a chunk to any size, several times if the file has several filters. The result may take any amount of
memory, or be smaller than a chunk, and values are then uninitialised. So `Chunks` are decompressed one by one, to the
size of a chunk at most.
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
from irleed.data.formats import refuse
from irleed.errors import library

SHUFFLE, DEFLATE, FLETCHER32, LZF = 2, 1, 3, 32000
KNOWN = ((), (SHUFFLE,), (DEFLATE,), (LZF,), (SHUFFLE, DEFLATE), (SHUFFLE, LZF))  # and a checksum before or after
CHECKSUM = 4  # bytes
KEPT = 1 << 25  # bytes of the latest chunks kept in memory; at least one chunk


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
        """Whether chunks have checksums."""
        return FLETCHER32 in self.filters

    @property
    def compressed(self) -> bool:
        """Whether chunks are compressed."""
        return bool({DEFLATE, LZF} & set(self.filters))

    def check(self, most: int) -> bool:
        """Whether all chunks are stored, at `most` that many; unknown filters and wrong sizes are refused."""
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
        """The offsets of the chunks with rows from `begin` to `end`."""
        rows, *sizes = self.shape
        axes = [range(0, size, chunk) for size, chunk in zip(self._id.shape[1:], sizes, strict=True)]
        return itertools.product(range(begin // rows * rows, end, rows), *axes)

    def verify(self, begin: int, end: int) -> None:
        """Refuse compressed chunks with these rows that decompress to another size."""
        if self.compressed:
            for place in self.places(begin, end):
                self._plain(place)

    def array(self, place: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The values of a chunk without checksums and lzf, of a dtype of NumPy."""
        return np.frombuffer(self._plain(place, dtype.itemsize), dtype).reshape(self.shape)

    def _applied(self, skipped: int) -> list[int]:
        return [number for i, number in enumerate(self.filters) if not skipped >> i & 1]

    def _plain(self, place: tuple[int, ...], itemsize: int = 0) -> bytes:
        """A decompressed chunk, unshuffled for an `itemsize`; of lzf only the size is checked."""
        if place in self._kept:
            return self._kept[place]
        skipped, raw = self._id.read_direct_chunk(place)
        applied = self._applied(skipped)
        size, found = self.nbytes + CHECKSUM * applied.count(FLETCHER32), len(raw)
        if {DEFLATE, LZF} & set(applied):
            if applied[-1] == FLETCHER32:  # of the compressed bytes, after them
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
    """Inflated bytes, at most `size` and one."""
    return zlib.decompressobj().decompress(raw, size + 1)


def _lzf_size(raw: bytes) -> int:
    """The decompressed size of lzf bytes, whose pieces begin with their length."""
    place = size = 0
    while place < len(raw):
        control = raw[place]
        if control < 32:  # control + 1 literal bytes
            size, place = size + control + 1, place + control + 2
        elif control < 224:  # a back reference of the first three bits + 2 bytes
            size, place = size + (control >> 5) + 2, place + 2
        else:  # and a long one, with another byte of length
            size, place = size + raw[place + 1] + 9, place + 3
    return size


OBJECT = 128  # bytes of a short text or sequence in Python
COLLECTION = re.compile(rb"GCOL.{4}(.{8})", re.DOTALL)  # of variable-length texts and sequences, with its size


@dataclasses.dataclass
class Visit:
    """An open file, with the budget of memory and of lookups of a read."""

    path: Path
    file: Any  # of h5py
    budget: Budget
    lookups: int

    def count(self, entries: int = 1) -> None:
        """Count lookups, which have no end in a file whose groups contain each other."""
        self.lookups -= entries
        if self.lookups < 0:
            got, expected = "more entries than a file of its size holds", "every group and dataset in one place"
            refuse(self.path, got, expected, "write it again without links")

    @functools.cached_property
    def longest_text(self) -> int:
        """A bound on the bytes of a text or sequence: the largest collection, or the size of the file.

        Large files are not searched; their texts are read one by one.
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
    """A dataset with its values in this file, in a known layout."""

    def __init__(self, visit: Visit, dataset: Any, name: str):
        self.visit, self.name, self._id = visit, name, dataset
        self.where = f"{printable(visit.path)}, {printable(name)}"
        h5d, plan = library("h5py", "formats").h5d, dataset.get_create_plist()
        layout = plan.get_layout()
        # Before the shape is read: for that HDF5 opens the files of a virtual dataset.
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
        """The dtype of numbers or texts; others are refused."""
        h5t, kind = library("h5py", "formats").h5t, self._id.get_type()
        plain = kind.get_class() in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM, h5t.STRING)
        if not plain and not (kind.get_class() == h5t.VLEN and kind.get_super().get_class() == h5t.INTEGER):
            refuse(self.where, "values of an unusual type", "numbers or text", "encode them as numbers")
        return self._id.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in memory; of variable-length texts and sequences, those of empty ones."""
        return math.prod(self.shape) * (OBJECT if self.dtype.hasobject else self.dtype.itemsize)

    def claim(self) -> None:
        """Check the storage, and count the memory of all values against the budget."""
        self.check()
        self.visit.budget.take(self.where, self.nbytes)

    def check(self) -> None:
        """Refuse values that were not all written, or whose storage could take any amount of memory."""
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
        """Rows from `begin` to `end` of checked values."""
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
        """The offset of the values in the file, if they are stored as a NumPy array."""
        plain = self.chunks is None and self.dtype.kind in "iuf" and self._as_numpy
        return self._id.get_offset() if plain else None

    @functools.cached_property
    def _dataset(self) -> Any:
        return library("h5py", "formats").Dataset(self._id, readonly=True)  # which is faster

    def _itemsize(self) -> int:
        """Bytes of a value in the file; of variable-length ones, those of the length and the reference."""
        h5t, kind = library("h5py", "formats").h5t, self._id.get_type()
        various = kind.get_class() == h5t.VLEN or (kind.get_class() == h5t.STRING and kind.is_variable_str())
        return 8 + self.visit.file.id.get_create_plist().get_sizes()[0] if various else kind.get_size()

    @functools.cached_property
    def _as_numpy(self) -> bool:
        return self._id.get_type() == library("h5py", "formats").h5t.py_create(self.dtype)

    @functools.cached_property
    def _inflatable(self) -> bool:
        """Whether chunks can be inflated here; those with checksums are read by HDF5."""
        deflated = self.chunks is not None and DEFLATE in self.chunks.filters and not self.chunks.checked
        return deflated and not self.dtype.hasobject and self._as_numpy

    def _stored(self, begin: int, end: int) -> np.ndarray:
        """Rows read by HDF5."""
        if self.chunks is not None:
            self.chunks.verify(begin, end)
        return np.asarray(self._dataset[begin:end])

    def _texts(self, begin: int, end: int) -> np.ndarray:
        """Texts or sequences, a few at a time: several may share storage, and be larger than the file in all."""
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
