"""Skill in each episode: which of a demonstrator's episodes are unlike the rest."""

import statistics
from collections.abc import Sequence

from irleed.report import svg
from irleed.report.markup import Safe, counted, details, figure, listed, number, paragraph, table
from irleed.runs.kinds import EpisodeSkill, FitRun, Person

MOST_DRAWN, MOST_DOTS = 40, 200  # demonstrators, and episodes of each
MOST_NAMED, MOST_ROWS = 6, 500
FEWEST = 4  # episodes of a demonstrator, for one of them to be unlike the rest
SPREADS = 3.0  # from the median, in standard deviations by the median absolute deviation
LEAST = 0.1  # and at least so much in skill
DEVIATION = 1.4826  # the standard deviation of a normal variable over its median absolute deviation


def contents(run: FitRun, order: Sequence[Person]) -> list[Safe]:
    """A strip of episodes for each demonstrator, and those unlike the rest by number."""
    if not run.episodes:
        return []
    own: dict[int, list[EpisodeSkill]] = {}
    for each in run.episodes:
        own.setdefault(each.who, []).append(each)
    place = {person.name: number for number, person in enumerate(run.people)}
    shown = [(person.name, own[place[person.name]]) for person in order if place[person.name] in own]
    odd = {name: unlike(found) for name, found in shown}
    rows = [(name, _dots(found, odd[name])) for name, found in shown[:MOST_DRAWN]]
    drawn = svg.dotted(
        rows,
        label=f"skill in each episode of {counted(len(rows), 'demonstrator')}, in the order of the ranking. "
        "The table has the values.",
        axis="skill in an episode",
        references=(0.0, 1.0),
    )
    listed_rows = [(name, each.episode, each.value, each in odd[name]) for name, found in shown for each in found]
    listed_rows = [(name, n, value, "yes" if is_odd else "") for name, n, value, is_odd in listed_rows[:MOST_ROWS]]
    more = f"; the first {MOST_ROWS} of {len(run.episodes)}" if len(run.episodes) > MOST_ROWS else ""
    values = table(
        f"Skill in each episode{more}; episodes count from 0",
        ["demonstrator", "episode", "skill", "unlike the rest"],
        listed_rows,
    )
    left = f" The first {MOST_DRAWN} of {len(shown)} demonstrators." if len(shown) > MOST_DRAWN else ""
    caption = (
        "Skill in each episode, drawn towards that of its demonstrator the more the fewer choices it holds. Orange: "
        f"unlike the demonstrator's other episodes.{left}"
    )
    return [paragraph(_said(odd)), figure(caption, drawn), details("Skill in each episode as a table", values)]


def unlike(found: Sequence[EpisodeSkill]) -> list[EpisodeSkill]:
    """Episodes of one demonstrator that are far from their median, the farthest first."""
    if len(found) < FEWEST:
        return []
    middle = statistics.median(each.value for each in found)
    spread = DEVIATION * statistics.median(abs(each.value - middle) for each in found)
    far = [each for each in found if abs(each.value - middle) > max(SPREADS * spread, LEAST)]
    return sorted(far, key=lambda each: -abs(each.value - middle))


def _said(odd: dict[str, list[EpisodeSkill]]) -> str:
    told = [
        f"{name}: " + listed([f"{each.episode} (skill {number(round(each.value, 2))})" for each in found], MOST_NAMED)
        for name, found in odd.items()
        if found
    ]
    if not told:
        return "No episode is unlike the others of its demonstrator in skill."
    more = f"; and of {counted(len(told) - MOST_NAMED, 'more demonstrator')}" if len(told) > MOST_NAMED else ""
    return f"Episodes unlike the others of their demonstrator, by number: {'; '.join(told[:MOST_NAMED])}{more}."


def _dots(found: Sequence[EpisodeSkill], odd: Sequence[EpisodeSkill]) -> list[tuple[float, str, bool]]:
    """As many as can be drawn, those unlike the rest among them."""
    usual = [each for each in found if each not in odd]
    usual = usual[:: -(-len(usual) // MOST_DOTS)] if usual else []
    return [
        (each.value, f"episode {each.episode}: skill {number(round(each.value, 2))}", each in odd)
        for each in [*usual, *odd[:MOST_DOTS]]
    ]
