"""The arguments of `irleed.fit`: what they can be together, and what is kept of them beside a run."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from irleed.algorithms import AbstractAgent, AbstractAlgorithm
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Published
from irleed.algorithms.tabular.planning import AbstractPlanner
from irleed.data import ReadOptions
from irleed.envs.mdp import FiniteMDP, Gridworld
from irleed.envs.step import AbstractEnv
from irleed.errors import ConfigError
from irleed.fit.defaults import Algorithm, Ends
from irleed.fit.networks import MEMBERS
from irleed.fit.validation import refuse_ignored
from irleed.rollout import AbstractBackend
from irleed.runs.logging import library

World = FiniteMDP | Gridworld | str | Path
Environment = str | AbstractEnv | AbstractBackend
TabularAlgorithm = Irleed | Published
MethodName = Literal["irleed", "maxent", "iq", "ileed", "bc", "sqil"]
Estimator = Literal["map", "published", "online"]
PlannerName = Literal["soft", "averaged"]
DISCOUNT = 0.95  # of an MDP that is made from a Gymnasium environment
TABULAR, OFFLINE, ONLINE = ("irleed", "maxent"), ("irleed", "iq", "ileed", "bc"), ("irleed", "iq", "sqil")
FOR_MDPS = ("estimator", "planner", "endless", "discount")
FOR_NETWORKS = ("members", "steps", "ends", "online", "clip", "feature_names")
IN_MEMORY = "in memory"


@dataclass(frozen=True)
class Options:
    """The arguments of `fit` that say what is fitted."""

    mdp: World | None = None
    env: Environment | None = None
    algorithm: MethodName | Algorithm | TabularAlgorithm = "irleed"
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    ends: Ends = "neutral"
    members: int = MEMBERS
    seed: int = 0
    online: bool = True
    clip: bool = False
    estimator: Estimator = "map"
    planner: PlannerName | AbstractPlanner = "soft"
    endless: bool = False
    discount: float = DISCOUNT
    baselines: bool = False
    feature_names: Sequence[str] | str | Path | None = None
    reading: ReadOptions = ReadOptions()
    demonstrators: int | None = None

    @property
    def plays(self) -> bool:
        """Whether networks learn in an environment; those of a baseline may learn from the data alone."""
        named = isinstance(self.algorithm, str)
        acts = self.algorithm in ONLINE if named else isinstance(self.algorithm, AbstractAgent)
        return self.env is not None and self.online and acts

    def check(self, tables: bool, discrete: bool) -> None:
        """Refuse what is no choice, and settings that would be ignored: they are a mistake."""
        for name, choices in (("ends", Ends), ("estimator", Estimator), ("planner", PlannerName)):
            value = getattr(self, name)
            if isinstance(value, str) and value not in get_args(choices):
                expected = " or ".join(get_args(choices))
                raise ConfigError(f"--{name}", got=value, expected=expected, remedy="choose one of them")
        way, methods, others = "for networks that learn from the data alone (no --env)", OFFLINE, FOR_MDPS
        if tables:
            way, methods, others = "in an MDP", TABULAR, FOR_NETWORKS
        elif self.env is not None and self.online:
            way, methods = "for networks that learn in an environment (--env)", ONLINE
        kinds = (Irleed, Published) if tables else AbstractAlgorithm
        if self.algorithm not in methods if isinstance(self.algorithm, str) else not isinstance(self.algorithm, kinds):
            got = self.algorithm if isinstance(self.algorithm, str) else type(self.algorithm).__name__
            expected = f"{' or '.join(methods)} {way}"
            raise ConfigError("--algorithm", got=got, expected=expected, remedy="choose one of them")
        refuse_ignored((self,), others, way)
        if not isinstance(self.algorithm, str):
            refuse_ignored((self,), ("ends", "estimator", "planner"), "beside an algorithm that has its own")
        elif not tables and self.algorithm not in ("irleed", "iq"):
            refuse_ignored((self,), ("ends",), f"with {self.algorithm}")
        if self.env is None:
            refuse_ignored((self,), ("online",), way)
        if self.demonstrators is not None:
            self._check_demonstrators()
        if not tables and not discrete and not self.plays:
            refuse_ignored((self,), ("ends",), "with continuous actions and no --env")

    def _check_demonstrators(self) -> None:
        """Refuse to group episodes where they are grouped already, and where networks learn from what they play."""
        got, remedy = self.demonstrators, "leave one of them out"
        if self.demonstrators is not None and self.demonstrators < 1:
            raise ConfigError("--demonstrators", got=got, expected="1 or more", remedy="choose a larger number")
        if self.reading.demonstrator == "episode":
            expected = "no --demonstrator episode, which takes each episode for a person's"
            raise ConfigError("--demonstrators", got=got, expected=expected, remedy=remedy)
        if self.plays:
            expected = "networks that learn from the data alone"
            raise ConfigError("--demonstrators", got=f"{got} with --env", expected=expected, remedy="say --no-online")

    def given(self, path: str | None, tables: bool) -> dict[str, Any]:
        """As they are kept beside the answer: as text, what is not a name or a number only by its kind."""
        values = {name: value for name, value in vars(self).items() if name not in ("reading", "settings")}
        if not tables and not self.plays:
            values["env"] = None  # the policy was only evaluated there
        told: dict[str, Any] = {"data": IN_MEMORY if path is None else path}
        for name, value in values.items():
            plain_value = value is None or isinstance(value, str | Path | int | float)
            kind = type(value).__name__ if name == "algorithm" else IN_MEMORY
            told[name] = str(value) if plain_value else kind
            if not plain_value or path is None:
                told["python"] = "irleed.fit"
        settings = {name: str(value) for name, value in self.settings.items()}
        return told | {"settings": settings, "reading": dataclasses.asdict(self.reading)}


@dataclass(frozen=True)
class Keeping:
    """The arguments of `fit` that say how a run is kept in a folder."""

    out: Path | None = None
    resume: bool = False
    checkpoint_every: float | None = None
    log: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self)[1:]:
            if self.out is None and getattr(self, each.name) != each.default:
                flag = f"--{each.name.replace('_', '-')}"
                raise ConfigError(flag, got="no --out", expected="a folder", remedy="name one with --out")
        if self.checkpoint_every is not None and not self.checkpoint_every >= 0:
            got, remedy = self.checkpoint_every, "choose, say, 60"
            raise ConfigError("--checkpoint-every", got=got, expected="0 or more", remedy=remedy)
        for name in self.log:
            library(name)
