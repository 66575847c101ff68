"""Settings of the Hopper experiment, and the methods that it compares."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, SacIrleed
from irleed.errors import ConfigError
from irleed.experiments.hopper.data import SOURCES, Teachers
from irleed.runs.directory import plain

Compared = Literal["irleed_online", "iq_online", "irleed", "iq", "ileed", "bc"]
MethodName = Literal[Compared, "irleed_failure_online", "iq_failure_online", "irleed_paper", "iq_paper"]
TABLED: dict[str, Any] = {"activation": "norm_relu"}  # with which the offline figures in the docs were made
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed_online": SacIrleed(),
    "iq_online": SacIrleed.iq(),
    "irleed": OfflineIrleed.continuous(**TABLED),
    "iq": OfflineIrleed.continuous(**TABLED, **IQ_LEARN),
    "ileed": Ileed.continuous(**TABLED),
    "bc": BehaviourCloning.continuous(**TABLED),
    "irleed_failure_online": SacIrleed(ends="failure"),
    "iq_failure_online": SacIrleed.iq(ends="failure"),
    "irleed_paper": SacIrleed.paper(),
    "iq_paper": SacIrleed.paper(**IQ_LEARN),
}
LAST = 20  # evaluations that a figure is the mean of
QUICK: dict[str, Any] = {"hidden": (32, 32), "batch_size": 32}


@dataclass(frozen=True)
class HopperConfig:
    """Hopper from policies of several stages of training: IRLEED beside IQ-Learn, and offline ILEED and cloning."""

    out: Path
    """Folder for results.json and the figure. A run that was stopped goes on from what is there."""
    seeds: int = 15
    """Runs for each source and method."""
    sources: tuple[Literal["A", "B", "C", "ABC"], ...] = ("A", "B", "C", "ABC")
    """An expert, a half trained policy, a hardly trained one, and all three."""
    teachers: Teachers = "iq"
    """Stages of IQ-Learn from an expert's steps, as the paper's; or of soft actor-critic on the true reward."""
    methods: tuple[MethodName, ...] = get_args(Compared)
    """What to compare. Early termination counts as failure for those with failure in their name; irleed_paper and
    iq_paper have the published settings, and are online too."""
    pairs: int = 1_000
    """Steps of each policy that are learnt from."""
    steps: int = 500_000
    """Steps in the environment of each online method."""
    offline_steps: int = 20_000
    """Updates of each offline method."""
    every: int = 5_000
    """Steps between evaluations of online methods."""
    episodes: int = 1
    """Episodes of an evaluation, by the greedy actions; offline methods play twenty times as many, once."""
    seed: int = 0
    """Where the random numbers start."""
    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    """Threads of the physics."""
    checkpoint_every: float | None = None
    """Seconds between checkpoints; None: as many as cost 1 % of the time."""
    quick: bool = False
    """Two seeds, A and ABC, small networks, 2,000 steps, for a first look."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The sources to run."""
        return ("A", "ABC") if self.quick else tuple(name for name in SOURCES if name in self.sources)

    @property
    def runs(self) -> int:
        """Runs for each source, as they will be."""
        return 2 if self.quick else self.seeds

    @property
    def between(self) -> int:
        """Steps between evaluations, as they will be."""
        return 500 if self.quick else self.every

    def method(self, name: str) -> AbstractOffline | AbstractAgent:
        """A method with the number of updates asked for."""
        found = METHODS[name]
        steps = 2_000 if self.quick else self.steps if isinstance(found, AbstractAgent) else self.offline_steps
        changes: dict[str, Any] = {"steps": steps, **(QUICK if self.quick else {})}
        if isinstance(found, AbstractAgent):
            changes |= {"buffer_size": min(steps, found.buffer_size)}
        return dataclasses.replace(found, **changes)

    def fingerprint(self, name: str) -> dict[str, object]:
        """What a part of the results depends on."""
        names = ("chosen", "runs", "teachers", "pairs", "between", "episodes", "seed")
        return {**{key: str(getattr(self, key)) for key in names}, **plain(self.method(name), "method")}


def check(config: HopperConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    for name in ("seeds", "pairs", "steps", "offline_steps", "every", "episodes", "workers"):
        if getattr(config, name) < 1:
            flag, remedy = name.replace("_", "-"), "choose a larger number"
            raise ConfigError(f"--{flag}", got=getattr(config, name), expected="1 or more", remedy=remedy)
    if config.checkpoint_every is not None and not config.checkpoint_every >= 0:
        got, remedy = config.checkpoint_every, "choose a larger number"
        raise ConfigError("--checkpoint-every", got=got, expected="0 seconds or more", remedy=remedy)
    if config.steps <= SacIrleed().learning_starts:
        expected = f"more than {SacIrleed().learning_starts}: the first ones only fill the replay buffer"
        raise ConfigError("--steps", got=config.steps, expected=expected, remedy="choose more")
    for name in ("sources", "methods"):
        if not getattr(config, name):
            raise ConfigError(f"--{name}", got="none", expected="at least one", remedy="name some")
