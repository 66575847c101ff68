"""Curves of the report: training losses, and returns while learning."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from irleed._typing import Float
from irleed.report import svg
from irleed.report.figures import COLOURS, PAGE, Curve, styled
from irleed.report.markup import Safe, counted, figure, number, paragraph, part, table
from irleed.runs.kinds import FitRun

MOST_POINTS, MOST_ROWS = 400, 40


def section(run: FitRun, level: int, key: str) -> Safe:
    """The curve, or why there is none."""
    title, took = "Training", f"{counted(run.steps, 'step')} in {number(run.seconds)} s."
    if len(run.history) < 2:
        return part(level, title, key, paragraph(f"{took} The run has no learning curve."))
    measure = run.measure.replace("_", " ")
    points = thinned(run.history, MOST_POINTS)
    label = (
        f"{measure} from {number(points[0][1])} at step {number(points[0][0])} to {number(points[-1][1])} at the end"
    )
    drawn = svg.line(points, label=label, across="step", up=measure)
    values = table(
        f"{measure} by step", ["step", measure], [(int(x), y) for x, y in thinned(points, MOST_ROWS)], sortable=False
    )
    of = ", the mean over members" if run.networks else ""
    return part(level, title, key, paragraph(took), figure(f"{measure.capitalize()}{of}.", drawn, values))


def thinned(points: tuple[tuple[float, float], ...], most: int) -> tuple[tuple[float, float], ...]:
    """So many at most, evenly spread, the first and the last with them."""
    if len(points) <= most:
        return points
    return tuple(points[round(n * (len(points) - 1) / (most - 1))] for n in range(most))


Line = tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]


@styled
def learning_curves(
    steps: Float[np.ndarray, " T"], panels: Mapping[str, Mapping[str, Curve]], beside: Mapping[str, Mapping[str, Line]]
) -> Figure:
    """Curves by panel and name; those of somebody else `beside` them, steps and values each, are dotted."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(PAGE, 0.4 + 2.1 * rows), layout="constrained")
    every = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, (title, curves) in zip(every, panels.items(), strict=False):
        for place, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[place % len(COLOURS)]
            axes.fill_between(steps, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(steps, curve.mean, color=colour, label=name)
            if name in beside.get(title, {}):
                axes.plot(*beside[title][name], ":", color=colour, linewidth=0.9, label=f"{name}, the paper")
        axes.set(title=title, xlabel="steps", ylabel="return", xlim=(0, float(np.max(steps))))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in every[len(panels) :]:
        axes.set_visible(False)
    figure.legend(*every[0].get_legend_handles_labels(), frameon=False, loc="outside right upper")
    return figure
