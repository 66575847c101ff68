"""The two loops in which agents learn: on the device, and with an environment on the host.

Both derive the keys of a step from its number alone and call act, observe and update in that order, so that the same
environment gives the same run in either.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Int, Key, Shaped
from irleed.algorithm import TrainInfo
from irleed.data.transitions import Transitions
from irleed.envs.step import AbstractEnv, Transition
from irleed.iq import agent as agents
from irleed.iq.agent import AbstractAgent, AgentState


@runtime_checkable
class Lanes(Protocol):
    """What the loop needs of an environment on the host, with L lanes; see `irleed.envs.host.HostEnv`."""

    actions: int

    @property
    def obs(self) -> Shaped[np.ndarray, "L *obs"]:
        """What to act on."""
        ...

    def step(self, actions: Shaped[Array, "..."], /) -> Transition:
        """Take an action in every lane."""
        ...


def on_device(
    agent: AbstractAgent, key: Key, env: AbstractEnv, data: Transitions | None = None, demonstrators: int = 0
) -> tuple[AgentState, TrainInfo]:
    """A whole run in one scan; `vmap` it for many."""
    init_key, reset_key, loop_key = jax.random.split(key, 3)
    start = env.reset(reset_key)
    _, example = env.step(reset_key, start, jnp.asarray(0, jnp.int32))
    state = agents.init(agent, init_key, example, env.actions, data, demonstrators)

    def one(carry, number):
        state, place = carry
        act_key, env_key, update_key = step_keys(loop_key, number)
        action = agents.act(agent, act_key, state, env.observe(place))
        place, seen = env.step(env_key, place, action)
        state, info = agents.update(agent, update_key, agents.observe(state, seen), data)
        return (state, place), info

    (state, _), info = jax.lax.scan(one, (state, start), jnp.arange(agent.steps))
    return state, info


def on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " L"],
    env: Lanes,
    data: Transitions | None = None,
    demonstrators: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[AgentState, TrainInfo]:
    """One run in each lane; states and data have the lanes as leading axis. Info is that of the last step."""
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    init_keys, loop_keys = split[:, 0], split[:, 2]
    obs = env.obs
    example = _example(obs[0])
    start = jax.vmap(lambda key, own: agents.init(agent, key, example, env.actions, own, demonstrators))
    state = jax.jit(start)(init_keys, data)
    action = _act(agent, loop_keys, state, obs, 0)
    info: Any = None
    for number in range(agent.steps):
        seen = env.step(np.asarray(action))
        state, info, action = _advance(agent, loop_keys, state, seen, env.obs, data, number)
        if progress is not None and (number + 1) % 100 == 0:
            jax.block_until_ready(action)
            progress(number + 1, agent.steps)
    return state, info


def step_keys(loop_key: Key, number: Int[Array, ""] | int) -> tuple[Key, Key, Key]:
    """To act, for the environment, to update."""
    act_key, env_key, update_key = jax.random.split(jax.random.fold_in(loop_key, number), 3)
    return act_key, env_key, update_key


def _example(obs: Shaped[np.ndarray, "*obs"]) -> Transition:
    flag, nought = jnp.asarray(False), jnp.asarray(0.0, jnp.float32)
    return Transition(obs, jnp.asarray(0, jnp.int32), nought, flag, flag, obs, flag)


@jax.jit
def _act(agent, loop_keys, state, obs, number):
    return jax.vmap(lambda key, *own: agents.act(agent, step_keys(key, number)[0], *own))(loop_keys, state, obs)


@functools.partial(jax.jit, donate_argnums=2)  # the replay buffer is written to in place
def _advance(agent, loop_keys, state, seen, obs, data, number):
    """Observe, update, and act for the next step: one call a step, as calls are what costs."""

    def one(key, state, seen, data):
        return agents.update(agent, step_keys(key, number)[2], agents.observe(state, seen), data)

    state, info = jax.vmap(one)(loop_keys, state, seen, data)
    return state, info, _act(agent, loop_keys, state, obs, number + 1)
