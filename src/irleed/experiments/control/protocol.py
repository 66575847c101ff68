"""The control experiment: every method learns from the same data sets, all of them at once.

All seeds and settings of a method are one batched program. The demonstrations and what a method found are written at
once, so that a run that was stopped goes on.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.training import train_all
from irleed.data.transitions import Transitions
from irleed.experiments.control.config import ORACLES, ControlConfig, check
from irleed.experiments.control.data import DEMONSTRATORS, DataSets, Task, make_data
from irleed.policies.actor import EnsembleActor
from irleed.rollout import AbstractBackend, greedy_action, make_backend, sampled_action
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept


class Lanes(eqx.Module):
    """What one method got out of the data sets; leading axes settings and seeds."""

    greedy: Float[Array, "*lanes"]  # mean return of the greedy actions
    sampled: Float[Array, "*lanes"]  # and of sampled ones
    log_precision: Float[Array, "*lanes D"]
    diverged: Int[Array, "*lanes"]  # step at which the loss of a member was no number; -1: none


def learn(
    key: Key,
    backend: AbstractBackend,
    method: AbstractOffline | AbstractAgent,
    data: Transitions,
    episodes: int = 20,
    checkpointer: Checkpointer | None = None,
    members: int = 1,
) -> Lanes:
    """Train on every data set of a stack, from where the checkpointer has them, and let the last policies play.

    So many members learn from each data set, and the mean of their log probabilities plays; their precisions are
    geometric means.
    """
    train_key, greedy_key, sampled_key = jax.random.split(key, 3)
    data = jax.tree.map(lambda leaf: np.repeat(leaf, members, 0), data)
    keys = jax.random.split(train_key, data.size.shape[0])
    if isinstance(method, AbstractAgent):
        state = backend.learn(method, keys, data, DEMONSTRATORS, checkpointer=checkpointer)[0].learner
    else:
        state, _ = train_all(method, keys, data, backend.actions, DEMONSTRATORS, checkpointer=checkpointer)

    def together(leaf: Array) -> Array:
        return leaf.reshape(-1, members, *leaf.shape[1:])

    policies = jax.tree.map(together, jax.vmap(method.policy)(state.parameters))
    policies = EnsembleActor(policies)
    log_precision = np.asarray(jax.vmap(method.log_precision)(state.parameters, data))
    return Lanes(
        greedy=backend.returns(greedy_key, policies, greedy_action, episodes).mean(1),
        sampled=backend.returns(sampled_key, policies, sampled_action, episodes).mean(1),
        log_precision=together(log_precision).mean(1),
        diverged=together(np.asarray(state.diverged)).max(1),
    )


@dataclass(frozen=True)
class Outcome:
    """What came of one task."""

    task: Task
    returns: Float[np.ndarray, "S N D"]  # the demonstrators' true ones
    lanes: dict[str, Lanes]
    seconds: dict[str, float]  # by method, and `data`


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
