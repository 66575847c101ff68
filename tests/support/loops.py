"""Whole runs in one call, and single updates on sampled batches."""

from collections.abc import Callable

from irleed._typing import Array, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.base import AbstractOffline, TrainInfo, TrainState, update_on
from irleed.algorithms.training import (
    Lanes,
    advance_on_device,
    advance_on_host,
    begin_on_device,
    begin_on_host,
)
from irleed.data.transitions import Transitions
from irleed.envs.step import AbstractEnv


def update(algorithm: AbstractOffline, key: Key, state: TrainState, data: Transitions) -> tuple[TrainState, TrainInfo]:
    """One step of Adam on a batch sampled from the data."""
    return update_on(algorithm, state, data.sample(key, algorithm.batch_size))


def on_device(
    agent: AbstractAgent, key: Key, env: AbstractEnv, data: Transitions | None = None, demonstrators: int = 0
) -> tuple[AgentState, TrainInfo]:
    """A whole run in one scan; `vmap` it for many."""
    start = begin_on_device(agent, key, env, data, demonstrators)
    (state, _), info = advance_on_device(agent, key, start, env, data, 0, agent.rounds)
    return state, info


def on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " P"],
    env: Lanes,
    data: Transitions | None = None,
    demonstrators: int = 0,
    progress: Callable[..., None] | None = None,
) -> tuple[AgentState, TrainInfo]:
    """Runs side by side, each in as many lanes as it has copies; states and data have the runs as leading axis.

    Info is that of the last round.
    """
    state = begin_on_host(agent, keys, env, data, demonstrators)
    state, infos = advance_on_host(agent, keys, state, env, data, 0, agent.rounds, progress)
    return state, infos[-1]
