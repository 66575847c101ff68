"""Does the expertise of a fit agree with scores that the user has? Beside what trivial statistics would say."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from irleed._io.arrays import EXPANSION
from irleed._io.files import writing
from irleed._io.text import name as named
from irleed._typing import Float
from irleed.analysis.agreement import FEWEST, agreement, beyond
from irleed.analysis.scores import Scored, Scores
from irleed.analysis.trivial import GIVEN, held_fixed, trivial_statistics
from irleed.data import Demonstrations, load
from irleed.data.validation import listed
from irleed.errors import ConfigError, SpaceError
from irleed.fit.result import Fit
from irleed.report import figures
from irleed.report.page import report
from irleed.report.validation import scatter
from irleed.runs.directory import ANSWER, REPORT, fingerprint, prepare, read_json, refuse
from irleed.runs.reader import read_fit
from irleed.runs.results import Agreement, Validation, cell

ESTIMATES = ("skill", "precision", "bias", "log_likelihood", "weight")
DEFINED = {"log_likelihood": "log likelihood"}  # as they are called


@dataclass(frozen=True)
class Judged:
    """What a fit says of D demonstrators and of E episodes, and the data that it was fitted to."""

    data: Demonstrations
    values: dict[str, Float[np.ndarray, " D"]]  # NaN where there is none
    episode_skill: Float[np.ndarray, " E"] | None

    @classmethod
    def of(
        cls,
        run: Fit | str | Path,
        data: Demonstrations | str | Path | None = None,
        expansion: float = EXPANSION,
    ) -> "Judged":
        """From a fit, or from the folder of one, whose data are read again unless they are given.

        They are read with this `expansion`: a run, which may be somebody's, does not raise the limit of memory.
        """
        if isinstance(run, Fit):
            columns = {name: getattr(run.expertise, name) for name in ESTIMATES}
            found = {name: np.asarray(values, float) for name, values in columns.items() if values is not None}
            skill = None if run.episode_skill is None else np.asarray(run.episode_skill, float)
            return cls(run.origin.data, found, skill)
        kept = read_fit(Path(run), "make one with `irleed fit DATA --out FOLDER`")
        reading = dataclasses.replace(kept.reading, expansion=expansion)
        loaded = data if isinstance(data, Demonstrations) else load(_source(Path(run), data, kept.config), reading)
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
    judged = Judged.of(run, data, expansion)
    found = compared(judged, Scores.of(scores, score).matched(judged.data))
    if out is not None:
        folder = prepare(out)
        with writing(folder, "choose another --out"):
            _write(folder, found, None if isinstance(run, Fit) else Path(run))
    return found


def compared(judged: Judged, scored: Scored) -> Validation:
    """The rank correlations of every estimate and trivial statistic, and what they say."""
    data, score = judged.data, scored.people
    trivial = trivial_statistics(data)
    given = held_fixed(trivial)
    values = {DEFINED.get(name, name): column for name, column in judged.values.items()}
    estimates = tuple(agreement(name, column, score, given) for name, column in values.items())
    others = tuple(agreement(name, column, score, given, trivial=True) for name, column in trivial.items())
    return Validation(
        score=scored.column,
        names=data.names,
        scores=_plain(score),
        values={name: _plain(column) for name, column in values.items()},
        estimates=estimates,
        trivial=others,
        episodes=_episodes(judged, scored),
        given=tuple(name for name in GIVEN if name in trivial),
        said=said(estimates[0], others, values[estimates[0].name], trivial, score),
        notes=_notes(data, scored),
    )


def said(
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
    partial = beyond(values, score, np.asarray(statistics[best.name], float))
    if partial is None:
        return f"{own}, {beside}: they order people alike."
    if partial[1] > 0:
        verdict = f"{lead.name} adds to the best trivial statistic"
    elif partial[2] < 0:
        verdict = f"{lead.name} says the opposite of the scores once the best trivial statistic is known"
    else:
        verdict = f"these scores do not show that {lead.name} adds anything to the best trivial statistic"
    return f"{verdict}: {own}; {beside}; partial correlation given it {_interval(*partial)}."


def _episodes(judged: Judged, scored: Scored) -> tuple[Agreement, ...]:
    """The skill in each episode beside the scores of episodes, over all and as differences from everyone's own mean."""
    if judged.episode_skill is None or scored.episodes is None:
        return ()
    if len(judged.episode_skill) != judged.data.episodes:  # outliers that were left out have cut some short
        return ()
    owner, skill, score = np.asarray(judged.data.owner), judged.episode_skill, scored.episodes
    given = held_fixed(trivial_statistics(judged.data, np.arange(judged.data.episodes)))
    known = np.isfinite(skill) & np.isfinite(score)
    count = np.maximum(np.bincount(owner[known], minlength=judged.data.demonstrators), 1)

    def around_own_mean(column: np.ndarray) -> np.ndarray:
        total = np.bincount(owner[known], column[known], judged.data.demonstrators)
        return np.where(known, column - (total / count)[owner], np.nan)

    several = np.where(count[owner] > 1, 0.0, np.nan)  # who has one episode with a score differs from nothing
    return (
        agreement("episode skill", skill, score, given, group=owner),
        agreement(
            "episode skill, within people", around_own_mean(skill) + several, around_own_mean(score), given, group=owner
        ),
    )


def _notes(data: Demonstrations, scored: Scored) -> tuple[str, ...]:
    """What to know before the figures are used."""
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
    """Where the data of a run are."""
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
        figures.save(scatter(found.names, panels, titles, found.score), folder / "validation")
    found.write(folder, run)
    if run is not None and folder.resolve() == run.resolve() and (run / REPORT).exists():
        report(run)


def _plain(values: Float[np.ndarray, " D"]) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    return cell(value, low, high).replace("\\", "")
