"""Parquet files column by column: what is small is read at once, and what is large a row group at a time.

A page of a few bytes may hold millions of values: repetitions are stored once, and references to a dictionary in no
space at all. How many values there are, and how many bytes when decompressed, stands in a header before every page, in
the compact protocol of Thrift. Arrow asks for all pages of a column in a row group at once; so `Watched` looks at these
headers on the way, before Arrow decompresses any of them.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import Budget
from irleed._io.text import printable
from irleed._typing import Bool, Int, Shaped
from irleed.data import lazy
from irleed.data.formats.arrow import arrow_errors, is_flat, is_number, refuse_row, side_by_side
from irleed.data.formats.base import library, refuse
from irleed.data.lazy import LazyRows, Source
from irleed.data.validation import listed

FOOTER = 300  # bytes in memory of a byte that describes columns and row groups: an empty one takes three
MOST_ENTRIES = 100_000  # of a list in there, for which memory is set aside before its entries are read

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12  # types of Thrift
BITS = {I16: 16, I32: 32, I64: 64}
UNCOMPRESSED, COMPRESSED, DATA, DATA_2 = (2, I32), (3, I32), (5, STRUCT), (8, STRUCT)  # numbers and types of fields
COUNT, ENCODING, ENCODING_2 = (1, I32), (2, I32), (4, I32)
DELTA_BYTE_ARRAY = 7  # each text as what it shares with the one before: any size out of nothing
LEVELS = 4  # bytes for each value, which say whether it is missing and where its list ends
DEEPEST = 8  # structures in a header


class Watched:
    """A Parquet file for Arrow, whose pages count against a budget, once each.

    **Arguments:**

    - `path`: of the file.
    - `budget`, `width`: what counts them, and the most bytes that a value takes. None of them until they are set: what
        Arrow reads first are no pages.
    """

    closed = True

    def __init__(self, path: Path):
        self.path, self._file, self._seen = path, path.open("rb", buffering=0), set()
        self.closed = False
        self.budget: Budget | None = None
        self.width = 8

    def count(self, budget: Budget, width: int) -> None:
        """Count what is read from now on."""
        self.budget, self.width, self._seen = budget, width, set()

    def seek(self, *place: int) -> int:
        """Go to a place."""
        return self._file.seek(*place)

    def tell(self) -> int:
        """Where it is."""
        return self._file.tell()

    def close(self) -> None:
        """Arrow reads no more."""
        self.closed = True
        self._file.close()

    def __del__(self) -> None:
        if not self.closed:
            self.close()

    def read(self, size: int) -> bytes:
        """So many bytes, or those that are left."""
        place, content = self._file.tell(), self._file.read(size) or b""
        while len(content) < size and (more := self._file.read(size - len(content))):
            content += more
        if self.budget is not None and place not in self._seen:
            self.budget.take(self.path, size_of_pages(content, self.width))
            self._seen.add(place)
        return content


def size_of_pages(content: bytes, width: int) -> int:
    """Bytes that pages take when they are read, of values of so many bytes; a `ValueError` if they cannot be known."""
    at = size = 0
    while at < len(content):
        try:
            header, at = _struct(content, at)
            stored, uncompressed = header[COMPRESSED], header[UNCOMPRESSED]
        except (IndexError, KeyError) as error:
            raise ValueError("pages without headers") from error
        about = [header.get(kind, {}) for kind in (DATA, DATA_2)]
        counts = [each.get(COUNT, 0) for each in about]
        if min(stored, uncompressed, *counts) < 0:
            raise ValueError("pages of negative sizes")
        if DELTA_BYTE_ARRAY in (about[0].get(ENCODING), about[1].get(ENCODING_2)):
            raise ValueError("texts encoded as DELTA_BYTE_ARRAY")
        size, at = size + max(uncompressed, max(counts) * (width + LEVELS)), at + stored
    return size


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[dict[tuple[int, int], Any], int]:
    """The fields of a structure by number and type, as far as they are whole numbers or structures; and its end."""
    fields: dict[tuple[int, int], Any] = {}
    number = 0
    while head := content[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(content, at, 16)
        if kind in (TRUE, FALSE):
            continue
        if kind == BYTE:
            at += 1
        elif kind in BITS:
            fields[number, kind], at = _whole(content, at, BITS[kind])
        elif kind == DOUBLE:
            at += 8
        elif kind == BINARY:
            length, at = _varint(content, at)
            at += length
        elif kind == STRUCT and depth < DEEPEST:
            fields[number, kind], at = _struct(content, at, depth + 1)
        else:  # lists and maps, of which there are none in these headers
            raise KeyError(kind)
    return fields, at + 1


def _whole(content: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number with a sign, and where it ends."""
    value, at = _varint(content, at)
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise KeyError("a number of more than ten bytes")


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
