"""Plots as inline SVG, in the page's colours, which suit both themes and paper, and of a size that suits a phone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from irleed._io.text import shortened
from irleed.report.markup import Safe, element, interval, join, number
from irleed.runs.reader import Estimate

WIDTH, RIGHT = 440.0, 14.0
ROW, FOOT, CAP = 24.0, 40.0, 5.0
LONGEST_NAME, LETTER = 25, 7.3  # letters of a name, and the room that one takes
# An interval is drawn at most this many times beyond the smallest and largest estimate, where the axis is logarithmic.
WIDEST = 30.0
SHAPES = ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "M-4.5-4.5h9v9h-9z", "M0-6l5.5 10h-11z", "M0-6l6 6-6 6-6-6z")


@dataclass(frozen=True)
class Axis:
    """A scale from values to coordinates between `start` and `end`, and its ticks."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The coordinate of a value, clipped to the axis."""
        low, high, at = (
            math.log(v) if self.log else v for v in (self.low, self.high, min(max(value, self.low), self.high))
        )
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """About four round values."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = range(first, last + 1, max(1, (last - first) // 5))
            wide = last - first > 3
            found = [m * 10.0**d for d in decades for m in ((1,) if wide else (1, 2, 5))]
            inside = [tick for tick in found if self.low <= tick <= self.high]
            if len(inside) > 2:
                return inside
        rough = (self.high - self.low) / 4
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * 0.999)
        return [n * step for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


def linear(values: Sequence[float], start: float, end: float, *, zero: bool = False) -> Axis:
    """A linear axis of all values, with a margin."""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    size = max(abs(low), abs(high))
    room = 0.05 * (high - low if high - low > 1e-9 * size else size or 1.0)
    return Axis(low - (room if low or not zero else 0.0), high + room, start, end)


def logarithmic(estimates: Sequence[Estimate], start: float, end: float) -> Axis:
    """A logarithmic axis of all estimates, and of intervals up to a limit."""
    positive = [e.value for e in estimates if e.value > 0] or [1.0]
    lows = [e.low for e in estimates if e.low is not None and e.low > 0] or positive
    highs = [e.high for e in estimates if e.high is not None] or positive
    low = max(min(lows), min(positive) / WIDEST)
    high = min(max(highs), max(positive) * WIDEST)
    return Axis(min(low, 1.0, *positive) / 1.15, max(high, 1.0, *positive) * 1.15, start, end, log=True)


def drawing(label: str, width: float, height: float, *parts: object, kind: str = "plot") -> Safe:
    """An SVG image with a label for screen readers; the table beside it has the values."""
    return element(
        "svg", *parts, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, class_=kind,
        xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def words(x: float | int, y: float | int, content: str, anchor: str = "start", kind: str | None = None) -> Safe:
    """Text at coordinates."""
    return element("text", content, x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, class_=kind)


def stroke(x1: float | int, y1: float | int, x2: float | int, y2: float | int, kind: str) -> Safe:
    """A line."""
    return element("path", d=f"M{x1:g} {y1:g}L{x2:g} {y2:g}", class_=kind)


def forest(
    rows: Sequence[tuple[Estimate, int]], *, label: str, axis: str, log: bool = False, references: Sequence[float] = ()
) -> Safe:
    """A forest plot of estimates with intervals, each of a group with its own colour and shape.

    `references` are values that dashed lines mark.
    """
    estimates = [estimate for estimate, _ in rows]
    bottom = ROW * len(rows) + 6
    left = LETTER * max(len(shortened(estimate.name, LONGEST_NAME)) for estimate in estimates) + 24
    if log:
        scale = logarithmic(estimates, left, WIDTH - RIGHT)
    else:
        ends = [v for e in estimates for v in (e.value, e.low, e.high) if v is not None]
        scale = linear([*ends, *references], left, WIDTH - RIGHT)
    parts = [_ticks(scale, bottom, axis), _references(scale, bottom, references)]
    for n, (estimate, group) in enumerate(rows):
        parts.append(_row(estimate, group, scale, ROW * n + ROW / 2 + 3))
    return drawing(label, WIDTH, bottom + FOOT, *parts)


def dotted(
    rows: Sequence[tuple[str, Sequence[tuple[float, str, bool]]]], *, label: str, axis: str, references: Sequence[float]
) -> Safe:
    """A row of dots for each name: values, each with what it is and whether it stands out."""
    bottom = ROW * len(rows) + 6
    left = LETTER * max(len(shortened(name, LONGEST_NAME)) for name, _ in rows) + 24
    scale = linear([*(value for _, own in rows for value, _, _ in own), *references], left, WIDTH - RIGHT)
    parts = [_ticks(scale, bottom, axis), _references(scale, bottom, references)]
    for n, (name, own) in enumerate(rows):
        y = ROW * n + ROW / 2 + 3
        usual = [(scale.place(value), y) for value, _, odd in own if not odd]
        parts += [
            words(left - 10, y + 4.5, shortened(name, LONGEST_NAME), "end"),
            element("path", d=dots(usual), class_="dots near"),
        ]
        parts += [
            element("path", d=SHAPES[3], transform=f"translate({scale.place(value):g} {y:g})", class_="mark group-1",
                    data_tip=what)
            for value, what, odd in own if odd
        ]  # fmt: skip
    return drawing(label, WIDTH, bottom + FOOT, *parts)


def _references(scale: Axis, bottom: float, values: Sequence[float]) -> Safe:
    return join(stroke(scale.place(value), 0, scale.place(value), bottom, "reference") for value in values)


def _ticks(scale: Axis, bottom: float, name: str) -> Safe:
    lines = [stroke(scale.place(tick), 0, scale.place(tick), bottom, "grid") for tick in scale.ticks]
    labels = [words(scale.place(tick), bottom + 16, _tick(tick), "middle", "tick") for tick in scale.ticks]
    middle = (scale.start + scale.end) / 2
    return join([*lines, *labels, words(middle, bottom + 34, name, "middle", "axis")])


def _row(estimate: Estimate, group: int, scale: Axis, y: float) -> Safe:
    parts = [words(scale.start - 10, y + 4.5, shortened(estimate.name, LONGEST_NAME), "end")]
    if estimate.low is not None and estimate.high is not None and not estimate.exact:
        low, high = scale.place(estimate.low), scale.place(estimate.high)
        parts.append(element("path", d=f"M{low:g} {y:g}L{high:g} {y:g}", class_=f"whisker group-{group % 6}"))
        for end, cut in ((low, estimate.low < scale.low), (high, estimate.high > scale.high)):
            turn = CAP if end == low else -CAP
            shape = f"M{end + turn:g} {y - CAP:g}L{end:g} {y:g}L{end + turn:g} {y + CAP:g}" if cut else (
                f"M{end:g} {y - CAP:g}v{2 * CAP:g}"
            )  # fmt: skip
            parts.append(element("path", d=shape, class_=f"whisker group-{group % 6}"))
    place = f"translate({scale.place(estimate.value):g} {y:g})"
    parts.append(element("path", d=SHAPES[group % len(SHAPES)], transform=place, class_=f"mark group-{group % 6}"))
    catch = element("rect", x="0", y=f"{y - ROW / 2:g}", width=f"{WIDTH:g}", height=f"{ROW:g}", class_="catch")
    return element("g", catch, *parts, data_tip=f"{estimate.name}: {interval(estimate)}")


def line(points: Sequence[tuple[float, float]], *, label: str, across: str, up: str) -> Safe:
    """One curve."""
    height, left, top = 240.0, 62.0, 10.0
    bottom = height - FOOT - 4
    x_axis = linear([x for x, _ in points], left, WIDTH - RIGHT)
    y_axis = linear([y for _, y in points], bottom, top)
    lines = [stroke(left, y_axis.place(tick), WIDTH - RIGHT, y_axis.place(tick), "grid") for tick in y_axis.ticks]
    labels = [words(left - 8, y_axis.place(tick) + 4, _tick(tick), "end", "tick") for tick in y_axis.ticks]
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in places)
    every = max(1, len(points) // 60)
    catch = [
        element("circle", cx=f"{x:g}", cy=f"{y:g}", r="6", class_="catch", data_tip=f"step {number(px)}: {number(py)}")
        for (x, y), (px, py) in list(zip(places, points, strict=True))[::every]
    ]
    steps = [words(x_axis.place(t), bottom + 18, _tick(t), "middle", "tick") for t in x_axis.ticks if t >= 0]
    names = (
        words((left + WIDTH - RIGHT) / 2, height - 6, across, "middle", "axis"),
        words(left, top - 1, up, "start", "axis"),
    )
    return drawing(
        label, WIDTH, height + 4, element("g", *lines, *labels, *steps, element("path", d=path, class_="curve group-0"),
        *catch, *names, transform="translate(0 4)"),
    )  # fmt: skip


def dots(places: Sequence[tuple[float, float]]) -> str:
    """A path with a dot at each of the coordinates, drawn by strokes with round ends."""
    return "".join(f"M{x:g} {y:g}h0" for x, y in places)


def _tick(value: float) -> str:
    return f"{value:.4g}".replace("-", "−") if abs(value) < 10_000 or value % 1 else number(value)
