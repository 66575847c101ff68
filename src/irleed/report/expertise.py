"""The demonstrators: skill, precision and bias with their intervals, and which differences these do not support."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from irleed._typing import Float
from irleed.fit.posterior import better
from irleed.report import svg
from irleed.report.markup import Safe, counted, details, element, figure, listed, number, paragraph, part, table
from irleed.runs.reader import EpisodeSkill, Estimate, FitRun, Grouping, Person
from irleed.runs.results import Agreement, Validation

MOST_DRAWN, MOST_ROWS = 40, 500
MOST_POINTS = 10_000  # demonstrators in the plot of scores
MOST_DOTS = 200  # episodes of a demonstrator
MOST_CROSSED = 12  # demonstrators in the table of pairs
MOST_GROUPS = 6
MOST_NAMED, MOST_EPISODES_NAMED = 8, 6
FEW_MEMBERS = 5
FEWEST = 4  # episodes of a demonstrator, for one of them to be an outlier
SPREADS, LEAST = 3.0, 0.1  # of an outlier from the median: in standard deviations, and in skill
DEVIATION = 1.4826  # the standard deviation of a normal variable over its median absolute deviation
SIDE, LEFT, BOTTOM, TOP = 300.0, 62.0, 240.0, 14.0  # of the plot of scores
Episodes = dict[str, list[EpisodeSkill]]  # by the name of the demonstrator
MARGIN = 1.645  # standard deviations from the mean to an end of a 90 % interval
CERTAIN = 0.9  # the probability from which an episode is certainly a person's
SURE = 0.95  # the probability from which the order of two demonstrators counts as certain
SKILL = (
    "Skill is how far a demonstrator's actions follow from what the others would do in the same state, by a policy "
    "learnt from the others alone: 1 for what they would always do, 0 for actions that do not depend on the state, "
    "below 0 for the opposite. "
)
PRECISION = "Precision is how consistently a demonstrator chooses actions of high value; 1 is the average. "
BIAS = "Bias is how far the demonstrator's own {values} deviate from the shared {values}, relative to these; 0 is none."


def section(run: FitRun, level: int, key: str) -> Safe:
    """Estimates as plots and as a table, and what they mean in words."""
    order = ranked(run)
    plots = []
    skills = [person.skill for person in order if person.skill is not None]
    if skills:
        caption = "Skill: 1 is what the others would do, 0 does not depend on the state."
        plots.append(_plot(skills, caption, "skill, with 90 % interval", (0.0, 1.0)))
    precisions = [person.precision for person in order]
    caption = f"Precision: 1 is the average; logarithmic axis{'; same order' if skills else ''}."
    plots.append(_plot(precisions, caption, "precision, with 90 % interval", (1.0,), log=True))
    biases = [person.bias for person in order if person.bias is not None]
    if biases:
        caption = f"Bias: relative to the shared {'values' if run.networks else 'reward'}; 0 is none; same order."
        plots.append(_plot(biases, caption, "bias, with 90 % interval", (0.0,)))
    episodes = by_demonstrator(run, order)
    plots += [_episode_plot(episodes)] if episodes else []
    words = [*(paragraph(sentence) for sentence in conclusions(run)), paragraph(meaning(run), kind="note")]
    grouped = [] if run.grouping is None else _grouped(run, run.grouping)
    tables = [*grouped, _all(run, order), *_crossed(run, order), *(_episode_table(episodes) if episodes else [])]
    return part(level, "The demonstrators", key, *words, element("div", *plots, class_="figures"), *tables)


def _grouped(run: FitRun, found: Grouping) -> list[Safe]:
    """How certain it is who acted, and whether fewer people would do."""
    names, share = [person.name for person in run.people], np.array(found.probability)
    largest, owner = share.max(1), found.owner
    words = (
        "Nobody knew who acted: episodes were grouped into people by their actions. An episode counts as that of the "
        "most probable person; the probabilities rest on the model, and on there being so many people."
    )
    rows = []
    for who, name in enumerate(names):
        own = largest[owner == who]
        rows.append((name, len(own), float(own.mean()), float(own.min()), int((own < CERTAIN).sum())))
    headings = ["person", "episodes", "mean probability", "lowest", f"below {CERTAIN:g}"]
    certain = table("How certain it is who acted", headings, rows)
    levels = table("Held-out log likelihood of all actions", ["people", "log likelihood"], found.log_likelihood)
    heads = ["episode", "person", *(f"probability of {name}" for name in names[:MOST_CROSSED])]
    each = [
        (number, names[who], *(f"{value:.3f}" for value in row[:MOST_CROSSED]))
        for number, (who, row) in enumerate(zip(owner, share.tolist(), strict=True))
    ]
    more = f"; the first {MOST_ROWS} of {len(each)}" if len(each) > MOST_ROWS else ""
    every = table(f"Who acted in each episode{more}", heads, each[:MOST_ROWS])
    return [paragraph(words), certain, levels, details("Who acted in each episode", every)]


def meaning(run: FitRun) -> str:
    """Definitions of the estimates."""
    known, values = any(person.bias is not None for person in run.people), "values" if run.networks else "reward"
    return (SKILL * run.by_skill + PRECISION + BIAS.format(values=values) * known).strip()


def ranked(run: FitRun) -> list[Person]:
    """Demonstrators by skill, or by precision where it is not estimated; those who are not ranked come last."""
    return sorted(run.people, key=lambda person: (not person.ranked, -person.quality.value))


def compared(run: FitRun) -> list[Person]:
    """The ranked demonstrators alone: the others have too few transitions."""
    return [person for person in ranked(run) if person.ranked]


def ranked_by(run: FitRun) -> str:
    """The estimate that demonstrators are ranked by."""
    return "skill" if run.by_skill else "precision"


def pairs(run: FitRun) -> tuple[int, int]:
    """The number of pairs whose intervals do not overlap, and of all pairs."""
    known = [(e.low, e.high) for e in (p.quality for p in run.people) if e.low is not None and e.high is not None]
    highs = sorted(high for _, high in known)
    return sum(bisect_left(highs, low) for low, _ in known), math.comb(len(run.people), 2)


def indistinguishable(run: FitRun) -> list[list[str]]:
    """The largest groups in which all intervals overlap, in the order of the ranking."""
    order = [person.quality for person in compared(run)]
    # Intervals that all overlap each other have a point in common, and it can be the low end of one of them.
    ends = sorted({-math.inf if e.low is None else e.low for e in order}, reverse=True)
    found: list[list[str]] = []
    for end in ends:
        group = [e.name for e in order if e.low is None or e.high is None or e.low <= end <= e.high]
        if len(group) > 1 and not any(set(group) <= set(other) for other in found):
            found = [other for other in found if not set(other) <= set(group)] + [group]
    return found


def has_ranking(run: FitRun) -> bool:
    """Whether the run ranks demonstrators: some algorithms treat all alike, and data may be too few."""
    return len({person.quality.value for person in compared(run)}) > 1


def win_probabilities(order: list[Person]) -> Float[np.ndarray, "D D"]:
    """The probability that the demonstrator of a row has more skill than that of a column, by their intervals.

    Skill is about normal; its interval is cut off at 1, so that the low end says how wide it is.
    """
    skill = [person.skill for person in order if person.skill is not None]
    low = [each.value if each.low is None else each.low for each in skill]
    value = np.array([each.value for each in skill])
    return better(value, (value - np.array(low)) / MARGIN)


def conclusions(run: FitRun) -> list[str]:
    """Which differences between demonstrators the estimates support."""
    if len(run.people) == 1:
        return ["There is only one demonstrator, so there is nothing to compare."]
    by = ranked_by(run)
    if len(compared(run)) < 2:
        return [f"Too few transitions to rank the demonstrators: their {by} is hardly determined."]
    if not has_ranking(run):
        algorithm = run.config.get("algorithm", "this algorithm")
        return [f"All have the same {by}: {algorithm} treats demonstrators alike and does not rank them."]
    if all(person.quality.low is None for person in run.people):
        return ["These estimates have no intervals: the order may be chance."]
    apart, all_ = pairs(run)
    of = f"{number(apart)} of {counted(all_, 'pair')} of demonstrators"
    sentences = [f"The intervals of {by} do not overlap in {of}."]
    left = [person.name for person in run.people if not person.ranked]
    if left:
        names = listed(left[:MOST_NAMED])
        more = f" and {counted(len(left) - MOST_NAMED, 'other')}" if len(left) > MOST_NAMED else ""
        sentences.append(f"Not ranked and without intervals, as they have too few transitions: {names}{more}.")
    if len(run.people) <= MOST_DRAWN:
        sentences += _uncertain(run) if run.by_skill else _overlapping(run)
    if run.members is not None and run.members < FEW_MEMBERS and not run.by_skill:
        sentences.append(
            f"The intervals are quantiles over {counted(run.members, 'member')} of an ensemble: they are rough; "
            "fit with more --members before you rely on them."
        )
    sentences.append(
        "Intervals hold 90 % if the model is right: among many pairs, some will not overlap by chance. "
        f"{by.capitalize()} is not the episode return"
        + (
            ": it says how well actions agree with what the others value."
            if run.by_skill
            else ": a demonstrator can act consistently by a wrong reward, which is bias."
        )
    )
    return sentences


def _overlapping(run: FitRun) -> list[str]:
    groups = [listed(group) for group in indistinguishable(run)]
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
    chance = np.diagonal(win_probabilities(order), 1)
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
    best, people = listed([estimate.name for estimate in estimates[:3]]), counted(len(shown), "demonstrator")
    label = f"{axis}: {people} from top to bottom, first {best}. The table has the values."
    rows = [(estimate, 0) for estimate in shown]
    return figure(caption + more, svg.forest(rows, label=label, axis=axis, log=log, references=references))


def ends(estimates: list[Estimate]) -> list[Estimate]:
    """As many as can be drawn: of many, the first and the last."""
    half = MOST_DRAWN // 2
    return estimates if len(estimates) <= MOST_DRAWN else estimates[:half] + estimates[-half:]


def _all(run: FitRun, order: list[Person]) -> Safe:
    rows = []
    for rank, person in enumerate(order[:MOST_ROWS], 1):
        skill = () if person.skill is None else (person.skill,)
        weight = None if person.weight is None else f"{person.weight:.0%}"
        estimates = (*skill, person.precision, person.bias, person.transitions, person.log_likelihood, weight)
        rows.append((person.name, rank if person.ranked else None, *estimates))
    headings = ["precision", "bias", "transitions", "log likelihood", "weight"]
    headings = ["demonstrator", "rank", *(["skill"] if order[0].skill is not None else []), *headings]
    more = f"; the first {MOST_ROWS} of {len(order)}" if len(order) > MOST_ROWS else ""
    caption = f"Demonstrators by {ranked_by(run)}; 90 % intervals in brackets; weight: in what is learnt{more}"
    return table(caption, headings, rows)


def _crossed(run: FitRun, order: list[Person]) -> list[Safe]:
    """A table of pairs, unless there are too many."""
    if not 2 <= len(order) <= MOST_CROSSED or (len(order) == 2 and not run.by_skill):
        return []
    names = [person.name for person in order]
    if run.by_skill:
        chance = win_probabilities(order)
        cells = [["·" if i == j else f"{p:.2f}" for j, p in enumerate(row)] for i, row in enumerate(chance)]
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


def by_demonstrator(run: FitRun, order: Sequence[Person]) -> Episodes:
    """The episodes of each demonstrator, in the order of the ranking."""
    own: Episodes = {person.name: [] for person in order}
    for each in run.episodes:
        own[run.people[each.who].name].append(each)
    return {name: found for name, found in own.items() if found}


def _episode_plot(found: Episodes) -> Safe:
    """A strip of episodes for each demonstrator."""
    rows = [(name, _dots(own)) for name, own in list(found.items())[:MOST_DRAWN]]
    people = f"{counted(len(rows), 'demonstrator')} from top to bottom, in the order of the ranking"
    label = f"skill in each episode of {people}. The table has the values."
    drawn = svg.dotted(rows, label=label, axis="skill in an episode", references=(0.0, 1.0))
    left = f" The first {MOST_DRAWN} of {len(found)} demonstrators." if len(found) > MOST_DRAWN else ""
    return figure(f"Skill in each episode; orange: unlike the demonstrator's other episodes.{left}", drawn)


def _episode_table(found: Episodes) -> list[Safe]:
    """Outliers by number, and all episodes as a table."""
    rows = []
    for name, own in found.items():
        odd = outliers(own)
        rows += [(name, each.episode, each.value, "yes" if each in odd else "") for each in own]
    more = f"; the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    caption = "Skill in each episode, shrunk towards the demonstrator's where the episode is short"
    caption += f"{more}; numbers from 0"
    values = table(caption, ["demonstrator", "episode", "skill", "unlike the others"], rows[:MOST_ROWS])
    return [paragraph(_outliers_named(found)), details("Skill in each episode", values)]


def outliers(found: Sequence[EpisodeSkill]) -> list[EpisodeSkill]:
    """Episodes of one demonstrator that are far from their median, the farthest first."""
    if len(found) < FEWEST:
        return []
    middle = statistics.median(each.value for each in found)
    spread = DEVIATION * statistics.median(abs(each.value - middle) for each in found)
    far = [each for each in found if abs(each.value - middle) > max(SPREADS * spread, LEAST)]
    return sorted(far, key=lambda each: -abs(each.value - middle))


def _outliers_named(found: Episodes) -> str:
    most = MOST_EPISODES_NAMED
    odd = {name: outliers(own) for name, own in found.items()}
    named = [
        f"{name}: " + listed([f"{each.episode} (skill {_short(each.value)})" for each in own], most)
        for name, own in odd.items()
        if own
    ]
    if not named:
        return "No episode differs much in skill from the others of its demonstrator."
    more = f"; and of {counted(len(named) - most, 'more demonstrator')}" if len(named) > most else ""
    return f"Episodes unlike the others of their demonstrator, by number: {'; '.join(named[:most])}{more}."


def _dots(own: Sequence[EpisodeSkill]) -> list[tuple[float, str, bool]]:
    """As many as can be drawn, outliers among them."""
    odd = outliers(own)
    usual = [each for each in own if each not in odd]
    usual = usual[:: max(1, -(-len(usual) // MOST_DOTS))]
    return [
        (each.value, f"episode {each.episode}: skill {_short(each.value)}", each in odd)
        for each in [*usual, *odd[:MOST_DOTS]]
    ]


def _short(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def scores_section(found: Validation, level: int, key: str) -> Safe:
    """Agreement with scores: the conclusion, the rank correlations, and a plot of the first estimate."""
    words = [paragraph(found.said), *(paragraph(note, kind="note") for note in found.notes)]
    known = [each for each in (*found.estimates, *found.episodes, *found.trivial) if each.spearman is not None]
    drawn = []
    if known:
        rows = [(_estimate(each), int(each.trivial)) for each in known]
        label = f"Rank correlation with {found.score}, with 95 % interval. The table has the values."
        forest = svg.forest(rows, label=label, axis=f"Spearman with {found.score}", references=[0.0])
        drawn.append(figure("Circles: estimates of this fit. Squares: trivial statistics of the same data.", forest))
        drawn += _scatter(found, next(iter(found.values)))
    rows = [
        (each.name, _estimate(each) if each.spearman is not None else each.reason, _partial(each), each.people)
        for each in (*found.estimates, *found.episodes, *found.trivial)
    ]
    caption = f"Rank correlations with {found.score}; 95 % bootstrap intervals over people"
    headings = ["what", "Spearman", f"partial, given {' and '.join(found.given)}", "people"]
    inside = element("div", *drawn, class_="figures"), table(caption, headings, rows)
    return part(level, "Agreement with known scores", key, *words, *inside)


def _estimate(found: Agreement) -> Estimate:
    return Estimate(found.name, found.spearman or 0.0, found.low, found.high)


def _partial(found: Agreement) -> Estimate | None:
    low, high = found.partial_low, found.partial_high
    return None if found.partial is None else Estimate(found.name, found.partial, low, high)


def _scatter(found: Validation, name: str) -> list[Safe]:
    """One estimate against the score, a dot for each of the people; nothing if there are none, or too many to draw."""
    rows = [
        (who, value, score)
        for who, value, score in zip(found.names, found.values[name], found.scores, strict=True)
        if value is not None and score is not None
    ]
    if not 0 < len(rows) <= MOST_POINTS:
        return []
    across = svg.linear([value for _, value, _ in rows], LEFT, SIDE - svg.RIGHT)
    up = svg.linear([score for *_, score in rows], BOTTOM, TOP)
    lines = [svg.stroke(LEFT, up.place(tick), SIDE - svg.RIGHT, up.place(tick), "grid") for tick in up.ticks]
    labels = [svg.words(LEFT - 8, up.place(tick) + 4, number(tick), "end", "tick") for tick in up.ticks]
    labels += [svg.words(across.place(tick), BOTTOM + 18, number(tick), "middle", "tick") for tick in across.ticks]
    marks = []
    for who, value, score in rows:
        place = f"translate({across.place(value):g} {up.place(score):g})"
        tip = f"{who}: {name} {number(value)}, {found.score} {number(score)}"
        mark = element("path", d=svg.SHAPES[0], class_="mark group-0")
        marks.append(element("g", mark, transform=place, data_tip=tip))
    names = (
        svg.words(SIDE / 2, BOTTOM + 36, name, "middle", "axis"),
        svg.words(LEFT, TOP - 3, found.score, "start", "axis"),
    )
    label = f"{name} and {found.score} of {len(rows)} people; the table has the rank correlation"
    drawn = svg.drawing(label, SIDE, BOTTOM + 44, *lines, *labels, *marks, *names)
    return [figure(f"{found.score} against {name}, a dot for each demonstrator.", drawn)]
