"""Whether data, algorithm and environment belong together, found out before any work or any file depends on it.

Also what is learnt from: the data without what a few values, or single precision, would spoil.
"""

import dataclasses
from typing import Any

import equinox as eqx
import numpy as np

from irleed._typing import Int, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.data import lazy
from irleed.data import summary as cautions
from irleed.data.conditioning import Conditioning, Ranges, choices
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import are_choices
from irleed.envs.step import Actions, Bounds
from irleed.errors import ConfigError, SpaceError
from irleed.fit.defaults import Algorithm
from irleed.model.expertise import Expertise
from irleed.rollout import AbstractBackend

MOST_MEMBERS = 10_000
MOST_ACTIONS = 10_000  # larger numbers are something else than choices
WIDER = 0.05  # how much wider than the data bounds are that nobody told us, in widths
LEAST = 1e-30  # the smallest range of actions, and one over the largest
COARSE = 0.01  # of their range, that rounding to single precision may change an action by
GAIN = 0.02  # nats a transition and number of an action: networks gain as much by memorising


def check(data: Demonstrations, algorithm: Algorithm, backend: AbstractBackend | None, members: int) -> Actions:
    """The number of actions, or the bounds of what they are made of; what cannot be fitted is refused."""
    least = algorithm.learning_starts + 1 if isinstance(algorithm, AbstractAgent) else 1
    for name, value, lowest in (("members", members, 1), ("steps", algorithm.steps, least)):
        if value < lowest:
            remedy = "choose more" + (
                f": the first {lowest - 1} steps only fill the replay buffer" if lowest > 1 else ""
            )
            raise ConfigError(f"--{name}", got=value, expected=f"{lowest} or more", remedy=remedy)
    if members > MOST_MEMBERS:
        raise ConfigError("--members", got=members, expected=f"at most {MOST_MEMBERS:,}", remedy="choose fewer")
    if isinstance(algorithm, AbstractAgent):
        needed(backend)
    if backend is not None and data.obs.shape[1:] != backend.observation_shape:
        got, expected = f"shape {data.obs.shape[1:]}", f"{backend.observation_shape}, the environment's"
        raise SpaceError("observations", got=got, expected=expected, remedy="name the one they were made in")
    discrete = are_choices(data) and "discrete" in algorithm.action_kinds
    if not discrete and "continuous" not in algorithm.action_kinds:
        got = f"{type(algorithm).__name__}, which is for one whole number each"
        expected = "an algorithm for actions that are any numbers"
        raise SpaceError("actions", got=got, expected=expected, remedy="choose irleed, iq, ileed or bc")
    if discrete:
        return _choices(np.asarray(data.action), backend)
    bounds = _bounds(vectors(data), backend)
    return _with_choices(bounds, vectors(data), backend) if isinstance(algorithm, AbstractOffline) else bounds


def needed(backend: AbstractBackend | None) -> AbstractBackend:
    """The backend, which an agent cannot do without."""
    if backend is None:
        remedy = "name one, or choose an algorithm that learns offline"
        raise ConfigError("an agent", got="no environment", expected="one to play in", remedy=remedy)
    return backend


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What networks learn from."""

    data: Demonstrations  # without transitions whose actions are outliers, observations conditioned
    part_of: Int[np.ndarray, " P"]  # of each of its episodes, the number of the given one
    conditioning: Conditioning | None  # that the policy needs too; None: none, or it acts as the environment is seen
    warnings: tuple[str, ...]


def prepared(data: Demonstrations, algorithm: Algorithm, actions: Actions, backend: AbstractBackend | None) -> Prepared:
    """Leave out what would decide a fit though it is hardly part of the data, and say so.

    Ordinary data are handed on as they are. Agents see observations as the environment gives them, in single precision;
    of theirs, outliers alone are moved.
    """
    obs, bounds, kept, warnings = cautions.ranges_of(data.obs), None, data, []
    part_of = np.arange(data.episodes)
    if isinstance(actions, Bounds):
        bounds = None if backend is None else (actions.low, actions.high)
        off = _outlying(vectors(data), actions)
        if len(off):
            kept = data.without(off)
            part_of = np.asarray(data.episode)[np.setdiff1d(np.arange(data.transitions), off)][kept.start]
            count = "1 transition is" if len(off) == 1 else f"{len(off)} transitions are"
            warnings.append(f"{count} left out of the fit, with actions that are outliers")
    offline, shape = isinstance(algorithm, AbstractOffline), data.obs.shape[1:]
    conditioning = None if obs is None else Conditioning.of(obs, shape, shift=offline)
    if conditioning is not None:
        kept = eqx.tree_at(lambda d: d.obs, kept, conditioning.rows(kept.obs))
    return Prepared(
        kept, part_of, conditioning if offline else None, (*cautions.cautions(data, bounds, obs), *warnings)
    )


def _outlying(action: Shaped[np.ndarray, "N A"], bounds: Bounds) -> Int[np.ndarray, " K"]:
    """Transitions with outliers that are beyond the bounds, or that are so far off that the rest is narrow in them."""
    ranges = Ranges.of(action)
    own = cautions.narrow(ranges, bounds.low, bounds.high)
    beyond = [
        each.rows[own[each.entry] | (each.values < bounds.low[each.entry]) | (each.values > bounds.high[each.entry])]
        for each in ranges.outliers
    ]
    return np.unique(np.concatenate(beyond)) if beyond else np.zeros(0, np.int64)


def too_large(data: Demonstrations, members: int) -> bool:
    """Whether what members learn from, this and the next observation for each in single precision, is too much."""
    return members * 2 * 4 * data.obs.size > lazy.MOST


def vectors(data: Demonstrations) -> Shaped[np.ndarray, "N A"]:
    """Actions as vectors."""
    action = np.asarray(data.action)
    return action.reshape(len(action), -1)


def clipped(data: Demonstrations, bounds: Bounds) -> Demonstrations:
    """The same with actions within the bounds."""
    action = np.clip(vectors(data), bounds.low, bounds.high).reshape(np.shape(data.action))
    return eqx.tree_at(lambda d: d.action, data, action.astype(np.asarray(data.action).dtype))


def at_chance(data: Demonstrations, expertise: Expertise, actions: Actions) -> list[str]:
    """A sentence, if the mean log likelihood is that of a policy which does not look at the observation.

    Such a policy takes actions as often as they occur in the data or, of vectors, each option of a choice as often, and
    other numbers by a normal distribution of their mean and variance. Its parameters are counted against it (AIC), so
    that little data raise no alarm.
    """
    action = np.asarray(data.action).reshape(data.transitions, -1)
    kinds = (((), False),) if isinstance(actions, int) else tuple(zip(actions.values, actions.free, strict=True))
    parts = [_blind(column, values, free) for column, (values, free) in zip(action.T, kinds, strict=True)]
    blind, free = sum(level for level, _ in parts), sum(count for _, count in parts)
    blind -= free / data.transitions
    found = float(np.average(expertise.log_likelihood, weights=expertise.transitions))
    if free == 0 or not found < blind + GAIN * action.shape[1]:
        return []
    compared = f"{found:.3f} a transition, where a policy that ignores observations has {blind:.3f}"
    return [f"log likelihood at chance: {compared}; little or nothing was learnt of how actions depend on them"]


def _blind(column: Shaped[np.ndarray, " N"], values: tuple[float, ...], free: bool) -> tuple[float, int]:
    """The mean log likelihood of an entry by such a policy, and how many parameters that has."""
    inside = np.full(len(column), free)
    level, count = 0.0, 0
    if values or not free:
        option = np.where(free & ~np.isin(column, np.asarray(values, column.dtype)), np.nan, column)
        inside = np.isnan(option)
        _, often = np.unique(option, return_counts=True)
        level, count = float(np.log(often / often.sum()) @ often / often.sum()), len(often) - 1
    if inside.any() and np.ptp(column[inside]) > 0:
        variance = float(column[inside].astype(float).var())
        level, count = level - 0.5 * np.log(2 * np.pi * np.e * variance) * inside.mean(), count + 2
    return level, count


def _choices(action: np.ndarray, backend: AbstractBackend | None) -> int:
    """The number of actions, from the environment or from the data."""
    if action.min() < 0 or action.max() >= MOST_ACTIONS:
        got, remedy = f"{action.min()} to {action.max()}", "number the actions from 0"
        raise SpaceError("actions", got=got, expected=f"0 to {MOST_ACTIONS - 1} at most", remedy=remedy)
    if backend is None:
        if action.max() == 0:
            expected, remedy = "two actions or more from 0", "add data where there is a choice"
            raise SpaceError("actions", got="0 alone", expected=expected, remedy=remedy)
        return int(action.max()) + 1
    if not isinstance(backend.actions, int):
        got, expected = "one whole number each", f"{backend.actions.size} numbers, the environment's"
        raise SpaceError("actions", got=got, expected=expected, remedy="name the one they were made in")
    if action.max() >= backend.actions:
        expected = f"0 to {backend.actions - 1}, the environment's"
        remedy = "name the one they were made in"
        raise SpaceError("actions", got=int(action.max()), expected=expected, remedy=remedy)
    return backend.actions


def _bounds(action: Shaped[np.ndarray, "N A"], backend: AbstractBackend | None) -> Bounds:
    """The environment's bounds; without one, those of `_own_bounds`."""
    ranges = Ranges.of(action)
    low, high = action.min(0), action.max(0)
    constant = np.flatnonzero(low == high)
    if constant.size:
        column = int(constant[0])
        got, expected = f"{low[column]:g} in all of them as number {column}", "numbers that differ"
        raise SpaceError("actions", got=got, expected=expected, remedy="leave out what is not chosen")
    _resolved(ranges)
    if backend is None:
        return Bounds(*_own_bounds(ranges))
    bounds = backend.actions
    if isinstance(bounds, int) or bounds.size != len(low):
        got = f"{len(low)} numbers each"
        expected = "one whole number each" if isinstance(bounds, int) else f"{bounds.size} numbers, the environment's"
        raise SpaceError("actions", got=got, expected=expected, remedy="name the one they were made in")
    beyond = np.maximum(bounds.low - low, high - bounds.high)
    if beyond.max() > 1e-6 * (bounds.high - bounds.low).max():
        column = int(beyond.argmax())
        got = f"number {column} out of bounds by {beyond[column]:g}"
        expected = f"{bounds.low[column]:g} to {bounds.high[column]:g}, the environment's"
        raise SpaceError("actions", got=got, expected=expected, remedy="--clip brings them within")
    return bounds


def _with_choices(bounds: Bounds, action: Shaped[np.ndarray, "N A"], backend: AbstractBackend | None) -> Bounds:
    """The same with the entries that are choices; nobody told us the bounds of those but the values themselves."""
    low, high = bounds.low.copy(), bounds.high.copy()
    values: list[tuple[float, ...]] = [()] * bounds.size
    free = [True] * bounds.size
    for each in choices(action):
        values[each.entry], free[each.entry] = each.values, each.free
        if backend is None:
            ends = action[:, each.entry]
            low[each.entry] = min(each.values) if min(each.values) == ends.min() else low[each.entry]
            high[each.entry] = max(each.values) if max(each.values) == ends.max() else high[each.entry]
    return Bounds(low, high, values, free)


def _own_bounds(ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
    """From -1 to 1 if all actions are in there, else a little wider than the data; outliers do not count.

    Entries that take up little of -1 to 1 have bounds a little wider than the data, too: as if in another unit.
    """
    margin = WIDER * (ranges.maximum - ranges.minimum)
    low, high = ranges.minimum - margin, ranges.maximum + margin
    if ranges.minimum.min() < -1 or ranges.maximum.max() > 1:
        return low, high
    ones = np.ones(len(low))
    own = cautions.narrow(ranges, -ones, ones)
    return np.where(own, low, -ones), np.where(own, high, ones)


def _resolved(ranges: Ranges) -> None:
    """Refuse actions that single precision, in which policies act, cannot tell apart or compute with."""
    step = np.finfo(np.float32).eps * ranges.size
    bad = (step > COARSE * ranges.width) | (ranges.width < LEAST) | (ranges.size > 1 / LEAST)
    if bad.any():
        entry = int(np.argmax(bad))
        got = f"{ranges.minimum[entry]:.12g} to {ranges.maximum[entry]:.12g} as number {entry}"
        expected = "a range that single precision resolves"
        remedy = "subtract a constant, or give them in another unit"
        raise SpaceError("actions", got=got, expected=expected, remedy=remedy)


def refuse_ignored(parts: tuple[Any, ...], names: tuple[str, ...], way: str) -> None:
    """Refuse settings that differ from the default where they would be ignored."""
    known = {field.name: (field, getattr(part, field.name)) for part in parts for field in dataclasses.fields(part)}
    for name in names:
        field, value = known[name]
        if value != field.default:
            flag, expected = f"--{name.replace('_', '-')}", f"no such setting {way}"
            raise ConfigError(flag, got=value, expected=expected, remedy="leave it out")
