"""The canonical time step, and environments that run on the device.

Engines disagree about what happens when an episode ends: where the last observation is, and whether an action is
ignored afterwards. All of them are brought to one `Transition` here; nothing past it knows which engine it came from.
"""

import abc
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Int, Key, Shaped

EnvState = TypeVar("EnvState", bound=eqx.Module)  # arrays alone: the same shapes before a step and after it


class Transition(eqx.Module):
    """What happened in one step; with leading axes, in many.

    At most one of the two flags is set: a task that ends just as the clock runs out has *terminated*. The episode is
    over where either is.
    """

    obs: Shaped[Array, "*obs"]
    action: Shaped[Array, "..."]
    reward: Float[Array, "*lanes"]  # for reports and for training experts; imitation never looks at it
    terminated: Bool[Array, "*lanes"]  # the task ended: do not bootstrap
    truncated: Bool[Array, "*lanes"]  # the clock ran out: bootstrap from next_obs
    next_obs: Shaped[Array, "*obs"]  # where the action led, never the first observation of the next episode
    valid: Bool[Array, "*lanes"]  # False: the engine only reset here and ignored the action; leave the step out


class AbstractEnv(eqx.Module, Generic[EnvState]):
    """An environment in pure JAX with A discrete actions, for one lane; `jax.vmap` adds lanes.

    An environment says how it starts, what it shows and how it moves on. Beginning the next episode is the same for
    all, and done by `step`.
    """

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""

    @property
    @abc.abstractmethod
    def actions(self) -> int:
        """Number of actions, A."""

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
        self, key: Key, state: EnvState, action: Int[Array, ""]
    ) -> tuple[EnvState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Successor, reward, whether the task ended and, if it did not, whether the clock ran out."""

    def step(self, key: Key, state: EnvState, action: Int[Array, ""]) -> tuple[EnvState, Transition]:
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
