"""Agents that are tried as they learn: an evaluation every so many steps, and whatever else is to be kept then."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.interaction import advance_on_host, begin_on_host
from irleed.algorithms.training import Progress, in_parts
from irleed.data.transitions import Transitions
from irleed.rollout import HostBackend, counted, greedy_action
from irleed.runs.checkpoint import Checkpointer

# Called with the steps done, the policies, and what each earned: for whoever keeps stages of training.
Look = Callable[[int, Any, Float[np.ndarray, " P"]], None]


def learn_and_try(
    agent: AbstractAgent,
    keys: Shaped[Array, " P"],
    backend: HostBackend,
    play_key: Key,
    data: Transitions | None = None,
    demonstrators: int = 0,
    *,
    every: int,
    episodes: int = 1,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    look: Look | None = None,
) -> tuple[AgentState, Float[np.ndarray, "P E"]]:
    """A whole run for each key; and after every so many steps, about, what its greedy actions earn, on average.

    Every stretch between evaluations begins new episodes, so that a run that was stopped ends as it would have.
    """
    stretch = -(-agent.rounds // max(1, round(agent.steps / every)))  # in rounds
    count = -(-agent.rounds // stretch)
    with contextlib.closing(backend.beside(len(keys) * agent.num_envs)) as env:

        def start() -> tuple[AgentState, Array]:
            state = begin_on_host(agent, keys, env, data, demonstrators)
            return state, jnp.full((len(keys), count), jnp.nan, jnp.float32)

        def on(carry: tuple[AgentState, Array], done: int, rounds: int) -> tuple[tuple[AgentState, Array], Array]:
            env.reset(done)
            state, infos = advance_on_host(agent, keys, carry[0], env, data, done, rounds)
            policies = jax.vmap(agent.policy)(state.learner.parameters)
            earned = backend.returns(jax.random.fold_in(play_key, done), policies, greedy_action, episodes).mean(1)
            if look is not None:
                look((done + rounds) * agent.num_envs, policies, earned)
            curve = jnp.asarray(carry[1]).at[:, done // stretch].set(jnp.asarray(earned, jnp.float32))
            return (state, curve), np.asarray(infos[-1].loss)

        told = counted(agent, progress)
        (state, curve), _ = in_parts(start, on, len(keys), agent.rounds, stretch, told, checkpointer)
    return state, np.asarray(curve)
