"""The paper's Figure 4: Hopper, from an expert, from worse policies, and from all of them together.

All seeds and sources of a method are one batch: agents learn in lanes side by side, physics in C++ threads.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, SacIrleed
from irleed.algorithms.training import train_all
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions
from irleed.errors import ConfigError
from irleed.experiments.hopper_data import ENV_ID, POLICIES, SOURCES, Teachers, data_sets, kept_demonstrations
from irleed.rollout import HostBackend, greedy_action
from irleed.rollout.trials import learn_and_try
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept, plain

Compared = Literal["irleed_online", "iq_online", "irleed", "iq", "ileed", "bc"]
MethodName = Literal[Compared, "irleed_failure_online", "iq_failure_online", "irleed_paper", "iq_paper"]
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed_online": SacIrleed(),
    "iq_online": SacIrleed.iq(),
    "irleed": OfflineIrleed.continuous(),
    "iq": OfflineIrleed.continuous(**IQ_LEARN),
    "ileed": Ileed.continuous(),
    "bc": BehaviourCloning.continuous(),
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


class Lanes(eqx.Module):
    """What one method got out of the data; axes sources and seeds."""

    returns: Float[Array, "S N E"]  # mean return of each evaluation; offline methods have one
    log_precision: Float[Array, "S N D"]
    diverged: Int[Array, "S N"]  # step at which the loss was no number; -1: none


@dataclass(frozen=True)
class Outcome:
    """What came of it all."""

    returns: Float[np.ndarray, " D"]  # the policies' own mean returns, in what is learnt from
    lanes: dict[str, Lanes]
    seconds: dict[str, float]


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


def sweep(config: HopperConfig, progress: Callable[..., None]) -> Outcome:
    """Every method; what an earlier run with the same settings has left in the folder is taken from there."""
    check(config)
    learn_key = jax.random.split(jax.random.key(config.seed))[1]
    data = kept_demonstrations(config.out, config.seed, config.pairs, config.workers, config.teachers)
    returns = np.asarray(data.returns())
    own = np.array([returns[data.owner == number].mean() for number in range(len(POLICIES))])
    outcome = Outcome(own, {}, {})
    names = tuple(dict.fromkeys(config.methods))
    with contextlib.closing(HostBackend(ENV_ID, config.workers)) as backend:
        for number, name in enumerate(names):

            def told(done: int, total: int, number: int = number, **figures: float) -> None:
                progress(number * total + done, len(names) * total, **figures)

            outcome.lanes[name], outcome.seconds[name] = _part(config, learn_key, backend, name, data, told)
    return outcome


def _part(
    config: HopperConfig, key: Key, backend: HostBackend, name: str, data: Demonstrations, progress: Callable[..., None]
) -> tuple[Lanes, float]:
    """One method, from the folder or anew; and the seconds it took."""
    file, fingerprint = config.out / "parts" / f"{name}.npz", config.fingerprint(name)
    arrays = kept(file, fingerprint)
    if arrays is None:
        began, method = time.perf_counter(), config.method(name)
        stacked = data_sets(data, config.chosen, config.runs)
        identity = repr(sorted(fingerprint.items()))
        with Checkpointer(config.out / "parts" / name, identity, every=config.checkpoint_every) as checkpointer:
            if isinstance(method, AbstractOffline):
                found = _offline(config, key, backend, method, stacked, progress, checkpointer)
            else:
                found = _online(config, key, backend, method, stacked, progress, checkpointer)
            arrays = {**found, "seconds": np.asarray(checkpointer.earlier + time.perf_counter() - began)}
            keep(file, fingerprint, arrays)
            checkpointer.clear()
    shape = len(config.chosen), config.runs
    lanes = Lanes(**{field: _split(arrays[field], shape) for field in Lanes.__dataclass_fields__})
    return lanes, float(arrays["seconds"])


def _offline(
    config: HopperConfig,
    key: Key,
    backend: HostBackend,
    method: AbstractOffline,
    data: Transitions,
    progress: Callable[..., None],
    checkpointer: Checkpointer,
) -> dict[str, np.ndarray]:
    train_key, play_key = jax.random.split(key)
    keys = jax.random.split(train_key, len(data.size))
    state, _ = train_all(method, keys, data, backend.actions, len(POLICIES), progress, checkpointer)
    policies = jax.vmap(method.policy)(state.parameters)
    returns = backend.returns(play_key, policies, greedy_action, LAST * config.episodes).mean(1)
    return _found(method, state, data, returns[:, None])


def _online(
    config: HopperConfig,
    key: Key,
    backend: HostBackend,
    method: AbstractAgent,
    data: Transitions,
    progress: Callable[..., None],
    checkpointer: Checkpointer,
) -> dict[str, np.ndarray]:
    """Learn, and be tried every so many steps."""
    train_key, play_key = jax.random.split(key)
    keys = jax.random.split(train_key, len(data.size))
    watched = {"every": config.between, "episodes": config.episodes, "progress": progress, "checkpointer": checkpointer}
    state, curve = learn_and_try(method, keys, backend, play_key, data, len(POLICIES), **watched)
    return _found(method, state.learner, data, curve)


def _found(method: Any, state: Any, data: Transitions, returns: np.ndarray) -> dict[str, np.ndarray]:
    log_precision = jax.vmap(method.log_precision)(state.parameters, data)
    return {
        "returns": np.asarray(returns, np.float32),
        "log_precision": np.asarray(log_precision),
        "diverged": np.asarray(state.diverged),
    }


def _split(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.asarray(values).reshape(*shape, *values.shape[1:])
