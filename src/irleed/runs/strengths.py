"""Skill by situation, as the answer of a fit has it."""

from dataclasses import dataclass

from irleed.runs.directory import Fields, refuse

MOST_REGIONS = 100
TABLES = "expected", "deviation", "low", "high", "skill_low", "skill_high", "transitions", "supported"


@dataclass(frozen=True)
class Strength:
    """The skill of a demonstrator in a region of situations."""

    expected: float  # of someone with their mean
    deviation: float  # from that
    low: float  # the ends of its 90 % interval
    high: float
    skill_low: float  # those of skill
    skill_high: float
    transitions: int
    supported: int  # 1: strong, -1: weak, 0: neither

    @property
    def skill(self) -> float:
        """The estimate; what is expected, where they have not been."""
        return self.expected + self.deviation


@dataclass(frozen=True)
class Strengths:
    """Regions of situations, and the skill of every demonstrator in them."""

    names: tuple[str, ...]  # of the regions
    share: tuple[float, ...]  # of all transitions
    mean: tuple[float, ...]  # skill of each demonstrator in all situations
    people: tuple[tuple[Strength, ...], ...]  # a row for each demonstrator


def read_strengths(found: Fields, people: int) -> Strengths | None:
    """Skill by situation, where it is estimated."""
    if "situations" not in found:
        return None
    own = found.inner("situations")
    names, share, mean = own.texts("names"), own.numbers("share"), own.numbers("mean")
    tables = [own.table(name) for name in TABLES]
    sizes = {(len(table), len(table[0]) if table else 0) for table in tables}
    if sizes != {(people, len(names))} or len(share) != len(names) or len(mean) != people:
        refuse(own.where, "lists of other lengths", "a row for each demonstrator, with a number for each of the names")
    if not 0 < len(names) <= MOST_REGIONS:
        refuse(f"{own.where}, names", f"{len(names)} names", f"1 to {MOST_REGIONS}")
    if any(sign not in (-1, 0, 1) for row in tables[-1] for sign in row):
        refuse(f"{own.where}, supported", "other numbers", "-1, 0 or 1")
    rows = [
        tuple(
            Strength(expected, deviation, low, high, skill_low, skill_high, int(transitions), int(supported))
            for expected, deviation, low, high, skill_low, skill_high, transitions, supported in zip(*row, strict=True)
        )
        for row in zip(*tables, strict=True)
    ]
    return Strengths(tuple(names), tuple(share), tuple(mean), tuple(rows))
