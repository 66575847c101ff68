"""Figures by matplotlib, for papers and pages, as files."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

from irleed._io.files import beside
from irleed._io.text import escaped, shortened
from irleed._typing import Array, Float
from irleed.errors import ConfigError

P = ParamSpec("P")

COLUMN, PAGE = 3.4, 7.0  # widths in inches: of a column, of both
TALLEST, PANEL = 24.0, 2.3  # of a figure with a row for each demonstrator; side of a scatter plot
# Okabe and Ito's colours, which suit every kind of colour vision; markers distinguish curves in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours: together they distinguish 42 curves
MOST_NAMED = 30  # people whose names are written in a scatter plot
MISSING = "0.88"
LONGEST_NAME = 28
WIDEST_INTERVAL = 30.0  # an interval is drawn at most this many times beyond the smallest and largest estimate
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # text stays text
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in this style without changing matplotlib's settings."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def save(figure: Figure, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write ``path.png`` and ``path.pdf``, each whole or not at all; `path` has no suffix. Returns both paths."""
    png, pdf = Path(f"{os.fspath(path)}.png"), Path(f"{os.fspath(path)}.pdf")
    reproducible: dict[Path, dict[str, Any]] = {
        png: {"dpi": 200, "metadata": {"Software": None}},
        pdf: {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    }
    with matplotlib.rc_context(STYLE):
        for file, settings in reproducible.items():
            with beside(file) as stream:
                figure.savefig(stream, format=file.suffix[1:], **settings)
    return png, pdf


Line = tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]  # steps and values
Bars = tuple[Float[Array, " D"], Float[Array, " D"], Float[Array, " D"]]  # estimates, and the ends of their intervals


@dataclasses.dataclass(frozen=True)
class Curve:
    """A method's mean return at each accuracy, with its 95 % interval; NaN where there is none."""

    mean: Float[Array, " L"]
    low: Float[Array, " L"]
    high: Float[Array, " L"]


@styled
def gridworld_maps(rows: int, columns: int, maps: Mapping[str, Float[Array, " S"]]) -> Figure:
    """The paper's Figure 2: a value of each cell as small heat maps, each scaled to [0, 1], titled by their keys."""
    across = 2 if len(maps) == 4 else min(len(maps), 4)
    down = -(-len(maps) // across)
    side = (COLUMN - 0.6) / 2
    height = side * min(max(rows / columns, 0.4), 3.0)  # cells stay square: a long, thin grid leaves room around it
    figure, grid = _panels(len(maps), across, (across * side + 0.6, down * (height + 0.22)))
    scale = ScalarMappable(Normalize(0, 1), _colour_map())
    for axes, (title, values) in zip(grid, maps.items(), strict=False):
        axes.imshow(_unit(np.asarray(values, float)).reshape(rows, columns), cmap=scale.cmap, norm=scale.norm)
        axes.set_title(title, pad=3, parse_math=False)
        axes.set(xticks=[], yticks=[])
    bar = figure.colorbar(scale, ax=grid, ticks=[0, 1], aspect=15 * down, pad=0.02)
    bar.ax.set_yticklabels(["least", "most"])
    return figure


@styled
def improvement(
    max_precision: Float[Array, " P"],
    accuracy: Float[Array, " L"],
    baseline: Float[Array, "P L"],
    ours: Float[Array, "P L"],
    *,
    level: float,
    curves: Mapping[str, Curve],
    demonstrators: Float[Array, " L"] | None = None,
    against: str = "IRL",
) -> Figure:
    """The paper's Figure 3: relative improvement in each data set setting, and returns at one level of precision.

    **Arguments:**

    - `baseline`, `ours`: mean returns of the two methods compared; NaN where a setting was not run.
    - `level`: the entry of `max_precision`, outlined in the heat map, that the curves belong to.
    - `curves`: methods by name, in the order of their colours.
    - `demonstrators`: the demonstrators' mean return, sampled as a dashed line.
    - `against`: what the baseline is called.
    """
    figure = Figure(figsize=(PAGE, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    row = _row_of(level, np.asarray(max_precision))
    image = _improvement_map(left, np.asarray(max_precision), np.asarray(accuracy), _relative(baseline, ours))
    left.set_title(f"relative improvement over {against} (%)", pad=4)
    figure.colorbar(image, ax=left, pad=0.02, aspect=30).outline.set_visible(False)
    outline: dict[str, Any] = {"fill": False, "ec": COLOURS[1], "lw": 1.5, "clip_on": False, "zorder": 5}
    left.add_patch(Rectangle((-0.5, row - 0.5), len(accuracy), 1, **outline))
    _return_curves(right, np.asarray(accuracy), curves, demonstrators)
    right.set_title(f"largest $\\beta$ = {_number(level)}", pad=4)
    return figure


def _panels(count: int, across: int, size: tuple[float, float], sharey: bool = False) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of panels, those beyond `count` invisible."""
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(-(-count // across), across, squeeze=False, sharey=sharey).ravel()
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid


@styled
def expertise_bars(
    names: Sequence[str],
    precision: Float[Array, " D"],
    low: Float[Array, " D"],
    high: Float[Array, " D"],
    skill: Bars | None = None,
) -> Figure:
    """Each demonstrator's precision and its interval on a logarithmic axis, the best on top; skill first, if given."""
    order = np.argsort(np.asarray(precision if skill is None else skill[0]), kind="stable")
    pitch = min(max(8.0 / len(names), 0.08), 0.22, TALLEST / len(names))  # inches a row
    height = 0.7 + pitch * (len(names) + 1)
    figure = Figure(figsize=(COLUMN if skill is None else PAGE, height), layout="constrained")
    panels = figure.subplots(1, 1 if skill is None else 2, sharey=True, squeeze=False)[0]
    if skill is not None:
        known = [np.asarray(each, float)[np.isfinite(each)] for each in skill]
        least, most = (end(np.concatenate([*known, [0.0, 1.0]])) for end in (np.min, np.max))
        room = 0.04 * (most - least)
        _bars(panels[0], skill, order, (least - room, most + room), (0.0, 1.0))
        panels[0].set(xlabel="skill (0 = random, 1 = as the others)")
    axes = panels[-1]
    limits = _limits(*_filled(precision, low, high))
    _bars(axes, (precision, low, high), order, limits, (1.0,))
    axes.set(xscale="log", xlim=limits, xlabel="precision (1 = geometric mean)")
    narrow = limits[1] / limits[0] < 300
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    shown = order if pitch >= 0.08 else []  # too dense to be read
    labels = [shortened(escaped(names[int(i)]), LONGEST_NAME) for i in shown]
    panels[0].set_yticks(range(len(labels)), labels, parse_math=False, fontsize=min(7.0, 60 * pitch))
    panels[0].set_ylim(-0.7, len(names) - 0.3)
    return figure


def _bars(axes: Axes, bars: Bars, order, limits: tuple[float, float], references: Sequence[float]) -> None:
    """Estimates with their intervals, cut off where the axis ends."""
    centre, low, high = (each[order] for each in _filled(*bars))
    centre = np.maximum(centre, limits[0])  # zero has no place on a logarithmic axis but its edge
    place = np.arange(len(centre))
    for reference in references:
        axes.axvline(reference, color="0.75", linewidth=0.8, zorder=0)
    axes.hlines(place, np.maximum(low, limits[0]), np.minimum(high, limits[1]), color=COLOURS[0], linewidth=1.2)
    axes.plot(centre, place, "o", color=COLOURS[0], clip_on=False)
    for cut, edge, marker in ((low < limits[0], limits[0], "<"), (high > limits[1], limits[1], ">")):
        if cut.any():  # an empty line counts as a mark in the corner of the figure
            axes.plot(np.full(cut.sum(), edge), place[cut], marker, color=COLOURS[0], clip_on=False)
    axes.set_xlim(limits)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _filled(centre, low, high) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where there is no interval, the point itself."""
    centre, low, high = (np.asarray(each, float) for each in (centre, low, high))
    return centre, np.where(np.isnan(low), centre, low), np.where(np.isnan(high), centre, high)


@styled
def relative_returns(settings: Sequence[str], methods: Mapping[str, Curve]) -> Figure:
    """Each method's return in each setting, relative to the best demonstrator, with its interval."""
    few = len(methods) <= 4
    figure = Figure(figsize=(COLUMN if few else PAGE, 2.4), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color="0.75", linewidth=0.8, zorder=0)
    place = np.arange(len(settings))
    for number, (name, curve) in enumerate(methods.items()):
        mean, low, high = (np.asarray(x, float) for x in (curve.mean, curve.low, curve.high))
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        shifted = place + min(0.16, 0.8 / len(methods)) * (number - (len(methods) - 1) / 2)
        axes.vlines(shifted, low, high, color=colour, linewidth=1.2)
        axes.plot(shifted, mean, marker, color=colour, label=name)
    axes.set_xticks(place, settings)
    lowest = min((float(np.min(np.asarray(curve.low))) for curve in methods.values()), default=0.0)
    axes.set(xlabel="precision and accuracy of the demonstrators", ylabel="return / best demonstrator")
    axes.set_ylim(bottom=min(0.0, lowest))
    legend: dict[str, Any] = {"ncols": 2, "loc": "outside upper center"} if few else {"loc": "outside right center"}
    figure.legend(frameon=False, **legend)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _improvement_map(axes: Axes, max_precision, accuracy, percent: Float[np.ndarray, "P L"]) -> AxesImage:
    known = percent[np.isfinite(percent)]
    lowest, highest = (min(0.0, known.min()), max(1.0, known.max())) if known.size else (0.0, 1.0)
    image = axes.imshow(percent, cmap=_colour_map(), vmin=lowest, vmax=highest, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(percent):
        text = f"{value:.0f}".replace("-0", "0").replace("-", "−") if np.isfinite(value) else "·"
        colour = _ink(image.cmap(image.norm(value)))
        axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(accuracy)), [_number(x) for x in accuracy])
    axes.set_yticks(range(len(max_precision)), [_number(x) for x in max_precision])
    axes.set(xlabel=r"accuracy ($\lambda$)", ylabel=r"precision (largest $\beta$)")
    axes.tick_params(length=0)
    return image


def _return_curves(axes: Axes, accuracy, curves: Mapping[str, Curve], demonstrators) -> None:
    place = np.arange(len(accuracy))
    if demonstrators is not None:
        axes.plot(place, demonstrators, "--", color="0.3", label="demonstrators", linewidth=1.0)
    for k, (name, curve) in enumerate(curves.items()):
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        axes.fill_between(place, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(place, curve.mean, color=colour, marker=marker, label=name)
    axes.set_xticks(place, [_number(x) for x in accuracy])
    axes.set(xlabel=r"accuracy ($\lambda$)", ylabel="mean return, 95 % band", xlim=(-0.5, len(accuracy) - 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    if axes.lines:
        axes.legend(frameon=False, loc="best")


def _ink(background) -> str:
    """Black or white, whichever is read more easily on this colour (WCAG's relative luminance)."""
    linear = np.power(np.asarray(background[:3]), 2.2)
    return "black" if linear @ (0.2126, 0.7152, 0.0722) > 0.18 else "white"


def _row_of(level: float, max_precision: Float[np.ndarray, " P"]) -> int:
    """The row of the heat map that the curves belong to."""
    close = np.flatnonzero(np.isclose(max_precision, level))
    if len(close) == 0:
        expected = f"one of {', '.join(_number(x) for x in max_precision)}"
        raise ConfigError("figure, level", got=level, expected=expected, remedy="choose one of these")
    return int(close[0])


def _relative(baseline, ours) -> Float[np.ndarray, "P L"]:
    """Improvement in percent; NaN where either is missing or the baseline earns nothing."""
    baseline, ours = np.asarray(baseline, float), np.asarray(ours, float)
    known = np.isfinite(baseline) & np.isfinite(ours) & (baseline != 0)
    percent = np.full(baseline.shape, np.nan)
    percent[known] = 100 * (ours[known] - baseline[known]) / np.abs(baseline[known])
    return percent


def _unit(values: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """Scaled from smallest to largest; a constant map is all zeros."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return np.full(values.shape, np.nan)
    span = known.max() - known.min()
    return (values - known.min()) / (span if span > 0 else 1.0)


def _limits(centre, low, high) -> tuple[float, float]:
    """An axis that shows every estimate, and intervals as far as they can be read."""
    positive = centre[centre > 0] if np.any(centre > 0) else np.ones(1)
    least = max(np.min(low), np.min(positive) / WIDEST_INTERVAL)
    most = min(np.max(high), np.max(positive) * WIDEST_INTERVAL)
    return float(min(least, 1.0)) / 1.15, float(max(most, 1.0)) * 1.15


def _colour_map():
    """Viridis: perceptually uniform, and read alike by every kind of colour vision."""
    return matplotlib.colormaps["viridis"].with_extremes(bad=MISSING)


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:g}"


@styled
def learning_curves(
    steps: Float[np.ndarray, " T"], panels: Mapping[str, Mapping[str, Curve]], beside: Mapping[str, Mapping[str, Line]]
) -> Figure:
    """Curves by panel and name, with published ones `beside` them, dotted."""
    columns = min(len(panels), 2)
    figure, grid = _panels(len(panels), columns, (PAGE, 0.4 + 2.1 * -(-len(panels) // columns)), sharey=True)
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        for place, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[place % len(COLOURS)]
            axes.fill_between(steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(steps, curve.mean, color=colour, label=name)
            if name in beside.get(title, {}):
                axes.plot(*beside[title][name], ":", color=colour, linewidth=0.9, label=f"{name}, the paper")
        axes.set(title=title, xlabel="steps", ylabel="return", xlim=(0, float(np.max(steps))))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0].get_legend_handles_labels(), frameon=False, loc="outside right upper")
    return figure


@styled
def scatter(
    names: Sequence[str],
    panels: Mapping[str, tuple[Float[Array, " D"], Float[Array, " D"]]],
    titles: Mapping[str, str],
    score: str,
) -> Figure:
    """Scores against estimates, a panel for each: by its title, what is on the horizontal axis and the score."""
    across = min(len(panels), 3)
    figure, grid = _panels(len(panels), across, (PANEL * across, PANEL * -(-len(panels) // across)))
    for axes, (title, (values, scores)) in zip(grid, panels.items(), strict=False):
        axes.plot(np.asarray(values), np.asarray(scores), "o", color=COLOURS[0], alpha=0.8)
        axes.set_title(titles.get(title, title), parse_math=False)
        axes.set_xlabel(title, parse_math=False)
        axes.set_ylabel(score, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if len(values) == len(names) <= MOST_NAMED and len(panels) <= 3:
            for who, x, y in zip(names, values, scores, strict=True):
                label = shortened(escaped(who), LONGEST_NAME)
                axes.annotate(label, (x, y), fontsize=4, color="0.4", xytext=(2, 2), textcoords="offset points")
    return figure
