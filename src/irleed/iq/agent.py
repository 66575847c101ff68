"""Agents: algorithms on networks that also learn from what they play themselves.

`act`, `observe` and `update` describe one run in one lane. The two loops of `irleed.interact` call them in the same
order with the same keys, whether the environment runs on the device or on the host.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar, Shaped
from irleed.algorithm import AbstractAlgorithm, Actions, TrainInfo, TrainState, adam_step, cooling, fresh
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Transition
from irleed.iq.replay import Replay


class AgentState(eqx.Module):
    """What is learnt, the parameters that follow it slowly, and what was played."""

    learner: TrainState
    target: Any
    replay: Replay


class AbstractAgent(AbstractAlgorithm):
    """An algorithm that acts; `steps` are those in the environment, and of Adam."""

    capacity: eqx.AbstractVar[int]  # of the replay buffer
    warm: eqx.AbstractVar[int]  # steps before the first update
    random: eqx.AbstractVar[Scalar]  # share of actions that are drawn uniformly
    target_rate: eqx.AbstractVar[Scalar]  # how fast the target follows; 1: at once
    clip: eqx.AbstractVar[Scalar | None]  # the longest that the whole gradient can be

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


def act(agent: AbstractAgent, key: Key, state: AgentState, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """An action to learn from."""
    policy_key, stray_key, whether_key = jax.random.split(key, 3)
    policy = agent.policy(state.learner.parameters)
    chosen, stray = policy.act(policy_key, obs), policy.stray(stray_key, obs)
    return jnp.where(jax.random.uniform(whether_key) < agent.random, stray, chosen)


def observe(state: AgentState, seen: Transition) -> AgentState:
    """Remember a step."""
    return AgentState(state.learner, state.target, state.replay.add(seen))


def update(
    agent: AbstractAgent, key: Key, state: AgentState, data: Transitions | None = None
) -> tuple[AgentState, TrainInfo]:
    """One step of Adam on a batch of what was played and, if there are demonstrations, one of them."""
    played_key, shown_key = jax.random.split(key)
    loss_key = jax.random.fold_in(key, 2)
    played = state.replay.sample(played_key, agent.batch)
    shown = None if data is None else data.sample(shown_key, agent.batch)
    factor = cooling(state.learner.step, agent.steps) if agent.decay else 1.0

    def loss(parameters):
        return agent.loss(loss_key, parameters, state.target, played, shown)

    moved, info = adam_step(loss, agent.rates(), factor, state.learner, agent.clip)
    ready = state.replay.size >= agent.warm
    learner = jax.tree.map(lambda new, old: jnp.where(ready, new, old), moved, state.learner)
    target = jax.tree.map(lambda old, new: old + agent.target_rate * (new - old), state.target, moved.parameters)
    target = jax.tree.map(lambda new, old: jnp.where(ready, new, old), target, state.target)
    return AgentState(learner, target, state.replay), info
