"""The paper's second experiment: CartPole and LunarLander with three demonstrators of uneven quality (Table 1).

For each of four settings, low or high precision and low or high accuracy, and each seed: three demonstrators drawn from
a trained critic play some episodes; every method learns from the same transitions; the last policy of each plays. All
seeds and settings of a method are one batched program. What was shown and what a method found is written at once, so
that a run that was stopped goes on. The tasks are in `control_data`, the methods in `control_methods`, what one of them
does in `control_lanes`, what a run amounts to in `control_results`.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.errors import ConfigError
from irleed.experiments.control_data import TASKS, DataSets, Setting, Task, make_data
from irleed.experiments.control_methods import METHODS, ORACLES, Lanes, MethodName, learn
from irleed.rollout import AbstractBackend, make_backend
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept

TaskName = Literal["cartpole", "lunarlander"]


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


@dataclass(frozen=True)
class Outcome:
    """What came of one task."""

    task: Task
    returns: Float[np.ndarray, "S N D"]  # the demonstrators' true ones
    lanes: dict[str, Lanes]
    seconds: dict[str, float]  # by method, and `data`


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


def sweep(config: ControlConfig, progress: Callable[[int, int], None]) -> list[Outcome]:
    """Every task and method; what an earlier run with the same settings has left in the folder is taken from there."""
    check(config)
    names = tuple(dict.fromkeys(config.methods))
    parts = len(config.chosen_tasks) * len(names)
    outcomes: list[Outcome] = []
    for task in config.chosen_tasks:
        data_key, learn_key = jax.random.split(jax.random.key(config.seed))
        with contextlib.closing(make_backend(task.env_id, config.workers)) as backend:
            what, whence = (config.chosen(task), config.runs, config.every), config.out / "parts"
            data, seconds = make_data(data_key, task, backend, *what, whence, config.demonstrators(task))
            outcome = Outcome(task, _by_setting(config, task, data.returns), {}, {"data": seconds})
            for name in names:
                outcome.lanes[name], outcome.seconds[name] = _part(config, learn_key, task, backend, name, data)
                progress(len(outcomes) * len(names) + len(outcome.lanes), parts)
        outcomes.append(outcome)
    return outcomes


def _part(
    config: ControlConfig, key: Key, task: Task, backend: AbstractBackend, name: str, data: DataSets
) -> tuple[Lanes, float]:
    """One method on one task, from the folder or anew; and the seconds it took."""
    file, fingerprint = config.out / "parts" / f"{task.name}-{name}.npz", config.fingerprint(task, name)
    arrays = kept(file, fingerprint)
    if arrays is None:
        began, own = time.perf_counter(), data.best if name in ORACLES else data.transitions
        with Checkpointer(file.with_suffix(""), repr(sorted(fingerprint.items()))) as checkpointer:
            # The same key for every method: what starts alike, starts alike.
            how = config.method(name), own, config.episodes, checkpointer, config.members_of(name)
            found = vars(learn(key, backend, *how))
            arrays = {**found, "seconds": np.asarray(checkpointer.earlier + time.perf_counter() - began)}
            keep(file, fingerprint, arrays)
            checkpointer.clear()
    lanes = Lanes(**{field: _by_setting(config, task, arrays[field]) for field in Lanes.__dataclass_fields__})
    return lanes, float(arrays["seconds"])


def _by_setting(config: ControlConfig, task: Task, values: Array) -> np.ndarray:
    return np.asarray(values).reshape(len(config.chosen(task)), config.runs, *values.shape[1:])
