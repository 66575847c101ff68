"""Transitions to train networks on: all of them in memory, or batches and bootstrap resamples read ahead from disk."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations
from irleed.errors import ConfigError

ROUNDING = 4 * float(np.finfo(np.float32).eps)  # relative to a value: smaller differences count as zero
COLUMNS = ("obs", "next_obs", "action", "continuation", "demonstrator")


class Inputs(eqx.Module):
    """Mean and standard deviation that networks standardise observations by."""

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
        """An entry whose values, from `low` to `high`, differ by no more than rounding keeps its scale."""
        rounding = ROUNDING * jnp.maximum(jnp.abs(low), jnp.abs(high))
        return cls(centre, jnp.where((high - low > rounding) & (spread > 0), spread, 1.0))

    @classmethod
    def plain(cls, obs: Shaped[Array, "*obs"]) -> "Inputs":
        """No standardisation, for observations of this shape."""
        return cls(jnp.zeros(obs.shape, jnp.float32), jnp.ones(obs.shape, jnp.float32))


class Row(eqx.Module):
    """One transition; with a leading axis, a batch of them."""

    obs: Shaped[Array, "..."]
    next_obs: Shaped[Array, "..."]
    action: Shaped[Array, "..."]  # whole numbers, or vectors
    continuation: Float[Array, "*B"]  # 0 in a terminal state, else 1: a factor of the discount
    demonstrator: Int[Array, "*B"]
    initial: Shaped[Array, "..."]  # first observation of a random episode


class Transitions(eqx.Module):
    """Transitions in memory, in single precision; see `irleed.data.conditioning`.

    Only the first `size` rows count: others are padding, so that data sets of several sizes can be stacked.
    """

    obs: Shaped[Array, "N *obs"]
    next_obs: Shaped[Array, "N *obs"]
    action: Shaped[Array, "N ..."]  # whole numbers, or vectors in single precision
    continuation: Float[Array, " N"]
    demonstrator: Int[Array, " N"]
    initial: Shaped[Array, "E *obs"]  # first observations of the episodes, repeated as padding
    size: Int[Array, ""]

    @classmethod
    def from_demonstrations(cls, data: Demonstrations, every: int = 1) -> "Transitions":
        """Every k-th transition of each episode (k is `every`), from its first on."""
        within = np.arange(data.transitions) - data.start[data.episode]
        return cls.at(data, np.flatnonzero(within % every == 0))

    @classmethod
    def at(cls, data: Demonstrations, chosen: Int[np.ndarray, " K"]) -> "Transitions":
        """These transitions, and the first observations of their episodes."""
        row, starts = np.asarray(data.row), data.start[np.unique(data.episode[chosen])]
        return cls(
            obs=np.asarray(data.obs[row[chosen]], np.float32),
            next_obs=np.asarray(data.obs[row[chosen] + 1], np.float32),
            action=_actions(data)[chosen],
            continuation=(~np.asarray(data.terminated[chosen])).astype(np.float32),
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
        return Inputs.of(centre, spread, jnp.min(obs, 0), jnp.max(obs, 0))  # padding repeats a row

    def padded(self, rows: int, episodes: int) -> "Transitions":
        """The same, padded to these numbers of rows and first observations."""

        def fill(leaf, length):
            return np.concatenate([leaf, np.repeat(leaf[:1], length - len(leaf), 0)])

        filled = {name: fill(getattr(self, name), rows) for name in COLUMNS}
        starts = np.resize(np.asarray(self.initial), (episodes, *self.initial.shape[1:]))
        return Transitions(**filled, initial=starts, size=self.size)

    def sample(self, key: Key, count: int) -> Row:
        """A batch of `count` rows, sampled with replacement."""
        return self.rows(*self.draw(key, count))

    def draw(self, key: Key, count: int) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
        """Indices of `count` rows and of `count` first observations, sampled with replacement."""
        return drawn(key, self.size, self.initial.shape[0], count)

    def rows(self, numbers: Int[Array, " B"], starts: Int[Array, " B"]) -> Row:
        """These rows, each with a first observation."""
        columns = {name: jnp.asarray(getattr(self, name))[numbers] for name in COLUMNS}
        return Row(**columns, initial=jnp.asarray(self.initial)[starts])


def drawn(
    key: Key, transitions: int | Int[Array, ""], episodes: int | Int[Array, ""], count: int
) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """Indices of `count` transitions and of `count` episodes, sampled with replacement."""
    row_key, initial_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (count,), 0, transitions)
    return rows, jax.random.randint(initial_key, (count,), 0, episodes)


def are_choices(data: Demonstrations) -> bool:
    """Whether actions are discrete: one whole number each."""
    action = np.asarray(data.action)
    return action.ndim == 1 and bool(np.all(action == np.floor(action)))


def _actions(data: Demonstrations) -> Shaped[np.ndarray, "N ..."]:
    action = np.asarray(data.action)
    return action.astype(np.int32) if are_choices(data) else action.astype(np.float32).reshape(len(action), -1)


def stack(data_sets: list[Transitions]) -> Transitions:
    """Data sets of any sizes, padded and stacked along a new leading axis."""
    rows, episodes = (max(len(getattr(d, name)) for d in data_sets) for name in ("action", "initial"))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(d.padded(rows, episodes) for d in data_sets))


ALIGNED = 64  # bytes


class Batches:
    """Batches of `count` transitions. With `frames` above 1, an observation is a stack of that many latest ones.

    Observations keep their dtype, and frames are their first axis, the oldest first; the first observation of an
    episode is repeated before it. For the same key, `sample` returns the transitions that `Transitions.sample` does.
    """

    def __init__(self, data: Demonstrations, count: int, frames: int = 1, every: int = 1):
        for name, value in {"count": count, "frames": frames, "every": every}.items():
            if value < 1:
                raise ConfigError(f"batches, {name}", got=value, expected="at least 1", remedy="raise it")
        within = np.arange(data.transitions) - data.start[data.episode]
        kept = np.flatnonzero(within % every == 0)
        action = np.asarray(data.action)[kept]
        whole = are_choices(data)
        self.count, self.frames, self._obs = count, frames, data.obs
        self._action = action.astype(np.int32) if whole else action.astype(np.float32).reshape(len(action), -1)
        self._proceeds = (~np.asarray(data.terminated)[kept]).astype(np.float32)
        self._demonstrator = np.asarray(data.demonstrator)[kept].astype(np.int32)
        self._row = np.asarray(data.row)[kept].astype(np.int64)
        self._starts = np.asarray(data.row)[data.start].astype(np.int64)
        self._first = self._starts[np.asarray(data.episode)[kept]]

    def sample(self, key: Key, device: Any = None) -> Row:
        """A batch, sampled with replacement, on a device or the default one."""
        transitions, episodes = _drawn(key, len(self._row), len(self._starts), self.count)
        return self.at(np.asarray(transitions), np.asarray(episodes), device)

    def at(self, transitions: Int[np.ndarray, " B"], episodes: Int[np.ndarray, " B"], device: Any = None) -> Row:
        """The batch of these transitions, with the first observations of these episodes."""
        columns = [column[transitions] for column in (self._action, self._proceeds, self._demonstrator)]
        action, continuation, demonstrator = jax.device_put(columns, device)
        last = self._row[transitions] + 1
        rows = np.maximum(last[:, None] - np.arange(self.frames, -1, -1), self._first[transitions][:, None])
        # Each row is read once, in the order of the file.
        distinct, back = np.unique(np.concatenate([rows.ravel(), self._starts[episodes]]), return_inverse=True)
        values, seen, initial = np.asarray(self._obs[distinct]), *np.split(back, [rows.size])
        seen = seen.reshape(rows.shape)
        if next(iter(action.devices())).platform == "cpu":  # nothing is transferred
            places = map(np.asarray, _apart(seen, initial))
            observations = jax.device_put([_gathered(values, place) for place in places], device)
        else:  # rows that two observations share are transferred once
            observations = _apart_jit(*jax.device_put((values[seen], values[initial]), device))
        obs, next_obs, initial = observations
        return Row(obs, next_obs, action, continuation, demonstrator, initial)

    def ahead(self, keys: Iterable[Key], depth: int = 2, device: Any = None) -> Iterator[Row]:
        """The batch of each key, while the next `depth` are read ahead."""
        return read_ahead(partial(self.sample, device=device), keys, depth)


def read_ahead(read: Callable[[Any], Row], keys: Iterable[Any], depth: int = 2) -> Iterator[Row]:
    """The batch of each key, while the next `depth` are read in a thread."""
    keys = iter(keys)
    with ThreadPoolExecutor(1, "batches") as pool:
        waiting = deque(pool.submit(read, key) for key in islice(keys, depth))
        while waiting:
            batch = waiting.popleft().result()
            waiting.extend(pool.submit(read, key) for key in islice(keys, 1))
            yield batch


def _apart(seen: Shaped[Array, "B K *obs"], initial: Shaped[Array, "B *obs"]) -> tuple[Array, Array, Array]:
    """The frames at a step, at the next step, and at the start of an episode; or their places."""
    obs, next_obs = seen[:, :-1], seen[:, 1:]
    if obs.shape[1] == 1:
        return obs[:, 0], next_obs[:, 0], initial
    return obs, next_obs, initial[:, None].repeat(obs.shape[1], 1)


def _gathered(values: Shaped[np.ndarray, "R *obs"], place: Int[np.ndarray, "*B"]) -> Shaped[np.ndarray, "..."]:
    """Rows in aligned memory, which JAX on the CPU uses without a copy."""
    shape = *place.shape, *values.shape[1:]
    size = math.prod(shape) * values.itemsize
    memory = np.empty(size + ALIGNED, np.uint8)
    begin = -memory.ctypes.data % ALIGNED
    out = memory[begin : begin + size].view(values.dtype).reshape(shape)
    return np.take(values, place, 0, out=out, mode="clip")  # no place is outside; in other modes NumPy would copy


_apart_jit, _drawn = jax.jit(_apart), jax.jit(drawn, static_argnames="count")

MOST_LOOKED_AT = 20_000  # transitions of a sample


class Resamples:
    """P bootstrap resamples of E episodes each, and batches of `count` transitions of each.

    For the same keys, `sample` returns what `Transitions.sample` returns for ``data.take(own)``, for each `own` of the
    `chosen`, and `inputs` are equal to rounding.
    """

    def __init__(self, data: Demonstrations, chosen: Int[np.ndarray, "P E"], count: int):
        self._data, self._chosen, self._batches = data, chosen, Batches(data, count)
        length = data.length[chosen]
        self._ends = np.cumsum(length, 1)
        self._shift = data.start[chosen] - (self._ends - length)  # from a number in a resample to one in the data

    def sample(self, keys: Shaped[Array, " P"]) -> Row:
        """The batches of all resamples, concatenated, on the device."""
        given = self._ends[:, -1].astype(np.int32), self._chosen.shape[1], self._batches.count
        places, starts = map(np.asarray, _drawn_from_each(keys, *given))
        episode = np.stack([np.searchsorted(own, at, side="right") for own, at in zip(self._ends, places, strict=True)])
        transitions = places + np.take_along_axis(self._shift, episode, 1)
        return self._batches.at(transitions.ravel(), np.take_along_axis(self._chosen, starts, 1).ravel())

    def inputs(self) -> Inputs:
        """Mean and standard deviation of each, from one pass over the data in chunks of a few megabytes."""
        data, obs = self._data, self._data.obs
        exact = np.result_type(obs.dtype, np.float32)
        often = np.stack([np.bincount(own, minlength=data.episodes) for own in self._chosen]).astype(exact)
        origin = np.asarray(obs[:1]).astype(exact).reshape(1, -1)  # near the values, against cancellation
        sums = np.zeros((2, len(often), origin.size))
        low, high = np.full(sums.shape[1:], np.inf), np.full(sums.shape[1:], -np.inf)
        for first, values in lazy.chunks(obs, lazy.CHUNK // 8):
            begin, end = np.searchsorted(data.row, (first, first + len(values)))
            if begin == end:  # the last observation of an episode, and no other
                continue
            seen = values[np.asarray(data.row[begin:end]) - first].reshape(end - begin, -1) - origin
            episode = np.asarray(data.episode[begin:end])
            weight = often[:, episode]
            sums += weight @ seen, weight @ seen**2
            starts = np.flatnonzero(np.diff(episode, prepend=-1))
            least, most = np.minimum.reduceat(seen, starts), np.maximum.reduceat(seen, starts)
            for number, count in enumerate(often[:, episode[starts]]):
                low[number] = np.minimum(low[number], least[count > 0].min(0, initial=np.inf))
                high[number] = np.maximum(high[number], most[count > 0].max(0, initial=-np.inf))
        mean, square = sums / self._ends[:, -1:]
        spread = np.sqrt(np.maximum(square - mean**2, 0))
        shape = len(often), *obs.shape[1:]
        found = (origin + mean, spread, origin + low, origin + high)
        return Inputs.of(*(part.astype(np.float32).reshape(shape) for part in found))


def some_of_everyone(data: Demonstrations) -> Int[np.ndarray, " K"]:
    """A sample of transitions, evenly spaced, with equal numbers of each demonstrator that has enough."""
    size = 8 * math.prod(data.obs.shape[1:])  # of this observation and the next in single precision
    most = max(1, min(MOST_LOOKED_AT, lazy.LARGE // size) // data.demonstrators)
    order, count = np.argsort(data.demonstrator, kind="stable"), np.bincount(data.demonstrator)
    parts = np.split(order, np.cumsum(count)[:-1])
    return np.sort(np.concatenate([own[:: -(-len(own) // most)] for own in parts]))


@jax.jit(static_argnames=("episodes", "count"))
def _drawn_from_each(keys, transitions, episodes, count):
    return jax.vmap(lambda key, size: drawn(key, size, episodes, count))(keys, transitions)
