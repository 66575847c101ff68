"""What the readers of HDF5 files have in common: opening one, and taking checked arrays out of it."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io import CORRUPT, printable
from irleed._typing import Bool, Int, Shaped
from irleed.data import lazy
from irleed.data.formats.base import joined, library, refuse
from irleed.data.lazy import InFile, LazyRows, Source, runs
from irleed.data.validation import listed, native
from irleed.errors import ConfigError

MAGIC = b"\x89HDF\r\n\x1a\n"


class Reopened:
    """A file for as long as it is open; once it is closed, or in another process, it is opened when it is next read."""

    def __init__(self, path: Path, file: Any = None):
        self.path, self._file, self._process = path.absolute(), file, os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Reopened, (self.path,)

    def dataset(self, name: str) -> Any:
        """A dataset of the file."""
        if not self._file or self._process != os.getpid():  # a closed file counts as false
            self._file, self._process = library("h5py", "formats").File(self.path, "r"), os.getpid()
        return self._file[name]


class Stored(Source):
    """Rows of a dataset."""

    def __init__(self, file: Reopened, name: str, shape: tuple[int, ...], dtype: np.dtype):
        self.file, self.name, self.shape, self.dtype = file, name, shape, dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, each run of neighbours at once: lists of rows are what HDF5 is slow at."""
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        try:
            dataset = self.file.dataset(self.name)
            for begin, end in runs(rows):
                values[begin:end] = dataset[int(rows[begin]) : int(rows[end - 1]) + 1]
        except CORRUPT as error:
            where, got = f"{printable(self.file.path)}, {self.name}", f"what cannot be read ({one_line(error)})"
            refuse(where, got, "the rows that were there", "copy or write it again")
        return values


def is_hdf5(path: Path) -> bool:
    """Does the file start as HDF5 files do?"""
    try:
        if not path.is_file():
            return False
        return bool(library("h5py", "formats").is_hdf5(path))
    except ConfigError:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except CORRUPT:
        return False


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file, open for reading; whatever h5py raises until it is closed again is a `DataError`."""
    h5py = library("h5py", "formats")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except CORRUPT as error:
        got = f"a cut or damaged file ({one_line(error)})"
        refuse(path, got, "a whole HDF5 file", "copy or write it again")


def one_line(error: BaseException) -> str:
    """What an error says, short and printable."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


def is_group(entry: object) -> bool:
    """Is it a group, not a dataset and not None?"""
    return isinstance(entry, library("h5py", "formats").Group)


def is_dataset(entry: object) -> bool:
    """Is it a dataset, not a group and not None?"""
    return isinstance(entry, library("h5py", "formats").Dataset)


def place(path: Path, entry: Any, name: str = "") -> str:
    """The file and where in it, as messages show it."""
    return f"{printable(path)}, {entry.name.rstrip('/')}/{name}".rstrip("/")


def array(path: Path, group: Any, name: str) -> Shaped[np.ndarray, "R ..."]:
    """The rows of a dataset, of any type."""
    return sound(path, group, name)[()]


def rows(path: Path, group: Any, name: str, file: Reopened, large: bool = False) -> np.ndarray | LazyRows:
    """The rows of a dataset of numbers; those of a large file are read later, and others of which it is known."""
    dataset = sound(path, group, name)
    if not large and dataset.nbytes < lazy.LARGE and not is_large(path):
        return native(dataset[()], place(path, group, name))
    dtype = native(np.empty(0, dataset.dtype), place(path, group, name)).dtype
    plain = in_one_block(dataset)
    if plain is not None and path.stat().st_size >= plain + dataset.nbytes:
        return LazyRows.of(InFile(file.path, plain, dataset.shape, dataset.dtype))
    return LazyRows.of(Stored(file, dataset.name, dataset.shape, dtype))


def in_one_block(dataset: Any) -> int | None:
    """Where in the file the values of a dataset begin, if they lie there as NumPy would have them in memory."""
    numbers = dataset.chunks is None and dataset.dtype.kind in "iuf"
    usual = numbers and dataset.id.get_type() == library("h5py", "formats").h5t.py_create(dataset.dtype)
    return dataset.id.get_offset() if usual else None


def sound(path: Path, group: Any, name: str) -> Any:
    """A dataset; refused if it is missing, empty, or not all in this file."""
    where, dataset = place(path, group, name), group.get(name)
    if not is_dataset(dataset):
        got = "no dataset" if dataset is None else "a group"
        there = listed(sorted(group), most=20) or "nothing"
        refuse(where, got, "a dataset", f"in {place(path, group)} there is {there}")
    if not dataset.shape or dataset.shape[0] == 0:
        refuse(where, f"shape {dataset.shape}", "at least one row", "leave empty episodes out")
    if dataset.is_virtual or dataset.external:
        refuse(where, "values in another file", "values in this file", "copy them into one file")
    if not _written(dataset):
        refuse(where, "values that were never written", "all of them", "write the file again")
    return dataset


def numbers(path: Path, group: Any, name: str) -> Shaped[np.ndarray, "R ..."]:
    """The rows of a dataset of numbers."""
    return native(array(path, group, name), place(path, group, name))


def column(values: Shaped[np.ndarray, "R ..."], where: str) -> Shaped[np.ndarray, " R"]:
    """One value a row, which some programs write as a matrix of one column."""
    if values.shape not in ((len(values),), (len(values), 1)):
        refuse(where, f"shape {values.shape}", f"({len(values)},)", "store one value a step")
    return values.reshape(-1)


def flags(path: Path, group: Any, name: str) -> Bool[np.ndarray, " R"]:
    """A dataset of one yes or no a row, whatever its type."""
    where = place(path, group, name)
    values = column(numbers(path, group, name), where)
    odd = np.flatnonzero((values != 0) & (values != 1))
    if len(odd):
        refuse(f"{where}, row {odd[0]}", values[odd[0]], "0 or 1", "store one flag a step")
    return values == 1


def same_length(arrays: Mapping[str, np.ndarray | LazyRows], where: str) -> int:
    """How many rows they all have."""
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} {length}" for name, length in lengths.items())
        refuse(where, f"lengths {got}", "as many rows of each", "check the file")
    return next(iter(lengths.values()))


def datasets(group: Any, under: str = "") -> Iterator[tuple[str, Any]]:
    """The datasets in a group and in the groups in it, with their paths."""
    for name, entry in group.items():
        if is_group(entry):
            yield from datasets(entry, f"{under}{name}/")
        elif is_dataset(entry):
            yield under + name, entry


def observations(
    path: Path, group: Any, chosen: tuple[str, ...], there: Mapping[str, Any], file: Reopened
) -> Shaped[np.ndarray | LazyRows, "R *obs"]:
    """The chosen datasets of a group side by side."""
    parts = {name: rows(path, group, name, file) for name in chosen if name in there}
    stand_ins = {name: np.broadcast_to(False, entry.shape) for name, entry in there.items() if name not in parts}
    return joined(parts | stand_ins, chosen, place(path, group))


def check_followed(
    obs: np.ndarray | LazyRows,
    later: np.ndarray | LazyRows,
    ends: Bool[np.ndarray, " R"],
    where: str,
    most: int | None,
) -> None:
    """Refuse next observations that are not, but for the ends of episodes, the observations one row later.

    At `most` so many rows are looked at, spread evenly: to see all of a large file takes long.
    """
    if later.shape != obs.shape:
        refuse(where, f"shape {later.shape}", f"{obs.shape}, as the observations have", "check the file")
    inner = np.flatnonzero(~ends[:-1])
    if most is not None and len(inner) > most:
        inner = inner[np.linspace(0, len(inner) - 1, most).astype(np.int64)]
    one, other = later[inner], obs[inner + 1]
    differ = (one != other) & ~((one != one) & (other != other))  # no number in both: for others to find
    odd = inner[differ.reshape(len(differ), math.prod(obs.shape[1:])).any(1)]
    if len(odd):
        got, expected = "another observation", f"the observation of row {odd[0] + 1}"
        refuse(f"{where}, row {odd[0]}", got, expected, "mark where episodes end, or leave next observations out")


def is_large(path: Path) -> bool:
    """Would it take long to look at all of it?"""
    return path.stat().st_size >= lazy.LARGE


def text(value: object, where: str) -> str:
    """A demonstrator's name, from text or a number."""
    single = np.asarray(value)
    item = single.item() if single.size == 1 else None
    if not isinstance(item, str | bytes | bool | int | float):
        refuse(where, f"{type(value).__name__} of shape {single.shape}", "a text or a number", "store who acted")
    return item.decode("utf-8") if isinstance(item, bytes) else str(item)


def _written(dataset: Any) -> bool:
    """Has every value a place in the file? HDF5 makes up those that have none."""
    if dataset.chunks is None:
        return dataset.id.get_storage_size() == dataset.size * dataset.id.get_type().get_size()
    chunks = (math.ceil(rows / chunk) for rows, chunk in zip(dataset.shape, dataset.chunks, strict=True))
    return dataset.id.get_num_chunks() == math.prod(chunks)
