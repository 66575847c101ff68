"""results.json of experiments, with one type of row for all of them, and validation.json of runs: written and read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import jax
from rich.box import SIMPLE_HEAD
from rich.table import Table

from irleed._io.files import file_digest, write_signed
from irleed.runs.directory import ANSWER, Fields, read_json, refuse

RESULTS = "results.json"
VERSION = 2  # in version 1, the interval of a row with a relative return was that of the relative return
RETURN = "return"
DEMONSTRATED = "demonstrators"  # the method of rows with the demonstrators' own returns
# Names for tables, by the names on the command line.
METHODS = {
    "irleed": "IRLEED", "maxent": "maximum-entropy IRL", "iq": "IQ-Learn", "ileed": "ILEED", "bc": "cloning",
    "sqil": "SQIL", "trivial": "trivial:", "score": "score",
}  # fmt: skip
VARIANTS = {"best": " of the best third", "online": " online", "failure": ", failure", "paper": " as published"}


def method_name(method: str) -> str:
    """A method as tables show it: `irleed_failure_online` is IRLEED online, failure."""
    first, *rest = method.split("_")
    known = [VARIANTS[part] for part in VARIANTS if part in rest]
    return METHODS.get(first, first) + "".join([*known, *(f" {part}" for part in rest if part not in VARIANTS)])


@dataclass(frozen=True)
class Row:
    """The result of one method in one setting: the mean return over seeds, with its interval."""

    setting: Mapping[str, str | float]
    method: str
    mean: float
    std: float | None = None
    ci_low: float | None = None  # the 95 % interval of the mean
    ci_high: float | None = None
    seeds: int | None = None
    evaluation: str | None = None  # greedy or sampled actions, or the policy for users; None without a policy
    estimator: str | None = None  # of the gridworld, map or published; of people, what is compared with their scores
    best: float | None = None  # of demonstrators: mean return of the best of each data set
    relative: float | None = None  # mean return over that of the best demonstrator
    relative_low: float | None = None  # its 95 % interval
    relative_high: float | None = None
    interquartile_mean: float | None = None

    @property
    def learnt(self) -> bool:
        """Whether the row is the result of a method, not of the demonstrators."""
        return self.method != DEMONSTRATED

    @property
    def name(self) -> str:
        """Name of method and estimator."""
        return method_name(self.method) + (f" {self.estimator}" if self.estimator else "")


@dataclass(frozen=True)
class Results:
    """Settings of an experiment, a row for each setting and method, a summary, and the paper's figures."""

    experiment: str
    config: Mapping[str, Any]
    rows: tuple[Row, ...]
    summary: Mapping[str, Any]
    paper: Mapping[str, Any]
    seconds: float | None  # None: unknown
    device: str
    seconds_by_part: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)  # mean return at each evaluation, by method and setting
    warnings: tuple[str, ...] = ()
    measure: str = RETURN  # the measure that the rows have the mean of

    @classmethod
    def of(
        cls, experiment: str, config: Any, rows: list[Row], seconds: Mapping[str, float], **others: Any
    ) -> "Results":
        """Results of a run that has just ended on this machine, with seconds by part."""
        settings = {each.name: getattr(config, each.name) for each in fields(config)}
        return cls(
            experiment=experiment,
            config={name: _without_paths(value) for name, value in settings.items()},
            rows=tuple(rows),
            seconds=round(sum(seconds.values()), 1),
            seconds_by_part={name: round(value, 1) for name, value in seconds.items()} if len(seconds) > 1 else {},
            device=jax.devices()[0].device_kind,
            **others,
        )

    def write(self, folder: Path) -> None:
        """Write results.json; to be written last, so that a folder with it is complete."""
        rows = [{name: value for name, value in asdict(row).items() if value is not None} for row in self.rows]
        optional = {name: value for name in ("seconds_by_part", "curves", "warnings") if (value := getattr(self, name))}
        head = {"version": VERSION, "experiment": self.experiment, "config": self.config, "rows": rows}
        optional |= {} if self.measure == RETURN else {"measure": self.measure}
        rest = {name: getattr(self, name) for name in ("summary", "paper", "seconds", "device")}
        write_signed(folder / RESULTS, {**head, **rest, **optional})


def _without_paths(value: Any) -> Any:
    """A setting for JSON."""
    if isinstance(value, tuple):
        return [_without_paths(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def read_results(path: Path) -> Results:
    """Read results.json of this version or of earlier ones; every value is checked."""
    found = read_json(path)
    found.version(VERSION)
    first = not ("version" in found and found.whole("version") > 1)
    rows = tuple(_row(row, first) for row in found.inners("rows"))
    if not rows:
        refuse(f"{found.where}, rows", "none", "one or more")
    optional = ("paper", "seconds_by_part", "curves")
    return Results(
        experiment=found.text("experiment"),
        config=found.inner("config").plain(),
        rows=rows,
        summary=found.inner("summary").plain(),
        seconds=found.number("seconds") if "seconds" in found else None,
        device=found.text("device") if "device" in found else "",
        warnings=tuple(found.texts("warnings")) if "warnings" in found else (),
        measure=found.text("measure") if "measure" in found else RETURN,
        **{name: found.inner(name).plain() if name in found else {} for name in optional},
    )


def _row(row: Fields, first: bool) -> Row:
    setting = row.inner("setting")
    numbers = ("std", "ci_low", "ci_high", "best", "relative", "relative_low", "relative_high", "interquartile_mean")
    values: dict[str, Any] = {name: row.number(name) for name in numbers if name in row}
    values |= {name: row.text(name) for name in ("evaluation", "estimator") if name in row}
    method = row.text("method")
    if first and method == "demonstrator":
        method = DEMONSTRATED
    if first and "relative" in values:
        values |= {"relative_low": values.pop("ci_low", None), "relative_high": values.pop("ci_high", None)}
    if "seeds" in row:
        values["seeds"] = row.whole("seeds")
    if first and method != DEMONSTRATED:
        values.setdefault("evaluation", "greedy")
    for low, high in (("ci_low", "ci_high"), ("relative_low", "relative_high")):
        if (low in values) != (high in values) or (low in values and values[low] > values[high]):
            refuse(row.where, f"an interval from {values.get(low)} to {values.get(high)}", "its low end first")
    levels = {key: setting.text(key) if isinstance(setting.plain()[key], str) else setting.number(key)
              for key in setting.plain()}  # fmt: skip
    return Row(setting=levels, method=method, mean=row.number("mean"), **values)


VALIDATION, VALIDATION_VERSION = "validation.json", 1
MOST = 100  # estimates, statistics, notes
NUMBERS = ("spearman", "low", "high", "partial", "partial_low", "partial_high")


@dataclass(frozen=True)
class Agreement:
    """Rank correlation of one number with the score over people; None where it is not defined."""

    name: str
    trivial: bool  # computed from the data, without a fit
    people: int
    spearman: float | None
    low: float | None = None  # 95 % bootstrap interval over people
    high: float | None = None
    partial: float | None = None  # rank correlation given trivial statistics
    partial_low: float | None = None
    partial_high: float | None = None
    reason: str | None = None  # why there is no correlation

    def plain(self) -> dict[str, Any]:
        """A dictionary for JSON, without fields that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Validation:
    """Rank correlations of a fit's estimates with scores, beside those of trivial statistics of the same data.

    **Fields:**

    - `score`: the column of the scores.
    - `names`, `scores`: the people, and the mean score of each that has one.
    - `values`: the estimates of each, by their names.
    - `estimates`, `trivial`: rank correlations with the score, the partial ones given `given`.
    - `episodes`: those of the skill in each episode with scores of episodes.
    - `said`: a sentence on whether the expertise adds anything to the best trivial statistic.
    - `notes`: caveats.
    """

    score: str
    names: tuple[str, ...]
    scores: tuple[float | None, ...]
    values: Mapping[str, tuple[float | None, ...]]
    estimates: tuple[Agreement, ...]
    trivial: tuple[Agreement, ...]
    episodes: tuple[Agreement, ...]
    given: tuple[str, ...]
    said: str
    notes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """A dictionary for JSON."""
        agreements = ("estimates", "trivial", "episodes")
        return asdict(self) | {name: [each.plain() for each in getattr(self, name)] for name in agreements}

    def table(self) -> Table:
        """The rank correlations, for a terminal."""
        caption = "95 % bootstrap intervals over people; partial: given " + " and ".join(self.given)
        table = Table(title=f"Rank correlation with {self.score}", caption=caption, box=SIMPLE_HEAD, pad_edge=False)
        for heading in ("", "n", "Spearman", "partial"):
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        groups = [group for group in (self.estimates, self.episodes, self.trivial) if group]
        for group in groups:
            for number, each in enumerate(group, 1):
                spearman = each.reason or cell(each.spearman, each.low, each.high)
                partial = cell(each.partial, each.partial_low, each.partial_high)
                table.add_row(each.name, str(each.people), spearman, partial, end_section=number == len(group))
        return table

    def write(self, folder: Path, run: Path | None) -> None:
        """Write validation.json, with the checksum of the fit that it is about, if that has a folder."""
        answer = None if run is None else file_digest(run / ANSWER)
        head = {"format": "irleed-validation", "version": VALIDATION_VERSION, "answer": answer}
        write_signed(folder / VALIDATION, {**head, **self.plain()})


def cell(value: float | None, low: float | None, high: float | None) -> str:
    """``0.45 [0.10, 0.72]``; empty where there is no value."""
    if value is None:
        return ""
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} \\[{low:.2f}, {high:.2f}]"


def read_validation(folder: Path) -> Validation | None:
    """validation.json in the folder of a run; None without one, or if the run has been fitted again since."""
    path = folder / VALIDATION
    if not path.exists():
        return None
    found = read_json(path)
    found.version(VALIDATION_VERSION)
    if "answer" not in found or found.text("answer") != file_digest(folder / ANSWER):
        return None
    names = tuple(found.texts("names"))
    columns = found.inner("values").plain()
    values = {name: _column(found, name, column, len(names)) for name, column in columns.items()}
    lists = {name: found.inners(name) for name in ("estimates", "trivial", "episodes")}
    given, notes = tuple(found.texts("given")), tuple(found.texts("notes"))
    longest = max(map(len, (*lists.values(), columns, given, notes)))
    if not columns or longest > MOST:
        refuse(str(path), f"{len(columns)} estimates of people, and a list of {longest}", f"1 to {MOST}")
    estimates, trivial, episodes = (tuple(map(_agreement, rows)) for rows in lists.values())
    return Validation(
        score=found.text("score"),
        names=names,
        scores=_column(found, "scores", found.plain().get("scores"), len(names)),
        values=values,
        estimates=estimates,
        trivial=trivial,
        episodes=episodes,
        given=given,
        said=found.text("said", 1_000),
        notes=notes,
    )


def _agreement(row: Fields) -> Agreement:
    numbers = {name: row.maybe(name) if name in row else None for name in NUMBERS}
    if numbers["spearman"] is not None and not -1.001 <= numbers["spearman"] <= 1.001:
        refuse(f"{row.where}, spearman", numbers["spearman"], "a number from -1 to 1")
    for low, high in (("low", "high"), ("partial_low", "partial_high")):
        if (numbers[low] or 0.0) > (numbers[high] or 0.0):
            refuse(row.where, f"an interval from {numbers[low]} to {numbers[high]}", "its low end first")
    reason = row.text("reason") if "reason" in row else None
    return Agreement(row.text("name"), row.flag("trivial"), row.whole("people"), reason=reason, **numbers)


def _column(found: Fields, name: str, column: Any, count: int) -> tuple[float | None, ...]:
    """A number, or null, for each of the people."""
    if not isinstance(column, list) or len(column) != count:
        refuse(f"{found.where}, {name}", "another number of values", f"one for each of {count} people")
    rows = [Fields(f"{found.where}, {name}", {"value": value}) for value in column]
    return tuple(row.maybe("value") for row in rows)
