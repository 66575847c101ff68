"""Validation of the columns of a data set.

Episodes lie end to end: an episode of T transitions has T + 1 rows of observations, and no observation is stored twice.
"""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from irleed._io.text import printable, several
from irleed._typing import Array, Bool, Int
from irleed.data.lazy import LazyRows, chunks
from irleed.errors import DataError

# The columns with one number a transition, and their dtypes; obs and action may be any numbers.
COLUMNS = {
    "row": (np.int32, np.int64),
    "terminated": (np.bool_,),
    "truncated": (np.bool_,),
    "demonstrator": (np.int32, np.int64),
    "episode": (np.int32, np.int64),
    "reward": (np.float32, np.float64),
}

LONGEST = 1000  # characters of a name

Columns = Mapping[str, Array | LazyRows | None]


def check(columns: Columns, names: tuple[str, ...], where: str) -> None:
    """Raise a `DataError` for the first problem found; `columns` are the fields of `Demonstrations`."""
    check_columns(columns, where)
    _check_names(names, where)
    present = {name: column for name, column in columns.items() if column is not None}
    arrays = {name: np.asarray(column) for name, column in present.items() if name != "obs"}
    episode = arrays["episode"]
    start = starts(episode)
    _check_episodes(episode, start, where)
    _check_rows(arrays["row"], episode, len(present["obs"]), where)
    _check_owners(arrays["demonstrator"], episode, start, names, where)
    _check_flags(arrays["terminated"], arrays["truncated"], episode, start, where)
    for name in ("obs", "action", "reward"):
        if name in present:
            _check_finite(name, present[name], start, where)


def refuse(where: str | os.PathLike[str], got: object, expected: object, remedy: str) -> NoReturn:
    """Raise a `DataError` about data, or about a file by its path."""
    raise DataError(printable(where), got=got, expected=expected, remedy=remedy)


def starts(episode: Int[np.ndarray, " N"]) -> Int[np.ndarray, " E"]:
    """The first transition of each episode."""
    return np.concatenate([[0], np.flatnonzero(episode[1:] != episode[:-1]) + 1])


def end_to_end(episode: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """The row of each transition: every earlier episode has one row more than transitions."""
    dtype = np.int32 if 2 * len(episode) < np.iinfo(np.int32).max else np.int64
    return np.arange(len(episode), dtype=dtype) + episode.astype(dtype)


def native(values: ArrayLike, where: str) -> np.ndarray:
    """An array of numbers in this machine's byte order."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        refuse(where, "rows of different shapes", "an array", "make all its entries alike")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        refuse(where, array.dtype, "numbers of at most 64 bits", "encode it as numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first few names, quoted."""
    return several([repr(name[:LONGEST]) for name in names], most)


def check_shapes(obs: np.ndarray | LazyRows, action: np.ndarray, first_obs, first_action, where: str) -> None:
    """T + 1 observations and T actions, each like those of the first episode."""
    if action.size == 0 or action.ndim == 0:
        refuse(where, "no actions", "at least one", "leave empty episodes out")
    steps, rows = len(action), len(obs) if obs.ndim else 0
    if rows != steps + 1:
        remedy = "include the observation the last action led to"
        refuse(where, f"{rows} observations and {steps} actions", f"{steps + 1} observations", remedy)
    for name, one, first in (("observations", obs, first_obs), ("actions", action, first_action)):
        if one.shape[1:] != first.shape[1:]:
            expected = f"{first.shape[1:]}, as in episode 0"
            refuse(where, f"{name} of shape {one.shape[1:]}", expected, "keep data of different tasks apart")


def check_columns(columns: Columns, where: str) -> None:
    """Kinds, shapes and lengths."""
    present = {name: column for name, column in columns.items() if column is not None}
    for name in ("obs", "action"):
        shape = present[name].shape
        if present[name].size == 0 or not shape:
            refuse(f"{where}, {name}", f"nothing (shape {shape})", "at least one entry", "give data with transitions")
    for name, dtypes in COLUMNS.items():
        column = present.get(name)
        if column is not None and (column.dtype not in dtypes or column.ndim != 1):
            got, kinds = f"{column.dtype} of shape {column.shape}", " or ".join(np.dtype(d).name for d in dtypes)
            refuse(f"{where}, {name}", got, f"{kinds} of shape (N,)", "store one such number a transition")
    lengths = {name: len(column) for name, column in present.items() if name != "obs"}
    if len(set(lengths.values())) != 1:
        got = "columns of lengths " + ", ".join(f"{name} {length}" for name, length in lengths.items())
        refuse(where, got, "equal lengths", "store one entry a transition in each")


def _check_names(names: tuple[str, ...], where: str) -> None:
    for i, name in enumerate(names):
        if not (isinstance(name, str) and name and name.isprintable()):
            refuse(f"{where}, names[{i}]", repr(name)[:100], "printable text", "rename this demonstrator")
        if len(name) > LONGEST:
            got = f"{len(name):,} characters, {name[:20]!r}..."
            refuse(f"{where}, names[{i}]", got, f"at most {LONGEST:,}", "rename this demonstrator")
    if len(set(names)) < len(names):
        again = next(name for name, count in Counter(names).items() if count > 1)
        refuse(f"{where}, names", f"{again!r} twice", "different names", "rename one, or merge the two")


def _check_episodes(episode: Int[np.ndarray, " N"], start: Int[np.ndarray, " E"], where: str) -> None:
    """Episodes are contiguous and numbered in order."""
    number = episode[start]
    odd = _first(number != np.arange(len(number)))
    if odd is None:
        return
    _, once = np.unique(number, return_index=True)
    if len(once) < len(number):
        again = np.setdiff1d(np.arange(len(number)), once)[0]
        got = f"a second part at transition {start[again]}"
        refuse(f"{where}, episode {number[again]}", got, "one contiguous run", "sort the transitions by episode")
    refuse(f"{where}, episode {odd}", f"the number {number[odd]}", odd, "number episodes 0, 1, 2, ... in order")


def _check_rows(row: Int[np.ndarray, " N"], episode: Int[np.ndarray, " N"], rows: int, where: str) -> None:
    """Rows exist, follow each other within an episode, and lie end to end."""
    expected = end_to_end(episode)
    bad = _first((row < 0) | (row >= rows - 1))
    if bad is not None:
        there = f"0 to {rows - 2}, for {rows} observations"
        refuse(f"{where}, {_place(episode, bad)}", f"row {row[bad]}", there, "store T + 1 observations an episode")
    bad = _first(row != expected)
    if bad is not None:
        remedy = "lay observations end to end, in order, T + 1 an episode"
        refuse(f"{where}, {_place(episode, bad)}", f"row {row[bad]}", expected[bad], remedy)
    if rows != expected[-1] + 2:
        remedy = "leave out the observations that no episode uses"
        refuse(f"{where}, obs", f"{rows} rows", f"{expected[-1] + 2}: T + 1 an episode", remedy)


def _check_owners(
    demonstrator: Int[np.ndarray, " N"],
    episode: Int[np.ndarray, " N"],
    start: Int[np.ndarray, " E"],
    names: tuple[str, ...],
    where: str,
) -> None:
    """Every episode has one demonstrator, every demonstrator an episode."""
    count, owner = len(names), demonstrator[start][episode]
    bad = _first((demonstrator < 0) | (demonstrator >= count))
    if bad is not None:
        got, expected = f"demonstrator {demonstrator[bad]}", f"0 to {count - 1}, for {count} names"
        refuse(f"{where}, {_place(episode, bad)}", got, expected, "number demonstrators from 0, and name each")
    bad = _first(demonstrator != owner)
    if bad is not None:
        got, expected = f"demonstrator {demonstrator[bad]}", f"{owner[bad]}, as at the episode's first step"
        refuse(f"{where}, {_place(episode, bad)}", got, expected, "split the episode where the demonstrator changes")
    bad = _first(np.bincount(demonstrator, minlength=count) == 0)
    if bad is not None:
        place = f"{where}, demonstrator {bad} ({names[bad]!r})"
        refuse(place, "no transitions", "at least one", "remove the name, or add the episodes")


def _check_flags(
    terminated: Bool[np.ndarray, " N"],
    truncated: Bool[np.ndarray, " N"],
    episode: Int[np.ndarray, " N"],
    start: Int[np.ndarray, " E"],
    where: str,
) -> None:
    """An episode ends at its last step and nowhere else."""
    done = terminated | truncated
    last = np.zeros(len(done), bool)
    last[np.append(start[1:], len(done)) - 1] = True
    bad = _first(done != last)
    if bad is not None and last[bad]:
        remedy = "set truncated if the recording just stops there"
        refuse(f"{where}, {_place(episode, bad)}", "neither terminated nor truncated", "one at the last step", remedy)
    if bad is not None:
        got = "terminated" if terminated[bad] else "truncated"
        final = int(np.searchsorted(episode, episode[bad], side="right") - start[episode[bad]]) - 1
        expected = f"neither before the last step, {final}"
        refuse(f"{where}, {_place(episode, bad)}", got, expected, "start a new episode after it")


def _check_finite(name: str, values: Array | LazyRows, start: Int[np.ndarray, " E"], where: str) -> None:
    """Every value is finite; else the message names the first, the number and the places of the others."""
    if values.dtype.kind != "f":
        return
    rows, entries = np.zeros(0, np.int64), np.zeros(math.prod(values.shape[1:]), np.int64)
    for begin, chunk in chunks(values):
        with np.errstate(invalid="ignore"):  # extremes first: they need no mask as large as the data
            if np.isfinite(chunk.min()) and np.isfinite(chunk.max()):
                continue
        odd = ~np.isfinite(chunk).reshape(len(chunk), -1)
        entries += odd.sum(0)
        rows = np.append(rows, begin + np.flatnonzero(odd.any(1)))
    if not len(rows):
        return
    first = start + (np.arange(len(start)) if name == "obs" else 0)
    episodes = np.unique(np.searchsorted(first, rows, side="right") - 1)
    row = np.asarray(values[int(rows[0]) : int(rows[0]) + 1])[0]
    at = [int(i) for i in np.unravel_index(np.argmin(np.isfinite(row)), row.shape)]
    place = f"{where}, episode {episodes[0]}, step {rows[0] - first[episodes[0]]}, {name}{at or ''}"
    columns = [str([int(i) for i in np.unravel_index(e, row.shape)]) for e in np.flatnonzero(entries)]
    spread = f"episodes {several(episodes.tolist())}" + (f", entries {several(columns)}" if row.shape else "")
    others = f"fix all {entries.sum()}, in {spread}, or leave these episodes out"
    remedy = others if entries.sum() > 1 else "fix it, or leave the episode out"
    refuse(place, row[tuple(at)], "a finite number", remedy)


def _first(bad: Bool[np.ndarray, " N"]) -> int | None:
    """Index of the first True, if any."""
    index = int(np.argmax(bad))
    return index if bad[index] else None


def _place(episode: Int[np.ndarray, " N"], transition: int) -> str:
    first = np.searchsorted(episode, episode[transition])
    return f"episode {episode[transition]}, step {transition - first}"
