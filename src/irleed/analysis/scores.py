"""Scores that the user has for some people or episodes: a CSV file, matched with demonstrations."""

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irleed._io.text import one_line, printable, shortened
from irleed._typing import Float
from irleed.data import Demonstrations
from irleed.data.formats import refuse
from irleed.data.validation import listed
from irleed.runs.directory import LARGEST, content

WHO, EPISODE, OWN_EPISODE = "demonstrator", "episode", "episode_of_demonstrator"
USUAL = ("score", "return", "success", "reward")  # columns that are taken for the score, in this order
MOST_BYTES, MOST_ROWS = 1 << 24, 1 << 18


@dataclass(frozen=True)
class Scored:
    """Scores of D demonstrators, each the mean over what is known of them, and of E episodes; NaN where unknown."""

    column: str
    people: Float[np.ndarray, " D"]
    episodes: Float[np.ndarray, " E"] | None  # None: no episode has a score of its own


@dataclass(frozen=True)
class Scores:
    """Rows of a table of scores."""

    where: str
    column: str
    names: tuple[str, ...]
    values: Float[np.ndarray, " R"]
    numbers: tuple[int, ...] | None = None  # of episodes
    own: bool = False  # whether these count the episodes of each demonstrator, not those of the data

    @classmethod
    def of(cls, scores: Mapping[str, float] | str | Path, column: str | None = None) -> "Scores":
        """From a file, or from a score for each name."""
        if isinstance(scores, str | Path):
            return read_scores(Path(scores), column)
        values = np.array(list(scores.values()), float)
        if not len(values) or not (np.abs(values) < LARGEST).all():
            refuse("scores", "none, or what is not finite", "a number for each name", "leave out who has none")
        return cls("scores", column or "score", tuple(scores), values)

    def matched(self, data: Demonstrations) -> Scored:
        """Those of the demonstrators in the data; scores of unknown people or episodes are refused by name."""
        place = {name: number for number, name in enumerate(data.names)}
        unknown = [name for name in dict.fromkeys(self.names) if name not in place]
        if unknown:
            got, remedy = f"scores of {listed(unknown)}", "leave these rows out, or name the data they belong to"
            refuse(self.where, got, f"demonstrators of the data: {listed(data.names)}", remedy)
        who = np.array([place[name] for name in self.names], int)
        if self.numbers is None:
            return Scored(self.column, _means(who, self.values, data.demonstrators), None)
        episodes = self._episodes(data, who)
        by_episode = np.full(data.episodes, np.nan)
        by_episode[episodes] = self.values
        return Scored(self.column, _means(who, self.values, data.demonstrators), by_episode)

    def _episodes(self, data: Demonstrations, who: np.ndarray) -> np.ndarray:
        """The number of each row's episode in the data."""
        found, seen, kind = [], set(), OWN_EPISODE if self.own else EPISODE
        mine = [np.flatnonzero(data.owner == number) for number in range(data.demonstrators)]
        for name, number, place in zip(self.names, self.numbers or (), who, strict=True):
            own = mine[place]
            known = 0 <= number < len(own) if self.own else number in own
            got, remedy = f"{kind} {number} of {name!r}", "check that scores and data belong together"
            if not known:
                expected = f"0 to {len(own) - 1}" if self.own else f"one of {listed([str(each) for each in own])}"
                refuse(self.where, got, expected, remedy)
            episode = int(own[number]) if self.own else number
            if episode in seen:
                refuse(self.where, f"{got} again", "every episode once", remedy)
            seen.add(episode)
            found.append(episode)
        return np.array(found, int)


def read_scores(path: Path, column: str | None = None) -> Scores:
    """Read a CSV file with columns `demonstrator`, perhaps `episode` or `episode_of_demonstrator`, and a score.

    Rows whose score is empty are left out. The score is the named column; by default the first of score, return,
    success and reward, or the only other column.
    """
    try:
        text = content(Path(os.path.realpath(path)), MOST_BYTES, "name the table of scores").decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse(path, "what is no text", "a CSV file", "name the table of scores")
    count = max(map(text.count, "\n\r"))
    if count > MOST_ROWS:
        refuse(path, f"{count} lines", f"at most {MOST_ROWS}", "leave out who is not in the data")
    first = text.partition("\n")[0]
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    try:
        names = [name.strip() for name in next(lines, [])]
        rows = [(lines.line_num, row) for row in lines if row]
    except csv.Error as error:
        refuse(path, one_line(error), "a CSV file", "mend the file")
    if WHO not in names or not rows:
        got = f"{len(rows)} rows of {listed(names)}"
        refuse(path, got, f"rows with a column {WHO!r} and a score", "name the columns in the first line")
    chosen = _column(path, names, column)
    counted = next((name for name in (OWN_EPISODE, EPISODE) if name in names), None)
    used = (WHO, chosen, *(() if counted is None else (counted,)))
    twice = [name for name in used if names.count(name) > 1]
    if twice:
        refuse(path, f"two columns {listed(twice)}", "every column once", "rename one of them")

    places = {name: names.index(name) for name in used}

    def cell(row: list[str], name: str) -> str:
        return row[places[name]].strip() if places[name] < len(row) else ""

    kept = [(line, row) for line, row in rows if cell(row, chosen)]
    if not kept:
        refuse(path, f"no value in column {chosen!r}", "a score in some row", "name another with --score")
    values = np.array([_number(path, line, chosen, cell(row, chosen)) for line, row in kept], float)
    numbers = None if counted is None else tuple(_whole(path, line, counted, cell(row, counted)) for line, row in kept)
    people = tuple(cell(row, WHO) for _, row in kept)
    return Scores(printable(path), chosen, people, values, numbers, counted == OWN_EPISODE)


def _column(path: Path, names: list[str], column: str | None) -> str:
    """The column of the score."""
    others = [name for name in names if name not in (WHO, EPISODE, OWN_EPISODE)]
    known = [name for name in USUAL if name in others] or (others if len(others) == 1 else [])
    found = column or (known[0] if known else None)
    if found is None or found not in others:
        got = f"no column {found!r}" if found else f"columns {listed(others)}"
        refuse(path, got, f"one of {listed(others)}" if found else "one called score or return", "name it with --score")
    return found


def _number(path: Path, line: int, name: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = np.nan
    if not abs(found) < LARGEST:
        where = f"{printable(path)}, line {line}, {one_line(name, 40)}"
        refuse(where, shortened(repr(value), 80), f"a finite number below {LARGEST:g}", "mend it, or leave it empty")
    return found


def _whole(path: Path, line: int, name: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", value):
        got = shortened(repr(value), 80)
        refuse(f"{printable(path)}, line {line}, {name}", got, "the number of an episode", "mend it")
    return int(value)


def _means(who: np.ndarray, values: Float[np.ndarray, " R"], count: int) -> Float[np.ndarray, " D"]:
    rows = np.bincount(who, minlength=count)
    return np.where(rows > 0, np.bincount(who, values, count) / np.maximum(rows, 1), np.nan)
