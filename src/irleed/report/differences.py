"""Where demonstrators differ.

In a finite MDP, `maps`: the shared reward and everyone's bias, as maps of a grid or as lists. Without a model of the
dynamics, `departures`: where demonstrators depart most from the shared policy.
"""

import math

import numpy as np

from irleed.report import svg
from irleed.report.markup import Safe, data_uri, details, element, figure, join, listed, number, paragraph, table
from irleed.runs.reader import Departures, FitRun, Situation

CELL = 20.0
MOST_CELLS = 400  # each with its value at hand; larger grids are pictures
MOST_MAPS = 24
# Cells of all maps of a page together: with values, and of pictures.
ROOM, ROOM_OF_PICTURES = 10_000, 500_000
MOST_LISTED = 5
SIDE, HEIGHT, EDGE = 220.0, 180.0, 10.0
FAR = 1.0  # nats from which a departure is drawn in orange
MOST_FRAMES = 3_000_000  # characters of pictures on a page
TRACK, POLE = 2.4, 34.0  # metres from the middle to the end of CartPole's track; the pole's length as drawn
OVER, UNDER = (0, 114, 178), (213, 94, 0)  # as in the style: blue and orange, departing apart by every colour vision


def maps(run: FitRun, runs: int = 1) -> list[Safe]:
    """Maps where there is a grid, else the features with the largest biases."""
    weights, bias = run.weights, run.bias
    if weights is None or bias is None:
        return []
    size = [math.hypot(*row) for row in bias]
    room = (ROOM if len(weights) <= MOST_CELLS else ROOM_OF_PICTURES) // len(weights) // runs
    order = sorted(range(len(bias)), key=lambda who: -size[who])[: max(1, min(room, MOST_MAPS))]
    if not any(size):
        return [paragraph("This algorithm has no biases: all demonstrators have the shared reward.")]
    where = _listed(run, order)
    if run.grid is None:
        return [paragraph("What each demonstrator values more, and less, than the shared reward."), where]
    largest = max(abs(value) for who in order for value in bias[who])
    middle = (min(weights) + max(weights)) / 2
    spread = max(weights) - middle
    ends = f"from {number(min(weights))} to {number(max(weights))}"
    drawn = [_map(run.grid, "Shared reward", weights, middle, spread, ends)]
    for who in order:
        name = run.people[who].name
        drawn.append(_map(run.grid, f"Bias of {name}", bias[who], 0.0, largest, f"its size is {number(size[who])}"))
    note = (
        "Blue is high, orange low. The shared reward is drawn around the middle of its "
        f"range; biases around 0, all on one scale, which ends at {number(largest)}. Where a map is pale, "
        "the demonstrator has the shared reward."
    )
    left_out = len(bias) - len(order)
    more = f" The {len(order)} largest of {len(bias)} biases are shown." if left_out else ""
    return [paragraph(note + more), element("div", *drawn, class_="maps"), where]


def _map(grid: tuple[int, int], title: str, values, middle: float, spread: float, note: str) -> Safe:
    rows, columns = grid
    strength = np.clip((np.asarray(values, float) - middle) / (spread or 1.0), -1, 1).reshape(grid)
    label = f"{title}: a map of {rows} rows and {columns} columns, {note}"
    if rows * columns > MOST_CELLS:
        return figure(title, _picture(label, strength))
    cells = []
    for (row, column), value in np.ndenumerate(strength):
        tip = f"row {row + 1}, column {column + 1}: {number(values[row * columns + column])}"
        place = {"x": column * CELL + 0.5, "y": row * CELL + 0.5, "width": CELL - 1, "height": CELL - 1}
        look = {"class_": "over" if value >= 0 else "under", "fill_opacity": f"{abs(value):.3f}"}
        cells.append(element("rect", **place, **look, data_tip=tip))
    frame = element("rect", width=columns * CELL, height=rows * CELL, class_="cells")
    table_rows = [(f"row {row + 1}", *values[row * columns : (row + 1) * columns]) for row in range(rows)]
    as_table = table(title, ["", *(f"column {n + 1}" for n in range(columns))], table_rows, sortable=False)
    return figure(title, svg.drawing(label, columns * CELL, rows * CELL, frame, *cells, kind="map"), as_table)


def _picture(label: str, strength: np.ndarray) -> Safe:
    """A pixel a cell: the colour says the sign, the opacity the size."""
    colour = np.where((strength >= 0)[..., None], OVER, UNDER)
    pixels = np.concatenate([colour, np.abs(strength * 255).round()[..., None]], -1).astype(np.uint8)
    return element("img", src=data_uri(pixels), alt=label, class_="map cells")


def _listed(run: FitRun, order: list[int]) -> Safe:
    """The cells or features with the largest biases."""
    rows = []
    for who in order:
        own = (run.bias or ())[who]
        by_value = sorted(range(len(own)), key=lambda i: -own[i])
        more = [_place(run, i, own[i]) for i in by_value[:MOST_LISTED] if own[i] > 0]
        less = [_place(run, i, own[i]) for i in by_value[::-1][:MOST_LISTED] if own[i] < 0]
        rows.append((run.people[who].name, "; ".join(more), "; ".join(less)))
    what = "cells" if run.grid else "features"
    found = table(f"The {what} with the largest biases", ["demonstrator", "values more", "values less"], rows)
    return details("Where the biases are largest", found) if run.grid else found


def _place(run: FitRun, index: int, value: float) -> str:
    if run.grid is None:
        return f"feature {index} ({number(value)})"
    row, column = divmod(index, run.grid[1])
    return f"row {row + 1}, column {column + 1} ({number(value)})"


def departures(run: FitRun, key: str, runs: int = 1) -> list[Safe]:
    """A projection with a panel for each demonstrator, and the situations behind it."""
    found = run.departures
    if found is None:
        return [paragraph("The run has no departures from the shared policy.")]
    names = [person.name for person in run.people]
    departing = [names[who] for who, own in found.people if own and found.mean[who] > 0]
    note = (
        "How far an action departs is its surprise under the shared policy minus the expected surprise there (the "
        "entropy): 0 on average for a demonstrator who acts by that policy. "
    )
    most = f"Those who depart most: {listed(departing[:3])}." if departing else "None departs from it on average."
    shares = " and ".join(f"{share:.0%}" for share in found.explained)
    seen = (
        "Each panel: situations of one demonstrator (coloured) among those of all (grey), by the two principal "
        f"components of the observations, which have {shares} of their variance. Orange: the action departs by more "
        f"than {FAR:g}; numbers: the situations where they depart most."
    )
    cloud = f"{key}-cloud"
    scale = _scale(found)
    defined = element("defs", element("path", d=svg.dots([scale(x, y) for _, x, y, _ in found.points]), id=cloud))
    hidden = element("svg", defined, width="0", height="0", aria_hidden="true", class_="hidden")
    panels = [_panel(found, names[who], who, own, cloud, scale) for who, own in found.people]
    figures = paragraph(seen, kind="note"), element("div", *panels, class_="maps")
    return [paragraph(note + most), hidden, *figures, *_situations(run, found, names, MOST_FRAMES // runs)]


def _scale(found: Departures):
    """From principal components to coordinates in a panel, the same in all."""
    places = [(x, y) for _, x, y, _ in found.points] + [s.place for _, own in found.people for s in own]
    across = svg.linear([x for x, _ in places], EDGE, SIDE - EDGE)
    up = svg.linear([y for _, y in places], HEIGHT - EDGE, EDGE)
    return lambda x, y: (across.place(x), up.place(y))


def _panel(found: Departures, name: str, who: int, own: tuple[Situation, ...], cloud: str, scale) -> Safe:
    near = [scale(x, y) for owner, x, y, d in found.points if owner == who and d <= FAR]
    far = [scale(x, y) for owner, x, y, d in found.points if owner == who and d > FAR]
    marks = []
    for rank, situation in reversed(list(enumerate(own, 1))):
        x, y = scale(*situation.place)
        when = f"episode {situation.episode}, step {situation.step}"
        tip = f"{name}, {rank}: {when}, departs by {number(situation.departure)}"
        inner = element("circle", r="8", class_="badge"), svg.words(0, 4, str(rank), "middle", "badge-number")
        marks.append(element("g", *inner, transform=f"translate({x:g} {y:g})", data_tip=tip))
    label = (
        f"{name}: {len(near) + len(far)} situations among all, {len(far)} of them with an action that departs by more "
        f"than {FAR:g}; the table lists the {len(own)} where they depart most"
    )
    drawn = svg.drawing(
        label, SIDE, HEIGHT,
        element("rect", width=SIDE, height=HEIGHT, class_="cells"),
        element("use", href=f"#{cloud}", class_="dots all"),
        element("path", d=svg.dots(near) or None, class_="dots near"),
        element("path", d=svg.dots(far) or None, class_="dots far"),
        *marks,
        kind="map",
    )  # fmt: skip
    return figure(f"{name}: departs by {number(found.mean[who])} on average", drawn)


def _situations(run: FitRun, found: Departures, names: list[str], room: int) -> list[Safe]:
    """Frames where they can be drawn, and a table."""
    frames, behind = _frames(run, found, names, room), _table(run, found, names)
    if not frames:
        return [behind]
    note = (
        "What they observed, and their action instead of the most probable one, with probabilities under the shared "
        "policy."
    )
    arrows = " Filled arrows: the push they gave; outlined: the most probable." if _pole(run) else ""
    return [paragraph(note + arrows, kind="note"), *frames, details("These situations as a table", behind)]


def _frames(run: FitRun, found: Departures, names: list[str], room: int) -> list[Safe]:
    """A strip of frames for each demonstrator, up to a limit for the page."""
    strips, left_out = [], 0
    for who, own in found.people:
        frames = []
        for rank, situation in enumerate(own, 1):
            drawn = _frame(run, situation, names[who])
            if drawn is not None and len(drawn) > room:
                left_out += 1
            elif drawn is not None:
                room -= len(drawn)
                frames.append(figure(f"{rank}: {_what(run, situation)}", drawn))
        if frames:
            title = element("p", names[who], class_="who")
            strips.append(element("div", title, element("div", *frames, class_="frames"), class_="strip"))
    if left_out:
        strips.append(paragraph(f"{left_out} further frames are left out to keep the page small.", kind="note"))
    return strips


def _table(run: FitRun, found: Departures, names: list[str]) -> Safe:
    rows = [
        (
            names[who], rank, s.episode, s.step, _action(run, s.action), f"{s.probability:.1%}",
            f"{_action(run, s.likeliest)} ({s.likeliest_probability:.0%})", s.departure,
            None if s.observation is None else ", ".join(number(value) for value in s.observation),
        )
        for who, own in found.people
        for rank, s in enumerate(own, 1)
    ]  # fmt: skip
    headings = ["demonstrator", "number", "episode", "step", "action", "its probability", "most probable", "departs by"]
    headings.append("observation")
    if all(row[-1] is None for row in rows):
        rows, headings = [row[:-1] for row in rows], headings[:-1]
    caption = "Situations where demonstrators depart most from the shared policy; episodes and steps count from 0"
    return table(caption, headings, rows)


def _what(run: FitRun, situation: Situation) -> str:
    did = f"{_action(run, situation.action)} ({situation.probability:.0%})"
    usual = f"{_action(run, situation.likeliest)} ({situation.likeliest_probability:.0%})"
    seen = _posture(run, situation)
    pole = "" if seen is None else f"pole at {number(math.degrees(seen[2]))}°, {number(seen[3])} rad/s: "
    return f"{pole}{did}, not {usual}"


def _pole(run: FitRun) -> bool:
    return str(run.config.get("env", "")).startswith("CartPole-")


def _posture(run: FitRun, situation: Situation) -> tuple[float, ...] | None:
    """CartPole's four numbers: position and velocity of the cart, angle and speed of the pole."""
    seen = situation.observation
    return seen if _pole(run) and seen is not None and len(seen) == 4 else None


def _action(run: FitRun, action: int) -> str:
    return ("push left", "push right")[action] if _pole(run) and action in (0, 1) else f"action {action}"


def _frame(run: FitRun, situation: Situation, name: str) -> Safe | None:
    """A picture of the situation: the observed image, or CartPole drawn from its four numbers."""
    label = f"{name} at step {situation.step} of episode {situation.episode}"
    if situation.frame is not None:
        return element("img", src=situation.frame, alt=label, class_="frame")
    seen = _posture(run, situation)
    return None if seen is None else _cart(label, situation, seen)


def _cart(label: str, situation: Situation, seen: tuple[float, ...]) -> Safe:
    """The cart, its pole, the demonstrator's push (filled) and the most probable one (outlined)."""
    width, ground = 120.0, 66.0
    position, _, angle, turning = seen
    x = width / 2 + max(min(position / TRACK, 1.1), -1.1) * (width / 2 - 14)
    tip_x, tip_y = x + POLE * math.sin(angle), ground - 12 - POLE * math.cos(angle)
    parts = (
        element("rect", width=width, height=76, class_="cells"),
        svg.stroke(4, ground, width - 4, ground, "reference"),
        element("rect", x=f"{x - 10:.1f}", y=ground - 12, width=20, height=10, rx=2, class_="cart"),
        element("path", d=f"M{x:.1f} {ground - 12:g}L{tip_x:.1f} {tip_y:.1f}", class_="pole"),
        _push(x, ground - 7, situation.likeliest, "push usual"),
        _push(x, ground - 7, situation.action, "push given"),
    )
    pole = f"pole at {number(math.degrees(angle))} degrees, turning at {number(turning)} rad/s"
    return svg.drawing(f"{label}: cart at {number(position)} m, {pole}", width, 76.0, join(parts), kind="frame")


def _push(x: float, y: float, action: int, kind: str) -> Safe:
    side = 1 if action else -1
    points = ((13, -2), (22, -2), (22, -6), (31, 0), (22, 6), (22, 2), (13, 2))
    return element("path", d="M" + "L".join(f"{x + side * dx:.1f} {y + dy:g}" for dx, dy in points) + "z", class_=kind)
