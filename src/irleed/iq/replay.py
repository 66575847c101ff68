"""A replay buffer: the last so many transitions, as arrays."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Int, Key
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
