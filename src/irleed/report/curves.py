"""How it learnt: the measure that training follows, over its steps."""

from irleed.report import svg
from irleed.report.markup import Safe, counted, figure, number, paragraph, part, table
from irleed.report.runs import FitRun

MOST_POINTS, MOST_ROWS = 400, 40


def section(run: FitRun, level: int, key: str) -> Safe:
    """The curve, or why there is none."""
    title, took = "How it learnt", f"{counted(run.steps, 'step')} in {number(run.seconds)} s."
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
