"""The canonical time step, and environments that run on the device.

Engines disagree about what happens when an episode ends: where the last observation is, and whether an action is
ignored afterwards. All of them are brought to one `Transition` here; nothing past it knows which engine it came from.
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
    """What actions can be where they are vectors of A numbers: each from `low` to `high`, in single precision.

    Some entries are choices: among a few `values`, or between these and all other numbers within the bounds (`free`).
    Others have no values, and are free. There is nothing to trace in it: like the number of discrete actions, it can be
    a static argument.
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
        """The least each number can be."""
        return np.asarray(self._low, np.float32)

    @property
    def high(self) -> Float[np.ndarray, " A"]:
        """The most each number can be."""
        return np.asarray(self._high, np.float32)

    @property
    def size(self) -> int:
        """How many numbers an action has, A."""
        return len(self._low)

    @property
    def options(self) -> tuple[int, ...]:
        """Of each entry, the number of its values and one more if it is free besides; 0 of those without values."""
        return tuple(len(own) + free if own else 0 for own, free in zip(self.values, self.free, strict=True))

    @property
    def choosing(self) -> tuple[int, ...]:
        """The entries that have values."""
        return tuple(entry for entry, own in enumerate(self.values) if own)

    @property
    def inside(self) -> "Bounds":
        """Those of the free entries, as if they had no values."""
        free = list(self.free)
        return Bounds(self.low[free], self.high[free])


Actions = int | Bounds  # the number of discrete actions, or the bounds of vectors


class Transition(eqx.Module):
    """What happened in one step; with leading axes, in many.

    At most one of the two flags is set: a task that ends just as the clock runs out has *terminated*. The episode is
    over where either is.
    """

    obs: Shaped[Array, "*obs"]
    action: Shaped[Array, "..."]  # whole numbers, or vectors along the last axis
    reward: Float[Array, "*lanes"]  # for reports and for training experts; imitation never looks at it
    terminated: Bool[Array, "*lanes"]  # the task ended: do not bootstrap
    truncated: Bool[Array, "*lanes"]  # the clock ran out: bootstrap from next_obs
    next_obs: Shaped[Array, "*obs"]  # where the action led, never the first observation of the next episode
    valid: Bool[Array, "*lanes"]  # False: the engine only reset here and ignored the action; leave the step out


class AbstractEnv(eqx.Module, Generic[EnvState]):
    """An environment in pure JAX, for one lane; `jax.vmap` adds lanes.

    An action is a whole number, one of A, or a vector of A numbers between bounds.

    An environment says how it starts, what it shows and how it moves on. Beginning the next episode is the same for
    all, and done by `step`.
    """

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""

    @property
    @abc.abstractmethod
    def actions(self) -> int | Bounds:
        """Number of actions, A; or what their A numbers can be."""

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """The most steps that an episode can have."""

    @abc.abstractmethod
    def reset(self, key: Key) -> EnvState:
        """Draw the beginning of an episode."""

    @abc.abstractmethod
    def observe(self, state: EnvState) -> Float[Array, "*obs"]:
        """What is seen in a state, in single precision."""

    @abc.abstractmethod
    def advance(
        self, key: Key, state: EnvState, action: Shaped[Array, "..."]
    ) -> tuple[EnvState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Successor, reward, whether the task ended and, if it did not, whether the clock ran out."""

    def step(self, key: Key, state: EnvState, action: Shaped[Array, "..."]) -> tuple[EnvState, Transition]:
        """Take an action. The state that comes back is to act in next: the beginning of a new episode, if one ended."""
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
