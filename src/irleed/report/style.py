"""How figures look, and how they are written; matplotlib's own settings stay as they were."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.figure import Figure

from irleed._files import beside

P = ParamSpec("P")

COLUMN, PAGE = 3.4, 7.0  # widths in inches: of a column, of both
TALLEST = 24.0
# Okabe and Ito's colours, told apart by every kind of colour vision; markers tell the same in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colours: together they tell 42 curves apart
MISSING = "0.88"
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
    """Draw in this style, and leave matplotlib's settings as they were."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def save(figure: Figure, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write ``path.png`` and ``path.pdf``, each whole or not at all; `path` has no suffix. Returns both paths."""
    png, pdf = Path(f"{os.fspath(path)}.png"), Path(f"{os.fspath(path)}.pdf")
    with matplotlib.rc_context(STYLE):
        _write(figure, png, dpi=200, metadata={"Software": None})
        _write(figure, pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})  # the same bytes again
    return png, pdf


def _write(figure: Figure, path: Path, **settings) -> None:
    with beside(path) as file:
        figure.savefig(file, format=path.suffix[1:], **settings)
