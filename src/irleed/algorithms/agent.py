"""Agents: algorithms that also learn from transitions of their own, and the replay buffer they learn from."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._compute import one_by_one
from irleed._typing import Array, Bool, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractAlgorithm, Actions, TrainInfo, TrainState, adam_step, cooling, fresh
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Transition


class Replay(eqx.Module):
    """A ring of transitions; `valid` ones alone are counted and drawn."""

    ring: Transition  # leading axis: capacity
    added: Int[Array, ""]

    @classmethod
    def empty(cls, one: Transition, capacity: int) -> "Replay":
        """Room for so many transitions like this one."""
        ring = jax.tree.map(lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf)), one)
        return cls(ring, jnp.asarray(0, jnp.int32))

    @property
    def capacity(self) -> int:
        """How many it holds at most."""
        return self.ring.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """How many it holds."""
        return jnp.minimum(self.added, self.capacity)

    def add(self, seen: Transition) -> "Replay":
        """With several more, along a leading axis, those that are not steps at all left out; the oldest make room."""
        place = (self.added + jnp.cumsum(seen.valid, dtype=jnp.int32) - 1) % self.capacity
        place = jnp.where(seen.valid, place, self.capacity)  # beyond the end: dropped
        ring = jax.tree.map(lambda all_, new: all_.at[place].set(new, mode="drop"), self.ring, seen)
        return Replay(ring, self.added + jnp.sum(seen.valid, dtype=jnp.int32))

    def sample(self, key: Key, count: int) -> Transition:
        """So many, drawn with replacement; of an empty buffer, zeros."""
        rows = jax.random.randint(key, (count,), 0, jnp.maximum(self.size, 1))
        return jax.tree.map(lambda leaf: leaf[rows], self.ring)


class AgentState(eqx.Module):
    """What is learnt, the parameters that follow it slowly, and what was played."""

    learner: TrainState
    target: Any
    replay: Replay


class AbstractAgent(AbstractAlgorithm):
    """An algorithm that acts; `steps` are those in the environment, of all copies together."""

    copies: eqx.AbstractVar[int]  # of the environment, which one run plays in side by side
    updates: eqx.AbstractVar[int]  # steps of Adam for every round, in which each copy takes a step
    capacity: eqx.AbstractVar[int]  # of the replay buffer
    warm: eqx.AbstractVar[int]  # steps before the first update
    random: eqx.AbstractVar[Scalar]  # share of actions that are drawn uniformly
    target_rate: eqx.AbstractVar[Scalar]  # how fast the target follows; 1: at once
    clip: eqx.AbstractVar[Scalar | None]  # the longest that the whole gradient can be

    @property
    def rounds(self) -> int:
        """In each of which every copy of the environment takes a step."""
        return -(-self.steps // self.copies)

    @abc.abstractmethod
    def loss(self, key: Key, parameters: Any, target: Any, played: Transition, shown: Any) -> Float[Array, ""]:
        """To be minimised, of a batch that was played and one that was demonstrated: a `Row`; None for experts."""


def init(
    agent: AbstractAgent,
    key: Key,
    example: Transition,
    actions: Actions,
    data: Transitions | None = None,
    demonstrators: int = 0,
) -> AgentState:
    """Before the first step; of `example` only shapes and types matter."""
    inputs = Inputs.plain(example.obs) if data is None else data.inputs
    parameters = agent.parameters(key, inputs, actions, demonstrators)
    return AgentState(fresh(parameters), parameters, Replay.empty(example, agent.capacity))


def act(
    agent: AbstractAgent, key: Key, state: AgentState, obs: Shaped[Array, "copies *obs"]
) -> Shaped[Array, "copies ..."]:
    """An action to learn from, in every copy of the environment."""
    policy = agent.policy(state.learner.parameters)

    def one(own: Key, seen: Shaped[Array, "*obs"]) -> Shaped[Array, "..."]:
        policy_key, stray_key, whether_key = jax.random.split(own, 3)
        chosen, stray = policy.act(policy_key, seen), policy.stray(stray_key, seen)
        return jnp.where(jax.random.uniform(whether_key) < agent.random, stray, chosen)

    return jax.vmap(one)(jax.random.split(key, agent.copies), obs)


def update(
    agent: AbstractAgent, key: Key, state: AgentState, data: Transitions | None = None
) -> tuple[AgentState, TrainInfo]:
    """The updates of one round; info is that of the last."""
    keys, few = jax.random.split(key, agent.updates), min(agent.updates, 4)  # a loop costs more than it holds
    state, info = jax.lax.scan(lambda now, own: _update(agent, own, now, data), state, keys, unroll=few)
    return state, jax.tree.map(lambda leaf: leaf[-1], info)


def _update(
    agent: AbstractAgent, key: Key, state: AgentState, data: Transitions | None
) -> tuple[AgentState, TrainInfo]:
    """One step of Adam on a batch of what was played and, if there are demonstrations, one of them."""
    played_key, shown_key = jax.random.split(key)
    played = state.replay.sample(played_key, agent.batch)
    shown = None if data is None else data.sample(shown_key, agent.batch)
    ready = state.replay.size >= agent.warm
    learn = one_by_one(_learn, state.learner.parameters)
    learner, target, info = learn(agent, jax.random.fold_in(key, 2), state.learner, state.target, played, shown, ready)
    return AgentState(learner, target, state.replay), info


def _learn(
    agent: AbstractAgent,
    key: Key,
    learner: TrainState,
    target: Any,
    played: Transition,
    shown: Row | None,
    ready: Bool[Array, ""],
) -> tuple[TrainState, Any, TrainInfo]:
    """Learner and target after a step of Adam; as they were as long as there is too little to learn from."""
    factor = cooling(learner.step, agent.rounds * agent.updates) if agent.decay else 1.0

    def loss(parameters):
        return agent.loss(key, parameters, target, played, shown)

    moved, info = adam_step(loss, agent.rates(), factor, learner, agent.clip)
    follows = jax.tree.map(lambda old, new: old + agent.target_rate * (new - old), target, moved.parameters)
    moved, follows = jax.tree.map(lambda new, old: jnp.where(ready, new, old), (moved, follows), (learner, target))
    return moved, follows, info


def observe(state: AgentState, seen: Transition) -> AgentState:
    """Remember a step of every copy."""
    return AgentState(state.learner, state.target, state.replay.add(seen))
