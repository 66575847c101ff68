"""What an experiment writes and what is read of it: results.json, with one type of row for all experiments."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import jax

from irleed._io.files import write_signed
from irleed.runs.fields import Fields, read_json, refuse

RESULTS = "results.json"
VERSION = 2  # in version 1, the interval of a row with a relative return was that of the relative return
RETURN = "return"
DEMONSTRATED = "demonstrators"  # the method of rows that are about these themselves
# What methods are called, by the names that the command line knows them by.
METHODS = {
    "irleed": "IRLEED", "maxent": "maximum-entropy IRL", "iq": "IQ-Learn", "ileed": "ILEED", "bc": "cloning",
    "sqil": "SQIL", "trivial": "trivial:", "score": "score",
}  # fmt: skip
VARIANTS = {"best": " of the best third", "online": " online", "failure": ", failure", "paper": " as published"}


def method_name(method: str) -> str:
    """A method as tables call it: `irleed_failure_online` is IRLEED online, failure."""
    first, *rest = method.split("_")
    known = [VARIANTS[part] for part in VARIANTS if part in rest]
    return METHODS.get(first, first) + "".join([*known, *(f" {part}" for part in rest if part not in VARIANTS)])


@dataclass(frozen=True)
class Row:
    """What one method got in one setting: the mean return over seeds, and how well it is known."""

    setting: Mapping[str, str | float]
    method: str
    mean: float
    std: float | None = None
    ci_low: float | None = None  # the 95 % interval of the mean
    ci_high: float | None = None
    seeds: int | None = None
    evaluation: str | None = None  # greedy or sampled actions, or the policy that users get; None: of no policy
    estimator: str | None = None  # of the gridworld, map or published; of people, what is compared with their scores
    best: float | None = None  # of demonstrators: mean return of the best of each data set
    relative: float | None = None  # mean return over that of the best demonstrator
    relative_low: float | None = None  # its 95 % interval
    relative_high: float | None = None
    interquartile_mean: float | None = None

    @property
    def learnt(self) -> bool:
        """Whether it is about a method, not about the demonstrators."""
        return self.method != DEMONSTRATED

    @property
    def name(self) -> str:
        """Of method and estimator."""
        return method_name(self.method) + (f" {self.estimator}" if self.estimator else "")


@dataclass(frozen=True)
class Results:
    """An experiment's settings, a row for each setting and method, what they amount to, and the paper's figures."""

    experiment: str
    config: Mapping[str, Any]
    rows: tuple[Row, ...]
    summary: Mapping[str, Any]
    paper: Mapping[str, Any]
    seconds: float | None  # None: not known
    device: str
    seconds_by_part: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Any] = field(default_factory=dict)  # mean return at each evaluation, by method and setting
    warnings: tuple[str, ...] = ()
    measure: str = RETURN  # what the means of the rows are

    @classmethod
    def of(
        cls, experiment: str, config: Any, rows: list[Row], seconds: Mapping[str, float], **others: Any
    ) -> "Results":
        """Those of a run that has just ended on this machine; seconds are given by part."""
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
        """Write results.json; last of all files, so that where it is, all is."""
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
