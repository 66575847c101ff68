"""Transitions ready for training on a device: what networks learn from, laid out flat."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.data.demonstrations import Demonstrations

ROUNDING = 4 * float(np.finfo(np.float32).eps)  # relative to a value: differences up to this are none
COLUMNS = ("obs", "next_obs", "action", "proceeds", "demonstrator")


class Inputs(eqx.Module):
    """Where observations are centred and how far they spread: networks see them standardised."""

    centre: Float[Array, "*obs"]
    spread: Float[Array, "*obs"]

    @classmethod
    def of(
        cls,
        centre: Float[Array, "*obs"],
        spread: Float[Array, "*obs"],
        low: Float[Array, "*obs"],
        high: Float[Array, "*obs"],
    ) -> "Inputs":
        """A column whose values, from `low` to `high`, differ by no more than single precision's rounding keeps its
        scale. However small they are makes no difference."""
        rounding = ROUNDING * jnp.maximum(jnp.abs(low), jnp.abs(high))
        return cls(centre, jnp.where((high - low > rounding) & (spread > 0), spread, 1.0))

    @classmethod
    def plain(cls, obs: Shaped[Array, "*obs"]) -> "Inputs":
        """As they are, for observations of this shape."""
        return cls(jnp.zeros(obs.shape, jnp.float32), jnp.ones(obs.shape, jnp.float32))


class Row(eqx.Module):
    """One transition; with a leading axis, a batch of them."""

    obs: Shaped[Array, "..."]
    next_obs: Shaped[Array, "..."]
    action: Shaped[Array, "..."]  # whole numbers, or vectors
    proceeds: Float[Array, "*B"]  # 0 where the task ended, else 1: what the discount is multiplied with
    demonstrator: Int[Array, "*B"]
    initial: Shaped[Array, "..."]  # some first observation


class Transitions(eqx.Module):
    """Rows of which the first `size` count; the rest is there so that data sets of several sizes can be stacked.

    Everything is in single precision. What that would spoil, `irleed.data.conditioning` mends before.
    """

    obs: Shaped[Array, "N *obs"]
    next_obs: Shaped[Array, "N *obs"]
    action: Shaped[Array, "N ..."]  # whole numbers, or vectors in single precision
    proceeds: Float[Array, " N"]
    demonstrator: Int[Array, " N"]
    initial: Shaped[Array, "E *obs"]  # first observations of the episodes, repeated to fill up
    size: Int[Array, ""]

    @classmethod
    def from_demonstrations(cls, data: Demonstrations, every: int = 1) -> "Transitions":
        """Every so manieth transition of each episode, from its first on."""
        within = np.arange(data.transitions) - data.start[data.episode]
        return cls.at(data, np.flatnonzero(within % every == 0))

    @classmethod
    def at(cls, data: Demonstrations, chosen: Int[np.ndarray, " K"]) -> "Transitions":
        """These transitions, and the first observations of the episodes they are from."""
        row, starts = np.asarray(data.row), data.start[np.unique(data.episode[chosen])]
        return cls(
            obs=np.asarray(data.obs[row[chosen]], np.float32),
            next_obs=np.asarray(data.obs[row[chosen] + 1], np.float32),
            action=_actions(data)[chosen],
            proceeds=(~np.asarray(data.terminated[chosen])).astype(np.float32),
            demonstrator=np.asarray(data.demonstrator[chosen], np.int32),
            initial=np.asarray(data.obs[row[starts]], np.float32),
            size=np.asarray(len(chosen), np.int32),
        )

    @property
    def inputs(self) -> Inputs:
        """Mean and standard deviation of the observations."""
        obs = jnp.asarray(self.obs, jnp.float32)
        counts = (jnp.arange(obs.shape[0]) < self.size).astype(jnp.float32)
        share = (counts / jnp.sum(counts)).reshape(-1, *(1,) * (obs.ndim - 1))
        centre = jnp.sum(share * obs, 0)
        spread = jnp.sqrt(jnp.sum(share * (obs - centre[None]) ** 2, 0))
        return Inputs.of(centre, spread, jnp.min(obs, 0), jnp.max(obs, 0))  # rows that fill up repeat one that counts

    def padded(self, rows: int, episodes: int) -> "Transitions":
        """The same, filled up to so many rows and first observations."""

        def fill(leaf, length):
            return np.concatenate([leaf, np.repeat(leaf[:1], length - len(leaf), 0)])

        filled = {name: fill(getattr(self, name), rows) for name in COLUMNS}
        starts = np.resize(np.asarray(self.initial), (episodes, *self.initial.shape[1:]))
        return Transitions(**filled, initial=starts, size=self.size)

    def sample(self, key: Key, count: int) -> Row:
        """So many rows, drawn with replacement."""
        return self.rows(*self.draw(key, count))

    def draw(self, key: Key, count: int) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
        """Numbers of so many rows, drawn with replacement, and of as many first observations."""
        return drawn(key, self.size, self.initial.shape[0], count)

    def rows(self, numbers: Int[Array, " B"], starts: Int[Array, " B"]) -> Row:
        """The rows of these numbers, each with a first observation."""
        columns = {name: jnp.asarray(getattr(self, name))[numbers] for name in COLUMNS}
        return Row(**columns, initial=jnp.asarray(self.initial)[starts])


def drawn(
    key: Key, transitions: int | Int[Array, ""], episodes: int | Int[Array, ""], count: int
) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """Numbers of so many transitions, and of as many episodes, each of all there are."""
    row_key, initial_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (count,), 0, transitions)
    return rows, jax.random.randint(initial_key, (count,), 0, episodes)


def are_choices(data: Demonstrations) -> bool:
    """Whether actions are one whole number each: choices among some, not quantities."""
    action = np.asarray(data.action)
    return action.ndim == 1 and bool(np.all(action == np.floor(action)))


def _actions(data: Demonstrations) -> Shaped[np.ndarray, "N ..."]:
    action = np.asarray(data.action)
    return action.astype(np.int32) if are_choices(data) else action.astype(np.float32).reshape(len(action), -1)


def stack(data_sets: list[Transitions]) -> Transitions:
    """Data sets of any sizes along a new leading axis."""
    rows, episodes = (max(len(getattr(d, name)) for d in data_sets) for name in ("action", "initial"))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(d.padded(rows, episodes) for d in data_sets))
