"""`irleed.validate`: does the expertise of a fit agree with scores that the user has, beyond trivial statistics?"""

import csv
import dataclasses
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irleed._io.arrays import EXPANSION
from irleed._io.files import writing
from irleed._io.text import name as named
from irleed._io.text import one_line, printable, shortened
from irleed._typing import Float
from irleed.analysis.statistics import (
    FEWEST,
    GIVEN,
    agreement,
    control_variables,
    partial_correlation_given,
    trivial_statistics,
)
from irleed.data import Demonstrations, load
from irleed.data.formats import refuse
from irleed.data.validation import listed
from irleed.errors import ConfigError, SpaceError
from irleed.fit.result import Fit
from irleed.report import report
from irleed.report.figures import save, scatter
from irleed.runs.directory import ANSWER, LARGEST, REPORT, content, fingerprint, prepare, read_json
from irleed.runs.reader import read_fit
from irleed.runs.results import Agreement, Validation, cell

WHO, EPISODE, OWN_EPISODE = "demonstrator", "episode", "episode_of_demonstrator"
USUAL = ("score", "return", "success", "reward")  # columns that are taken for the score, in this order
MOST_BYTES, MOST_ROWS = 1 << 24, 1 << 18
ESTIMATES = ("skill", "precision", "bias", "log_likelihood", "weight")


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


def estimates_of(fit: Fit) -> dict[str, Float[np.ndarray, " D"]]:
    """The estimates for demonstrators that a fit has, by name."""
    columns = {name: getattr(fit.expertise, name) for name in ESTIMATES}
    return {name: np.asarray(values, float) for name, values in columns.items() if values is not None}


@dataclass(frozen=True)
class Estimates:
    """A fit's estimates for D demonstrators and E episodes, and the data that it was fitted to."""

    data: Demonstrations
    values: dict[str, Float[np.ndarray, " D"]]  # NaN where there is none
    episode_skill: Float[np.ndarray, " E"] | None

    @classmethod
    def of(
        cls,
        run: Fit | str | Path,
        data: Demonstrations | str | Path | None = None,
        expansion: float = EXPANSION,
    ) -> "Estimates":
        """From a fit, or from the folder of one, whose data are read again unless they are given.

        They are read with this `expansion`: a run, which may be somebody's, does not raise the limit of memory.
        """
        if isinstance(run, Fit):
            skill = None if run.episode_skill is None else np.asarray(run.episode_skill, float)
            return cls(run.origin.data, estimates_of(run), skill)
        kept = read_fit(Path(run), "make one with `irleed fit DATA --out FOLDER`")
        reading = dataclasses.replace(kept.reading, expansion=expansion)
        loaded = data if isinstance(data, Demonstrations) else load(_source(Path(run), data, kept.config), reading)
        loaded = kept.as_fitted(loaded)
        if kept.fingerprint is not None and kept.fingerprint != (other := fingerprint(loaded)):
            got, expected = f"SHA-256 {other[:8]}...", f"{kept.fingerprint[:8]}..., the data of the run"
            raise SpaceError("data", got=got, expected=expected, remedy="name the data that were fitted with --data")
        names = tuple(person.name for person in kept.people)
        if names != loaded.names:
            got, expected = f"judgements of {listed(names)}", f"of {listed(loaded.names)}, as in the data"
            refuse(f"{run}, {ANSWER}", got, expected, "fit again")
        answer = read_json(Path(run) / ANSWER)
        rows = answer.inners("expertise")
        there = [name for name in ESTIMATES if any(name in row for row in rows)]
        found = {name: np.array([row.maybe(name) if name in row else np.nan for row in rows], float) for name in there}
        skill = np.array(answer.numbers("episode_skill")) if "episode_skill" in answer else None
        return cls(loaded, found, skill)


def validate(
    run: Fit | str | Path,
    scores: Mapping[str, float] | str | Path,
    *,
    score: str | None = None,
    data: Demonstrations | str | Path | None = None,
    out: str | Path | None = None,
    expansion: float = EXPANSION,
) -> Validation:
    """Compare each demonstrator's estimates with scores, beside trivial statistics of the same data.

    Rank correlations (Spearman) with 95 % bootstrap intervals over people, and partial ones given steps per episode and
    the share of the most frequent action (of continuous actions, the mean absolute change of action). Scores are used
    for nothing else: a fit never sees them.

    **Arguments:**

    - `run`: the fit, or the folder of one.
    - `scores`: a score for each name, or the path of a CSV file with the columns `demonstrator`, perhaps `episode` (its
      number in the data) or `episode_of_demonstrator` (counted for each from 0), and a score.
    - `score`: the column; by default score, return, success or reward.
    - `data`: the data of the run, where they are not where they were.
    - `out`: a folder for validation.json and the plot, validation.png and .pdf. In the run's own folder, the report
      gets a section about it.
    - `expansion`: how many times its own size a file of the data may take in memory, see `irleed.data.ReadOptions`.
    """
    fitted = Estimates.of(run, data, expansion)
    found = compare(fitted, Scores.of(scores, score).matched(fitted.data))
    if out is not None:
        folder = prepare(out)
        with writing(folder, "choose another --out"):
            _write(folder, found, None if isinstance(run, Fit) else Path(run))
    return found


def compare(fitted: Estimates, scored: Scored) -> Validation:
    """The rank correlation of every estimate and trivial statistic with the scores."""
    data, score = fitted.data, scored.people
    trivial = trivial_statistics(data)
    given = control_variables(trivial)
    values = {name.replace("_", " "): column for name, column in fitted.values.items()}
    estimates = tuple(agreement(name, column, score, given) for name, column in values.items())
    others = tuple(agreement(name, column, score, given, trivial=True) for name, column in trivial.items())
    return Validation(
        score=scored.column,
        names=data.names,
        scores=_plain(score),
        values={name: _plain(column) for name, column in values.items()},
        estimates=estimates,
        trivial=others,
        episodes=_episodes(fitted, scored),
        given=tuple(name for name in GIVEN if name in trivial),
        said=conclusion(estimates[0], others, values[estimates[0].name], trivial, score),
        notes=_notes(data, scored),
    )


def conclusion(
    lead: Agreement,
    trivial: tuple[Agreement, ...],
    values: Float[np.ndarray, " D"],
    statistics: Mapping[str, Float[np.ndarray, " D"]],
    score: Float[np.ndarray, " D"],
) -> str:
    """Whether an estimate adds anything to the trivial statistic that agrees best with the scores, in a sentence."""
    if lead.spearman is None:
        return f"Nothing can be said of {lead.name}: {lead.reason}."
    known = [each for each in trivial if each.spearman is not None]
    own = f"{lead.name} has a rank correlation of {_interval(lead.spearman, lead.low, lead.high)} with the scores"
    if not known:
        return f"{own}; no trivial statistic varies."
    best = max(known, key=lambda each: abs(each.spearman or 0.0))
    beside = f"the best trivial statistic, {best.name}, {_interval(best.spearman, best.low, best.high)}"
    partial = partial_correlation_given(values, score, np.asarray(statistics[best.name], float))
    if partial is None:
        return f"{own}, {beside}: they order people alike."
    if partial[1] > 0:
        verdict = f"{lead.name} adds to the best trivial statistic"
    elif partial[2] < 0:
        verdict = f"{lead.name} says the opposite of the scores once the best trivial statistic is known"
    else:
        verdict = f"these scores do not show that {lead.name} adds anything to the best trivial statistic"
    return f"{verdict}: {own}; {beside}; partial correlation given it {_interval(*partial)}."


def _episodes(fitted: Estimates, scored: Scored) -> tuple[Agreement, ...]:
    """Skill and scores of episodes, compared over all and within demonstrators (minus everyone's own mean)."""
    if fitted.episode_skill is None or scored.episodes is None:
        return ()
    if len(fitted.episode_skill) != fitted.data.episodes:  # outliers that were left out have cut some short
        return ()
    owner, skill, score = np.asarray(fitted.data.owner), fitted.episode_skill, scored.episodes
    given = control_variables(trivial_statistics(fitted.data, np.arange(fitted.data.episodes)))
    known = np.isfinite(skill) & np.isfinite(score)
    count = np.maximum(np.bincount(owner[known], minlength=fitted.data.demonstrators), 1)

    def within(column: np.ndarray) -> np.ndarray:
        total = np.bincount(owner[known], column[known], fitted.data.demonstrators)
        return np.where(known, column - (total / count)[owner], np.nan)

    several = np.where(count[owner] > 1, 0.0, np.nan)  # who has one episode with a score differs from nothing
    return (
        agreement("episode skill", skill, score, given, group=owner),
        agreement("episode skill, within people", within(skill) + several, within(score), given, group=owner),
    )


def _notes(data: Demonstrations, scored: Scored) -> tuple[str, ...]:
    """Caveats about the scores and the data."""
    known = np.isfinite(scored.people)
    notes = []
    if known.sum() < FEWEST:
        notes.append(f"{int(known.sum())} people have scores: with fewer than {FEWEST}, no correlation is computed")
    elif np.ptp(scored.people[known]) == 0:
        notes.append("all scores are equal: there is no correlation with them")
    missing = [named(each) for each, has in zip(data.names, known, strict=True) if not has]
    if missing:
        notes.append(f"without scores: {listed(missing)}")
    alone = [named(data.names[who]) for who in np.flatnonzero(np.bincount(data.owner) == 1)]
    if alone:
        notes.append(f"one episode only: {listed(alone)}; differences between their episodes are taken from the others")
    return tuple(notes)


def _source(run: Path, data: str | Path | None, config: Mapping[str, object]) -> Path:
    """The path of a run's data."""
    found = data if data is not None else config.get("data")
    path = None if found is None else Path(str(found))
    if path is None or not os.path.exists(path):  # unlike Path.exists, False for names that are too long
        got = f"no data at {found}" if data is None else f"nothing at {data}"
        raise ConfigError(f"data of {run}", got=got, expected="the data of the run", remedy="name them with --data")
    return path


def _write(folder: Path, found: Validation, run: Path | None) -> None:
    """The plot, then validation.json, then the run's report with it."""
    columns = {each.name: each for each in found.estimates if each.spearman is not None}
    score = np.array([np.nan if each is None else each for each in found.scores], float)
    if columns:
        panels = {name: (np.array(found.values[name], float), score) for name in columns}
        titles = {name: f"Spearman {cell(each.spearman, each.low, each.high)}" for name, each in columns.items()}
        save(scatter(found.names, panels, titles, found.score), folder / "validation")
    found.write(folder, run)
    if run is not None and folder.resolve() == run.resolve() and (run / REPORT).exists():
        report(run)


def _plain(values: Float[np.ndarray, " D"]) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return cell(value, low, high).replace("\\", "")
