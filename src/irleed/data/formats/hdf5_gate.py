"""The one way into an HDF5 file that somebody else wrote: `Group` and `Values` in place of h5py's groups and datasets.

HDF5 files can name other files, as links or as the place of values, and make few bytes into many. So every link is
looked at before it is followed, how values are stored before their shape is asked for, and how many bytes they take
before they are read. What would leave the file, or is larger than the budget of the read, is a one-line `DataError`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from irleed._io.npz import printable
from irleed.data.formats.base import library, refuse
from irleed.data.formats.hdf5_values import Values, Visit
from irleed.data.limits import Budget

DEEPEST = 32  # groups in groups that are searched, and soft links that lead to soft links
LARGEST_ATTRIBUTE = 1 << 16  # bytes
LOOKUPS = 50_000  # entries that may be looked up in any file; and one more for every PER_LOOKUP bytes of it
LONG = 256  # characters of a path that count as one more entry
PER_LOOKUP = 64  # an entry that is no copy of another takes more in all


class Group:
    """A group, whose entries are opened only if they are in the same file."""

    def __init__(self, visit: Visit, group: Any, name: str = "/"):
        self.visit, self.name = visit, name
        self._id = group

    @classmethod
    def root(cls, path: Path, file: Any, budget: Budget) -> "Group":
        """The root of a file that is open in h5py."""
        visit = Visit(path, file, budget, _lookups(path))
        return cls(visit, library("h5py", "formats").h5g.open(file.id, b"/"))

    def again(self) -> "Group":
        """The same group, for another read: as many entries may be looked up as at first."""
        self.visit.lookups = _lookups(self.visit.path)
        return self

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def names(self) -> list[str]:
        """Of all entries, sorted."""
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
        """The names that h5py iterates over, which may not take more room than the file has: many may share one."""
        found: list[bytes] = []
        room = self.visit.path.stat().st_size

        def add(name: bytes, *_: Any) -> bool | None:
            nonlocal room
            found.append(name)
            room -= len(name)
            return True if room < 0 or len(found) > self.visit.lookups else None  # which ends it

        # In the order of the file: for any other, HDF5 makes a table of all names first.
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
        """One entry of the group itself, by its kind of link."""
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
