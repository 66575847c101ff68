"""The two loops in which agents learn: on the device, and with an environment on the host.

Both derive the keys of a round from its number alone and call act, update and observe in that order, so that the same
environment gives the same run in either. Learning comes between acting and what comes of it: on the host, the device
learns while the environments move.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import each_run
from irleed._typing import Array, Int, Key, Shaped
from irleed.algorithms import agent as agents
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.base import Actions, TrainInfo
from irleed.data.transitions import Transitions
from irleed.envs.step import AbstractEnv, Transition


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
    (state, _), info = advance_on_device(agent, key, start, env, data, 0, agent.rounds)
    return state, info


def begin_on_device(
    agent: AbstractAgent, key: Key, env: AbstractEnv, data: Transitions | None = None, demonstrators: int = 0
) -> tuple[AgentState, Any]:
    """Agent and environment before the first step."""
    init_key, reset_key, _ = jax.random.split(key, 3)
    starts = jax.vmap(env.reset)(jax.random.split(reset_key, agent.copies))
    start = jax.tree.map(lambda leaf: leaf[0], starts)
    _, example = env.step(reset_key, start, example_action(env.actions))
    return agents.init(agent, init_key, example, env.actions, data, demonstrators), starts


def advance_on_device(
    agent: AbstractAgent,
    key: Key,
    carry: tuple[AgentState, Any],
    env: AbstractEnv,
    data: Transitions | None,
    done: Int[Array, ""] | int,
    rounds: int,
) -> tuple[tuple[AgentState, Any], TrainInfo]:
    """So many rounds more, of agent and environments; a run cut into parts is the same run."""
    loop_key = jax.random.split(key, 3)[2]

    def one(carry, number):
        state, places = carry
        act_key, env_key, update_key = round_keys(loop_key, number)
        action = agents.act(agent, act_key, state, jax.vmap(env.observe)(places))
        state, info = agents.update(agent, update_key, state, data)
        places, seen = jax.vmap(env.step)(jax.random.split(env_key, agent.copies), places, action)
        return (agents.observe(state, seen), places), info

    return jax.lax.scan(one, carry, done + jnp.arange(rounds))


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


def begin_on_host(
    agent: AbstractAgent, keys: Shaped[Array, " P"], env: Lanes, data: Transitions | None = None, demonstrators: int = 0
) -> AgentState:
    """The agents before the first round."""
    init_keys, example = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 0], _example(env.obs[0], env.actions)
    start = jax.vmap(lambda key, own: agents.init(agent, key, example, env.actions, own, demonstrators))
    return jax.jit(start)(init_keys, data)


def advance_on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " P"],
    state: AgentState,
    env: Lanes,
    data: Transitions | None,
    done: int,
    rounds: int,
    progress: Callable[..., None] | None = None,
) -> tuple[AgentState, list[TrainInfo]]:
    """So many rounds more, from where the environment is; info of each. `state` is used up.

    Progress is told every hundredth round; at the end there is more to tell, for whoever knows all parts.
    """
    loop_keys = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 2]
    data = jax.device_put(data)  # once: to bring them there at every round would take longer than to learn
    action, infos = _act(agent, loop_keys, state, env.obs, done), []
    for number in range(done, done + rounds):
        state, info = _update(agent, loop_keys, state, data, number)
        chosen = sound(np.asarray(action).reshape(len(env.obs), *action.shape[2:]), env.actions)
        seen = env.step(chosen)  # while the device learns
        state, action = _observe(agent, loop_keys, state, seen, env.obs, number + 1)
        infos.append(info)
        if progress is not None and (number + 1) % 100 == 0 and number + 1 < done + rounds:
            jax.block_until_ready(action)
            progress(number + 1, agent.rounds)
    return state, infos


def sound(chosen: Shaped[np.ndarray, "L ..."], actions: Actions) -> Shaped[np.ndarray, "L ..."]:
    """Actions; in the middle of their bounds where a policy whose training has diverged has none.

    One run of many that diverged is told in the end, and the others go on.
    """
    if isinstance(actions, int):
        return chosen
    return np.where(np.isfinite(chosen), chosen, ((actions.low + actions.high) / 2).astype(chosen.dtype))


def round_keys(loop_key: Key, number: Int[Array, ""] | int) -> tuple[Key, Key, Key]:
    """To act, for the environment, to update."""
    act_key, env_key, update_key = jax.random.split(jax.random.fold_in(loop_key, number), 3)
    return act_key, env_key, update_key


def example_action(actions: Actions) -> Shaped[Array, "..."]:
    """Some action."""
    return jnp.asarray(0, jnp.int32) if isinstance(actions, int) else jnp.asarray(actions.low)


def _example(obs: Shaped[np.ndarray, "*obs"], actions: Actions) -> Transition:
    flag, nought = jnp.asarray(False), jnp.asarray(0.0, jnp.float32)
    return Transition(obs, example_action(actions), nought, flag, flag, obs, flag)


def _by_run(runs: int, lanes: Any) -> Any:
    """Arrays with the lanes as leading axis, those of one run next to each other, as runs by copies."""
    return jax.tree.map(lambda leaf: leaf.reshape(runs, -1, *leaf.shape[1:]), lanes)


def _acted(agent, loop_keys, state, obs, number):
    def one(key, *own):
        return agents.act(agent, round_keys(key, number)[0], *own)

    return each_run(one)(loop_keys, state, _by_run(len(loop_keys), obs))


_act = jax.jit(_acted)


@functools.partial(jax.jit, donate_argnums=2)  # what is learnt is written to in place
def _update(agent, loop_keys, state, data, number):
    def one(key, *own):
        return agents.update(agent, round_keys(key, number)[2], *own)

    return each_run(one)(loop_keys, state, data)


@functools.partial(jax.jit, donate_argnums=2)  # the replay buffer is written to in place
def _observe(agent, loop_keys, state, seen, obs, number):
    """Observe, and act for the next round."""
    state = jax.vmap(agents.observe)(state, _by_run(len(loop_keys), seen))
    return state, _acted(agent, loop_keys, state, obs, number)
