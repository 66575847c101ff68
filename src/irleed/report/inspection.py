"""The summary of a data set as one HTML page, without scripts, network and other files."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from irleed.report.markup import (
    Safe,
    counted,
    document,
    element,
    figure,
    join,
    listing,
    number,
    paragraph,
    part,
    table,
    write_page,
)
from irleed.report.svg import FOOT, RIGHT, WIDTH, Axis, drawing, linear, stroke, words

HEIGHT, LEFT, TOP = 210.0, 56.0, 12.0
MOST_BARS = 60  # more values of an action than this are a table
COLUMNS = {
    "name": "Demonstrator", "episodes": "Episodes", "transitions": "Transitions", "mean_length": "Mean length",
    "mean_return": "Mean return", "min_return": "Lowest", "max_return": "Highest", "terminated": "Task ended",
    "truncated": "Cut off",
}  # fmt: skip
POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is loaded and no script runs, whatever names contain


def write(summary: Mapping[str, Any], name: str, out: Path) -> Path:
    """Write the page about what `irleed.data.summarise` found in the data of this name."""
    return write_page(out, page(summary, name), "--html")


def page(summary: Mapping[str, Any], name: str) -> str:
    """The whole page, a function of the summary alone."""
    people, title = len(summary["demonstrators"]), f"irleed inspect: {name}"
    lead = (
        f"{counted(summary['transitions'], 'transition')} in {counted(summary['episodes'], 'episode')} "
        f"by {counted(people, 'demonstrator')}."
    )
    notes = summary["warnings"]
    odd = listing(notes, "short") if notes else paragraph("No warnings.")
    parts = [
        part(2, "Warnings", "notes", odd),
        part(2, "Demonstrators", "who", _people(summary["demonstrators"])),
        part(2, "Episodes", "episodes", *_episodes(summary)),
        part(2, "Actions", "actions", *_actions(summary["action"])),
        part(2, "Observations", "observations", *_values(summary["observation"], "observation")),
    ]
    links = {"notes": "Warnings", "who": "Demonstrators", "episodes": "Episodes", "actions": "Actions"}
    links |= {"observations": "Observations"}
    contents = listing(element("a", text, href=f"#{key}") for key, text in links.items())
    return document(
        title,
        POLICY,
        element("header", element("h1", title), paragraph(lead, kind="lead")),
        element("nav", contents, aria_label="Contents"),
        element("main", *parts, id="content"),
    )


def _people(rows: Sequence[Mapping[str, Any]]) -> Safe:
    shown = {key: heading for key, heading in COLUMNS.items() if rows[0][key] is not None}
    cells = [[row[key] for key in shown] for row in rows]
    return table("A row for each demonstrator", list(shown.values()), cells, sortable=False)


def _episodes(summary: Mapping[str, Any]) -> list[Safe]:
    """Lengths, returns, ends and repetitions of episodes."""
    ended = sum(row["terminated"] for row in summary["demonstrators"])
    alike = summary["repeated"]
    lines = [
        f"{counted(ended, 'episode')} ended because the task did, {number(summary['episodes'] - ended)} were cut off.",
        f"{counted(alike['within'], 'episode')} repeat an earlier one of the same demonstrator, "
        f"{number(alike['between'])} one of another. Compared: {alike['compared']}.",
    ]
    if summary["reward"] is not None:
        lines.append(f"Rewards of a step: {_from_to(summary['reward'])}.")
    spreads = {"length": "Length of an episode", "returns": "Return of an episode"}
    drawn = [_histogram(summary[key], title) for key, title in spreads.items() if summary[key] is not None]
    return [listing(lines), element("div", *drawn, class_="figures")]


def _histogram(spread: Mapping[str, Any], title: str) -> Safe:
    caption = f"{title}: {_from_to(spread)}, {number(spread['mean'])} on average."
    return _binned(spread["histogram"], caption, title.lower(), "episodes")


def _actions(facts: Mapping[str, Any]) -> list[Safe]:
    """Counts of discrete actions, or a histogram of each entry."""
    parts = _values(facts, "action")
    if facts["histogram"] is not None:
        rows = list(facts["histogram"].items())
        values = table("Transitions with each action", ("Action", "Transitions"), rows, sortable=False)
        if len(rows) > MOST_BARS:
            return [*parts, values]
        bars = [(int(value) - 0.5, int(value) + 0.5, count, value) for value, count in rows]
        drawn = _bars(bars, "transitions with each action", "action")
        return [*parts, figure("How often each action was taken.", drawn, values)]
    drawn = [
        _binned(histogram, f"Entry {n} of the action.", f"entry {n}", "transitions")
        for n, histogram in enumerate(facts["histograms"] or ())
    ]
    return [*parts, element("div", *drawn, class_="figures")]


def _values(facts: Mapping[str, Any], what: str) -> list[Safe]:
    """Type, shape and ranges."""
    sides, entries = facts["shape"], math.prod(facts["shape"])
    shape = " × ".join(str(side) for side in sides) if len(sides) > 1 else counted(entries, "number")
    lines = [f"{facts['dtype']}, {shape}, {_from_to(facts)}."]
    if facts["constant"]:
        lines.append(f"{number(facts['constant'])} of {counted(entries, 'entry', 'entries')} never change.")
    parts = [listing(lines)]
    if "low" in facts:
        rows = [(str(n), *ends) for n, ends in enumerate(zip(facts["low"], facts["high"], strict=True))]
        parts.append(table(f"Range of every {what} entry", ("Entry", "Lowest", "Highest"), rows, sortable=False))
    return parts


def _from_to(ends: Mapping[str, Any]) -> str:
    return f"from {number(ends['min'])} to {number(ends['max'])}"


def _binned(histogram: Mapping[str, Any], caption: str, across: str, what: str) -> Safe:
    """A histogram from edges and counts; a single value has a bar of some width."""
    edges, counts = [float(edge) for edge in histogram["edges"]], histogram["counts"]
    if len(counts) == 1:
        half = max(0.5, 1e-6 * abs(edges[0]))
        edges = [edges[0] - half, edges[0] + half]
    pairs = list(zip(edges[:-1], edges[1:], counts, strict=True))
    bars = [(low, high, count, _between(low, high)) for low, high, count in pairs]
    rows = [(name, count) for _, _, count, name in bars]
    values = table(f"{what.capitalize()} between these values", ("Between", what.capitalize()), rows, sortable=False)
    return figure(caption, _bars(bars, f"histogram of {across}: {what}", across), values)


def _between(low: float, high: float) -> str:
    """The name of a bin: one whole number, or both ends."""
    middle = (low + high) / 2
    return number(middle) if high - low == 1 and middle == int(middle) else f"{number(low)} to {number(high)}"


def _bars(bars: Sequence[tuple[float, float, int, str]], label: str, across: str) -> Safe:
    """Bars from low to high as tall as their counts, with tooltips."""
    bottom = HEIGHT - FOOT
    x = Axis(bars[0][0], bars[-1][1], LEFT, WIDTH - RIGHT)
    y = linear([float(count) for _, _, count, _ in bars], bottom, TOP, zero=True)
    whole = [tick for tick in y.ticks if tick == int(tick)]
    lines = [stroke(LEFT, y.place(tick), WIDTH - RIGHT, y.place(tick), "grid") for tick in whole]
    ups = [words(LEFT - 8, y.place(tick) + 4, number(tick), "end", "tick") for tick in whole]
    acrosses = [words(x.place(tick), bottom + 16, f"{tick:.4g}", "middle", "tick") for tick in x.ticks]
    drawn = []
    for low, high, count, name in bars:
        left, right, top = x.place(low), x.place(high), y.place(float(count))
        size = {"width": f"{max(right - left - 1, 0.5):g}", "height": f"{bottom - top:g}"}
        tip = element("title", f"{name}: {number(count)}")
        drawn.append(element("rect", tip, x=f"{left + 0.5:g}", y=f"{top:g}", class_="mark group-0", **size))
    middle = words((LEFT + WIDTH - RIGHT) / 2, bottom + 34, across, "middle", "axis")
    return drawing(label, WIDTH, HEIGHT, join([*lines, *ups, *acrosses, *drawn, middle]))
