"""CSV and Parquet tables with one row a step."""

import codecs
import csv
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed._typing import Bool, Int, Shaped
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats.arrow import arrow_errors, coded, labelled, numbers, refuse_row, side_by_side
from irleed.data.formats.base import Format, ReadOptions, library, refuse
from irleed.data.formats.parquet import Files
from irleed.data.lazy import LazyRows, part
from irleed.data.limits import EPISODE, Budget
from irleed.data.validation import listed, starts

MAGIC = b"PAR1"
WHO = ("operator", "player", "user", "subject")  # in place of a column `demonstrator`
EMPTY = ["", " ", "null", "NULL", "None"]  # cells of a CSV file without a value; "nan" is a value, and refused as such
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
        refuse(path, f"{columns.rows} rows of {listed(names)}", "rows with an 'episode', every name once", "mend it")
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
    """Cut an Arrow table into episodes: an episode's last row is the observation that its last used action led to.

    **Arguments:**

    - `table`: with the column `episode`, and perhaps `reward`, `terminated` or `done`, and `truncated`.
    - `obs`, `blank`: the observations, and those that are missing.
    - `actions`, `who`: the columns of actions, and the one that says who acted, if any.
    - `budget`: what the episodes count against.
    """
    names, start = table.column_names, _runs(table, path)
    budget.take(path, EPISODE * len(start))
    action, idle = side_by_side(table, actions, path)
    if action.ndim == 1 and idle.any() and action.dtype.kind == "f" and np.all((action >= 0) & (action % 1 == 0)):
        action = action.astype(np.int64)  # whole numbers that an empty cell made fractions of, as in pandas
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
    """Who acted in each episode."""
    if who is None:
        return [path.stem] * len(start)
    code, labels = labelled(table, who, path)
    first = np.repeat(code[start], np.diff(start, append=len(code)))
    refuse_row(code != first, path, f"another {who}", "one an episode", "split the episode there")
    return [labels[i] for i in code[start]]


def _flags(table: Any, name: str, path: Path) -> Bool[np.ndarray, " R"]:
    """A column of yes and no; empty cells, and a column that is not there, say no."""
    if name not in table.column_names or table.column(name).null_count == table.num_rows:
        return np.zeros(table.num_rows, bool)
    values, _ = numbers(table, name, path)
    if values.ndim > 1 or not np.all((values == 0) | (values == 1)):
        refuse(f"{printable(path)}, column {name!r}", "other values", "true and false, or 0 and 1", "mend the column")
    return values.astype(bool)


class _ReadWhole:
    """A table in memory, with the methods of `Files`."""

    def __init__(self, table: Any, path: Path):
        self.names, self.rows, self._table, self._path = table.column_names, len(table), table, path

    def read(self, names: Sequence[str]) -> Any:
        """Columns as an Arrow table."""
        return self._table.select(names)

    def observations(self, names: Sequence[str]) -> tuple[Shaped[np.ndarray, "R *v"], Bool[np.ndarray, " R"]]:
        """Columns of numbers side by side, and the rows that are empty in all of them."""
        return side_by_side(self._table, names, self._path)


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The columns that are used."""

    obs: list[str]
    action: list[str]
    who: str | None

    @property
    def others(self) -> set[str]:
        """All but the observations, and those that may be missing."""
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
    """The column that says who acted, if any."""
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
        arrow.input_stream(path, compression=None),  # or else what a name ends in would decide
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
