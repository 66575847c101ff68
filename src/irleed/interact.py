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
from irleed.algorithm import Actions, TrainInfo
from irleed.data.transitions import Transitions
from irleed.envs.step import AbstractEnv, Transition
from irleed.iq import agent as agents
from irleed.iq.agent import AbstractAgent, AgentState


@runtime_checkable
class Lanes(Protocol):
    """What the loop needs of an environment on the host, with L lanes; see `irleed.envs.host.HostEnv`."""

    actions: Actions

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
    start = begin_on_device(agent, key, env, data, demonstrators)
    (state, _), info = advance_on_device(agent, key, start, env, data, 0, agent.steps)
    return state, info


def begin_on_device(
    agent: AbstractAgent, key: Key, env: AbstractEnv, data: Transitions | None = None, demonstrators: int = 0
) -> tuple[AgentState, Any]:
    """Agent and environment before the first step."""
    init_key, reset_key, _ = jax.random.split(key, 3)
    start = env.reset(reset_key)
    _, example = env.step(reset_key, start, example_action(env.actions))
    return agents.init(agent, init_key, example, env.actions, data, demonstrators), start


def advance_on_device(
    agent: AbstractAgent,
    key: Key,
    carry: tuple[AgentState, Any],
    env: AbstractEnv,
    data: Transitions | None,
    done: Int[Array, ""] | int,
    steps: int,
) -> tuple[tuple[AgentState, Any], TrainInfo]:
    """So many steps more, of agent and environment; a run cut into parts is the same run."""
    loop_key = jax.random.split(key, 3)[2]

    def one(carry, number):
        state, place = carry
        act_key, env_key, update_key = step_keys(loop_key, number)
        action = agents.act(agent, act_key, state, env.observe(place))
        place, seen = env.step(env_key, place, action)
        state, info = agents.update(agent, update_key, agents.observe(state, seen), data)
        return (state, place), info

    return jax.lax.scan(one, carry, done + jnp.arange(steps))


def on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " L"],
    env: Lanes,
    data: Transitions | None = None,
    demonstrators: int = 0,
    progress: Callable[..., None] | None = None,
) -> tuple[AgentState, TrainInfo]:
    """One run in each lane; states and data have the lanes as leading axis. Info is that of the last step."""
    state = begin_on_host(agent, keys, env, data, demonstrators)
    state, infos = advance_on_host(agent, keys, state, env, data, 0, agent.steps, progress)
    return state, infos[-1]


def begin_on_host(
    agent: AbstractAgent, keys: Shaped[Array, " L"], env: Lanes, data: Transitions | None = None, demonstrators: int = 0
) -> AgentState:
    """The agents before the first step."""
    init_keys, example = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 0], _example(env.obs[0], env.actions)
    start = jax.vmap(lambda key, own: agents.init(agent, key, example, env.actions, own, demonstrators))
    return jax.jit(start)(init_keys, data)


def advance_on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " L"],
    state: AgentState,
    env: Lanes,
    data: Transitions | None,
    done: int,
    steps: int,
    progress: Callable[..., None] | None = None,
) -> tuple[AgentState, list[TrainInfo]]:
    """So many steps more, from where the environment is; Info of each. `state` is used up.

    Progress is told every hundredth step; at the end there is more to tell, for whoever knows all parts.
    """
    loop_keys = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 2]
    action, infos = _act(agent, loop_keys, state, env.obs, done), []
    for number in range(done, done + steps):
        seen = env.step(np.asarray(action))
        state, info, action = _advance(agent, loop_keys, state, seen, env.obs, data, number)
        infos.append(info)
        if progress is not None and (number + 1) % 100 == 0 and number + 1 < done + steps:
            jax.block_until_ready(action)
            progress(number + 1, agent.steps)
    return state, infos


def step_keys(loop_key: Key, number: Int[Array, ""] | int) -> tuple[Key, Key, Key]:
    """To act, for the environment, to update."""
    act_key, env_key, update_key = jax.random.split(jax.random.fold_in(loop_key, number), 3)
    return act_key, env_key, update_key


def example_action(actions: Actions) -> Shaped[Array, "..."]:
    """Some action."""
    return jnp.asarray(0, jnp.int32) if isinstance(actions, int) else jnp.asarray(actions.low)


def _example(obs: Shaped[np.ndarray, "*obs"], actions: Actions) -> Transition:
    flag, nought = jnp.asarray(False), jnp.asarray(0.0, jnp.float32)
    return Transition(obs, example_action(actions), nought, flag, flag, obs, flag)


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
