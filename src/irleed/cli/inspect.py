"""The command `irleed inspect`: a summary of a file of demonstrations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._io.text import name, say
from irleed.data import ReadOptions, load, summarise
from irleed.data.io import write_scores
from irleed.report import inspection as inspect_page

HEIGHTS = {True: " ▁▂▃▄▅▆▇█", False: " .:-=+*#@"}  # by whether the terminal has Unicode
HEADINGS = {
    "name": "name", "episodes": "episodes", "transitions": "steps", "mean_length": "length", "mean_return": "return",
    "min_return": "lowest", "max_return": "highest", "terminated": "ended", "truncated": "cut off",
}  # fmt: skip
MOST_ROWS = 24  # entries of a vector that have a line each


@dataclass(frozen=True)
class InspectCommand:
    """Summarise a file of demonstrations, with warnings about unusual data."""

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder in any known format, see the documentation."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")]
    json: bool = False
    """Print JSON instead of tables."""
    html: Path | None = None
    """Write a page with plots to this file as well."""
    scores: Path | None = None
    """Write the scores of episodes to this CSV file as well, for `irleed validate` and `irleed experiment people`."""

    def run(self, console: Console) -> None:
        """Print the summary."""
        summary = summarise(load(self.data, self.reading))
        if self.html is not None:
            inspect_page.write(summary, str(self.data), self.html)
        if self.scores is not None:
            write_scores(self.data, self.scores, self.reading)
        if self.json:
            print(json.dumps(summary, indent=1))
            return
        _show(summary, console)
        for written in filter(None, (self.html, self.scores)):
            say(console, f"wrote {written}")


def _show(summary: Mapping[str, Any], console: Console) -> None:
    """The same as text."""
    say(console, f"{summary['transitions']} transitions in {summary['episodes']} episodes")
    for part in ("observation", "action"):
        keys = ("dtype", "shape", "min", "max", "histogram")
        facts = ", ".join(f"{key} {summary[part][key]}" for key in keys if summary[part].get(key) is not None)
        say(console, f"{part}: {facts}")
    for key in ("length", "returns"):
        if summary[key] is not None:
            _show_spread(console, key, summary[key], f", mean {_cell(float(summary[key]['mean']))}")
    for n, histogram in enumerate((summary["action"]["histograms"] or ())[:MOST_ROWS]):
        ends = {"min": histogram["edges"][0], "max": histogram["edges"][-1], "histogram": histogram}
        _show_spread(console, f"action {n}", ends, "")
    console.print(_people(summary["demonstrators"]))
    alike = summary["repeated"]
    if alike["within"] or alike["between"]:
        repeats = f"{alike['within']} of the same demonstrator, {alike['between']} of another"
        say(console, f"episodes that repeat an earlier one: {repeats} (compared: {alike['compared']})")
    for warning in summary["warnings"]:
        say(console, f"note: {warning}")


def _show_spread(console: Console, title: str, spread: Mapping[str, Any], also: str) -> None:
    """Minimum and maximum, and between them a histogram in one line, in which every non-empty bin is visible."""
    low, high = (_cell(spread[end]) for end in ("min", "max"))
    heights, counts = HEIGHTS[console.encoding.lower().startswith("utf")], spread["histogram"]["counts"]
    bars = "".join(heights[-(-count * (len(heights) - 1) // max(counts))] for count in counts)
    say(console, f"{title}: {low} {bars} {high}{also}")


def _people(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each demonstrator, narrow enough for a terminal."""
    shown = {key: heading for key, heading in HEADINGS.items() if rows[0][key] is not None}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for key, heading in shown.items():
        table.add_column(heading, justify="left" if key == "name" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[key])) for key in shown))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else name(value)
