"""The demonstrators: skill, precision and bias with their intervals, and which differences these do not support."""

import math
from bisect import bisect_left

import numpy as np

from irleed._typing import Float
from irleed.fit.posterior import better
from irleed.report import episodes, svg
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.reader import Estimate, FitRun, Person

MOST_DRAWN, MOST_ROWS = 40, 500
MOST_CROSSED = 12  # demonstrators in the table of pairs
MOST_GROUPS = 6
MOST_NAMED = 8
FEW_MEMBERS = 5
MARGIN = 1.645  # standard deviations from the mean to an end of a 90 % interval
SURE = 0.95  # the probability from which the order of two demonstrators is called certain
SKILL = (
    "Skill is the share of the advantage over random actions that a demonstrator realises, by the values of a policy "
    "that has learnt from the others alone: 1 is what the others would do, 0 as good as random actions, below 0 worse. "
)
PRECISION = "Precision is how consistently a demonstrator chooses actions of high value; 1 is the average. "
BIAS = "Bias is how far the demonstrator's own {values} deviate from the shared {values}, relative to these; 0 is none."


def section(run: FitRun, level: int, key: str) -> Safe:
    """Estimates as plots and as a table, and what they mean in words."""
    order = ranked(run)
    plots = []
    skills = [person.skill for person in order if person.skill is not None]
    if skills:
        caption = "Skill: 0 is as good as random actions, 1 is what the others would do."
        plots.append(_plot(skills, caption, "skill, with 90 % interval", (0.0, 1.0)))
    precisions = [person.precision for person in order]
    caption = f"Precision: 1 is the average; logarithmic axis{'; same order' if skills else ''}."
    plots.append(_plot(precisions, caption, "precision, with 90 % interval", (1.0,), log=True))
    biases = [person.bias for person in order if person.bias is not None]
    if biases:
        caption = f"Bias: relative to the shared {_values(run)}; 0 is none; same order."
        plots.append(_plot(biases, caption, "bias, with 90 % interval", (0.0,)))
    found = episodes.by_demonstrator(run, order)
    plots += [episodes.plot(found)] if found else []
    return part(
        level,
        "The demonstrators",
        key,
        *(paragraph(sentence) for sentence in said(run)),
        paragraph(meaning(run), kind="note"),
        element("div", *plots, class_="figures"),
        _all(run, order),
        *_crossed(run, order),
        *(episodes.contents(found) if found else []),
    )


def meaning(run: FitRun) -> str:
    """What the numbers are."""
    known = any(person.bias is not None for person in run.people)
    return (SKILL * run.by_skill + PRECISION + BIAS.format(values=_values(run)) * known).strip()


def _values(run: FitRun) -> str:
    return "values" if run.networks else "reward"


def ranked(run: FitRun) -> list[Person]:
    """Those of most skill (where it is not estimated, precision) first, and those who are not ranked last."""
    return sorted(run.people, key=lambda person: (not person.ranked, -person.quality.value))


def compared(run: FitRun) -> list[Person]:
    """The same without those who are not ranked: they have too few transitions to be compared with others."""
    return [person for person in ranked(run) if person.ranked]


def ranked_by(run: FitRun) -> str:
    """The name of what demonstrators are ranked by."""
    return "skill" if run.by_skill else "precision"


def pairs(run: FitRun) -> tuple[int, int]:
    """In how many pairs the intervals do not overlap, and how many pairs there are."""
    known = [(e.low, e.high) for e in (p.quality for p in run.people) if e.low is not None and e.high is not None]
    highs = sorted(high for _, high in known)
    return sum(bisect_left(highs, low) for low, _ in known), math.comb(len(run.people), 2)


def alike(run: FitRun) -> list[list[str]]:
    """Groups in which all intervals overlap, the largest there are, in the order of the ranking."""
    order = [person.quality for person in compared(run)]
    # Intervals that all overlap each other have a point in common, and it can be the low end of one of them.
    ends = sorted({-math.inf if e.low is None else e.low for e in order}, reverse=True)
    found: list[list[str]] = []
    for end in ends:
        group = [e.name for e in order if e.low is None or e.high is None or e.low <= end <= e.high]
        if len(group) > 1 and not any(set(group) <= set(other) for other in found):
            found = [other for other in found if not set(other) <= set(group)] + [group]
    return found


def judged(run: FitRun) -> bool:
    """Whether the run ranks anybody; some algorithms take all demonstrators for equal, and few data say nothing."""
    return len({person.quality.value for person in compared(run)}) > 1


def chances(order: list[Person]) -> Float[np.ndarray, "D D"]:
    """The probability that the demonstrator of a row has more skill than that of a column, by their intervals.

    Skill is about normal; its interval is cut off at 1, so that the low end says how wide it is.
    """
    skill = [person.skill for person in order if person.skill is not None]
    low = [each.value if each.low is None else each.low for each in skill]
    value = np.array([each.value for each in skill])
    return better(value, (value - np.array(low)) / MARGIN)


def said(run: FitRun) -> list[str]:
    """What the numbers support, and what they do not."""
    if len(run.people) == 1:
        return ["There is one demonstrator, and so nobody to compare with."]
    by = ranked_by(run)
    if len(compared(run)) < 2:
        return [f"Too few transitions to rank the demonstrators: their {by} is no more than a first guess."]
    if not judged(run):
        algorithm = run.config.get("algorithm", "this algorithm")
        return [f"All have the same {by}: {algorithm} takes the demonstrators for equal and does not rank them."]
    if all(person.quality.low is None for person in run.people):
        return ["These estimates have no intervals: the order may be chance."]
    apart, all_ = pairs(run)
    sentences = [
        f"The intervals of {by} do not overlap in {number(apart)} of {counted(all_, 'pair')} of demonstrators."
    ]
    left = [person.name for person in run.people if not person.ranked]
    if left:
        names = listed(left[:MOST_NAMED])
        more = f" and {counted(len(left) - MOST_NAMED, 'other')}" if len(left) > MOST_NAMED else ""
        sentences.append(f"Not ranked and without intervals, as they have too few transitions: {names}{more}.")
    if len(run.people) <= MOST_DRAWN:
        sentences += _uncertain(run) if run.by_skill else _overlapping(run)
    if run.members is not None and run.members < FEW_MEMBERS and not run.by_skill:
        sentences.append(
            f"The intervals are quantiles over {counted(run.members, 'member')} of an ensemble: take them as rough, "
            "and fit with more --members before anything depends on them."
        )
    sentences.append(
        "Intervals hold 90 % if the model is right: among many pairs, some will not overlap by chance. "
        f"{by.capitalize()} is not the episode return"
        + (
            ": it says how well actions agree with what the others value."
            if run.by_skill
            else ": a demonstrator can be consistent in pursuit of the wrong thing, which is what bias says."
        )
    )
    return sentences


def _overlapping(run: FitRun) -> list[str]:
    groups = [listed(group) for group in alike(run)]
    if not groups:
        return []
    more = f"; and {counted(len(groups) - MOST_GROUPS, 'more group')}" if len(groups) > MOST_GROUPS else ""
    return [
        f"Groups whose intervals overlap: {'; '.join(groups[:MOST_GROUPS])}{more}. "
        "Their order in the ranking may be chance; more episodes would narrow the intervals."
    ]


def _uncertain(run: FitRun) -> list[str]:
    """Neighbours in the ranking whose order is not certain."""
    order = compared(run)
    chance = np.diagonal(chances(order), 1)
    close = [
        f"{first.name} over {second.name} {p:.2f}"
        for first, second, p in zip(order, order[1:], chance, strict=False)
        if p < SURE
    ]
    if not close:
        return []
    more = f"; and {counted(len(close) - MOST_GROUPS, 'more pair')}" if len(close) > MOST_GROUPS else ""
    return [
        "Neighbours in the ranking whose order may be chance, with the probability that the first is better: "
        f"{'; '.join(close[:MOST_GROUPS])}{more}. More episodes would narrow the intervals."
    ]


def _plot(
    estimates: list[Estimate], caption: str, axis: str, references: tuple[float, ...], *, log: bool = False
) -> Safe:
    shown = ends(estimates)
    left_out = len(estimates) - len(shown)
    more = f" The {MOST_DRAWN // 2} first and the {MOST_DRAWN // 2} last of {len(estimates)}." if left_out else ""
    best = listed([estimate.name for estimate in estimates[:3]])
    people = counted(len(shown), "demonstrator")
    drawn = svg.forest(
        [(estimate, 0) for estimate in shown],
        label=f"{axis}: {people} from top to bottom, first {best}. The table has the values.",
        axis=axis,
        log=log,
        references=references,
    )
    return figure(caption + more, drawn)


def ends(estimates: list[Estimate]) -> list[Estimate]:
    """As many as can be drawn: of many, the first and the last."""
    half = MOST_DRAWN // 2
    return estimates if len(estimates) <= MOST_DRAWN else estimates[:half] + estimates[-half:]


def _all(run: FitRun, order: list[Person]) -> Safe:
    rows = [
        {
            "demonstrator": person.name,
            "rank": rank if person.ranked else None,
            **({} if person.skill is None else {"skill": person.skill}),
            "precision": person.precision,
            "bias": person.bias,
            "transitions": person.transitions,
            "log likelihood": person.log_likelihood,
            "weight": None if person.weight is None else f"{person.weight:.0%}",
        }
        for rank, person in enumerate(order[:MOST_ROWS], 1)
    ]
    more = f"; the first {MOST_ROWS} of {len(order)}" if len(order) > MOST_ROWS else ""
    caption = f"Demonstrators by {ranked_by(run)}; 90 % intervals in brackets; weight: in what is learnt{more}"
    return table(caption, list(rows[0]), [list(row.values()) for row in rows])


def _crossed(run: FitRun, order: list[Person]) -> list[Safe]:
    """Each demonstrator against each, where that can be read."""
    if not 2 <= len(order) <= MOST_CROSSED or (len(order) == 2 and not run.by_skill):
        return []
    names = [person.name for person in order]
    if run.by_skill:
        cells = [["·" if i == j else f"{p:.2f}" for j, p in enumerate(row)] for i, row in enumerate(chances(order))]
        title = "Probability that one demonstrator is better than another"
        caption = "P(row better than column): the probability that the row's skill is larger, by the intervals"
    else:
        cells = [[_versus(row.precision, column.precision) for column in order] for row in order]
        title = "Pairs of demonstrators"
        caption = "Each row against each column, by whether the intervals of precision overlap"
    rows = [(name, *row) for name, row in zip(names, cells, strict=True)]
    return [details(title, table(caption, ["", *names], rows, sortable=False))]


def _versus(row: Estimate, column: Estimate) -> str:
    if row is column:
        return "·"
    if not row.apart(column):
        return "overlap"
    return "more precise" if row.value > column.value else "less precise"
