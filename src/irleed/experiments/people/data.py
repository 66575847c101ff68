"""The two parts of what demonstrators did: what is fitted, and the score of the rest."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irleed._typing import Float
from irleed.analysis.scores import EPISODE, OWN_EPISODE, read_scores
from irleed.analysis.trivial import held_fixed, trivial_statistics
from irleed.data import Demonstrations, load
from irleed.errors import DataError
from irleed.experiments.people.config import PeopleConfig, Split
from irleed.fit.door import of_states

SECOND, FIRST = "score_second_half", "score_first_half"


@dataclass(frozen=True)
class Part:
    """The first part of a file, to be fitted, and what else is known of its D demonstrators."""

    name: str
    split: Split
    column: str  # of the table of scores
    data: Demonstrations  # without the action that is left out
    score: Float[np.ndarray, " D"]  # of the rest; NaN where there is none
    first_score: Float[np.ndarray, " D"] | None  # of the first part, the ceiling of what can be known
    trivial: dict[str, Float[np.ndarray, " D"]]  # of the first part, before an action is left out
    given: Float[np.ndarray, "K D"]  # held fixed in partial correlations
    notes: tuple[str, ...] = ()


def part_of(path: Path, table: Path, config: PeopleConfig) -> Part:
    """Load a file and its scores, and split them."""
    data = load(path)
    if of_states(data):
        expected, remedy = "observations that networks can learn from", "this experiment is about networks"
        raise DataError(str(path), got="numbers of states", expected=expected, remedy=remedy)
    columns = _columns(table)
    by_episode = bool({EPISODE, OWN_EPISODE} & set(columns))
    split: Split = config.split if config.split != "auto" else "episodes" if by_episode else "halves"
    if split == "episodes" and not by_episode:
        expected, remedy = f"a column {EPISODE!r} or {OWN_EPISODE!r}", "add it, or choose --split halves"
        raise DataError(str(table), got="scores of demonstrators alone", expected=expected, remedy=remedy)
    parts = _episodes(data, table, config.score) if split == "episodes" else _halves(data, table, columns, config.score)
    first, column, score, first_score, notes = parts
    trivial = trivial_statistics(first, actions=config.actions)
    kept = first if config.without is None else first.without(np.flatnonzero(first.action == config.without))
    return Part(path.stem, split, column, kept, score, first_score, trivial, held_fixed(trivial), notes)


def _episodes(data: Demonstrations, table: Path, column: str | None):
    """Even episodes of each demonstrator, and the mean score of the odd ones."""
    scored = read_scores(table, column).matched(data)
    if scored.episodes is None:
        raise DataError(str(table), got="no episodes", expected="scores by episode", remedy="choose --split halves")
    number = np.zeros(data.episodes, int)
    for who in range(data.demonstrators):
        number[data.owner == who] = np.arange((data.owner == who).sum())
    even = number % 2 == 0
    alone = [name for who, name in enumerate(data.names) if (data.owner == who).sum() == 1]
    notes = (f"one episode only, hence no score of the rest: {', '.join(alone)}",) if alone else ()
    means = [_mean_of(scored.episodes, chosen, data) for chosen in (~even, even)]
    return data.take(np.flatnonzero(even)), scored.column, *means, notes


def _halves(data: Demonstrations, table: Path, columns: list[str], column: str | None):
    """The first half of each episode, and the score that the table has of the second."""
    chosen = column or (SECOND if SECOND in columns else None)
    scored = read_scores(table, chosen).matched(data)
    short = [data.names[data.owner[episode]] for episode in np.flatnonzero(data.length < 2)]
    if short:
        got, remedy = f"an episode of one step of {short[0]!r}", "leave it out"
        raise DataError(str(table), got=got, expected="two steps or more", remedy=remedy)
    within = np.arange(data.transitions) - data.start[data.episode]
    first = data.without(np.flatnonzero(within >= data.length[data.episode] // 2))
    ceiling = read_scores(table, FIRST).matched(data).people if chosen == SECOND and FIRST in columns else None
    return first, scored.column, scored.people, ceiling, ()


def _mean_of(score: Float[np.ndarray, " E"], chosen: np.ndarray, data: Demonstrations) -> Float[np.ndarray, " D"]:
    """The mean score of each demonstrator's chosen episodes; NaN where none has a score."""
    rows = np.flatnonzero(chosen & np.isfinite(score))
    count = np.bincount(data.owner[rows], minlength=data.demonstrators)
    total = np.bincount(data.owner[rows], score[rows], data.demonstrators)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _columns(table: Path) -> list[str]:
    with table.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        return [name.strip() for name in next(csv.reader(file), [])]
