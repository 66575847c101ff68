"""Who is how good: precision and bias with their intervals, and what the intervals do not allow to say."""

import math
from bisect import bisect_left

from irleed.report import svg
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.kinds import Estimate, FitRun, Person

MOST_DRAWN, MOST_ROWS = 40, 500
MOST_CROSSED = 12  # demonstrators in the table of who is told apart from whom
MOST_GROUPS = 6
MOST_NAMED = 8
FEW_MEMBERS = 5


def section(run: FitRun, level: int, key: str) -> Safe:
    """Estimates as plots and as a table, and what they mean in words."""
    order = ranked(run)
    estimates = [person.precision for person in order]
    plots = [
        _plot(
            estimates,
            "Precision: how consistently they choose. 1 is the average; the axis is logarithmic.",
            "precision, with 90 % interval",
            log=True,
        )
    ]
    biases = [person.bias for person in order if person.bias is not None]
    if biases:
        scale = "shared values" if run.networks else "shared reward"
        caption = f"Bias: how far what they pursue is off, relative to the {scale}. 0 is none; same order."
        plots.append(_plot(biases, caption, "bias, with 90 % interval", log=False))
    return part(
        level,
        "Who is how good",
        key,
        *(paragraph(sentence) for sentence in said(run)),
        element("div", *plots, class_="figures"),
        _all(order),
        *_crossed(order),
    )


def ranked(run: FitRun) -> list[Person]:
    """The most precise first, and those who are not ranked last."""
    return sorted(run.people, key=lambda person: (not person.ranked, -person.precision.value))


def compared(run: FitRun) -> list[Person]:
    """Those who are ranked, the most precise first: with enough transitions to be compared with others."""
    return [person for person in ranked(run) if person.ranked]


def pairs(run: FitRun) -> tuple[int, int]:
    """How many pairs the intervals of precision tell apart, and how many there are."""
    known = [(e.low, e.high) for e in (p.precision for p in run.people) if e.low is not None and e.high is not None]
    highs = sorted(high for _, high in known)
    return sum(bisect_left(highs, low) for low, _ in known), math.comb(len(run.people), 2)


def alike(run: FitRun) -> list[list[str]]:
    """Groups within which nobody is told apart from anybody, the largest there are, the most precise first."""
    order = [person.precision for person in compared(run)]
    # Intervals that all overlap each other have a point in common, and it can be the low end of one of them.
    ends = sorted({-math.inf if e.low is None else e.low for e in order}, reverse=True)
    found: list[list[str]] = []
    for end in ends:
        group = [e.name for e in order if e.low is None or e.high is None or e.low <= end <= e.high]
        if len(group) > 1 and not any(set(group) <= set(other) for other in found):
            found = [other for other in found if not set(other) <= set(group)] + [group]
    return found


def judged(run: FitRun) -> bool:
    """Whether the run says who is better; some algorithms take everyone for equal, and few data say nothing."""
    return len({person.precision.value for person in compared(run)}) > 1


def said(run: FitRun) -> list[str]:
    """What the numbers allow to say, and what they do not."""
    if len(run.people) == 1:
        return ["There is one demonstrator, and so nobody to compare with."]
    if len(compared(run)) < 2:
        return ["Too few transitions to rank the demonstrators: their precisions are no more than a first guess."]
    if not judged(run):
        algorithm = run.config.get("algorithm", "this algorithm")
        return [f"Everyone has the same precision: {algorithm} takes all for equal, and says nothing of who is better."]
    if all(person.precision.low is None for person in run.people):
        return ["These estimates have no intervals: nobody is told apart, and the order may be chance."]
    told, all_ = pairs(run)
    sentences = [f"Of {counted(all_, 'pair')} of demonstrators, the intervals tell {number(told)} apart."]
    left = [person.name for person in run.people if not person.ranked]
    if left:
        names = listed(left[:MOST_NAMED])
        more = f" and {counted(len(left) - MOST_NAMED, 'other')}" if len(left) > MOST_NAMED else ""
        sentences.append(f"Not ranked and without intervals, as they have too few transitions: {names}{more}.")
    groups = [listed(group) for group in alike(run)] if len(run.people) <= MOST_DRAWN else []
    if groups:
        more = f"; and {counted(len(groups) - MOST_GROUPS, 'more group')}" if len(groups) > MOST_GROUPS else ""
        sentences.append(
            f"Not told apart from each other, as their intervals overlap: {'; '.join(groups[:MOST_GROUPS])}{more}. "
            "Their order in the ranking may be chance; more episodes of them would narrow it."
        )
    if run.members is not None and run.members < FEW_MEMBERS:
        sentences.append(
            f"The intervals are quantiles over {counted(run.members, 'member')} of an ensemble: take them as rough, "
            "and fit with more --seeds before anything depends on them."
        )
    sentences.append(
        "Intervals hold 90 % if the model is right: among many pairs, some will be told apart by chance. Precision is "
        "not the return: someone can be consistent in pursuit of the wrong thing, which is what bias says."
    )
    return sentences


def _plot(estimates: list[Estimate], caption: str, axis: str, *, log: bool) -> Safe:
    shown = _ends(estimates)
    left_out = len(estimates) - len(shown)
    more = f" The {MOST_DRAWN // 2} first and the {MOST_DRAWN // 2} last of {len(estimates)}." if left_out else ""
    best = listed([estimate.name for estimate in estimates[:3]])
    people = counted(len(shown), "demonstrator")
    drawn = svg.forest(
        [(estimate, 0) for estimate in shown],
        label=f"{axis}: {people} from top to bottom, first {best}. The table has the values.",
        axis=axis,
        log=log,
        reference=1.0 if log else 0.0,
    )
    return figure(caption + more, drawn)


def _ends(estimates: list[Estimate]) -> list[Estimate]:
    half = MOST_DRAWN // 2
    return estimates if len(estimates) <= MOST_DRAWN else estimates[:half] + estimates[-half:]


def _all(order: list[Person]) -> Safe:
    headings = ["demonstrator", "rank", "precision", "bias", "transitions", "log likelihood", "share of what is known"]
    rows = [
        (
            person.name, rank if person.ranked else None, person.precision, person.bias, person.transitions,
            person.log_likelihood,
            None if person.weight is None else f"{person.weight:.0%}",
        )
        for rank, person in enumerate(order[:MOST_ROWS], 1)
    ]  # fmt: skip
    more = f"; the first {MOST_ROWS} of {len(order)}" if len(order) > MOST_ROWS else ""
    return table(f"Demonstrators by precision; 90 % intervals in brackets{more}", headings, rows)


def _crossed(order: list[Person]) -> list[Safe]:
    """Everyone against everyone, where that can be read."""
    if not 2 < len(order) <= MOST_CROSSED:
        return []

    def cell(row: Person, column: Person) -> str:
        if row is column:
            return "·"
        if not row.precision.apart(column.precision):
            return "not told apart"
        return "more precise" if row.precision.value > column.precision.value else "less precise"

    rows = [(row.name, *(cell(row, column) for column in order)) for row in order]
    caption = "Each row against each column, by whether the intervals of precision overlap"
    crossed = table(caption, ["", *(person.name for person in order)], rows, sortable=False)
    return [details("Who is told apart from whom", crossed)]
