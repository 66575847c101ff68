"""validation.json of a run: how its estimates agree with scores that the user has; written and read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from irleed._io.files import file_digest, write_signed
from irleed.runs.directory import ANSWER
from irleed.runs.fields import Fields, read_json, refuse

VALIDATION, VERSION = "validation.json", 1
MOST = 100  # estimates, statistics, notes
NUMBERS = ("spearman", "low", "high", "partial", "partial_low", "partial_high")


@dataclass(frozen=True)
class Agreement:
    """How the order of people by one number agrees with their order by score; None where that is not defined."""

    name: str
    trivial: bool  # computed from the data alone, without a fit
    people: int
    spearman: float | None
    low: float | None = None  # 95 % bootstrap interval over people
    high: float | None = None
    partial: float | None = None  # rank correlation given trivial statistics
    partial_low: float | None = None
    partial_high: float | None = None
    reason: str | None = None  # why there is no correlation

    def plain(self) -> dict[str, Any]:
        """As a dictionary without what is None, for JSON."""
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
    - `said`: whether the expertise adds anything to the best trivial statistic, in a sentence.
    - `notes`: what to know before the figures are used.
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
        """For JSON."""
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
        """Write validation.json, with the checksum of the answer that it is about, if that is in a folder."""
        answer = None if run is None else file_digest(run / ANSWER)
        head = {"format": "irleed-validation", "version": VERSION, "answer": answer}
        write_signed(folder / VALIDATION, {**head, **self.plain()})


def cell(value: float | None, low: float | None, high: float | None) -> str:
    """``0.45 [0.10, 0.72]``; empty where there is no value."""
    if value is None:
        return ""
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} \\[{low:.2f}, {high:.2f}]"


def read_validation(folder: Path) -> Validation | None:
    """What validation.json in a run's folder says; None without one, or if the run has been fitted again since."""
    path = folder / VALIDATION
    if not path.exists():
        return None
    found = read_json(path)
    found.version(VERSION)
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
