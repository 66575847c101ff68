"""Skill in each episode: which of a demonstrator's episodes are unlike the rest."""

import statistics
from collections.abc import Sequence

from irleed.report import svg
from irleed.report.markup import Safe, counted, details, figure, listed, paragraph, table
from irleed.runs.reader import EpisodeSkill, FitRun, Person

MOST_DRAWN, MOST_DOTS = 40, 200  # demonstrators, and episodes of each
MOST_NAMED, MOST_ROWS = 6, 500
FEWEST = 4  # episodes of a demonstrator, for one of them to be unlike the rest
SPREADS = 3.0  # from the median, in standard deviations by the median absolute deviation
LEAST = 0.1  # and at least so much in skill
DEVIATION = 1.4826  # the standard deviation of a normal variable over its median absolute deviation


Found = dict[str, list[EpisodeSkill]]  # by the name of the demonstrator


def by_demonstrator(run: FitRun, order: Sequence[Person]) -> Found:
    """The episodes of each demonstrator, in the order of the ranking."""
    own: Found = {person.name: [] for person in order}
    for each in run.episodes:
        own[run.people[each.who].name].append(each)
    return {name: found for name, found in own.items() if found}


def plot(found: Found) -> Safe:
    """A strip of episodes for each demonstrator."""
    rows = [(name, _dots(own)) for name, own in list(found.items())[:MOST_DRAWN]]
    drawn = svg.dotted(
        rows,
        label=f"skill in each episode of {counted(len(rows), 'demonstrator')} from top to bottom, in the order of the "
        "ranking. The table has the values.",
        axis="skill in an episode",
        references=(0.0, 1.0),
    )
    left = f" The first {MOST_DRAWN} of {len(found)} demonstrators." if len(found) > MOST_DRAWN else ""
    return figure(f"Skill in each episode; orange: unlike the demonstrator's other episodes.{left}", drawn)


def contents(found: Found) -> list[Safe]:
    """Episodes unlike the others of their demonstrator by number, and all of them as a table."""
    rows = []
    for name, own in found.items():
        odd = unlike(own)
        rows += [(name, each.episode, each.value, "yes" if each in odd else "") for each in own]
    more = f"; the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    caption = (
        f"Skill in each episode, drawn towards the demonstrator's where the episode is short{more}; numbers from 0"
    )
    values = table(caption, ["demonstrator", "episode", "skill", "unlike the others"], rows[:MOST_ROWS])
    return [paragraph(_said(found)), details("Skill in each episode", values)]


def unlike(found: Sequence[EpisodeSkill]) -> list[EpisodeSkill]:
    """Episodes of one demonstrator that are far from their median, the farthest first."""
    if len(found) < FEWEST:
        return []
    middle = statistics.median(each.value for each in found)
    spread = DEVIATION * statistics.median(abs(each.value - middle) for each in found)
    far = [each for each in found if abs(each.value - middle) > max(SPREADS * spread, LEAST)]
    return sorted(far, key=lambda each: -abs(each.value - middle))


def _said(found: Found) -> str:
    odd = {name: unlike(own) for name, own in found.items()}
    told = [
        f"{name}: " + listed([f"{each.episode} (skill {_short(each.value)})" for each in own], MOST_NAMED)
        for name, own in odd.items()
        if own
    ]
    if not told:
        return "No episode differs much in skill from the others of its demonstrator."
    more = f"; and of {counted(len(told) - MOST_NAMED, 'more demonstrator')}" if len(told) > MOST_NAMED else ""
    return f"Episodes unlike the others of their demonstrator, by number: {'; '.join(told[:MOST_NAMED])}{more}."


def _dots(own: Sequence[EpisodeSkill]) -> list[tuple[float, str, bool]]:
    """As many as can be drawn, those unlike the others among them."""
    odd = unlike(own)
    usual = [each for each in own if each not in odd]
    usual = usual[:: max(1, -(-len(usual) // MOST_DOTS))]
    return [
        (each.value, f"episode {each.episode}: skill {_short(each.value)}", each in odd)
        for each in [*usual, *odd[:MOST_DOTS]]
    ]


def _short(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")
