"""Backends on the device: an environment in pure JAX, everything one compiled program."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import Groups
from irleed._typing import Array, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.interaction import advance_on_device, begin_on_device
from irleed.algorithms.training import PARTS, Losses, Progress, in_parts
from irleed.data.transitions import Transitions
from irleed.envs.step import AbstractEnv
from irleed.rollout.base import AbstractBackend, ActorAct, counted, how_many, in_steps
from irleed.rollout.evaluation import Played, play
from irleed.runs.checkpoint import Checkpointer


class DeviceBackend(AbstractBackend):
    """An environment in pure JAX."""

    def __init__(self, env: AbstractEnv) -> None:
        self.env, self.actions, self.observation_shape = env, env.actions, env.observation_shape

    def close(self) -> None:
        """Nothing to let go of."""

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Played:
        """See `AbstractBackend.play`."""
        keys = jax.random.split(key, (how_many(actors), episodes))
        return jax.tree.map(np.asarray, _play_all(self.env, act, keys, actors))

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractBackend.returns`."""
        keys = jax.random.split(key, (how_many(actors), episodes))
        return np.asarray(_returns_all(self.env, act, keys, actors))

    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> tuple[AgentState, Losses]:
        """See `AbstractBackend.learn`."""
        groups = Groups(len(keys))
        given = list(zip(groups.split(keys), groups.split(data), strict=True))

        def start() -> list[tuple[AgentState, Any]]:
            return [_begin_all(agent, own, self.env, shown, demonstrators) for own, shown in given]

        def on(carries: list[tuple[AgentState, Any]], done: int, steps: int) -> tuple[list, Array]:
            def ahead(carry, of):
                return _advance_all(agent, of[0], carry, self.env, of[1], done, steps)

            return groups.advance(ahead, carries, given)

        part = -(-agent.rounds // PARTS)
        carries, losses = in_parts(start, on, len(keys), agent.rounds, part, counted(agent, progress), checkpointer)
        return groups.join([state for state, _ in carries]), in_steps(agent, losses)


@jax.jit(static_argnames="act")
def _play_all(env, act, keys, actors):
    def one(own, actor):
        return jax.vmap(lambda each: play(each, env, lambda *given: act(actor, *given)))(own)

    return jax.vmap(one)(keys, actors)


@jax.jit(static_argnames="act")
def _returns_all(env, act, keys, actors):
    return _play_all(env, act, keys, actors).total


@jax.jit(static_argnames="demonstrators")
def _begin_all(agent, keys, env, data, demonstrators):
    return jax.vmap(lambda key, own: begin_on_device(agent, key, env, own, demonstrators))(keys, data)


@functools.partial(jax.jit, static_argnames="steps", donate_argnames="carry")  # the replay buffer is written in place
def _advance_all(agent, keys, carry, env, data, done, steps):
    def one(key, own_carry, own):
        return advance_on_device(agent, key, own_carry, env, own, done, steps)

    carry, info = jax.vmap(one)(keys, carry, data)
    return carry, jnp.mean(info.loss, -1)
