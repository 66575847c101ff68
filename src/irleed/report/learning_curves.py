"""Return against steps, as a figure: a panel for each source of data, a line with its interval for each method."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from irleed._typing import Float
from irleed.report.figures import Curve
from irleed.report.style import COLOURS, PAGE, styled

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
        for number, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[number % len(COLOURS)]
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
