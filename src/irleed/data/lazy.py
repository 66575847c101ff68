"""Rows of observations that stay on disk until they are indexed, and the sources they are read from."""

import abc
import dataclasses
import io
import itertools
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import CORRUPT, npy_header
from irleed._io.text import printable
from irleed._typing import Array, Int, Shaped
from irleed.errors import ConfigError, DataError


class Source(abc.ABC):
    """A source of rows of one shape and dtype, to be read in any thread, or in another process once pickled."""

    shape: tuple[int, ...]  # rows first
    dtype: np.dtype

    @abc.abstractmethod
    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, in increasing order."""


class InMemory(Source):
    """Rows of an array in memory."""

    def __init__(self, values: np.ndarray):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the array."""
        return self.values[rows]


@dataclasses.dataclass(frozen=True)
class InFile(Source):
    """Rows of an array that is stored contiguously in a file, as in ``.npy`` files or in one block of HDF5.

    They are not memory-mapped: truncating the file would then end the process.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the file, consecutive ones at once."""
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        room, size = values.reshape(-1).view(np.uint8).data, values.itemsize * math.prod(self.shape[1:])
        try:
            with self.path.open("rb", buffering=0) as file:
                for begin, end in runs(rows):
                    file.seek(self.offset + int(rows[begin]) * size)
                    _fill(file, room[begin * size : end * size])
        except (OSError, EOFError) as error:
            got = f"content that cannot be read ({' '.join(str(error).split())})"
            expected, remedy = "the rows that were there", "copy or write it again"
            raise DataError(printable(self.path), got=got, expected=expected, remedy=remedy) from error
        return values.astype(self.dtype.newbyteorder("="), copy=False)


def runs(rows: Int[np.ndarray, " K"]) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of consecutive rows, which are in increasing order."""
    return itertools.pairwise([0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)])


def _fill(file: io.RawIOBase, room: memoryview) -> None:
    while room:
        count = file.readinto(room)
        if not count:
            raise EOFError("the file ends before them")
        room = room[count:]


LARGE = 1 << 28  # bytes of observations from which on they stay on disk
MOST = 1 << 32  # bytes that may be read at once; more would exhaust memory
CHUNK = 1 << 25  # bytes of a chunk, where all of a large array is read


class SideBySide(Source):
    """The same rows of several arrays, as concatenated vectors."""

    def __init__(self, parts: "Sequence[np.ndarray | LazyRows]"):
        self.parts = tuple(parts)
        self.shape = (parts[0].shape[0], sum(math.prod(part.shape[1:]) for part in parts))
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of all, joined."""
        return np.concatenate([part[rows].reshape(len(rows), -1) for part in self.parts], 1)


class LazyRows:
    """Rows of one or more sources, as a list of stretches. Only indexing the first axis reads."""

    def __init__(self, sources: Sequence[Source], source: Any, first: Any, length: Any):
        """Stretch k is `length[k]` rows of `sources[source[k]]` from `first[k]` on."""
        self.sources = tuple(sources)
        self.source, self.first = np.asarray(source, np.int64), np.asarray(first, np.int64)
        self.start = np.concatenate([[0], np.cumsum(np.asarray(length, np.int64))])
        self.dtype = np.result_type(*(part.dtype for part in self.sources)).newbyteorder("=")
        self.shape = (int(self.start[-1]), *self.sources[0].shape[1:])

    @classmethod
    def of(cls, source: Source) -> "LazyRows":
        """All rows of a source."""
        return cls((source,), [0], [0], [source.shape[0]])

    def __repr__(self) -> str:
        return f"LazyRows({self.dtype} of shape {self.shape})"

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes, once read."""
        return self.size * self.dtype.itemsize

    def __getitem__(self, index: Any) -> np.ndarray:
        """Read rows by number, slice, or array of numbers."""
        if isinstance(index, int | np.integer):
            return self._read(self._numbers(np.array([index])))[0]
        if isinstance(index, slice):
            return self._read(np.arange(*index.indices(len(self))))
        return self._read(self._numbers(np.asarray(index)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All rows, if they are not too large."""
        return self[:].astype(dtype or self.dtype, copy=False)

    def spans(self, first: Int[np.ndarray, " K"], length: Int[np.ndarray, " K"]) -> "LazyRows":
        """The rows ``first[k] .. first[k] + length[k] - 1`` of every k, concatenated, without reading."""
        stop = first + length
        low, high = (np.searchsorted(self.start, edge, side="right") - 1 for edge in (first, stop - 1))
        count = high - low + 1  # stretches that each span reaches into
        span = np.repeat(np.arange(len(first)), count)
        stretch = np.arange(count.sum()) + np.repeat(low - (np.cumsum(count) - count), count)
        begin = np.maximum(self.start[stretch], first[span])
        end = np.minimum(self.start[stretch + 1], stop[span])
        there = self.first[stretch] + begin - self.start[stretch]
        return LazyRows(self.sources, self.source[stretch], there, end - begin)

    def _numbers(self, index: np.ndarray) -> Int[np.ndarray, " K"]:
        """Numbers of rows, counted from the end if negative."""
        if index.dtype.kind not in "iu" or index.ndim != 1:
            raise TypeError(f"rows are chosen by a list of whole numbers, not by {index.dtype} of shape {index.shape}")
        rows = np.where(index < 0, index + len(self), index).astype(np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"rows {index.min()} to {index.max()} of {len(self)}")
        return rows

    def _read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        check_size(len(rows) * self.nbytes // max(len(self), 1))
        stretch = np.searchsorted(self.start, rows, side="right") - 1
        source, there = self.source[stretch], self.first[stretch] + rows - self.start[stretch]
        used = np.unique(source)
        if not len(used):
            return np.empty((0, *self.shape[1:]), self.dtype)
        if len(used) == 1 and np.all(there[1:] > there[:-1]):
            return self.sources[used[0]].read(there).astype(self.dtype, copy=False)
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(source, kind="stable")
        for number, mine in zip(used, np.split(order, np.flatnonzero(np.diff(source[order])) + 1), strict=True):
            distinct, back = np.unique(there[mine], return_inverse=True)
            values[mine] = self.sources[number].read(distinct)[back]
        return values


def check_size(size: int) -> None:
    """Refuse to read more than `MOST` bytes at once."""
    if size > MOST:
        got, expected = f"{size / 1e9:.1f} GB to be read at once", f"at most {MOST / 1e9:.1f}"
        remedy = "train on irleed.data.Batches, or take some of the episodes"
        raise ConfigError("observations", got=got, expected=expected, remedy=remedy)


def part(rows: Any, start: int | np.integer, stop: int | np.integer) -> Any:
    """The rows from `start` to before `stop`, without reading."""
    if isinstance(rows, LazyRows):
        return rows.spans(np.array([start]), np.array([stop - start]))
    return rows[start:stop]


def spans(
    rows: Shaped[Array | LazyRows, "R *obs"], first: Int[np.ndarray, " K"], length: Int[np.ndarray, " K"]
) -> Shaped[Array | LazyRows, "M *obs"]:
    """The rows ``first[k] .. first[k] + length[k] - 1`` of every k, concatenated."""
    if isinstance(rows, LazyRows):
        return rows.spans(first, length)
    before = np.cumsum(length) - length
    return rows[np.repeat(first - before, length) + np.arange(length.sum())]


def settled(rows: LazyRows) -> np.ndarray | LazyRows:
    """Read the rows unless they are large."""
    return rows if rows.nbytes >= LARGE else rows[:]


def concatenate(parts: Sequence[np.ndarray | LazyRows]) -> np.ndarray | LazyRows:
    """Concatenated rows; lazy if any of them are."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        return np.concatenate(arrays)
    lazy = [part if isinstance(part, LazyRows) else LazyRows.of(InMemory(part)) for part in parts]
    sources = list({id(source): source for part in lazy for source in part.sources}.values())
    place = {id(source): number for number, source in enumerate(sources)}
    numbers = [np.array([place[id(source)] for source in part.sources])[part.source] for part in lazy]
    columns = ([part.first for part in lazy], [np.diff(part.start) for part in lazy])
    return LazyRows(sources, np.concatenate(numbers), *(np.concatenate(column) for column in columns))


def chunks(rows: Array | LazyRows, size: int = CHUNK) -> Iterator[tuple[int, np.ndarray]]:
    """All rows in chunks, each with the number of its first row."""
    step = max(1, size * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), step):
        yield start, np.asarray(rows[start : start + step])


def member(path: Path, name: str) -> InFile | None:
    """A large array of an ``.npz`` file, if it was stored without compression."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
        with zipfile.ZipFile(path) as archive, path.open("rb") as stream:
            entry = archive.getinfo(f"{name}.npy")
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < LARGE:
                return None
            stream.seek(entry.header_offset + 26)  # the lengths of the name and of what follows it
            lengths = np.frombuffer(stream.read(4), "<u2").astype(int)
            stream.seek(begin := entry.header_offset + 30 + int(lengths.sum()))
            shape, by_column, dtype = npy_header(stream)
            offset = stream.tell()
            whole = math.prod(shape) * dtype.itemsize == entry.file_size - (offset - begin)
            if by_column or dtype.kind not in "biuf" or not shape or not whole or len(shape) > 1 and 0 in shape:
                return None
            if begin + entry.file_size > path.stat().st_size:
                return None
            return InFile(path.absolute(), offset, shape, dtype)
    except CORRUPT:
        return None
