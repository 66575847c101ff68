"""Checked access to HDF5 files of unknown origin.

HDF5 files can refer to other files, by links or as the storage of values, and expand few bytes to many. So `Group` and
`Values` replace h5py's groups and datasets: links are checked before they are followed, the storage of values before
their shape is read, and their size before they are read. References to other files, and values larger than the budget
of the read, are one-line `DataError`s.
"""

import contextlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import CORRUPT, Budget
from irleed._io.text import one_line, printable
from irleed._typing import Bool, Int, Shaped
from irleed.data import lazy
from irleed.data.formats import joined, refuse
from irleed.data.formats.hdf5_values import Values, Visit
from irleed.data.lazy import InFile, LazyRows, Source, runs
from irleed.data.validation import listed, native
from irleed.errors import ConfigError, library

DEEPEST = 32  # nested groups, and soft links to soft links
LARGEST_ATTRIBUTE = 1 << 16  # bytes
LOOKUPS = 50_000  # entries that may be looked up in any file, and one more for every PER_LOOKUP bytes
LONG = 256  # characters of a path that count as one more entry
PER_LOOKUP = 64  # an entry that is not a copy takes more bytes


class Group:
    """A group, whose entries are opened only if they are in the same file."""

    def __init__(self, visit: Visit, group: Any, name: str = "/"):
        self.visit, self.name = visit, name
        self._id = group

    @classmethod
    def root(cls, path: Path, file: Any, budget: Budget) -> "Group":
        """The root of an open file of h5py."""
        visit = Visit(path, file, budget, _lookups(path))
        return cls(visit, library("h5py", "formats").h5g.open(file.id, b"/"))

    def again(self) -> "Group":
        """The same group, with a new allowance of lookups."""
        self.visit.lookups = _lookups(self.visit.path)
        return self

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def names(self) -> list[str]:
        """Names of all entries, sorted."""
        return self._listed(self._id.links.iterate)

    def get(self, name: str) -> "Group | Values | None":
        """The entry of a name or path, or None if there is no group or dataset; a link to another file is refused."""
        return self._get(name, 0)

    def walk(self, under: str = "", above: frozenset[int] = frozenset()) -> Iterator[tuple[str, Values]]:
        """The datasets in the group and in the groups in it, with their paths."""
        address = library("h5py", "formats").h5o.get_info(self._id).addr
        if address in above or len(above) == DEEPEST:
            got = "a group that contains itself" if address in above else f"groups nested more than {DEEPEST} deep"
            refuse(f"{printable(self.visit.path)}, {self.name}", got, "groups in groups", "write it again")
        for name in self.names():
            entry = self.get(name)
            if isinstance(entry, Group):
                yield from entry.walk(f"{under}{name}/", above | {address})
            elif entry is not None:
                yield under + name, entry

    def attributes(self) -> list[str]:
        """The names of all attributes, sorted."""
        return self._listed(partial(library("h5py", "formats").h5a.iterate, self._id))

    def attribute(self, name: str) -> Any:
        """The value of an attribute, or None if there is none; refused if it is large, or no number or text."""
        h5py, key = library("h5py", "formats"), name.encode("utf-8", "surrogateescape")
        self.visit.count()
        if not h5py.h5a.exists(self._id, key):
            return None
        found = h5py.h5a.open(self._id, key)
        where = f"{printable(self.visit.path)}, {self.name}, attribute {name!r}"
        kind, count = found.get_type(), found.get_space().get_simple_extent_npoints()
        plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM, h5py.h5t.STRING)
        one = count == 1 or not (kind.get_class() == h5py.h5t.STRING and kind.is_variable_str())
        if not (plain and one) or count * kind.get_size() > LARGEST_ATTRIBUTE:
            got, expected = "a large value or an unusual type", "a text, or a few numbers"
            refuse(where, got, expected, "store it in a dataset, or name another")
        return h5py.Group(self._id).attrs[name]

    def _listed(self, iterate: Callable[..., Any]) -> list[str]:
        """The names that h5py iterates over; together at most as long as the file: entries may share a name."""
        found: list[bytes] = []
        room = self.visit.path.stat().st_size

        def add(name: bytes, *_: Any) -> bool | None:
            nonlocal room
            found.append(name)
            room -= len(name)
            return True if room < 0 or len(found) > self.visit.lookups else None  # True ends the iteration

        # In the order of the file: for others, HDF5 makes a table of all names first.
        iterate(add, order=library("h5py", "formats").h5.ITER_NATIVE)
        self.visit.count(len(found))
        if room < 0:
            self._refuse(self.name, "names that take more bytes than the file has")
        return sorted(name.decode("utf-8", "surrogateescape") for name in found)

    def _get(self, name: str, followed: int) -> "Group | Values | None":
        entry: Group | Values | None = self
        for part in name.split("/"):
            if part not in ("", "."):
                entry = entry._entry(part, followed) if isinstance(entry, Group) else None
            if entry is None:
                return None
        return entry

    def _entry(self, name: str, followed: int) -> "Group | Values | None":
        """A direct entry of the group, by its kind of link."""
        h5py, key, links = library("h5py", "formats"), name.encode("utf-8", "surrogateescape"), self._id.links
        where = f"{self.name.rstrip('/')}/{name}"
        self.visit.count(1 + len(where) // LONG)  # every entry keeps its path
        if not links.exists(key):
            return None
        kind = links.get_info(key).type
        if kind == h5py.h5l.TYPE_SOFT:
            if followed == DEEPEST:
                self._refuse(where, "a link that leads back to itself")
            target = links.get_val(key).decode("utf-8", "surrogateescape")
            start = Group(self.visit, h5py.h5g.open(self._id, b"/")) if target.startswith("/") else self
            return start._get(target, followed + 1)
        if kind != h5py.h5l.TYPE_HARD:
            self._refuse(where, "a link to another file")
        found = h5py.h5o.open(self._id, key)
        if isinstance(found, h5py.h5g.GroupID):
            return Group(self.visit, found, where)
        return Values(self.visit, found, where) if isinstance(found, h5py.h5d.DatasetID) else None

    def _refuse(self, name: str, got: str) -> None:
        where = f"{printable(self.visit.path)}, {printable(name)}"
        refuse(where, got, "groups and datasets in this file", "copy what it leads to into the file")


def _lookups(path: Path) -> int:
    return LOOKUPS + path.stat().st_size // PER_LOOKUP


MAGIC = b"\x89HDF\r\n\x1a\n"
OPEN = 4  # datasets that each thread keeps open


class Reopened:
    """A file that is reopened for reading after it was closed, or in another thread or process."""

    def __init__(self, path: Path, expansion: float, root: Group | None = None):
        self.path, self.expansion = path.absolute(), expansion
        self._mine = threading.local()  # per thread: a lock could stay closed after a fork
        if root is not None:
            self._mine.__dict__.update(process=os.getpid(), root=root, kept={}, checked=set())

    def __reduce__(self) -> tuple[Any, ...]:
        return Reopened, (self.path, self.expansion)

    @classmethod
    def of(cls, root: Group) -> "Reopened":
        """A file that is open."""
        return cls(root.visit.path, root.visit.budget.expansion, root)

    def values(self, name: str) -> Values:
        """A checked dataset of the file; the latest ones stay open, with their latest chunks."""
        mine = self._mine.__dict__
        if mine.get("process") != os.getpid() or not mine["root"].visit.file:  # a closed file is false
            if not self.path.is_file():
                raise OSError("no such file")
            file, budget = library("h5py", "formats").File(self.path, "r"), Budget(self.expansion)
            budget.admit(self.path)
            mine.update(process=os.getpid(), root=Group.root(self.path, file, budget), kept={}, checked=set())
        kept: dict[str, Values] = mine["kept"]
        found = kept.pop(name, None) or mine["root"].again().get(name)
        if not isinstance(found, Values):
            raise KeyError(name)
        if name not in mine["checked"]:
            found.check()
            mine["checked"].add(name)
        kept[name] = found  # the latest one is removed last
        while len(kept) > OPEN:
            del kept[next(iter(kept))]
        return found


class Stored(Source):
    """Lazy rows of a dataset."""

    def __init__(self, file: Reopened, name: str, shape: tuple[int, ...], dtype: np.dtype):
        self.file, self.name, self.shape, self.dtype = file, name, shape, dtype

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, consecutive ones at once: HDF5 is slow with lists of rows."""
        result = np.empty((len(rows), *self.shape[1:]), self.dtype)
        try:
            values = self.file.values(self.name)
            if (values.shape, values.dtype.kind) != (self.shape, self.dtype.kind):
                raise ValueError("its shape or type changed")
            for begin, end in runs(rows):
                result[begin:end] = values.rows(int(rows[begin]), int(rows[end - 1]) + 1)
        except CORRUPT as error:
            where, got = f"{printable(self.file.path)}, {self.name}", f"content that cannot be read ({one_line(error)})"
            refuse(where, got, "the rows that were there", "copy or write it again")
        return result


def is_hdf5(path: Path) -> bool:
    """Whether it is an HDF5 file."""
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
def opened(path: Path, budget: Budget) -> Iterator[Group]:
    """The root group of a file; errors of h5py while it is open become a `DataError`."""
    h5py = library("h5py", "formats")
    if not path.is_file():  # a pipe would be waited for
        refuse(path, "no file", "an HDF5 file", "check the path")
    try:
        with h5py.File(path, "r") as file:
            budget.admit(path)
            yield Group.root(path, file, budget)
    except CORRUPT as error:
        got = f"a cut or damaged file ({one_line(error)})"
        refuse(path, got, "a whole HDF5 file", "copy or write it again")


def place(entry: Group | Values, name: str = "") -> str:
    """A place in a file, for messages."""
    return f"{printable(entry.visit.path)}, {printable(entry.name).rstrip('/')}/{printable(name)}".rstrip("/")


def array(group: Group, name: str) -> Shaped[np.ndarray, "R ..."]:
    """The rows of a dataset, of any type."""
    return sound(group, name).read()


def rows(group: Group, name: str, file: Reopened, large: bool = False) -> np.ndarray | LazyRows:
    """The rows of a dataset of numbers; lazy in a large file, or if `large` is set."""
    values, path = sound(group, name), group.visit.path
    dtype = native(np.empty(0, values.dtype), values.where).dtype
    if not large and values.nbytes < lazy.LARGE and not is_large(path):
        return native(values.read(), values.where)
    values.claim()
    plain = values.in_one_block()
    if plain is not None and path.stat().st_size >= plain + values.nbytes:
        return LazyRows.of(InFile(file.path, plain, values.shape, values.dtype))
    return LazyRows.of(Stored(file, values.name, values.shape, dtype))


def sound(group: Group, name: str) -> Values:
    """A dataset; refused if it is missing or empty."""
    values = group.get(name)
    if not isinstance(values, Values):
        got = "no dataset" if values is None else "a group"
        refuse(place(group, name), got, "a dataset", f"in {place(group)} there is {there(group)}")
    if not values.shape or values.shape[0] == 0:
        refuse(values.where, f"shape {values.shape}", "at least one row", "leave empty episodes out")
    return values


def there(group: Group) -> str:
    """The names of the entries of a group, for messages."""
    return listed(group.names(), most=20) or "nothing"


def numbers(group: Group, name: str) -> Shaped[np.ndarray, "R ..."]:
    """The rows of a dataset of numbers."""
    return native(array(group, name), place(group, name))


def column(values: Shaped[np.ndarray, "R ..."], where: str) -> Shaped[np.ndarray, " R"]:
    """One value for each row; a matrix of one column is flattened."""
    if values.shape not in ((len(values),), (len(values), 1)):
        refuse(where, f"shape {values.shape}", f"({len(values)},)", "store one value a step")
    return values.reshape(-1)


def flags(group: Group, name: str) -> Bool[np.ndarray, " R"]:
    """A dataset of one flag for each row, of any type."""
    where = place(group, name)
    values = column(numbers(group, name), where)
    odd = np.flatnonzero((values != 0) & (values != 1))
    if len(odd):
        refuse(f"{where}, row {odd[0]}", values[odd[0]], "0 or 1", "store one flag a step")
    return values == 1


def same_length(arrays: Mapping[str, np.ndarray | LazyRows], where: str) -> int:
    """The number of rows of all arrays; refused if it differs."""
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} {length}" for name, length in lengths.items())
        refuse(where, f"lengths {got}", "as many rows of each", "check the file")
    return next(iter(lengths.values()))


def observations(
    group: Group, chosen: tuple[str, ...], there: Mapping[str, Values], file: Reopened
) -> Shaped[np.ndarray | LazyRows, "R *obs"]:
    """The chosen datasets of a group, concatenated."""
    parts = {name: rows(group, name, file) for name in chosen if name in there}
    stand_ins = {name: np.broadcast_to(False, entry.shape) for name, entry in there.items() if name not in parts}
    return joined(parts | stand_ins, chosen, place(group))


def check_followed(
    obs: np.ndarray | LazyRows, later: np.ndarray | LazyRows, ends: Bool[np.ndarray, " R"], where: str, most: int | None
) -> None:
    """Refuse next observations that differ from the observations one row later, except at the ends of episodes.

    At `most` that many rows are compared, evenly spaced, as reading all of a large file is slow.
    """
    if later.shape != obs.shape:
        refuse(where, f"shape {later.shape}", f"{obs.shape}, as the observations have", "check the file")
    inner = np.flatnonzero(~ends[:-1])
    if most is not None and len(inner) > most:
        inner = inner[np.linspace(0, len(inner) - 1, most).astype(np.int64)]
    one, other = later[inner], obs[inner + 1]
    differ = (one != other) & ~((one != one) & (other != other))  # NaN in both: refused later
    odd = inner[differ.reshape(len(differ), math.prod(obs.shape[1:])).any(1)]
    if len(odd):
        got, expected = "another observation", f"the observation of row {odd[0] + 1}"
        refuse(f"{where}, row {odd[0]}", got, expected, "mark where episodes end, or leave next observations out")


def is_large(path: Path) -> bool:
    """Whether the file is large enough for lazy rows."""
    return path.stat().st_size >= lazy.LARGE


def text(value: object, where: str) -> str:
    """The name of a demonstrator, from text or a number."""
    single = np.asarray(value)
    item = single.item() if single.size == 1 else None
    if not isinstance(item, str | bytes | bool | int | float):
        refuse(where, f"{type(value).__name__} of shape {single.shape}", "a text or a number", "store who acted")
    return item.decode("utf-8") if isinstance(item, bytes) else str(item)
