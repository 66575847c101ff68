"""Agents: algorithms that also learn from transitions of their own; their replay buffer, and critics of vectors."""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._compute import one_by_one
from irleed._typing import Array, Bool, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractAlgorithm, TrainInfo, TrainState, adam_step, cosine_decay, initial_state
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions, Transition
from irleed.model.actions import SquashedGaussian
from irleed.model.networks import Activation, Mlp


class Replay(eqx.Module):
    """A ring buffer of transitions; only `valid` ones are stored."""

    ring: Transition  # leading axis: capacity
    added: Int[Array, ""]

    @classmethod
    def empty(cls, one: Transition, capacity: int) -> "Replay":
        """An empty buffer for `capacity` transitions of the shapes and types of `one`."""
        ring = jax.tree.map(lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf)), one)
        return cls(ring, jnp.asarray(0, jnp.int32))

    @property
    def capacity(self) -> int:
        """The number of transitions that it can hold."""
        return self.ring.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """The number of transitions that it holds."""
        return jnp.minimum(self.added, self.capacity)

    def add(self, seen: Transition) -> "Replay":
        """Add the valid transitions of a batch; they overwrite the oldest."""
        place = (self.added + jnp.cumsum(seen.valid, dtype=jnp.int32) - 1) % self.capacity
        place = jnp.where(seen.valid, place, self.capacity)  # beyond the end: dropped
        ring = jax.tree.map(lambda all_, new: all_.at[place].set(new, mode="drop"), self.ring, seen)
        return Replay(ring, self.added + jnp.sum(seen.valid, dtype=jnp.int32))

    def sample(self, key: Key, count: int) -> Transition:
        """A batch of `count` transitions, sampled with replacement; zeros from an empty buffer."""
        rows = jax.random.randint(key, (count,), 0, jnp.maximum(self.size, 1))
        return jax.tree.map(lambda leaf: leaf[rows], self.ring)


class AgentState(eqx.Module):
    """Learner, target parameters and replay buffer."""

    learner: TrainState
    target: Any
    replay: Replay


class AbstractAgent(AbstractAlgorithm):
    """An algorithm that acts in an environment.

    **Fields:**

    - `steps`: environment steps, summed over its copies.
    - `num_envs`: copies of the environment that a run acts in, in parallel.
    - `gradient_steps`: gradient steps (Adam) for each step of all copies.
    - `buffer_size`: transitions that the replay buffer holds.
    - `learning_starts`: the first steps, which only fill the replay buffer.
    - `exploration`: the fraction of uniformly random actions.
    - `tau`: the rate of the target network's exponential moving average; 1 copies the parameters at each update.
    """

    num_envs: eqx.AbstractVar[int]
    gradient_steps: eqx.AbstractVar[int]
    buffer_size: eqx.AbstractVar[int]
    learning_starts: eqx.AbstractVar[int]
    exploration: eqx.AbstractVar[Scalar]
    tau: eqx.AbstractVar[Scalar]

    @property
    def rounds(self) -> int:
        """The number of rounds; in each, every copy of the environment takes one step."""
        return -(-self.steps // self.num_envs)

    @abc.abstractmethod
    def loss(self, key: Key, parameters: Any, target: Any, replayed: Transition, demonstrated: Any) -> Float[Array, ""]:
        """The loss of a replayed batch and of a demonstrated one, a `Row`, which is None for experts."""


def with_replayed(demonstrated: Row, replayed: Transition) -> Row:
    """A demonstrated batch, then as many replayed transitions, each with the demonstrator of one of the batch."""
    continuation, who = jnp.where(replayed.terminated, 0.0, 1.0), demonstrated.demonstrator
    paired = Row(replayed.obs, replayed.next_obs, replayed.action, continuation, who, demonstrated.initial)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), demonstrated, paired)


def init(
    agent: AbstractAgent,
    key: Key,
    example: Transition,
    actions: Actions,
    data: Transitions | None = None,
    demonstrators: int = 0,
) -> AgentState:
    """The state before the first step; of `example` only shapes and types matter."""
    inputs = Inputs.plain(example.obs) if data is None else data.inputs
    parameters = agent.parameters(key, inputs, actions, demonstrators)
    return AgentState(initial_state(parameters), parameters, Replay.empty(example, agent.buffer_size))


def act(agent: AbstractAgent, key: Key, state: AgentState, obs: Shaped[Array, "E *obs"]) -> Shaped[Array, "E ..."]:
    """An exploratory action for every copy of the environment."""
    policy = agent.policy(state.learner.parameters)

    def one(own: Key, seen: Shaped[Array, "*obs"]) -> Shaped[Array, "..."]:
        policy_key, uniform_key, whether_key = jax.random.split(own, 3)
        distribution = policy(seen)
        sampled, uniform = distribution.sample(policy_key), distribution.sample_uniformly(uniform_key)
        return jnp.where(jax.random.uniform(whether_key) < agent.exploration, uniform, sampled)

    return jax.vmap(one)(jax.random.split(key, agent.num_envs), obs)


def update(
    agent: AbstractAgent, key: Key, state: AgentState, data: Transitions | None = None
) -> tuple[AgentState, TrainInfo]:
    """The updates of one round; info is that of the last update."""
    keys, few = (
        jax.random.split(key, agent.gradient_steps),
        min(agent.gradient_steps, 4),
    )  # a loop costs more than it holds
    state, info = jax.lax.scan(lambda now, own: _update(agent, own, now, data), state, keys, unroll=few)
    return state, jax.tree.map(lambda leaf: leaf[-1], info)


def _update(
    agent: AbstractAgent, key: Key, state: AgentState, data: Transitions | None
) -> tuple[AgentState, TrainInfo]:
    """One step of Adam on a replayed batch and, if there are demonstrations, on a demonstrated one."""
    replay_key, data_key = jax.random.split(key)
    replayed = state.replay.sample(replay_key, agent.batch_size)
    demonstrated = None if data is None else data.sample(data_key, agent.batch_size)
    ready = state.replay.size >= agent.learning_starts
    learn = one_by_one(_learn, state.learner.parameters)
    learner, target, info = learn(
        agent, jax.random.fold_in(key, 2), state.learner, state.target, replayed, demonstrated, ready
    )
    return AgentState(learner, target, state.replay), info


def _learn(
    agent: AbstractAgent,
    key: Key,
    learner: TrainState,
    target: Any,
    replayed: Transition,
    demonstrated: Row | None,
    ready: Bool[Array, ""],
) -> tuple[TrainState, Any, TrainInfo]:
    """Learner and target after a step of Adam; unchanged before `learning_starts`."""
    factor = cosine_decay(learner.step, agent.rounds * agent.gradient_steps) if agent.anneal_lr else 1.0

    def loss(parameters: Any):
        return agent.loss(key, parameters, target, replayed, demonstrated)

    moved, info = adam_step(loss, agent.learning_rates(), factor, learner)
    follows = jax.tree.map(lambda old, new: old + agent.tau * (new - old), target, moved.parameters)
    moved, follows = jax.tree.map(lambda new, old: jnp.where(ready, new, old), (moved, follows), (learner, target))
    return moved, follows, info


def observe(state: AgentState, seen: Transition) -> AgentState:
    """Add a step of every copy to the replay buffer."""
    return AgentState(state.learner, state.target, state.replay.add(seen))


class Critics(eqx.Module):
    """One critic or several, Q(s, a); policies follow the minimum."""

    networks: Mlp  # leading axis: critics

    @classmethod
    def init(
        cls, key: Key, count: int, inputs: Inputs, actions: int, hidden: Sequence[int], activation: Activation
    ) -> "Critics":
        """`count` independently initialised critics; they take actions scaled to bounds from -1 to 1."""
        centre, spread = jnp.ravel(inputs.centre), jnp.ravel(inputs.spread)
        both = Inputs(jnp.pad(centre, (0, actions)), jnp.pad(spread, (0, actions), constant_values=1.0))
        keys = jax.random.split(key, count)
        return cls(jax.vmap(lambda each: Mlp.init(each, both, (*hidden, 1), activation))(keys))

    def __call__(self, obs: Float[Array, "B ..."], unit: Float[Array, "B A"]) -> Float[Array, "C B"]:
        """The values of a batch by each critic."""
        both = jnp.concatenate([obs.reshape(len(obs), -1), unit], -1)
        return jax.vmap(lambda network: jax.vmap(network)(both)[:, 0])(self.networks)


def soft_value(
    key: Key,
    critics: Critics,
    policy: SquashedGaussian,
    obs: Float[Array, "B ..."],
    temperature: Scalar | Float[Array, " B"],
) -> Float[Array, " B"]:
    r"""$V(s) = E_{a \sim \pi}[\min Q(s, a) - T \log\pi(a|s)]$ by one sample in each state; differentiable in both."""
    unit, log_prob = policy.sample_unit(key)
    return jnp.min(critics(obs, unit), 0) - temperature * log_prob
