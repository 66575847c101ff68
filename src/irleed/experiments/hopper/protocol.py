"""The Hopper experiment: every method learns from every source.

All seeds and sources of a method are one batch: agents learn in lanes side by side, physics in C++ threads.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.training import train_all
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions
from irleed.experiments.hopper.config import LAST, HopperConfig, check
from irleed.experiments.hopper.data import ENV_ID, POLICIES, data_sets, kept_demonstrations
from irleed.rollout import HostBackend, greedy_action
from irleed.rollout.host import learn_and_evaluate
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept


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
    state, curve = learn_and_evaluate(method, keys, backend, play_key, data, len(POLICIES), **watched)
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
