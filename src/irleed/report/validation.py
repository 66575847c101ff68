"""How estimates agree with scores that the user has: a section of the page, and a scatter plot for papers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from irleed._io.text import escaped, shortened
from irleed._typing import Array, Float
from irleed.report import svg
from irleed.report.figures import COLOURS, LONGEST_NAME, styled
from irleed.report.markup import Safe, element, figure, number, paragraph, part, table
from irleed.runs.reader import Estimate
from irleed.runs.results import Agreement, Validation

SIDE, LEFT, BOTTOM, TOP = 300.0, 62.0, 240.0, 14.0
MOST_NAMED = 30  # people whose names are written in a scatter plot
MOST_DRAWN = 10_000  # people with a dot in the page
PANEL = 2.3  # inches


def section(found: Validation, level: int, key: str) -> Safe:
    """Whether the expertise adds anything, the rank correlations, and a plot of the first estimate."""
    words = [paragraph(found.said), *(paragraph(note, kind="note") for note in found.notes)]
    known = [each for each in (*found.estimates, *found.episodes, *found.trivial) if each.spearman is not None]
    drawn = []
    if known:
        rows = [(_estimate(each), int(each.trivial)) for each in known]
        label = f"Rank correlation with {found.score}, with 95 % interval. The table has the values."
        forest = svg.forest(rows, label=label, axis=f"Spearman with {found.score}", references=[0.0])
        drawn.append(figure("Circles: estimates of this fit. Squares: trivial statistics of the same data.", forest))
        drawn += _plot(found, next(iter(found.values)))
    rows = [
        (each.name, _estimate(each) if each.spearman is not None else each.reason, _partial(each), each.people)
        for each in (*found.estimates, *found.episodes, *found.trivial)
    ]
    caption = f"Rank correlations with {found.score}; 95 % bootstrap intervals over people"
    headings = ["what", "Spearman", f"partial, given {' and '.join(found.given)}", "people"]
    inside = element("div", *drawn, class_="figures"), table(caption, headings, rows)
    return part(level, "Beside scores that are known", key, *words, *inside)


def _estimate(found: Agreement) -> Estimate:
    return Estimate(found.name, found.spearman or 0.0, found.low, found.high)


def _partial(found: Agreement) -> Estimate | None:
    if found.partial is None:
        return None
    return Estimate(found.name, found.partial, found.partial_low, found.partial_high)


def _plot(found: Validation, name: str) -> list[Safe]:
    """One estimate against the score, a dot for each of the people; nothing if there are none, or too many to draw."""
    rows = [
        (who, value, score)
        for who, value, score in zip(found.names, found.values[name], found.scores, strict=True)
        if value is not None and score is not None
    ]
    if not 0 < len(rows) <= MOST_DRAWN:
        return []
    across = svg.linear([value for _, value, _ in rows], LEFT, SIDE - svg.RIGHT)
    up = svg.linear([score for *_, score in rows], BOTTOM, TOP)
    lines = [svg.stroke(LEFT, up.place(tick), SIDE - svg.RIGHT, up.place(tick), "grid") for tick in up.ticks]
    labels = [svg.words(LEFT - 8, up.place(tick) + 4, number(tick), "end", "tick") for tick in up.ticks]
    labels += [svg.words(across.place(tick), BOTTOM + 18, number(tick), "middle", "tick") for tick in across.ticks]
    marks = []
    for who, value, score in rows:
        place = f"translate({across.place(value):g} {up.place(score):g})"
        tip = f"{who}: {name} {number(value)}, {found.score} {number(score)}"
        mark = element("path", d=svg.SHAPES[0], class_="mark group-0")
        marks.append(element("g", mark, transform=place, data_tip=tip))
    names = (
        svg.words(SIDE / 2, BOTTOM + 36, name, "middle", "axis"),
        svg.words(LEFT, TOP - 3, found.score, "start", "axis"),
    )
    label = f"{name} and {found.score} of {len(rows)} people; the table has the rank correlation"
    drawn = svg.drawing(label, SIDE, BOTTOM + 44, *lines, *labels, *marks, *names)
    return [figure(f"{found.score} against {name}, a dot for each demonstrator.", drawn)]


@styled
def scatter(
    names: Sequence[str],
    panels: Mapping[str, tuple[Float[Array, " D"], Float[Array, " D"]]],
    titles: Mapping[str, str],
    score: str,
) -> Figure:
    """Scores against estimates, a panel for each: by its title, what is on the horizontal axis and the score."""
    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    figure = Figure(figsize=(PANEL * across, PANEL * down), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes, (title, (values, scores)) in zip(grid.flat, panels.items(), strict=False):
        axes.plot(np.asarray(values), np.asarray(scores), "o", color=COLOURS[0], alpha=0.8)
        axes.set_title(titles.get(title, title), parse_math=False)
        axes.set_xlabel(title, parse_math=False)
        axes.set_ylabel(score, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if len(values) == len(names) <= MOST_NAMED and len(panels) <= 3:
            for who, x, y in zip(names, values, scores, strict=True):
                label = shortened(escaped(who), LONGEST_NAME)
                axes.annotate(label, (x, y), fontsize=4, color="0.4", xytext=(2, 2), textcoords="offset points")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    return figure
