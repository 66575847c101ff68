"""Where demonstrators differ in a finite MDP: the shared reward and everyone's bias, as maps of a grid or as lists."""

import math

import numpy as np

from irleed.report.markup import Safe, data_uri, details, element, figure, number, paragraph, table
from irleed.report.svg import drawing
from irleed.runs.kinds import FitRun

CELL = 20.0
MOST_CELLS = 400  # each with its value at hand; larger grids are pictures
MOST_MAPS = 24
# Cells of all maps of a page together: with values, and of pictures.
ROOM, ROOM_OF_PICTURES = 10_000, 500_000
MOST_LISTED = 5
OVER, UNDER = (0, 114, 178), (213, 94, 0)  # as in the style: blue and orange, told apart by every colour vision


def contents(run: FitRun, runs: int = 1) -> list[Safe]:
    """Maps where there is a grid, else the features that biases are largest on."""
    weights, bias = run.weights, run.bias
    if weights is None or bias is None:
        return []
    size = [math.hypot(*row) for row in bias]
    room = (ROOM if len(weights) <= MOST_CELLS else ROOM_OF_PICTURES) // len(weights) // runs
    order = sorted(range(len(bias)), key=lambda who: -size[who])[: max(1, min(room, MOST_MAPS))]
    if not any(size):
        return [paragraph("This algorithm knows no biases: all pursue the same.")]
    where = _listed(run, order)
    if run.grid is None:
        return [paragraph("What each demonstrator wants more, and less, than all do together."), where]
    largest = max(abs(value) for who in order for value in bias[who])
    middle = (min(weights) + max(weights)) / 2
    spread = max(weights) - middle
    maps = [
        _map(
            run.grid, "Shared reward", weights, middle, spread, f"from {number(min(weights))} to {number(max(weights))}"
        )
    ]
    for who in order:
        name = run.people[who].name
        maps.append(_map(run.grid, f"Bias of {name}", bias[who], 0.0, largest, f"its size is {number(size[who])}"))
    said = (
        "Blue is wanted, orange avoided, the stronger the more. The shared reward is drawn around the middle of its "
        f"range; biases around 0, all on one scale, which ends at {number(largest)}. Where a map is pale, "
        "its demonstrator wants what all want."
    )
    left_out = len(bias) - len(order)
    more = f" The {len(order)} largest of {len(bias)} biases are shown." if left_out else ""
    return [paragraph(said + more), element("div", *maps, class_="maps"), where]


def _map(grid: tuple[int, int], title: str, values, middle: float, spread: float, note: str) -> Safe:
    rows, columns = grid
    strength = np.clip((np.asarray(values, float) - middle) / (spread or 1.0), -1, 1).reshape(grid)
    label = f"{title}: a map of {rows} rows and {columns} columns, {note}"
    if rows * columns > MOST_CELLS:
        return figure(title, _picture(label, strength))
    cells = [
        element(
            "rect",
            x=column * CELL + 0.5,
            y=row * CELL + 0.5,
            width=CELL - 1,
            height=CELL - 1,
            class_="over" if value >= 0 else "under",
            fill_opacity=f"{abs(value):.3f}",
            data_tip=f"row {row + 1}, column {column + 1}: {number(values[row * columns + column])}",
        )
        for (row, column), value in np.ndenumerate(strength)
    ]
    frame = element("rect", width=columns * CELL, height=rows * CELL, class_="cells")
    table_rows = [(f"row {row + 1}", *values[row * columns : (row + 1) * columns]) for row in range(rows)]
    as_table = table(title, ["", *(f"column {n + 1}" for n in range(columns))], table_rows, sortable=False)
    return figure(title, drawing(label, columns * CELL, rows * CELL, frame, *cells, kind="map"), as_table)


def _picture(label: str, strength: np.ndarray) -> Safe:
    """A pixel a cell: the colour says the sign, the opacity the size."""
    colour = np.where((strength >= 0)[..., None], OVER, UNDER)
    pixels = np.concatenate([colour, np.abs(strength * 255).round()[..., None]], -1).astype(np.uint8)
    return element("img", src=data_uri(pixels), alt=label, class_="map cells")


def _listed(run: FitRun, order: list[int]) -> Safe:
    """The places that biases are largest on."""
    rows = []
    for who in order:
        own = (run.bias or ())[who]
        by_value = sorted(range(len(own)), key=lambda i: -own[i])
        more = [_place(run, i, own[i]) for i in by_value[:MOST_LISTED] if own[i] > 0]
        less = [_place(run, i, own[i]) for i in by_value[::-1][:MOST_LISTED] if own[i] < 0]
        rows.append((run.people[who].name, "; ".join(more), "; ".join(less)))
    what = "cells" if run.grid else "features"
    found = table(f"The {what} with the largest biases", ["demonstrator", "wants more", "wants less"], rows)
    return details("Where the biases are largest", found) if run.grid else found


def _place(run: FitRun, index: int, value: float) -> str:
    if run.grid is None:
        return f"feature {index} ({number(value)})"
    row, column = divmod(index, run.grid[1])
    return f"row {row + 1}, column {column + 1} ({number(value)})"
