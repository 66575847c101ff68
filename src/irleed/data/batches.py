"""Batches of a data set that may be too large for memory: read ahead in a thread, and handed over on the device."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Int, Key, Shaped
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Row, are_choices
from irleed.errors import ConfigError, problem


class Batches:
    """Batches of `count` transitions. With `frames` above 1, an observation is that many of the last ones.

    Observations keep their dtype, and frames get an axis of their own before those of an observation, the oldest first;
    an episode's first observation stands in for those before it. For the same key, `sample` draws the transitions that
    `Transitions.sample` draws.
    """

    def __init__(self, data: Demonstrations, count: int, frames: int = 1, every: int = 1):
        for name, value in {"count": count, "frames": frames, "every": every}.items():
            if value < 1:
                raise ConfigError(problem(f"batches, {name}", got=value, expected="at least 1", remedy="raise it"))
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
        """One batch, drawn with replacement, on a device: the usual one unless another is named."""
        row_key, initial_key = jax.random.split(key)
        drawn = np.asarray(jax.random.randint(row_key, (self.count,), 0, len(self._row)))
        starts = self._starts[np.asarray(jax.random.randint(initial_key, (self.count,), 0, len(self._starts)))]
        last = self._row[drawn] + 1
        rows = np.maximum(last[:, None] - np.arange(self.frames, -1, -1), self._first[drawn][:, None])
        seen, initial = jax.device_put(self._read(rows, starts), device)
        obs, next_obs, initial = _overlapping(seen, initial)
        columns = (self._action, self._proceeds, self._demonstrator)
        action, proceeds, demonstrator = jax.device_put([column[drawn] for column in columns], device)
        return Row(obs, next_obs, action, proceeds, demonstrator, initial)

    def ahead(self, keys: Iterable[Key], depth: int = 2, device: Any = None) -> Iterator[Row]:
        """The batch of each key in turn, while the next `depth` are read."""
        keys = iter(keys)
        with ThreadPoolExecutor(1, "batches") as pool:
            waiting = deque(pool.submit(self.sample, key, device) for key in islice(keys, depth))
            while waiting:
                batch = waiting.popleft().result()
                waiting.extend(pool.submit(self.sample, key, device) for key in islice(keys, 1))
                yield batch

    def _read(
        self, rows: Int[np.ndarray, "B K"], starts: Int[np.ndarray, " B"]
    ) -> tuple[Shaped[np.ndarray, "B K *obs"], Shaped[np.ndarray, "B *obs"]]:
        """Observations of all these rows, each row read once."""
        distinct, back = np.unique(np.concatenate([rows.ravel(), starts]), return_inverse=True)
        values = np.asarray(self._obs[distinct])
        return values[back[: rows.size].reshape(rows.shape)], values[back[rows.size :]]


@jax.jit
def _overlapping(seen: Shaped[Array, "B K *obs"], initial: Shaped[Array, "B *obs"]) -> tuple[Array, Array, Array]:
    """The last frames at a step, at the next step, and at the start: apart on the device, so that each travels once."""
    obs, next_obs = seen[:, :-1], seen[:, 1:]
    if obs.shape[1] == 1:
        return obs[:, 0], next_obs[:, 0], initial
    return obs, next_obs, jnp.broadcast_to(initial[:, None], obs.shape)
