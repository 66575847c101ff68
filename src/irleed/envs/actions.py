"""What actions an environment on the host takes: one of a number of choices, or a vector between bounds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from irleed.envs.step import Bounds
from irleed.errors import SpaceError, problem

ROUNDING = 1e-6  # how far beyond a bound an action may be, relative to it, to be taken for the bound


@dataclass(frozen=True)
class HostActions:
    """The actions of an environment, ours and as its engine wants them; made by `actions_of`."""

    where: str
    known: int | Bounds
    first: int  # what the engine calls the first choice; ours are numbered from 0
    dtype: np.dtype  # the engine's

    def checked(self, actions: Any, lanes: int) -> np.ndarray:
        """An action for every lane, int32 or float32: an engine in C++ does not say no to one that it does not have."""
        given = np.asarray(actions)
        if isinstance(self.known, Bounds):
            return self._vectors(given, lanes, self.known)
        return self._choices(given, lanes, self.known)

    def to_engine(self, chosen: np.ndarray) -> np.ndarray:
        """The same actions under the engine's names, and in its precision."""
        return (chosen + self.first).astype(self.dtype, copy=False)

    def _choices(self, given: np.ndarray, lanes: int, choices: int) -> np.ndarray:
        expected = f"{lanes} whole numbers from 0 to {choices - 1}"
        if given.shape != (lanes,) or not np.issubdtype(given.dtype, np.integer):
            raise self._refused(f"{given.dtype} of shape {given.shape}", expected)
        if given.min() < 0 or given.max() >= choices:
            raise self._refused(f"{given.min()} to {given.max()}", expected)
        return given.astype(np.int32)

    def _vectors(self, given: np.ndarray, lanes: int, bounds: Bounds) -> np.ndarray:
        expected = f"{lanes} vectors of {bounds.size} numbers"
        if given.shape != (lanes, bounds.size) or not np.issubdtype(given.dtype, np.floating):
            raise self._refused(f"{given.dtype} of shape {given.shape}", expected)
        if not np.isfinite(given).all():
            lane, number = np.argwhere(~np.isfinite(given))[0]
            got = f"{given[lane, number]} as number {number} of lane {lane}"
            raise self._refused(got, "a finite number", "look at what chose it: has its training diverged?")
        low, high = bounds.low.astype(float), bounds.high.astype(float)
        beyond = np.maximum(low - given, given - high)
        excess = beyond - ROUNDING * np.maximum(np.abs(low), np.abs(high))
        if excess.max() > 0:
            lane, number = np.unravel_index(excess.argmax(), excess.shape)
            got = (
                f"{given[lane, number]} as number {number} of lane {lane}, out of bounds by {beyond[lane, number]:.3g}"
            )
            raise self._refused(got, f"{bounds.low[number]} to {bounds.high[number]}", "keep to the bounds, or clip")
        return np.clip(given.astype(np.float32), bounds.low, bounds.high)

    def _refused(self, got: str, expected: str, remedy: str = "choose one action for each lane") -> SpaceError:
        return SpaceError(problem(self.where, got=got, expected=expected, remedy=remedy))


def actions_of(env_id: str, space: Any) -> HostActions:
    """What a space of Gymnasium's offers: a Discrete one its choices, a Box that is one list of numbers its bounds."""
    from gymnasium.spaces import Box, Discrete

    where = f"environment {env_id}, actions"
    if isinstance(space, Discrete):
        return HostActions(where, int(space.n), int(space.start), np.dtype(np.int32))
    if not isinstance(space, Box) or len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        expected = "Discrete, or a Box that is one list of real numbers"
        raise unsuited(where, space, expected, "choose another environment, or register one with an ActionWrapper")
    bounds = Bounds(low=space.low.astype(np.float32), high=space.high.astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        width = bounds.high - bounds.low
    if not (np.isfinite(width) & (width > 0)).all():
        remedy = "register it with an ActionWrapper that has bounds"
        raise unsuited(where, space, "finite bounds, the upper above the lower", remedy)
    return HostActions(where, bounds, 0, np.dtype(space.dtype))


def unsuited(where: str, space: Any, expected: str, remedy: str) -> SpaceError:
    """What is said of a space that does not fit."""
    return SpaceError(problem(where, got=" ".join(str(space).split()), expected=expected, remedy=remedy))
