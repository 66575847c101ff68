"""Where each demonstrator is strong and weak: skill in groups of situations, as a heat map and in words."""

from collections.abc import Sequence

from irleed._io.text import shortened
from irleed.report import svg
from irleed.report.expertise import ranked
from irleed.report.markup import Safe, counted, details, element, figure, listed, listing, paragraph, part, table
from irleed.runs.reader import Estimate, FitRun, Person
from irleed.runs.strengths import Strength, Strengths

MOST_DRAWN, MOST_SAID, MOST_ROWS = 40, 20, 500
CELL, HEAD = 48.0, 26.0  # of the heat map: width of a cell, height of the line of letters
FULL = 0.5  # a deviation in the strongest colour
FAINTEST = 0.25  # opacity
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MEANING = (
    "Situations are grouped by where demonstrators differ in one half of their data; skill is estimated from the other "
    "half. Expected is the demonstrator's mean times what these situations make of everybody's skill. Coloured: skill "
    "differs from what is expected and, in the same direction, from the demonstrator's mean, as 90 % intervals say; "
    "blue (▲) is strong, orange (▼) weak. Other differences may be chance. Estimates are drawn towards what is "
    "expected. A question mark stands where a demonstrator has not been."
)


def section(run: FitRun, found: Strengths, level: int, key: str) -> Safe:
    """The supported differences in words, a heat map of all, and the values as a table."""
    order = {person.name: who for who, person in enumerate(run.people)}
    rows = [(person, found.people[order[person.name]]) for person in ranked(run)]
    said = sentences(rows, found)
    words = [paragraph(conclusion(run)), *([listing(said)] if said else []), paragraph(MEANING, kind="note")]
    known = [(person, own) for person, own in rows if person.ranked]
    groups = [
        (_letter(n), name, f"{share:.0%}", _mean([own[n].expected for _, own in known or rows]))
        for n, (name, share) in enumerate(zip(found.names, found.share, strict=True))
    ]
    legend = table("Groups of situations", ["group", "situations", "of all transitions", "mean skill expected"], groups)
    drawn = figure(_caption(rows), _heat_map(_drawn(rows), found))
    return part(level, "Where each demonstrator is strong and weak", key, *words, drawn, legend, _values(rows, found))


def conclusion(run: FitRun) -> str:
    """Of how many demonstrators a difference between situations is supported."""
    rows = () if run.strengths is None else run.strengths.people
    count = sum(any(each.supported for each in own) for own in rows)
    if not count:
        return (
            "No demonstrator is known to be stronger or weaker in some situations than in others: all differences "
            "between situations may be chance."
        )
    of = f"{counted(count, 'demonstrator')} of {len(rows)}" if count < len(rows) else f"all {len(rows)} demonstrators"
    return f"Stronger or weaker in some situations than in others, as far as the data support it: {of}."


def sentences(rows: Sequence[tuple[Person, Sequence[Strength]]], found: Strengths) -> list[str]:
    """Of each demonstrator with supported differences, which these are."""
    said = []
    for person, own in rows:
        parts = [
            f"{word} in {listed([_group(n, own[n], found) for n in places], 4)}"
            for word, sign in (("weak", -1), ("strong", 1))
            if (places := [n for n, each in enumerate(own) if each.supported == sign])
        ]
        said += [f"{person.name} is {', and '.join(parts)}."] if parts else []
    more = len(said) - MOST_SAID
    return said[:MOST_SAID] + ([f"And {counted(more, 'more demonstrator')}, in the table."] if more > 0 else [])


def _group(place: int, own: Strength, found: Strengths) -> str:
    """A group by its letter and name, with the skill there and what was expected."""
    return f"{_letter(place)} ({found.names[place]}: skill {_short(own.skill)}, expected {_short(own.expected)})"


def _caption(rows: Sequence[tuple[Person, Sequence[Strength]]]) -> str:
    left = f" {MOST_DRAWN} of {len(rows)} demonstrators, those with supported differences first." if (
        len(rows) > MOST_DRAWN
    ) else ""  # fmt: skip
    return f"Skill in each group of situations; demonstrators in the order of the ranking.{left}"


def _drawn(rows: list[tuple[Person, tuple[Strength, ...]]]) -> list[tuple[Person, tuple[Strength, ...]]]:
    """As many as can be drawn, in their order: those with supported differences, then the others."""
    by_support = sorted(range(len(rows)), key=lambda n: not any(each.supported for each in rows[n][1]))
    return [rows[n] for n in sorted(by_support[:MOST_DRAWN])]


def _heat_map(rows: list[tuple[Person, tuple[Strength, ...]]], found: Strengths) -> Safe:
    """A row for each demonstrator, a column for each group."""
    left = svg.LETTER * max(len(shortened(person.name, svg.LONGEST_NAME)) for person, _ in rows) + 24
    width = max(svg.WIDTH, left + CELL * len(found.names) + svg.RIGHT)
    size = (width - left - svg.RIGHT) / len(found.names)
    parts = [
        svg.words(left + size * (n + 0.5), HEAD - 9, _letter(n), "middle", "axis") for n in range(len(found.names))
    ]
    for line, (person, own) in enumerate(rows):
        y = HEAD + svg.ROW * line
        parts.append(svg.words(left - 10, y + svg.ROW / 2 + 4.5, shortened(person.name, svg.LONGEST_NAME), "end"))
        parts += [_cell(person, found.names[n], each, left + size * n, y, size) for n, each in enumerate(own)]
    marked = sum(bool(each.supported) for _, own in rows for each in own)
    label = (
        f"Skill of {counted(len(rows), 'demonstrator')} in {counted(len(found.names), 'group')} of situations; "
        f"{counted(marked, 'cell is', 'cells are')} coloured, as the difference is supported. The table has the values."
    )
    return svg.drawing(label, width, HEAD + svg.ROW * len(rows) + 2, *parts)


def _cell(person: Person, name: str, own: Strength, x: float, y: float, size: float) -> Safe:
    """One cell: a number on a colour if the difference is supported, else on none."""
    place = {"x": f"{x + 1:g}", "y": f"{y + 1:g}", "width": f"{size - 2:g}", "height": f"{svg.ROW - 2:g}", "rx": "3"}
    if own.supported:
        strength = FAINTEST + (1 - FAINTEST) * min(abs(own.deviation) / FULL, 1.0) * 0.6
        look = {"class_": "over" if own.supported > 0 else "under", "fill_opacity": f"{strength:.2f}"}
        shown, kind = f"{'▲' if own.supported > 0 else '▼'} {_short(own.skill)}", "supported"
    else:
        look, kind = {"class_": "cells"}, "tick"
        shown = _short(own.skill) if own.transitions else "?"
    tip = f"{person.name}, {name}: {_told(own)}"
    inner = svg.words(x + size / 2, y + svg.ROW / 2 + 4.5, shown, "middle", kind)
    return element("g", element("rect", **place, **look), inner, data_tip=tip)


def _values(rows: Sequence[tuple[Person, Sequence[Strength]]], found: Strengths) -> Safe:
    """All values as a table."""
    lines = [
        (person.name, _letter(n), Estimate(person.name, own[n].skill, own[n].skill_low, own[n].skill_high),
         round(own[n].expected, 2), Estimate(person.name, own[n].deviation, own[n].low, own[n].high),
         own[n].transitions, ("weak", "", "strong")[own[n].supported + 1])
        for person, own in rows for n in range(len(found.names))
    ]  # fmt: skip
    more = f"; the first {MOST_ROWS} of {len(lines)} rows" if len(lines) > MOST_ROWS else ""
    caption = (
        f"Skill by groups of situations, and its difference from what is expected; 90 % intervals in brackets{more}"
    )
    headings = ["demonstrator", "group", "skill", "expected", "difference", "transitions", "supported"]
    return details("Skill by situation as a table", table(caption, headings, lines[:MOST_ROWS]))


def _told(own: Strength) -> str:
    """What a reader who points at a cell is told."""
    if not own.transitions:
        return f"never there; {_short(own.expected)} would be expected"
    between = f"[{_signed(own.low)}, {_signed(own.high)}]"
    return (
        f"skill {_short(own.skill)} where {_short(own.expected)} is expected, difference {_signed(own.deviation)} "
        f"{between}, {counted(own.transitions, 'transition')}"
    )


def _letter(place: int) -> str:
    return LETTERS[place] if place < len(LETTERS) else str(place + 1)


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 2)


def _short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−").replace("+0.00", "0.00")
