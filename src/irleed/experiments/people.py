"""Real demonstrators with known scores: do estimates from a first part of their data agree with scores of the rest?

Each file of demonstrations has a table of scores beside it. Every method is fitted to a first part (every second
episode, or the first half of each episode) without rewards or scores; its estimates are compared with the scores of
the rest, beside trivial statistics of the first part. `sweep` runs what a `PeopleConfig` asks for; `write` makes
results.json and the figure of it, `tables` shows them.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.table import Table

from irleed._typing import Float
from irleed.analysis.statistics import agreement, control_variables, trivial_statistics
from irleed.analysis.validation import EPISODE, OWN_EPISODE, conclusion, estimates_of, read_scores
from irleed.data import Demonstrations, load
from irleed.data.transitions import are_choices
from irleed.errors import ConfigError, DataError
from irleed.experiments import check_chosen, check_least, computed_once, results_table
from irleed.fit.defaults import Method, network_algorithm
from irleed.fit.door import fit, of_states
from irleed.fit.networks import MEMBERS
from irleed.report import figures
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import fingerprint, plain
from irleed.runs.results import Agreement, Results, Row, cell

MethodName = Literal["irleed", "ileed", "bc", "iq"]
Split = Literal["auto", "episodes", "halves"]
QUICK_STEPS = 1_000
SECOND, FIRST = "score_second_half", "score_first_half"
# Estimates that are compared with scores; of methods that do not tell demonstrators apart, log likelihoods of actions.
SHOWN = {
    "irleed": ("skill", "precision", "log_likelihood"),
    "ileed": ("precision",),
    "bc": ("log_likelihood",),
    "iq": ("log_likelihood",),
}
TRIVIAL, SCORE = "trivial", "score"  # methods of rows about trivial statistics, and about the score of the first part
MEASURE = "Spearman with the score of the rest"
Found = dict[tuple[str, str], Agreement]  # by method and estimator


@dataclass(frozen=True)
class PeopleConfig:
    """Real demonstrators with known scores: estimates from a first part of their data beside the score of the rest."""

    data: tyro.conf.Positional[tuple[Path, ...]]
    """Files of demonstrations, each fitted separately."""
    out: Path
    """Folder for results.json and the figures. An interrupted run resumes from its parts in the folder."""
    scores: tuple[Path, ...] = ()
    """Tables of scores, one for each file in this order; by default NAME_scores.csv beside NAME.npz."""
    score: str | None = None
    """Column of the score; by default the first of score_second_half (halves), score, return, success and reward."""
    split: Split = "auto"
    """episodes: fit the even episodes of each demonstrator, scored by the mean of the odd ones. halves: fit the first
    half of each episode, scored by what the table says of the rest. auto: episodes where scores are by episode."""
    without: int | None = None
    """Leave out this action, as idle, before fitting; trivial statistics count it."""
    actions: tuple[int, ...] = ()
    """Discrete actions whose shares are further trivial statistics."""
    methods: tuple[MethodName, ...] = get_args(MethodName)
    """Methods to compare."""
    members: int = MEMBERS
    """Members of the ensemble of each method."""
    steps: int | None = None
    """Updates of each method; by default its own."""
    seed: int = 0
    """The random seed."""
    quick: bool = False
    """One member and 1,000 updates, for a first look."""

    @property
    def table_of(self) -> dict[Path, Path]:
        """The table of scores of each file."""
        beside = tuple(path.with_name(f"{path.stem}_scores.csv") for path in self.data)
        return dict(zip(self.data, self.scores or beside, strict=True))

    @property
    def fit_settings(self) -> dict[str, Any]:
        """Arguments of `irleed.fit`, as they will be."""
        changes = {"members": 1, "steps": QUICK_STEPS} if self.quick else {}
        return {"members": self.members, "steps": self.steps, "seed": self.seed, **changes}


def check(config: PeopleConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    check_chosen(config, "data", "methods")
    if config.scores and len(config.scores) != len(config.data):
        got, expected = f"{len(config.scores)} tables", f"{len(config.data)}, one for each file"
        raise ConfigError("--scores", got=got, expected=expected, remedy="give them in the order of the files")
    stems = [path.stem for path in config.data]
    if len(set(stems)) < len(stems):
        expected, remedy = "different names, which results are called by", "rename one"
        raise ConfigError("data", got=", ".join(stems), expected=expected, remedy=remedy)
    check_least(config, members=1, steps=1)
    missing = [path for path in config.table_of.values() if not path.is_file()]
    if missing:
        remedy = "name it with --scores, or put it there"
        raise ConfigError(f"scores {missing[0]}", got="no file", expected="a table of scores", remedy=remedy)


@dataclass(frozen=True)
class Part:
    """The first part of a file, to be fitted, and scores and trivial statistics of its D demonstrators."""

    name: str
    split: Split
    column: str  # of the table of scores
    data: Demonstrations  # without the action that is left out
    score: Float[np.ndarray, " D"]  # of the rest; NaN where there is none
    first_score: Float[np.ndarray, " D"] | None  # of the first part: its agreement is a ceiling
    trivial: dict[str, Float[np.ndarray, " D"]]  # of the first part, before an action is left out
    given: Float[np.ndarray, "K D"]  # held fixed in partial correlations
    notes: tuple[str, ...] = ()


def part_of(path: Path, table: Path, config: PeopleConfig) -> Part:
    """Load a file and its scores, and split them."""
    data = load(path)
    if of_states(data):
        expected, remedy = "observations that networks can learn from", "this experiment is about networks"
        raise DataError(str(path), got="numbers of states", expected=expected, remedy=remedy)
    columns = _header(table)
    by_episode = bool({EPISODE, OWN_EPISODE} & set(columns))
    split: Split = config.split if config.split != "auto" else "episodes" if by_episode else "halves"
    if split == "episodes" and not by_episode:
        expected, remedy = f"a column {EPISODE!r} or {OWN_EPISODE!r}", "add it, or choose --split halves"
        raise DataError(str(table), got="scores of demonstrators alone", expected=expected, remedy=remedy)
    parts = _episodes(data, table, config.score) if split == "episodes" else _halves(data, table, columns, config.score)
    first, column, score, first_score, notes = parts
    trivial = trivial_statistics(first, actions=config.actions)
    kept = first if config.without is None else first.without(np.flatnonzero(first.action == config.without))
    return Part(path.stem, split, column, kept, score, first_score, trivial, control_variables(trivial), notes)


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


def _header(table: Path) -> list[str]:
    with table.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        return [name.strip() for name in next(csv.reader(file), [])]


@dataclass(frozen=True)
class Outcome:
    """Results of the sweep."""

    parts: tuple[Part, ...]
    estimates: dict[tuple[str, str], dict[str, Float[np.ndarray, " D"]]]  # by file and method
    seconds: dict[str, float] = field(default_factory=dict)


def sweep(config: PeopleConfig, progress: Callable[..., None]) -> Outcome:
    """Every method on every file; parts that an earlier run with the same settings left in the folder are reused."""
    check(config)
    outcome = Outcome(tuple(part_of(path, table, config) for path, table in config.table_of.items()), {})
    methods = tuple(dict.fromkeys(config.methods))
    total = 1_000 * len(outcome.parts) * len(methods)
    for part in outcome.parts:
        for method in methods:
            before = 1_000 * len(outcome.estimates)

            def report(done: int, steps: int, before: int = before, **figures: float) -> None:
                progress(before + 1_000 * done // steps, total, **figures)

            found, seconds = _estimates(config, part, method, report)
            outcome.estimates[part.name, method], outcome.seconds[f"{part.name}_{method}"] = found, seconds
    return outcome


def _estimates(
    config: PeopleConfig, part: Part, method: str, progress: Callable[..., None]
) -> tuple[dict[str, Float[np.ndarray, " D"]], float]:
    """A method's estimates for each demonstrator of the first part, and the seconds it took."""
    settings = config.fit_settings
    algorithm = network_algorithm(cast(Method, method), continuous=not are_choices(part.data))
    known = {"data": fingerprint(part.data), "method": method, **settings, **plain(algorithm, "algorithm")}

    def fitted(_: Checkpointer) -> dict[str, np.ndarray]:
        found = fit(part.data, algorithm=cast(Method, method), progress=progress, warn=lambda line: None, **settings)
        return estimates_of(found)

    return computed_once(config.out / "parts" / f"{part.name}_{method}.npz", known, fitted)


def write(config: PeopleConfig, outcome: Outcome) -> Results:
    """Write results.json and the figure; returns the results."""
    found: dict[str, Found] = {part.name: {} for part in outcome.parts}
    for part in outcome.parts:
        for key, values in _columns(part, outcome).items():
            trivial = key[0] == TRIVIAL
            found[part.name][key] = agreement(" ".join(key), values, part.score, part.given, trivial=trivial)
    rows = [row for part in outcome.parts for row in _rows(part, found[part.name])]
    warnings = tuple(f"{part.name}: {note}" for part in outcome.parts for note in part.notes)
    described = {"summary": _summary(outcome, found), "paper": {}, "warnings": warnings, "measure": MEASURE}
    results = Results.of("people", config, rows, outcome.seconds, **described)
    figures.save(_figure(outcome, found), config.out / "scatter")
    results.write(config.out)
    return results


def _columns(part: Part, outcome: Outcome) -> dict[tuple[str, str], Float[np.ndarray, " D"]]:
    """Every estimate and statistic of a file's demonstrators, by method and estimator."""
    columns = {
        (method, name.replace("_", " ")): values[name]
        for (file, method), values in outcome.estimates.items()
        for name in SHOWN[method]
        if file == part.name and name in values
    }
    columns |= {(TRIVIAL, name): np.asarray(values, float) for name, values in part.trivial.items()}
    return columns if part.first_score is None else columns | {(SCORE, "of the first part"): part.first_score}


def _rows(part: Part, found: Found) -> list[Row]:
    """Rank correlations, and partial ones; none where they are not defined."""
    rows = []
    for (method, estimator), each in found.items():
        rank, partial = (each.spearman, each.low, each.high), (each.partial, each.partial_low, each.partial_high)
        for kind, (value, low, high) in {"rank": rank, "partial": partial}.items():
            if value is not None:
                place = {"env": part.name, "correlation": kind}
                rows.append(Row(place, method, value, ci_low=low, ci_high=high, estimator=estimator))
    return rows


def _summary(outcome: Outcome, found: dict[str, Found]) -> dict[str, object]:
    """The data compared, and what the first estimate adds to the best trivial statistic."""
    summary: dict[str, object] = {}
    for part in outcome.parts:
        columns, own = _columns(part, outcome), found[part.name]
        summary[f"{part.name} people"] = int(np.isfinite(part.score).sum())
        summary[f"{part.name} split"], summary[f"{part.name} score"] = part.split, part.column
        lead = next((key for key in own if key[0] not in (TRIVIAL, SCORE)), None)
        if lead is not None:
            counted = {f"{TRIVIAL} {name}": values for name, values in part.trivial.items()}
            others = tuple(each for key, each in own.items() if key[0] == TRIVIAL)
            summary[f"{part.name}"] = conclusion(own[lead], others, columns[lead], counted, part.score)
        missing = [f"{each.name}: {each.reason}" for each in own.values() if each.reason is not None]
        if missing:
            summary[f"{part.name} not defined"] = "; ".join(missing)
    return summary


def tables(results: Results) -> Table:
    """Rank correlations of every method with the score of the rest, a column for each file."""
    files = list(dict.fromkeys(str(row.setting["env"]) for row in results.rows))
    caption = "Spearman with the score of the rest, 95 % bootstrap interval over people; below it, partial correlation"
    shown = results_table("People", caption, files)
    by_place = {(row.setting["env"], row.name, row.setting["correlation"]): row for row in results.rows}
    for name in dict.fromkeys(row.name for row in results.rows):
        cells = []
        for file in files:
            pair = [by_place.get((file, name, kind)) for kind in ("rank", "partial")]
            cells.append("\n".join("" if row is None else cell(row.mean, row.ci_low, row.ci_high) for row in pair))
        shown.add_row(name, *cells)
    return shown


def _figure(outcome: Outcome, found: dict[str, Found]) -> Figure:
    """The score of the rest against the first method's estimates, and against the best trivial statistic."""
    panels, titles = {}, {}
    for part in outcome.parts:
        columns, own = _columns(part, outcome), found[part.name]
        known = {key: each for key, each in own.items() if each.spearman is not None}
        counted = [key for key in known if key[0] == TRIVIAL]
        best = max(counted, key=lambda key: abs(known[key].spearman or 0.0), default=None)
        chosen = [key for key in known if key[0] not in (TRIVIAL, SCORE)][:2] + ([] if best is None else [best])
        for key in chosen:
            title = f"{part.name}\n{known[key].name}"
            panels[title] = columns[key], part.score
            titles[title] = f"Spearman {known[key].spearman:.2f}"
    return figures.scatter((), panels, titles, "score of the rest")
