"""The canonical time step, action spaces, and the interface of environments in JAX.

Engines disagree about what happens when an episode ends: where the last observation is, and whether the next action is
ignored. All of them return the same `Transition`.
"""

import abc
from collections.abc import Sequence
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Key, Shaped

EnvState = TypeVar("EnvState", bound=eqx.Module)  # arrays alone: the same shapes before a step and after it


class Bounds(eqx.Module):
    """The space of actions that are vectors of A numbers, each from `low` to `high`, in single precision.

    Some entries are choices: among a few `values`, or between these and all other numbers within the bounds (`free`).
    Others have no values, and are free. All fields are static: it can be a static argument, as the number of discrete
    actions can.
    """

    _low: tuple[float, ...] = eqx.field(static=True)
    _high: tuple[float, ...] = eqx.field(static=True)
    values: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    free: tuple[bool, ...] = eqx.field(static=True)

    def __init__(
        self,
        low: Sequence[float] | Array,
        high: Sequence[float] | Array,
        values: Sequence[Sequence[float]] | None = None,
        free: Sequence[bool] | None = None,
    ) -> None:
        self._low, self._high = (tuple(np.asarray(end, np.float32).tolist()) for end in (low, high))
        given = ((),) * self.size if values is None else values
        self.values = tuple(tuple(np.asarray(each, np.float32).tolist()) for each in given)
        self.free = (True,) * self.size if free is None else tuple(map(bool, free))

    @property
    def low(self) -> Float[np.ndarray, " A"]:
        """The lower bounds."""
        return np.asarray(self._low, np.float32)

    @property
    def high(self) -> Float[np.ndarray, " A"]:
        """The upper bounds."""
        return np.asarray(self._high, np.float32)

    @property
    def size(self) -> int:
        """Numbers in an action, A."""
        return len(self._low)

    @property
    def options(self) -> tuple[int, ...]:
        """For each entry, the number of its values, plus one if it is free besides; 0 for those without values."""
        return tuple(len(own) + free if own else 0 for own, free in zip(self.values, self.free, strict=True))

    @property
    def choosing(self) -> tuple[int, ...]:
        """The entries that have values."""
        return tuple(entry for entry, own in enumerate(self.values) if own)

    @property
    def inside(self) -> "Bounds":
        """The bounds of the free entries, without values."""
        free = list(self.free)
        return Bounds(self.low[free], self.high[free])


Actions = int | Bounds  # the number of discrete actions, or the bounds of vectors


class Transition(eqx.Module):
    """One step of an environment; with leading axes, many.

    At most one of the two flags is set: a terminal state at the time limit counts as terminated. The episode is over
    where either is set.
    """

    obs: Shaped[Array, "*obs"]
    action: Shaped[Array, "..."]  # whole numbers, or vectors along the last axis
    reward: Float[Array, "*lanes"]  # for reports and for training experts; imitation does not use it
    terminated: Bool[Array, "*lanes"]  # a terminal state was reached: do not bootstrap
    truncated: Bool[Array, "*lanes"]  # the time limit was reached: bootstrap from next_obs
    next_obs: Shaped[Array, "*obs"]  # never the first observation of the next episode
    valid: Bool[Array, "*lanes"]  # False: the engine reset and ignored the action; leave the step out


class AbstractEnv(eqx.Module, Generic[EnvState]):
    """An environment in pure JAX, for one lane; `jax.vmap` adds lanes.

    An action is a whole number, one of A, or a vector of A numbers between bounds. Environments implement `reset`,
    `observe` and `advance`; `step` is the same for all and resets at the end of an episode.
    """

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""

    @property
    @abc.abstractmethod
    def actions(self) -> int | Bounds:
        """Number of discrete actions, or the bounds of vectors."""

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The time limit: the most steps of an episode."""

    @abc.abstractmethod
    def reset(self, key: Key) -> EnvState:
        """Draw the first state of an episode."""

    @abc.abstractmethod
    def observe(self, state: EnvState) -> Float[Array, "*obs"]:
        """The observation of a state, in single precision."""

    @abc.abstractmethod
    def advance(
        self, key: Key, state: EnvState, action: Shaped[Array, "..."]
    ) -> tuple[EnvState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Successor, reward, terminated, and truncated (the time limit was reached in a non-terminal state)."""

    def step(self, key: Key, state: EnvState, action: Shaped[Array, "..."]) -> tuple[EnvState, Transition]:
        """Take an action; the state returned is the first of a new episode if one ended."""
        move_key, reset_key = jax.random.split(key)
        successor, reward, terminated, truncated = self.advance(move_key, state, action)
        transition = Transition(
            obs=self.observe(state),
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=self.observe(successor),
            valid=jnp.asarray(True),
        )
        over = terminated | truncated
        following = jax.tree.map(lambda new, old: jnp.where(over, new, old), self.reset(reset_key), successor)
        return following, transition
