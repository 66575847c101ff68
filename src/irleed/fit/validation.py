"""Whether data, algorithm and environment belong together, found out before any work or any file depends on it."""

import equinox as eqx
import numpy as np

from irleed._typing import Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import are_choices
from irleed.envs.step import Actions, Bounds
from irleed.errors import ConfigError, SpaceError, problem
from irleed.fit.defaults import Algorithm
from irleed.rollout import AbstractArena

MOST_ACTIONS = 10_000  # larger numbers are something else than choices
WIDER = 0.05  # how much wider than the data bounds are that nobody told us, in widths


def check(data: Demonstrations, algorithm: Algorithm, arena: AbstractArena | None, members: int) -> Actions:
    """The number of actions, or the bounds of what they are made of; what cannot be fitted is refused."""
    least = algorithm.learning_starts + 1 if isinstance(algorithm, AbstractAgent) else 1
    for name, value, lowest in (("seeds", members, 1), ("steps", algorithm.steps, least)):
        if value < lowest:
            remedy = "choose a larger number" + (": the first ones only fill the replay buffer" if lowest > 1 else "")
            raise ConfigError(problem(f"--{name}", got=value, expected=f"{lowest} or more", remedy=remedy))
    if isinstance(algorithm, AbstractAgent):
        needed(arena)
    if arena is not None and data.obs.shape[1:] != arena.observation_shape:
        got, expected = f"shape {data.obs.shape[1:]}", f"{arena.observation_shape}, the environment's"
        raise SpaceError(problem("observations", got=got, expected=expected, remedy="name the one they were made in"))
    discrete = are_choices(data) and "discrete" in algorithm.action_kinds
    if not discrete and "continuous" not in algorithm.action_kinds:
        got = f"{type(algorithm).__name__}, which is for one whole number each"
        expected = "an algorithm for actions that are any numbers"
        raise SpaceError(problem("actions", got=got, expected=expected, remedy="choose irleed, iq, ileed or bc"))
    return _choices(np.asarray(data.action), arena) if discrete else _bounds(vectors(data), arena)


def needed(arena: AbstractArena | None) -> AbstractArena:
    """The arena, which an agent cannot do without."""
    if arena is None:
        remedy = "name one, or choose an algorithm that learns offline"
        raise ConfigError(problem("an agent", got="no environment", expected="one to play in", remedy=remedy))
    return arena


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


def _choices(action: np.ndarray, arena: AbstractArena | None) -> int:
    """The number of actions, from the environment or from the data."""
    if action.min() < 0 or action.max() >= MOST_ACTIONS:
        got, remedy = f"{action.min()} to {action.max()}", "number the actions from 0"
        raise SpaceError(problem("actions", got=got, expected=f"0 to {MOST_ACTIONS - 1} at most", remedy=remedy))
    if arena is None:
        if action.max() == 0:
            expected, remedy = "two actions or more from 0", "add data where there is a choice"
            raise SpaceError(problem("actions", got="0 alone", expected=expected, remedy=remedy))
        return int(action.max()) + 1
    if not isinstance(arena.actions, int):
        got, expected = "one whole number each", f"{arena.actions.size} numbers, the environment's"
        raise SpaceError(problem("actions", got=got, expected=expected, remedy="name the one they were made in"))
    if action.max() >= arena.actions:
        expected = f"0 to {arena.actions - 1}, the environment's"
        remedy = "name the one they were made in"
        raise SpaceError(problem("actions", got=int(action.max()), expected=expected, remedy=remedy))
    return arena.actions


def _bounds(action: Shaped[np.ndarray, "N A"], arena: AbstractArena | None) -> Bounds:
    """The environment's bounds; without one from -1 to 1 if all are in there, else a little wider than the data."""
    low, high = action.min(0), action.max(0)
    constant = np.flatnonzero(low == high)
    if constant.size:
        column = int(constant[0])
        got, expected = f"{low[column]:g} in all of them as number {column}", "numbers that differ"
        raise SpaceError(problem("actions", got=got, expected=expected, remedy="leave out what is not chosen"))
    if arena is None:
        if low.min() >= -1 and high.max() <= 1:
            return Bounds(-np.ones(len(low)), np.ones(len(low)))
        margin = WIDER * (high - low)
        return Bounds(low - margin, high + margin)
    bounds = arena.actions
    if isinstance(bounds, int) or bounds.size != len(low):
        got = f"{len(low)} numbers each"
        expected = "one whole number each" if isinstance(bounds, int) else f"{bounds.size} numbers, the environment's"
        raise SpaceError(problem("actions", got=got, expected=expected, remedy="name the one they were made in"))
    beyond = np.maximum(bounds.low - low, high - bounds.high)
    if beyond.max() > 1e-6 * (bounds.high - bounds.low).max():
        column = int(beyond.argmax())
        got = f"number {column} out of bounds by {beyond[column]:g}"
        expected = f"{bounds.low[column]:g} to {bounds.high[column]:g}, the environment's"
        raise SpaceError(problem("actions", got=got, expected=expected, remedy="--clip brings them within"))
    return bounds
