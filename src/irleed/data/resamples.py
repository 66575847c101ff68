"""Resamples of a data set that stays on disk, known by the numbers of their episodes: nothing is copied."""

import math

import jax
import numpy as np

from irleed._typing import Array, Int, Shaped
from irleed.data import lazy
from irleed.data.batches import Batches
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Inputs, Row, drawn

MOST_LOOKED_AT = 20_000  # transitions, where a mean over all of them would take as long as training


class Resamples:
    """P data sets of E episodes each, chosen from one with repeats, and batches of `count` transitions of each.

    For the same keys, `sample` draws what `Transitions.sample` draws from ``data.take(own)``, for each `own` of the
    `chosen`, and `inputs` are theirs to rounding.
    """

    def __init__(self, data: Demonstrations, chosen: Int[np.ndarray, "P E"], count: int):
        self._data, self._chosen, self._batches = data, chosen, Batches(data, count)
        length = data.length[chosen]
        self._ends = np.cumsum(length, 1)
        self._shift = data.start[chosen] - (self._ends - length)  # from a place in a resample to one in the data

    def sample(self, keys: Shaped[Array, " P"]) -> Row:
        """A batch of each, one after the other, on the device."""
        given = self._ends[:, -1].astype(np.int32), self._chosen.shape[1], self._batches.count
        places, starts = map(np.asarray, _drawn_from_each(keys, *given))
        episode = np.stack([np.searchsorted(own, at, side="right") for own, at in zip(self._ends, places, strict=True)])
        transitions = places + np.take_along_axis(self._shift, episode, 1)
        return self._batches.at(transitions.ravel(), np.take_along_axis(self._chosen, starts, 1).ravel())

    def inputs(self) -> Inputs:
        """Those of each, from one look at all of the data, a few megabytes at a time."""
        data, obs = self._data, self._data.obs
        exact = np.result_type(obs.dtype, np.float32)
        often = np.stack([np.bincount(own, minlength=data.episodes) for own in self._chosen]).astype(exact)
        origin = np.asarray(obs[:1]).astype(exact).reshape(1, -1)  # near the values, so that no digits cancel
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
    """Transitions, as many of each demonstrator where they have as many, evenly spaced: no large data themselves."""
    size = 8 * math.prod(data.obs.shape[1:])  # of this observation and the next in single precision
    most = max(1, min(MOST_LOOKED_AT, lazy.LARGE // size) // data.demonstrators)
    order, count = np.argsort(data.demonstrator, kind="stable"), np.bincount(data.demonstrator)
    parts = np.split(order, np.cumsum(count)[:-1])
    return np.sort(np.concatenate([own[:: -(-len(own) // most)] for own in parts]))


@jax.jit(static_argnames=("episodes", "count"))
def _drawn_from_each(keys, transitions, episodes, count):
    return jax.vmap(lambda key, size: drawn(key, size, episodes, count))(keys, transitions)
