"""Datasets of an HDF5 file that somebody else wrote, checked before they are read.

HDF5 inflates a chunk to whatever its bytes inflate to, however large chunks are said to be, and several times over if
the file says so. Chunks that deflate made are therefore inflated here, to the size of a chunk and no further.
"""

import functools
import itertools
import math
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from irleed._npz import printable
from irleed.data.formats.base import library, refuse
from irleed.data.limits import ALWAYS, EXPANSION

if TYPE_CHECKING:
    from irleed.data.formats.hdf5_gate import Visit

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
KNOWN = ((), (SHUFFLE,), (DEFLATE,), (LZF,), (SHUFFLE, DEFLATE), (SHUFFLE, LZF))  # and a checksum before or after
LARGEST_LZF = 1 << 22  # bytes of a compressed chunk, which become at most 88 times as many
KEPT = 1 << 25  # bytes of chunks kept in memory, those inflated last; one of them at least
OBJECT = 128  # bytes that Python takes for a short text or sequence


class Values:
    """A dataset with its values in this file, stored in a way that is known."""

    def __init__(self, visit: "Visit", dataset: Any, name: str):
        self.visit, self.name, self._id = visit, name, dataset
        self.where = f"{printable(visit.path)}, {printable(name)}"
        self._plan = dataset.get_create_plist()
        h5d = library("h5py", "formats").h5d
        # Before the shape is asked for: to answer, HDF5 opens the files that a virtual dataset names.
        if self._plan.get_layout() == h5d.VIRTUAL or self._plan.get_external_count():
            refuse(self.where, "values in another file", "values in this file", "copy them into one file")
        self.shape: tuple[int, ...] = dataset.shape
        self.chunks: tuple[int, ...] | None = self._plan.get_chunk() if self._plan.get_layout() == h5d.CHUNKED else None
        self._kept: dict[tuple[int, ...], bytes] = {}

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
        size = self.visit.path.stat().st_size
        if self.chunks is None:
            if self._id.get_storage_size() != math.prod(self.shape) * self._id.get_type().get_size():
                self._refuse_missing()
            return
        most = int(ALWAYS * max(1.0, self.visit.budget.expansion / EXPANSION))
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        if max(self._chunk_size, row) > most:
            got, expected = f"chunks or rows of {max(self._chunk_size, row):,} bytes", f"at most {most:,}"
            remedy = "write it with smaller ones; if you trust this file, raise the limit with --expansion"
            refuse(self.where, got, expected, remedy)
        core = tuple(number for number in self._filters if number != FLETCHER32)
        if core not in KNOWN or self._filters.count(FLETCHER32) > 1:
            got = f"the filters {', '.join(map(str, self._filters))}"
            refuse(self.where, got, "gzip or lzf, once, and shuffle before", "write it again with h5py")
        expected = math.prod(-(-rows // chunk) for rows, chunk in zip(self.shape, self.chunks, strict=True))
        # A chunk is a byte at least. Only compressed ones can be smaller or larger than they say.
        if expected > size or (self._compressed and self._listed(expected) != expected):
            self._refuse_missing()
        if not self._compressed and self._id.get_num_chunks() != expected:
            self._refuse_missing()

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
        if self._own:
            return self._inflated_rows(begin, end)
        if DEFLATE in self._filters:
            for place in self._places(begin, end):
                self._inflated(place)
        return self._stored(begin, end)

    def in_one_block(self) -> int | None:
        """Where in the file the values begin, if they lie there as NumPy would have them in memory."""
        plain = self.chunks is None and self.dtype.kind in "iuf" and self._as_numpy
        return self._id.get_offset() if plain else None

    @functools.cached_property
    def _filters(self) -> list[int]:
        return [self._plan.get_filter(i)[0] for i in range(self._plan.get_nfilters())]

    @property
    def _compressed(self) -> bool:
        return bool({DEFLATE, LZF} & set(self._filters))

    @property
    def _chunk_size(self) -> int:
        """Bytes of a chunk as HDF5 has it in memory."""
        return math.prod(self.chunks or ()) * self._id.get_type().get_size()

    @functools.cached_property
    def _as_numpy(self) -> bool:
        return self._id.get_type() == library("h5py", "formats").h5t.py_create(self.dtype)

    @functools.cached_property
    def _own(self) -> bool:
        """Can chunks be made into an array here? Those with checksums are left to HDF5, which looks at them."""
        plain = not self.dtype.hasobject and self._as_numpy
        return plain and DEFLATE in self._filters and FLETCHER32 not in self._filters

    def _listed(self, expected: int) -> int:
        """How many chunks there are; refused if one takes more bytes than it could need."""
        count, most = 0, self._chunk_size + self._chunk_size // 16 + 1024
        if LZF in self._filters:
            most = min(most, LARGEST_LZF)

        def add(chunk: Any) -> bool | None:
            nonlocal count
            count += 1
            return True if chunk.size > most or count > expected else None  # ends the iteration

        if self._id.chunk_iter(add) and count <= expected:
            got, expected_size = "a compressed chunk that is larger than it should be", f"at most {most:,} bytes"
            refuse(self.where, got, expected_size, "write it again with smaller chunks")
        return count

    def _places(self, begin: int, end: int) -> Iterator[tuple[int, ...]]:
        """Where the chunks begin that hold some of these rows."""
        chunks = self.chunks or (1,)
        axes = [range(0, size, chunk) for size, chunk in zip(self.shape[1:], chunks[1:], strict=True)]
        return itertools.product(range(begin // chunks[0] * chunks[0], end, chunks[0]), *axes)

    def _inflated(self, place: tuple[int, ...]) -> bytes:
        """The bytes of a chunk before deflate; refused if they are not as many as a chunk has."""
        if place in self._kept:
            return self._kept[place]
        skipped, raw = self._id.read_direct_chunk(place)
        applied = [number for i, number in enumerate(self._filters) if not skipped >> i & 1]
        if DEFLATE in applied:
            size = self._chunk_size + 4 * (FLETCHER32 in applied[: applied.index(DEFLATE)])
            inflate = zlib.decompressobj()
            raw = inflate.decompress(raw, size + 1)
            if len(raw) != size or not inflate.eof:
                got, expected = "a chunk that inflates to another size", f"{size:,} bytes"
                refuse(f"{self.where}, at {place}", got, expected, "copy or write it again")
        elif len(raw) < self._chunk_size:
            raise ValueError("a chunk is too short")
        if SHUFFLE in applied and self._own:
            size = self.dtype.itemsize
            raw = np.frombuffer(raw, np.uint8, self._chunk_size).reshape(size, -1).T.tobytes()
        self._kept[place] = raw
        while len(self._kept) > 1 and len(self._kept) * self._chunk_size > KEPT:
            del self._kept[next(iter(self._kept))]
        return raw

    def _inflated_rows(self, begin: int, end: int) -> np.ndarray:
        values = np.empty((end - begin, *self.shape[1:]), self.dtype)
        chunks = self.chunks or ()
        for place in self._places(begin, end):
            block = np.frombuffer(self._inflated(place), self.dtype, math.prod(chunks)).reshape(chunks)
            low = (max(begin, place[0]), *place[1:])
            high = [min(p + c, s) for p, c, s in zip(place, chunks, (end, *self.shape[1:]), strict=True)]
            there = tuple(slice(a - p, b - p) for a, b, p in zip(low, high, place, strict=True))
            here = (slice(low[0] - begin, high[0] - begin), *map(slice, low[1:], high[1:]))
            values[here] = block[there]
        return values

    def _stored(self, begin: int, end: int) -> np.ndarray:
        """Rows as HDF5 reads them."""
        return np.asarray(library("h5py", "formats").Dataset(self._id)[begin:end])

    def _texts(self, begin: int, end: int) -> np.ndarray:
        """Texts or sequences, a few at a time: many may be in the same place, and be more than the file in all."""
        values, taken = np.empty((end - begin, *self.shape[1:]), object), 0
        most = max(ALWAYS, self.visit.path.stat().st_size)
        step = max(1, ALWAYS // self.visit.longest_text // max(1, math.prod(self.shape[1:])))
        for first in range(begin, end, step):
            last = min(first + step, end)
            if DEFLATE in self._filters:
                for place in self._places(first, last):
                    self._inflated(place)
            part = self._stored(first, last)
            values[first - begin : last - begin] = part
            taken += sum(len(one) * getattr(one, "itemsize", 1) for one in part.flat)
            if taken > most:
                got, expected = f"{taken:,} bytes of text or more", f"at most {most:,}"
                refuse(self.where, got, expected, "write it again, with every text stored once")
        return values

    def _refuse_missing(self) -> None:
        refuse(self.where, "values that were never written", "all of them", "write the file again")
