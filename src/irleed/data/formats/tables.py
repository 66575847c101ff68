"""CSV and Parquet tables with one row a step; of Parquet, small columns are read at once, large ones by row group."""

import codecs
import csv
import dataclasses
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import EPISODE, Budget
from irleed._io.text import printable
from irleed._typing import Bool, Int, Shaped
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, refuse
from irleed.data.formats.arrow import (
    Opened,
    arrow_errors,
    coded,
    is_flat,
    is_number,
    labelled,
    numbers,
    refuse_row,
    side_by_side,
    size_of_footer,
)
from irleed.data.lazy import LazyRows, Source, part
from irleed.data.validation import listed, starts
from irleed.errors import library

KEPT = 1 << 26  # bytes of the latest row groups that each thread keeps in memory; at least one group


class RowGroups:
    """The row groups of columns of Parquet files, each converted by `convert`."""

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

        `convert` gets a table and the number of its first row. `expansion` is the budget of a group relative to its
        file.
        """
        self.files, self.columns, self.convert = tuple(file.absolute() for file in files), tuple(columns), convert
        self.place, self.start, self.expansion = place, start, expansion
        self._mine = threading.local()  # per thread: a lock could stay closed after a fork

    def __reduce__(self) -> tuple[Any, ...]:
        return RowGroups, (self.files, self.columns, self.place, self.start, self.convert, self.expansion)

    def of(self, rows: Int[np.ndarray, " K"]) -> Iterator[tuple[slice, Any, Int[np.ndarray, " k"]]]:
        """For each group with some of these increasing rows: their slice, the group, and their places in it."""
        group = np.searchsorted(self.start, rows, side="right") - 1
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(rows)]
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            number = int(group[begin])
            yield slice(begin, end), self.at(number), rows[begin:end] - self.start[number]

    def at(self, number: int) -> Any:
        """A row group, read unless this thread has it in memory."""
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
    """Lazy rows of columns of numbers and vectors, concatenated."""

    def __init__(self, groups: RowGroups, path: Path):
        first = groups.at(0)
        self.groups, self.path, self.dtype = groups, path, first.dtype
        self.shape = (int(groups.start[-1]), *first.shape[1:])

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These rows, group by group."""
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for here, group, within in self.groups.of(rows):
            if group.shape[1:] != self.shape[1:]:
                got, expected = f"rows of shape {group.shape[1:]}", f"{self.shape[1:]}, as in row 0"
                refuse(f"{printable(self.path)}, row {rows[here.start]}", got, expected, "make all rows alike")
            values[here] = group[within]
        return values


class Files:
    """Concatenated Parquet files with the same columns. `path` names all of them in messages."""

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
                refuse(file, f"columns {listed(schema.names)}", "every name once", "fix it")
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
        """Number of rows in all files."""
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
            refuse(self.path, f"{len(table)} rows", f"{self.rows}, as in its footer", "copy or write it again")
        return table

    def observations(
        self, names: Sequence[str]
    ) -> tuple[Shaped[np.ndarray | LazyRows, "R *v"], Bool[np.ndarray, " R"]]:
        """Columns of numbers, concatenated, and the rows that are empty in all of them; large ones are lazy."""
        size = self._width(names) * np.diff(self.start).astype(np.float64)
        if size.sum() < lazy.LARGE:
            return side_by_side(self.read(names), names, self.path)
        if size.max() > lazy.MOST:
            got, expected = f"row groups of {size.max() / 1e9:.1f} GB", f"at most {lazy.MOST / 1e9:.1f}"
            refuse(f"{printable(self.path)}, {listed(names)}", got, expected, "write it again with fewer rows in each")
        self.budget.take(self.path, int(size.sum()))
        groups = self.groups(names, partial(_vectors, names=tuple(names), path=self.path))
        rows = LazyRows.of(Vectors(groups, self.path))
        # Floats are read anyway to see whether they are finite; missing values are found then.
        if rows.dtype.kind != "f":
            for _ in lazy.chunks(rows):
                pass
        return rows, np.zeros(len(rows), bool)

    def groups(self, names: Sequence[str], convert: Callable[[Any, int], Any]) -> RowGroups:
        """Columns by row groups, each converted from its table and the number of its first row."""
        return RowGroups(self.files, names, self.place, self.start, convert, self.budget.expansion)

    def _width(self, names: Sequence[str]) -> int:
        """Bytes in memory of the first row of columns.

        It is read: a damaged description of the columns could end the process.
        """
        if not len(self.place):
            return 0
        file, group = map(int, self.place[0])
        with arrow_errors(self.files[file]), Opened(self.files[file]) as opened:
            budget = Budget(self.budget.expansion)  # a separate one: the row is read again later
            budget.admit(self.files[file])
            opened.count(names, budget)
            first = next(opened.parquet.iter_batches(1, row_groups=[group], columns=list(names)), None)
        if first is None or not len(first):
            refuse(self.files[file], "no rows", f"{self.rows}, as in its footer", "copy or write it again")
        count = sum(_count(first.column(name)[0]) for name in names)
        return count * np.result_type(*(_dtype(self.kinds[name]) for name in names)).itemsize

    def _check_alike(self) -> None:
        """All files have the columns and types of the first."""
        for file, kinds in zip(self.files, self._kinds, strict=True):
            for name in self.names:
                if kinds.get(name) != self.kinds[name]:
                    got = f"column {name!r} of type {kinds[name]}" if name in kinds else f"no {name!r}"
                    refuse(file, got, f"{self.kinds[name]}, as in {printable(self.files[0].name)}", "write it again")


def _vectors(table: Any, first: int, names: tuple[str, ...], path: Path) -> np.ndarray:
    """Columns of a row group as one array; missing values are refused."""
    empty = np.zeros(len(table), bool)
    for name in names:
        empty |= table.column(name).is_null().to_numpy()
    refuse_row(empty, path, "no observation", "one in every row", "fill it in", first)
    return side_by_side(table, names, path)[0]


def _count(value: Any) -> int:
    """Numbers in a value of a column."""
    inner = getattr(value, "values", [None])
    return 0 if inner is None else len(inner)


def _dtype(kind: Any) -> np.dtype:
    """The dtype of a column; float64 for other types, which are refused later."""
    inner = kind.value_type if hasattr(kind, "value_type") else kind
    return np.dtype(inner.to_pandas_dtype() if is_number(inner) else np.float64)


MAGIC = b"PAR1"
WHO = ("operator", "player", "user", "subject")  # alternatives to a column `demonstrator`
EMPTY = ["", " ", "null", "NULL", "None"]  # CSV cells without a value; "nan" is a value, and refused as not finite
OBS = r"obs|obs[_.].+|observation.*"


def recognises(path: Path) -> bool:
    """A Parquet file, or a text file whose first line names a column `episode`."""
    try:
        return _ends(path) == (MAGIC, MAGIC) or _header(path, 4096) is not None
    except (OSError, ValueError, csv.Error):
        return False


def read(path: Path, reading: ReadOptions) -> Demonstrations:
    """The episodes of a file."""
    budget = reading.budget()
    with arrow_errors(path):
        parquet = _ends(path)[0] == MAGIC
        columns = Files([path], path, budget) if parquet else _ReadWhole(_read_csv(path, reading, budget), path)
    names = columns.names
    if len(set(names)) < len(names) or "episode" not in names or not columns.rows:
        refuse(path, f"{columns.rows} rows of {listed(names)}", "rows with an 'episode', every name once", "fix it")
    chosen = _chosen(names, reading, path)
    table = columns.read([name for name in names if name in chosen.others])
    return from_table(table, *columns.observations(chosen.obs), chosen.action, chosen.who, path, budget)


def from_table(
    table: Any,
    obs: Shaped[np.ndarray | LazyRows, "R *v"],
    blank: Bool[np.ndarray, " R"],
    actions: Sequence[str],
    who: str | None,
    path: Path,
    budget: Budget,
) -> Demonstrations:
    """Cut an Arrow table into episodes; the last row of an episode is the observation after its last action.

    **Arguments:**

    - `table`: with the column `episode`, and optionally `reward`, `terminated` or `done`, and `truncated`.
    - `obs`, `blank`: the observations, and which are missing.
    - `actions`, `who`: the columns of actions, and that of demonstrators, if any.
    - `budget`: of the memory for the episodes.
    """
    names, start = table.column_names, _runs(table, path)
    budget.take(path, EPISODE * len(start))
    action, idle = side_by_side(table, actions, path)
    if action.ndim == 1 and idle.any() and action.dtype.kind == "f" and np.all((action >= 0) & (action % 1 == 0)):
        action = action.astype(np.int64)  # integers that became floats because of an empty cell, as in pandas
    reward, unpaid = numbers(table, "reward", path) if "reward" in names else (None, np.zeros(len(obs), bool))
    truncated = _flags(table, "truncated", path)
    terminated = _flags(table, "terminated" if "terminated" in names else "done", path)
    terminated = terminated if "terminated" in names else terminated & ~truncated
    last, owners = np.append(start[1:], len(obs)) - 1, _owners(table, start, who, path)
    inner = np.ones(len(obs), bool)
    inner[last] = False
    early = inner.copy()
    early[np.maximum(last - 1, start)] = False
    refuse_row(blank, path, "no observation", "one in every row", "fill it in")
    refuse_row(np.isin(np.arange(len(obs)), start[start == last]), path, "an episode of one row", "two", "leave it out")
    refuse_row(inner & idle, path, "no action", "one in all rows but an episode's last", "fill it in")
    refuse_row(inner & unpaid, path, "no reward", "one with every action", "fill it in, or leave all out")
    refuse_row(early & (terminated | truncated), path, "an end", "none before the last two rows", "split the episode")
    episodes = [
        Episode(
            part(obs, a, z + 1),
            action[a:z],
            terminated[z - 1 : z + 1].any(),
            owner,
            None if reward is None else reward[a:z],
        )
        for a, z, owner in zip(start, last, owners, strict=True)
    ]
    return Demonstrations.from_episodes(episodes, where=printable(path))


def _runs(table: Any, path: Path) -> Int[np.ndarray, " E"]:
    """The first row of each episode."""
    code, _ = coded(table, "episode", path)
    start = starts(code)
    again = np.ones(len(start), bool)
    again[np.unique(code[start], return_index=True)[1]] = False
    second = np.isin(np.arange(len(code)), start[again])
    refuse_row(second, path, "a second part of an episode", "one contiguous run", "sort the rows by episode")
    return start


def _owners(table: Any, start: Int[np.ndarray, " E"], who: str | None, path: Path) -> list[str]:
    """The demonstrator of each episode."""
    if who is None:
        return [path.stem] * len(start)
    code, labels = labelled(table, who, path)
    first = np.repeat(code[start], np.diff(start, append=len(code)))
    refuse_row(code != first, path, f"another {who}", "one an episode", "split the episode there")
    return [labels[i] for i in code[start]]


def _flags(table: Any, name: str, path: Path) -> Bool[np.ndarray, " R"]:
    """A column of flags; False for empty cells and missing columns."""
    if name not in table.column_names or table.column(name).null_count == table.num_rows:
        return np.zeros(table.num_rows, bool)
    values, _ = numbers(table, name, path)
    if values.ndim > 1 or not np.all((values == 0) | (values == 1)):
        refuse(f"{printable(path)}, column {name!r}", "other values", "true and false, or 0 and 1", "fix the column")
    return values.astype(bool)


class _ReadWhole:
    """A table in memory, with the interface of `Files`."""

    def __init__(self, table: Any, path: Path):
        self.names, self.rows, self._table, self._path = table.column_names, len(table), table, path

    def read(self, names: Sequence[str]) -> Any:
        """Columns as an Arrow table."""
        return self._table.select(names)

    def observations(self, names: Sequence[str]) -> tuple[Shaped[np.ndarray, "R *v"], Bool[np.ndarray, " R"]]:
        return side_by_side(self._table, names, self._path)


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The columns that are used."""

    obs: list[str]
    action: list[str]
    who: str | None

    @property
    def others(self) -> set[str]:
        """All but the observations, optional ones included."""
        return {"episode", *self.action, "reward", "truncated", "terminated", "done", self.who or "episode"}


def _chosen(names: Sequence[str], reading: ReadOptions, path: Path) -> _Chosen:
    obs = list(reading.obs) or sorted((name for name in names if re.fullmatch(OBS, name)), key=_place)
    if not obs:
        refuse(path, f"only {listed(names)}", "columns 'obs', 'obs_0', 'obs.x' or 'observation...'", "name them")
    missing = [name for name in obs if name not in names]
    if missing:
        refuse(path, f"no column {missing[0]!r}", f"some of {listed(names)}", "choose from these")
    return _Chosen(obs, _action_names(names, reading, path), _who(names, reading, path))


def _who(names: Sequence[str], reading: ReadOptions, path: Path) -> str | None:
    """The column of demonstrators, if any."""
    known = ["demonstrator"] if "demonstrator" in names else [name for name in WHO if name in names]
    wanted = [reading.named] if reading.named else known
    if reading.demonstrator == "episode" or not wanted:
        return None
    if len(wanted) > 1 or wanted[0] not in names:
        got = f"columns {listed(wanted)}" if len(wanted) > 1 else f"no column {wanted[0]!r}"
        refuse(f"{printable(path)}, demonstrator", got, f"one of {listed(names)}", "name the column")
    return wanted[0]


def _action_names(names: Sequence[str], reading: ReadOptions, path: Path) -> list[str]:
    stem = reading.action or "action"
    parts = [name for name in names if re.fullmatch(re.escape(stem) + r"(_[0-9]+|\..+)", name)]
    if stem in names and (reading.action or not parts):
        return [stem]
    if stem in names or not parts:
        got = f"columns {listed([stem, *parts])}" if parts else f"no {stem!r} in {listed(names)}"
        refuse(f"{printable(path)}, action", got, "one column, or numbered ones", "name the column of actions")
    return sorted(parts, key=_place)


def _place(name: str) -> tuple[bool, int, str]:
    """Columns by their number, then by name."""
    number = re.search(r"[_.]([0-9]{1,9})$", name)
    return number is None, int(number[1]) if number else 0, name


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The first and the last four bytes of a file."""
    with path.open("rb") as file:
        first = file.read(4)
        file.seek(max(file.seek(0, 2) - 4, 0))
        return first, file.read(4)


def _header(path: Path, size: int) -> tuple[str, list[str]] | None:
    """Delimiter and names of the columns of a CSV file, if there is one `episode` among them."""
    with path.open("rb") as file:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(file.read(size))
    if "\0" in text:
        return None
    line = re.split(r"[\r\n]", text, maxsplit=1)[0]
    rows = [(mark, next(csv.reader([line], delimiter=mark), [])) for mark in ",;\t"]
    found = [(mark, row) for mark, row in rows if len(row) > 1 and "episode" in (name.strip() for name in row)]
    return max(found, key=lambda each: len(each[1]), default=None)


def _read_csv(path: Path, reading: ReadOptions, budget: Budget) -> Any:
    budget.admit(path)
    arrow, reader = library("pyarrow", "formats"), library("pyarrow.csv", "formats")
    header = _header(path, 1 << 20)
    if header is None:
        refuse(path, "no column 'episode' in its first line", "a table with one", "name the columns in the first line")
    if b"\0" in _ends(path)[1]:  # a file that was made long without content
        refuse(path, "zero bytes at its end", "lines of text", "copy or write it again")
    delimiter, names = header
    texts = {"episode", "demonstrator", *WHO, reading.named} - {*reading.obs}
    table = reader.read_csv(
        arrow.input_stream(path, compression=None),  # else the suffix would decide
        reader.ReadOptions(block_size=min(path.stat().st_size + 1, 1 << 30)),  # types are guessed from the first block
        reader.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        reader.ConvertOptions(
            column_types={name: arrow.string() for name in names if name.strip() in texts},
            null_values=EMPTY,
            strings_can_be_null=True,
        ),
    )
    return table.rename_columns([name.strip() for name in table.column_names])


FORMAT = Format("CSV and Parquet tables with named columns", recognises, read)
