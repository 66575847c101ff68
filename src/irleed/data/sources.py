"""Places that rows of observations can be read from."""

import abc
import dataclasses
import io
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from irleed._npz import printable
from irleed._typing import Int
from irleed.errors import DataError, problem


class Source(abc.ABC):
    """A place that rows of one shape and dtype can be read from, in any thread, and in any process it is sent to."""

    shape: tuple[int, ...]  # rows first
    dtype: np.dtype

    @abc.abstractmethod
    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, which increase from one to the next."""


class InMemory(Source):
    """Rows of an array, among others that are not."""

    def __init__(self, values: np.ndarray):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the array."""
        return self.values[rows]


@dataclasses.dataclass(frozen=True)
class InFile(Source):
    """Rows of an array that lies in a file as it would in memory: of a ``.npy`` file, or of HDF5 in one block.

    They are read where they are put; in a map of the file, one that was cut short since would end the process.
    """

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the file, each run of neighbours at once."""
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        room, size = values.reshape(-1).view(np.uint8).data, values.itemsize * math.prod(self.shape[1:])
        try:
            with self.path.open("rb", buffering=0) as file:
                for begin, end in runs(rows):
                    file.seek(self.offset + int(rows[begin]) * size)
                    _fill(file, room[begin * size : end * size])
        except (OSError, EOFError) as error:
            got = f"what cannot be read ({' '.join(str(error).split())})"
            expected, remedy = "the rows that were there", "copy or write it again"
            raise DataError(problem(printable(self.path), got=got, expected=expected, remedy=remedy)) from error
        return values.astype(self.dtype.newbyteorder("="), copy=False)


def runs(rows: Int[np.ndarray, " K"]) -> Iterator[tuple[int, int]]:
    """Where each run of neighbours begins and ends, of rows that increase."""
    return itertools.pairwise([0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)])


def _fill(file: io.RawIOBase, room: memoryview) -> None:
    while room:
        count = file.readinto(room)
        if not count:
            raise EOFError("the file ends before them")
        room = room[count:]
