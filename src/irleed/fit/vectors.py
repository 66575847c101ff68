"""What an ensemble says about demonstrators whose actions are vectors; see `irleed.model.residuals`."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Int
from irleed.algorithms.iq import OfflineIrleed
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions
from irleed.envs.step import Bounds
from irleed.fit.defaults import Algorithm
from irleed.model.expertise import INTERVAL, Expertise
from irleed.model.mixed import Mixed
from irleed.model.residuals import Choices, Residuals, residuals

ROWS = 4096  # transitions in a batch


def judged(
    found: Expertise,
    algorithm: Algorithm,
    parameters: Any,
    data: Transitions,
    episode: Int[Array, " N"],
    actions: Bounds,
    held_out: Bool[np.ndarray, "K N"],
) -> Expertise:
    """The same with precision and bias by how actions differ from what the shared policies of K members do on average.

    Each transition is judged by the members that have not learnt from it.
    """
    if not (isinstance(algorithm, OfflineIrleed) and algorithm.learns_precision):
        return found
    rows = np.flatnonzero(held_out.any(0))
    (shared, action, counted), chances = _predicted(algorithm, parameters, data, held_out, rows)
    choices = [Choices(chance, np.rint(option).astype(int)) for chance, option in chances]
    who = np.asarray(data.demonstrator)[rows]
    best, draws = residuals(shared, action, counted, who, np.asarray(episode)[rows], len(found.names), choices)
    tail = (1 - INTERVAL) / 2
    low, high = (Residuals(*(np.quantile(each, end, axis=0) for each in draws)) for end in (tail, 1 - tail))
    precision, share = np.exp(best.log_precision), np.exp(best.log_precision) * found.transitions
    offset = np.full((len(found.names), actions.size), np.nan)
    offset[:, list(actions.free)] = best.offset * (0.5 * (actions.high - actions.low))[list(actions.free)]
    judged = dataclasses.replace(
        found,
        precision=precision,
        precision_low=np.minimum(np.exp(low.log_precision), precision),
        precision_high=np.maximum(np.exp(high.log_precision), precision),
        weight=share / share.sum(),
        gain=best.gain,
    )
    if not algorithm.learns_bias:
        return judged
    ends = {"bias_low": np.minimum(low.bias, best.bias), "bias_high": np.maximum(high.bias, best.bias)}
    return dataclasses.replace(judged, bias=best.bias, **ends, offset=offset)


def held_out(data: Demonstrations, chosen: list[Int[np.ndarray, " E"]]) -> Bool[np.ndarray, "K N"]:
    """Of each member, the transitions of episodes that are not among those it learnt from.

    Where these are none of somebody's, as of those with a single episode, everybody is judged by all transitions.
    """
    left = np.array([~np.isin(np.arange(data.episodes), own) for own in chosen])
    if len(np.unique(data.owner[left.any(0)])) < data.demonstrators:
        return np.ones((len(chosen), data.transitions), bool)
    return left[:, data.episode]


def _predicted(
    algorithm: OfflineIrleed, parameters: Any, data: Transitions, held_out: Bool[np.ndarray, "K N"], rows: Array
) -> Any:
    """What `_seen` gives for these transitions, averaged over the members that each is held out from."""
    total, weight = None, held_out[:, rows].sum(0)
    for member, own in enumerate(held_out):
        one = jax.tree.map(lambda leaf, member=member: leaf[member], parameters)
        parts = []
        for first in range(0, len(rows), ROWS):
            part = np.resize(rows[first : first + ROWS], min(ROWS, len(rows)))  # one shape: compiled once
            seen = _seen(algorithm, one, data.obs[part], data.action[part])
            parts.append(jax.tree.map(lambda leaf, first=first: np.asarray(leaf, float)[: len(rows) - first], seen))
        found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        found = jax.tree.map(functools.partial(_scaled, own[rows] / weight), found)
        total = found if total is None else jax.tree.map(np.add, total, found)
    return total


def _scaled(share: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    return leaf * share.reshape(-1, *(1,) * (leaf.ndim - 1))


@jax.jit
def _seen(algorithm, parameters, obs, action):
    """Greedy numbers, those of the actions, and which count; of each choice log probabilities and what was chosen."""
    found = algorithm.policy(parameters).batch(obs)
    if isinstance(found, Mixed):
        options = zip(found.choices, found.options(action), strict=True)
        chances = [(jax.nn.log_softmax(choice.logits), option) for choice, option in options]
        own = found.free_part(action)
        return (found.inside.unit_mean(), found.inside.squashing.unit(own), found.is_inside(action)), chances
    unit = found.squashing.unit(action)
    return (found.unit_mean(), unit, jnp.ones_like(unit)), []
