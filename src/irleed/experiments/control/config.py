"""Settings of the control experiment, and the methods that it compares."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import equinox as eqx

from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed, Sqil
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed
from irleed.errors import ConfigError
from irleed.experiments.control.data import TASKS, Setting, Task

TaskName = Literal["cartpole", "lunarlander"]
MethodName = Literal[
    "irleed", "iq", "irleed_failure", "iq_failure", "ileed", "bc", "bc_best",
    "irleed_online", "iq_online", "irleed_failure_online", "iq_failure_online", "sqil",
    "irleed_paper", "iq_paper",
]  # fmt: skip
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed": OfflineIrleed(),
    "iq": OfflineIrleed.iq(),
    "irleed_failure": OfflineIrleed.failure(),
    "iq_failure": OfflineIrleed.failure(**IQ_LEARN),
    "ileed": Ileed(),
    "bc": BehaviourCloning(),
    "bc_best": BehaviourCloning(),
    "irleed_online": OnlineIrleed(),
    "iq_online": OnlineIrleed.iq(),
    "irleed_failure_online": OnlineIrleed.failure(),
    "iq_failure_online": OnlineIrleed.failure(**IQ_LEARN),
    "sqil": Sqil(),
    "irleed_paper": OfflineIrleed.paper(),
    "iq_paper": OfflineIrleed.paper(**IQ_LEARN),
}
ORACLES = ("bc_best",)  # learn from the best third of the episodes by their true returns, which nobody else sees


@dataclass(frozen=True)
class ControlConfig:
    """CartPole and LunarLander: IRLEED beside IQ-Learn, ILEED, behaviour cloning and SQIL, offline and online."""

    out: Path
    """Folder for results.json and the figures. A run that was stopped goes on from what is there."""
    tasks: tuple[TaskName, ...] = ("cartpole", "lunarlander")
    """Environments; LunarLander needs the extra irleed[envs]."""
    seeds: int = 30
    """Data sets for each setting."""
    settings: tuple[Literal["LL", "LH", "HL", "HH"], ...] = ("LL", "LH", "HL", "HH")
    """Precision and accuracy, low or high."""
    methods: tuple[MethodName, ...] = get_args(MethodName)[:-2]
    """What to compare; bc_best is an oracle, which clones the best third of the episodes by their true returns.
    Early termination counts as failure for those with failure in their name; irleed_paper and iq_paper have the
    published settings."""
    steps: int = 20_000
    """Updates of each offline method."""
    members: int = 1
    """Runs of each offline method on each data set: the mean of their log probabilities plays."""
    online_steps: int = 50_000
    """Steps in the environment, and updates, of each online method."""
    demonstrations: int | None = None
    """Episodes of each demonstrator; by default 5 on CartPole and 10 on LunarLander."""
    every: int = 1
    """Keep every so manieth transition of an episode; the paper kept every twentieth (CartPole) or fifth."""
    episodes: int = 20
    """Episodes that each policy plays, by its greedy actions and by sampled ones."""
    seed: int = 0
    """Where the random numbers start."""
    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    """Processes for environments that run on the host."""
    quick: bool = False
    """Three seeds, 2,000 updates and CartPole alone, for a first look."""

    @property
    def chosen_tasks(self) -> tuple[Task, ...]:
        """The tasks to run."""
        tasks = [TASKS[name] for name in dict.fromkeys(("cartpole",) if self.quick else self.tasks)]
        asked = {} if self.demonstrations is None else {"episodes": self.demonstrations}
        return tuple(dataclasses.replace(task, **asked) for task in tasks)

    @property
    def runs(self) -> int:
        """Data sets for each setting, as they will be."""
        return 3 if self.quick else self.seeds

    def chosen(self, task: Task) -> tuple[Setting, ...]:
        """The settings to run."""
        return tuple(setting for setting in task.settings if setting.name in self.settings)

    def method(self, name: str) -> AbstractOffline | AbstractAgent:
        """A method with the number of updates asked for."""
        found = METHODS[name]
        steps = self.online_steps if isinstance(found, AbstractAgent) else self.steps
        return dataclasses.replace(found, steps=2_000 if self.quick else steps)

    def members_of(self, name: str) -> int:
        """How many runs of a method there are on each data set."""
        return self.members if isinstance(METHODS[name], AbstractOffline) else 1

    def demonstrators(self, task: Task) -> dict[str, object]:
        """What the demonstrations depend on."""
        settings = {s.name: f"{s.max_precision} {s.bias_scale}" for s in self.chosen(task)}
        plain = {"critic": task.critic, "demonstrations": task.episodes, "biases": " ".join(_plain(task.bias).values())}
        return {**plain, "runs": self.runs, "seed": self.seed, **settings}

    def fingerprint(self, task: Task, name: str) -> dict[str, object]:
        """What a part of the results depends on."""
        plain = {"every": self.every, "episodes": self.episodes, "members": self.members_of(name)}
        return {**self.demonstrators(task), **plain, **_plain(self.method(name))}


def _plain(method: eqx.Module) -> dict[str, str]:
    """The settings of a method, those of what it is made of included."""
    flat: dict[str, str] = {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        flat.update(_plain(value) if isinstance(value, eqx.Module) else {field.name: str(value)})
    return flat


def check(config: ControlConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    for name in ("seeds", "steps", "members", "online_steps", "demonstrations", "every", "episodes", "workers"):
        value = getattr(config, name)
        if value is not None and value < 1:
            flag, remedy = name.replace("_", "-"), "choose a larger number"
            raise ConfigError(f"--{flag}", got=value, expected="1 or more", remedy=remedy)
    late = max(method.learning_starts for method in METHODS.values() if isinstance(method, AbstractAgent))
    if config.online_steps <= late:
        expected = f"more than {late}: the first ones only fill the replay buffer"
        raise ConfigError("--online-steps", got=config.online_steps, expected=expected, remedy="choose more")
    for name in ("tasks", "settings", "methods"):
        if not getattr(config, name):
            raise ConfigError(f"--{name}", got="none", expected="at least one", remedy="name some")
