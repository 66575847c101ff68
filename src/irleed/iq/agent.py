"""Agents: algorithms on networks that also learn from what they play themselves.

`act`, `update` and `observe` describe one run, which plays in one or several copies of its environment. The two loops
of `irleed.interact` call them in the same order with the same keys, whether the environment runs on the device or on
the host.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Key, Scalar, Shaped
from irleed.algorithm import AbstractAlgorithm, Actions, TrainInfo, TrainState, adam_step, cooling, fresh
from irleed.cores import one_by_one
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Transition
from irleed.iq.replay import Replay


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
