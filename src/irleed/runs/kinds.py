"""What run directories say, as values; `irleed.runs.reader` makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irleed.data import ReadOptions
from irleed.policies import Policy, load_policy
from irleed.runs.directory import POLICY
from irleed.runs.fields import Fields
from irleed.runs.results import Results
from irleed.runs.validation import Validation


@dataclass(frozen=True)
class Estimate:
    """A number with the interval it is known to, where that is known."""

    name: str
    value: float
    low: float | None
    high: float | None
    count: int | None = None  # of episodes it comes from; 0: it was computed

    @property
    def exact(self) -> bool:
        """Whether it is known as such, and needs no interval."""
        return self.count == 0 and self.low == self.high == self.value

    def apart(self, other: "Estimate") -> bool:
        """Whether the intervals do not overlap; without intervals, none are separate."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low > other.high or other.low > self.high


@dataclass(frozen=True)
class Person:
    """A demonstrator, as the fit judges them."""

    name: str
    transitions: float
    precision: Estimate
    bias: Estimate | None  # None where the algorithm knows none
    log_likelihood: float | None
    weight: float | None
    ranked: bool = True  # False: too few transitions to be compared with others
    skill: Estimate | None = None  # None where it is not estimated: older runs, and algorithms that do not know it

    @property
    def quality(self) -> Estimate:
        """What demonstrators are ranked by: skill where it is estimated, else precision."""
        return self.precision if self.skill is None else self.skill


@dataclass(frozen=True)
class EpisodeSkill:
    """Of one episode, drawn towards the skill of its demonstrator."""

    episode: int
    who: int  # the number of the demonstrator
    value: float


@dataclass(frozen=True)
class Situation:
    """Where a demonstrator did what the shared policy would hardly do."""

    episode: int
    step: int
    action: int
    probability: float
    likeliest: int
    likeliest_probability: float
    departure: float
    place: tuple[float, float]
    observation: tuple[float, ...] | None
    frame: str | None


@dataclass(frozen=True)
class Departures:
    """How demonstrators depart from the shared policy; demonstrators are numbers, in the order of the people."""

    mean: tuple[float, ...]
    looked_at: int
    explained: tuple[float, ...]
    points: tuple[tuple[int, float, float, float], ...]  # who, x, y, departure
    people: tuple[tuple[int, tuple[Situation, ...]], ...]


@dataclass(frozen=True)
class Film:
    """An episode of the policy, as pictures to be embedded."""

    moving: str
    still: str
    total: float
    steps: int
    every: int  # steps between two frames
    seed: int


@dataclass(frozen=True)
class FitRun:
    """A folder of `irleed fit`."""

    label: str
    folder: str
    config: dict[str, Any]
    people: tuple[Person, ...]
    returns: tuple[Estimate, ...]  # of the policy and of the demonstrators; none where they are not known
    demonstrated: tuple[Estimate, ...]  # of the demonstrators, from the data
    history: tuple[tuple[float, float], ...]  # step, measure
    measure: str
    steps: int
    members: int | None
    seconds: float
    warnings: tuple[str, ...]
    weights: tuple[float, ...] | None
    bias: tuple[tuple[float, ...], ...] | None
    grid: tuple[int, int] | None
    departures: Departures | None
    facts: Fields | None
    provenance: dict[str, Any] | None
    baselines: tuple["FitRun", ...] = ()  # other methods on the same data, in folders inside this one
    film: Film | str | None = None  # or, in words, why there is none
    unfinished: tuple[str, ...] = ()  # those of them that came to no answer
    reading: ReadOptions = ReadOptions()  # of the data
    fingerprint: str | None = None  # of the data; runs of older versions have none
    validation: Validation | None = None  # against scores that the user has
    episodes: tuple[EpisodeSkill, ...] = ()  # none where skill is not estimated

    @property
    def by_skill(self) -> bool:
        """Whether demonstrators are ranked by skill, not by precision."""
        return all(person.skill is not None for person in self.people)

    @property
    def policy(self) -> Policy:
        """The shared policy, from its file."""
        return load_policy(Path(self.folder) / POLICY)

    @property
    def networks(self) -> bool:
        """Whether networks learnt, not a model of a finite MDP."""
        return self.members is not None


@dataclass(frozen=True)
class ExperimentRun:
    """A folder of `irleed experiment`."""

    label: str
    folder: str
    results: Results

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.results.config


Run = FitRun | ExperimentRun
