"""Parquet files column by column: what is small is read at once, and what is large a row group at a time."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed._typing import Bool, Int, Shaped
from irleed.data import lazy
from irleed.data.formats.arrow import arrow_errors, is_flat, is_number, refuse_row, side_by_side
from irleed.data.formats.base import library, refuse
from irleed.data.formats.parquet_pages import Watched
from irleed.data.lazy import LazyRows, Source
from irleed.data.limits import Budget
from irleed.data.validation import listed

FOOTER = 300  # bytes in memory of a byte that describes columns and row groups: an empty one takes three
MOST_ENTRIES = 100_000  # of a list in there, for which memory is set aside before its entries are read
KEPT = 1 << 26  # bytes of row groups that each thread keeps in memory, those it read last; one of them at least


class RowGroups:
    """The row groups of columns of Parquet files, each as what `convert` makes of its table."""

    def __init__(
        self,
        files: Sequence[Path],
        columns: Sequence[str],
        place: Int[np.ndarray, "G 2"],
        start: Int[np.ndarray, " G+1"],
        convert: Callable[[Any, int], Any],
        expansion: float,
    ):
        """Group k is `place[k]`, the numbers of a file and of a group in it, with rows from `start[k]` on.

        `convert` gets a table and the number of its first row. Each group may take `expansion` times the size of its
        file.
        """
        self.files, self.columns, self.convert = tuple(file.absolute() for file in files), tuple(columns), convert
        self.place, self.start, self.expansion = place, start, expansion
        self._mine = threading.local()  # each thread reads by itself: no lock that a fork could leave closed

    def __reduce__(self) -> tuple[Any, ...]:
        return RowGroups, (self.files, self.columns, self.place, self.start, self.convert, self.expansion)

    def of(self, rows: Int[np.ndarray, " K"]) -> Iterator[tuple[slice, Any, Int[np.ndarray, " k"]]]:
        """For each group with some of these rows, which increase: which they are, the group, and where in it."""
        group = np.searchsorted(self.start, rows, side="right") - 1
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(rows)]
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            number = int(group[begin])
            yield slice(begin, end), self.at(number), rows[begin:end] - self.start[number]

    def at(self, number: int) -> Any:
        """A row group, read unless this thread still has it."""
        mine = self._mine.__dict__
        if mine.get("process") != os.getpid():
            mine.update(process=os.getpid(), kept={}, bytes=0, file=None)
        kept: dict[int, Any] = mine["kept"]
        if number in kept:
            kept[number] = kept.pop(number)  # the last one used is the last to go
            return kept[number]
        group = self._read(number, mine)
        mine["bytes"] += group.nbytes
        while kept and mine["bytes"] > KEPT:
            mine["bytes"] -= kept.pop(next(iter(kept))).nbytes
        kept[number] = group
        return group

    def _read(self, number: int, mine: dict[str, Any]) -> Any:
        file, group = map(int, self.place[number])
        with arrow_errors(self.files[file]):
            if mine["file"] is None or mine["file"][0] != file:
                mine["file"] = file, Opened(self.files[file])
            budget = Budget(self.expansion)
            budget.admit(self.files[file])
            mine["file"][1].count(self.columns, budget)
            table = mine["file"][1].parquet.read_row_group(group, columns=list(self.columns)).select(self.columns)
            table.validate(full=True)
        first, rows = int(self.start[number]), int(self.start[number + 1] - self.start[number])
        if len(table) != rows:
            refuse(self.files[file], f"{len(table)} rows in group {group}", f"{rows}, as before", "open it again")
        return self.convert(table, first)


class Vectors(Source):
    """Rows of columns of numbers and vectors, side by side."""

    def __init__(self, groups: RowGroups, path: Path):
        first = groups.at(0)
        self.groups, self.path, self.dtype = groups, path, first.dtype
        self.shape = (int(groups.start[-1]), *first.shape[1:])

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, from the groups that hold them."""
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for here, group, within in self.groups.of(rows):
            if group.shape[1:] != self.shape[1:]:
                got, expected = f"rows of shape {group.shape[1:]}", f"{self.shape[1:]}, as in row 0"
                refuse(f"{printable(self.path)}, row {rows[here.start]}", got, expected, "make all rows alike")
            values[here] = group[within]
        return values


class Files:
    """Parquet files with the same columns, one after the other. `path` is what messages call all of them."""

    def __init__(self, files: Sequence[Path], path: Path, budget: Budget):
        self.files, self.path, self.budget = tuple(files), path, budget
        self._about, self._kinds = [], []
        for file in self.files:
            budget.admit(file)
            with arrow_errors(file):
                budget.take(file, size_of_footer(file))
            with arrow_errors(file), Opened(file) as opened:
                schema = opened.schema
                self._about.append(opened.parquet.metadata)
            if len(set(schema.names)) < len(schema.names):
                refuse(file, f"columns {listed(schema.names)}", "every name once", "mend it")
            self._kinds.append({field.name: field.type for field in schema})
        self.kinds: dict[str, Any] = self._kinds[0]
        self.names = [name for name, kind in self.kinds.items() if is_flat(kind)]  # numbers, vectors and text
        self._check_alike()
        groups = ((f, g) for f, about in enumerate(self._about) for g in range(about.num_row_groups))
        with arrow_errors(path):
            there = [(f, g, self._about[f].row_group(g).num_rows) for f, g in groups]
        self.place = np.array([(f, g) for f, g, length in there if length], np.int64).reshape(-1, 2)
        self.start = np.cumsum(np.array([0, *(length for _, _, length in there if length)], np.int64))

    @property
    def rows(self) -> int:
        """How many there are, in all files."""
        return int(self.start[-1])

    def read(self, names: Sequence[str]) -> Any:
        """Columns as one Arrow table."""
        tables = []
        for file in self.files:
            with arrow_errors(file), Opened(file) as opened:
                opened.count(names, self.budget)
                table = opened.parquet.read(columns=list(names)).select(list(names))
                table.validate(full=True)
                tables.append(table.replace_schema_metadata(None))
        with arrow_errors(self.path):
            table = library("pyarrow", "formats").concat_tables(tables)
        if len(table) != self.rows:
            refuse(self.path, f"{len(table)} rows", f"{self.rows}, as it says itself", "copy or write it again")
        return table

    def observations(
        self, names: Sequence[str]
    ) -> tuple[Shaped[np.ndarray | LazyRows, "R *v"], Bool[np.ndarray, " R"]]:
        """Columns of numbers side by side, and the rows that are empty in all of them; large ones are read later."""
        size = self._width(names) * np.diff(self.start).astype(np.float64)
        if size.sum() < lazy.LARGE:
            return side_by_side(self.read(names), names, self.path)
        if size.max() > lazy.MOST:
            got, expected = f"row groups of {size.max() / 1e9:.1f} GB", f"at most {lazy.MOST / 1e9:.1f}"
            refuse(f"{printable(self.path)}, {listed(names)}", got, expected, "write it again with fewer rows in each")
        self.budget.take(self.path, int(size.sum()))
        groups = self.groups(names, partial(_vectors, names=tuple(names), path=self.path))
        rows = LazyRows.of(Vectors(groups, self.path))
        # Fractions are looked at anyway, to see whether they are finite: then too what is missing would be found.
        if rows.dtype.kind != "f":
            for _ in lazy.chunks(rows):
                pass
        return rows, np.zeros(len(rows), bool)

    def groups(self, names: Sequence[str], convert: Callable[[Any, int], Any]) -> RowGroups:
        """Columns by row groups, each as what `convert` makes of its table and the number of its first row."""
        return RowGroups(self.files, names, self.place, self.start, convert, self.budget.expansion)

    def _width(self, names: Sequence[str]) -> int:
        """How many bytes the values of columns take in memory in the first row.

        By reading it: what the file says of its columns ends the process if it is damaged.
        """
        if not len(self.place):
            return 0
        file, group = map(int, self.place[0])
        with arrow_errors(self.files[file]), Opened(self.files[file]) as opened:
            budget = Budget(self.budget.expansion)  # its own: what is read here is read again
            budget.admit(self.files[file])
            opened.count(names, budget)
            first = next(opened.parquet.iter_batches(1, row_groups=[group], columns=list(names)), None)
        if first is None or not len(first):
            refuse(self.files[file], "no rows", f"{self.rows}, as it says itself", "copy or write it again")
        count = sum(_count(first.column(name)[0]) for name in names)
        return count * np.result_type(*(_dtype(self.kinds[name]) for name in names)).itemsize

    def _check_alike(self) -> None:
        """All files have the columns of the first, of the same types."""
        for file, kinds in zip(self.files, self._kinds, strict=True):
            for name in self.names:
                if kinds.get(name) != self.kinds[name]:
                    got = f"column {name!r} of type {kinds[name]}" if name in kinds else f"no {name!r}"
                    refuse(file, got, f"{self.kinds[name]}, as in {printable(self.files[0].name)}", "write it again")


class Opened:
    """A Parquet file, open for reading. Text stays encoded by a dictionary, as each may stand in it many times."""

    def __init__(self, file: Path):
        arrow, parquet = library("pyarrow", "formats"), library("pyarrow.parquet", "formats")
        self._watched = Watched(file)
        try:
            source = arrow.PythonFile(self._watched, mode="r")
            plain = parquet.ParquetFile(source, pre_buffer=False, thrift_container_size_limit=MOST_ENTRIES)
            self.schema = plain.schema_arrow
            self._leaves = [plain.schema.column(number) for number in range(len(plain.schema))]
            self.parquet = parquet.ParquetFile(
                source,
                metadata=plain.metadata,
                read_dictionary=[leaf.path for leaf in self._leaves if leaf.physical_type == "BYTE_ARRAY"],
                pre_buffer=False,  # columns one by one, so that their pages can be counted
                page_checksum_verification=True,
            )
        except BaseException:
            self._watched.close()
            raise

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self._watched.close()

    def count(self, names: Sequence[str], budget: Budget) -> None:
        """Count what is read of these columns from now on."""
        beginnings = tuple(f"{name}." for name in names)
        sizes = [leaf.length for leaf in self._leaves if leaf.path in names or leaf.path.startswith(beginnings)]
        self._watched.count(budget, max([8, *sizes]))


def size_of_footer(file: Path) -> int:
    """The most that the description at the end of a file takes in memory; an `OSError` if the file is too short."""
    with file.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        return FOOTER * int.from_bytes(stream.read(4), "little")


def _vectors(table: Any, first: int, names: tuple[str, ...], path: Path) -> np.ndarray:
    """Columns of a row group as one array; refused if anything is missing."""
    empty = np.zeros(len(table), bool)
    for name in names:
        empty |= table.column(name).is_null().to_numpy()
    refuse_row(empty, path, "no observation", "one in every row", "fill it in", first)
    return side_by_side(table, names, path)[0]


def _count(value: Any) -> int:
    """How many numbers a value of a column is."""
    inner = getattr(value, "values", [None])
    return 0 if inner is None else len(inner)


def _dtype(kind: Any) -> np.dtype:
    """The numbers of a column, once read; what is none, and will be refused, stands for large ones."""
    inner = kind.value_type if hasattr(kind, "value_type") else kind
    return np.dtype(inner.to_pandas_dtype() if is_number(inner) else np.float64)
