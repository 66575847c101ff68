"""Finite MDPs from `.npz` files, gridworlds, and Gymnasium's tabular environments (FrozenLake, CliffWalking, Taxi).

The arrays of a file are listed in `docs/data.md`.
`numpy.savez(path, format="irleed-mdp", version=1, transitions=P, initial=start, discount=0.9)` writes one by hand.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np

from irleed._io.arrays import EXPANSION, Budget, Layout, read_npz, write_npz
from irleed._io.text import printable
from irleed.envs.mdp.model import FiniteMDP
from irleed.errors import ConfigError, DataError, SpaceError

LISTED = ("state", "action", "successor", "probability")
LAYOUT = Layout(
    format="irleed-mdp",
    version=1,
    holds="a finite MDP",
    required=("initial", "discount"),
    optional=("terminal", "features", "reward", "actions", "shape", *LISTED, "transitions"),
    writer="irleed.envs.mdp.save_mdp",
)
KINDS = {"terminal": ("b", "boolean"), "actions": ("iu", "whole number"), "shape": ("iu", "whole number")}


def load_mdp(path: str | os.PathLike[str], expansion: float = EXPANSION) -> tuple[FiniteMDP, tuple[int, int] | None]:
    """Read an MDP, and the rows and columns of its grid if it has one.

    Files that take more than `expansion` times their size in memory are refused, see `ReadOptions`.
    """
    budget, where = Budget(expansion), printable(path)
    arrays = read_npz(path, LAYOUT, budget)
    budget.take(where, sum(8 * array.size - array.nbytes for array in arrays.values()))  # in double precision
    _check_kinds(where, arrays)
    settings = {name: arrays.get(name) for name in ("initial", "terminal", "features", "reward")}
    settings |= {"discount": float(arrays["discount"]), "where": where}
    if "transitions" in arrays:
        mdp = FiniteMDP.from_dense(arrays["transitions"], **settings)
    else:
        actions = int(arrays["actions"]) if "actions" in arrays else None
        mdp = FiniteMDP.from_transitions(*(arrays[name] for name in LISTED), actions=actions, **settings)
    return mdp, _shape(f"{where}, shape", arrays.get("shape"), mdp.states)


def save_mdp(mdp: FiniteMDP, path: str | os.PathLike[str], shape: tuple[int, int] | None = None) -> None:
    """Write an MDP; `shape` is the rows and columns of a gridworld. The file is written atomically."""
    arrays = dict(zip(LISTED, mdp.transitions(), strict=True))
    names = ("initial", "terminal", "discount", "features", "reward", "actions")
    arrays |= {name: getattr(mdp, name) for name in names}
    write_npz(path, LAYOUT, arrays | {"shape": _shape("shape", shape, mdp.states)})


def _check_kinds(where: str, arrays: dict[str, np.ndarray]) -> None:
    """Transitions are given in one of the two ways, and arrays hold numbers."""
    given = [name for name in (*LISTED, "actions", "transitions") if name in arrays]
    if given not in (list(LISTED), [*LISTED, "actions"], ["transitions"]):
        got = f"the dynamics as {', '.join(given) or 'nothing'}"
        expected = f"either {', '.join(LISTED)} (and perhaps actions) or transitions"
        raise DataError(where, got=got, expected=expected, remedy="give one of the two, whole")
    for name, array in arrays.items():
        kinds, word = KINDS.get(name, ("iuf", "number"))
        scalar = name in ("discount", "actions")
        if array.dtype.kind not in kinds or (scalar and array.ndim):
            got, expected = f"{array.dtype} of shape {array.shape}", f"a {word}" if scalar else f"{word}s"
            raise DataError(f"{where}, {name}", got=got, expected=expected, remedy="convert it")


def _shape(where: str, shape, states: int) -> tuple[int, int] | None:
    if shape is None:
        return None
    if np.shape(shape) != (2,) or min(shape) < 1 or int(shape[0]) * int(shape[1]) != states:
        expected = f"rows and columns that make {states} cells"
        raise DataError(where, got=np.asarray(shape).tolist(), expected=expected, remedy="fix it or leave it out")
    return int(shape[0]), int(shape[1])


MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))  # (row, column): right, left, down, up
SIDEWAYS = ((2, 3), (2, 3), (0, 1), (0, 1))  # the two moves at right angles to each


class Gridworld(eqx.Module):
    """A finite MDP on a grid; state ``row * columns + column``, actions right, left, down, up."""

    mdp: FiniteMDP
    rows: int = eqx.field(static=True)
    columns: int = eqx.field(static=True)


def gridworld(
    rows: int,
    columns: int,
    *,
    goals: Mapping[int, float],
    slip: float = 0.0,
    obstacles: Iterable[int] = (),
    walls: Iterable[tuple[int, int]] = (),
    discount: float = 0.9,
    features=None,
) -> Gridworld:
    """Build a gridworld.

    **Arguments:**

    - `goals`: terminal states and the reward of reaching each.
    - `slip`: probability of moving at right angles to the chosen direction, half to either side.
    - `obstacles`: cells that cannot be entered.
    - `walls`: pairs of neighbouring cells with a wall between them.

    A move into the edge, an obstacle or a wall stays in place. Episodes start anywhere that is neither goal nor
    obstacle.
    """
    cells = rows * columns
    obstacles, between = sorted(set(obstacles)), {frozenset(pair) for pair in walls}
    _check_grid(rows, columns, goals, slip, obstacles, between)
    target = _targets(rows, columns, obstacles, between)
    cell = np.arange(cells)
    entries = []  # state, action, successor, probability
    for action, sides in enumerate(SIDEWAYS):
        for move, probability in ((action, 1 - slip), *((side, slip / 2) for side in sides)):
            if probability > 0:
                entries.append((cell, np.full(cells, action), target[move], np.full(cells, probability)))
    reward = np.zeros(cells)
    reward[list(goals)] = list(goals.values())
    initial = np.ones(cells)
    initial[[*goals, *obstacles]] = 0.0
    mdp = FiniteMDP.from_transitions(
        *(np.concatenate(column) for column in zip(*entries, strict=True)),
        initial=initial / initial.sum(),
        discount=discount,
        terminal=np.array(sorted(goals)),
        actions=len(MOVES),
        features=features,
        reward=reward,
        where="gridworld",
    )
    return Gridworld(mdp=mdp, rows=rows, columns=columns)


def paper_gridworld(size: int = 7, slip: float = 0.0, discount: float = 0.9) -> Gridworld:
    """The paper's gridworld: three corners are terminal with reward 1, episodes start anywhere else."""
    corners = (0, size - 1, size * size - 1)
    return gridworld(size, size, goals=dict.fromkeys(corners, 1.0), slip=slip, discount=discount)


def _targets(rows: int, columns: int, obstacles: list[int], walls: set[frozenset[int]]) -> list[np.ndarray]:
    """Where each of the four moves leads from every cell."""
    cell = np.arange(rows * columns)
    row, column = cell // columns, cell % columns
    blocked = np.zeros(len(cell), bool)
    blocked[obstacles] = True
    targets = []
    for down, right in MOVES:
        to = np.clip(row + down, 0, rows - 1) * columns + np.clip(column + right, 0, columns - 1)
        to = np.where(blocked[to] | blocked, cell, to)
        targets.append(to)
    for pair in walls:
        for a, b in (tuple(pair), tuple(pair)[::-1]):
            for to in targets:
                if to[a] == b:
                    to[a] = a
    return targets


def _check_grid(rows, columns, goals, slip, obstacles, walls) -> None:
    cells = rows * columns
    if rows < 1 or columns < 1 or cells < 2:
        got = f"{rows} x {columns}"
        raise ConfigError("gridworld size", got=got, expected="two cells or more", remedy="enlarge it")
    if not 0 <= slip <= 1:
        raise ConfigError("gridworld slip", got=slip, expected="a probability in [0, 1]", remedy="choose, say, 0.2")
    for name, listed in (("goal", goals), ("obstacle", obstacles)):
        for cell in listed:
            if not 0 <= cell < cells:
                expected = f"a cell from 0 to {cells - 1}"
                raise ConfigError(f"gridworld {name}", got=cell, expected=expected, remedy="move it")
    if not goals or len(set(goals) | set(obstacles)) >= cells or set(goals) & set(obstacles):
        got = f"{len(goals)} goals and {len(obstacles)} obstacles in {cells} cells"
        expected = "a goal or more, none on an obstacle, and a free cell to start in"
        raise ConfigError("gridworld goals", got=got, expected=expected, remedy="change one of them")
    for pair in walls:
        (ra, ca), (rb, cb) = (divmod(cell, columns) for cell in (min(pair), max(pair)))
        if len(pair) != 2 or not (0 <= min(pair) and max(pair) < cells) or abs(ra - rb) + abs(ca - cb) != 1:
            expected = "two neighbouring cells"
            raise ConfigError("gridworld wall", got=sorted(pair), expected=expected, remedy="fix the pair")


FAMILIAR = ("FrozenLake", "CliffWalking", "Taxi")


def from_gymnasium(env_id: str, discount: float, **make_kwargs: Any) -> FiniteMDP:
    """The MDP of a Gymnasium environment with a table ``P[s][a] = [(p, s', reward, terminated), ...]``.

    Further arguments go to `gymnasium.make`. The reward of a state and action is the expected one; transitions from
    terminal states are kept, but no planner uses them. A time limit is not part of the MDP.
    """
    env = _make(env_id, make_kwargs)
    try:
        states, actions = _sizes(env_id, env)
        state, action, successor, probability, reward, ended = _transitions(env_id, env, states, actions)
        initial = _initial(env_id, env, states)
    finally:
        env.close()
    expected = np.bincount(state * actions + action, weights=probability * reward, minlength=states * actions)
    return FiniteMDP.from_transitions(
        *(state, action, successor, probability),
        initial=initial,
        discount=discount,
        terminal=_terminal(env_id, initial, state, successor, ended),
        actions=actions,
        reward=expected.reshape(states, actions),
        where=env_id,
    )


def _make(env_id: str, make_kwargs: dict[str, Any]) -> Any:
    try:
        import gymnasium

        return gymnasium.make(env_id, **make_kwargs).unwrapped
    except Exception as error:  # an environment's own code runs here: it may raise anything
        got = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = f"check its name, its arguments and what it needs installed ({_familiar()} work)"
        expected = "a Gymnasium environment that can be made"
        raise SpaceError(f"environment {env_id}", got=got, expected=expected, remedy=remedy) from error


def _sizes(env_id: str, env: Any) -> tuple[int, int]:
    """Numbers of states and actions."""
    states, actions = getattr(env.observation_space, "n", None), getattr(env.action_space, "n", None)
    if not hasattr(env, "P") or states is None or actions is None:
        raise _unsuited(env_id, f"spaces {env.observation_space} and {env.action_space}, {_has(env, 'P')}")
    if getattr(env, "fickle_passenger", False):
        raise _unsuited(env_id, "a fickle passenger, which is not in P")
    return int(states), int(actions)


def _transitions(env_id: str, env: Any, states: int, actions: int) -> list[np.ndarray]:
    """State, action, successor, probability, reward, terminated of every possible transition."""
    try:
        entries = [
            (s, a, successor, probability, reward, ended)
            for s, by_action in _items(env.P)
            for a, outcomes in _items(by_action)
            for probability, successor, reward, ended in outcomes
        ]
        columns = [
            np.array(column, kind)
            for column, kind in zip(zip(*entries, strict=True), (int, int, int, float, float, bool), strict=True)
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise _unsuited(env_id, "a P of another form") from error
    sizes = (states, actions, states)
    if any(c.min() < 0 or c.max() >= size for c, size in zip(columns, sizes, strict=False)):
        raise _unsuited(env_id, f"a P that reaches beyond its {states} states and {actions} actions")
    return [column[columns[3] > 0] for column in columns]


def _initial(env_id: str, env: Any, states: int) -> np.ndarray:
    initial = np.asarray(getattr(env, "initial_state_distrib", ()), float)
    if initial.shape != (states,):
        raise _unsuited(env_id, f"{_has(env, 'initial_state_distrib')} for {states} states")
    return initial


def _terminal(
    env_id: str, initial: np.ndarray, state: np.ndarray, successor: np.ndarray, ended: np.ndarray
) -> np.ndarray:
    """States where episodes end. Only transitions that an episode can reach count: Taxi lists others."""
    passed = _passed(initial > 0, state[~ended], successor[~ended])
    arrived = np.zeros(len(initial), bool)
    arrived[successor[ended & passed[state]]] = True
    both = np.flatnonzero(arrived & passed)
    if len(both):
        got = f"episodes that end there and others that start there or continue ({len(both)} such states)"
        expected, remedy = "states that are terminal or not", "give the ending a state of its own"
        raise SpaceError(f"environment {env_id}, state {both[0]}", got=got, expected=expected, remedy=remedy)
    terminal = np.zeros(len(initial), bool)
    terminal[successor[ended]] = True
    return terminal & ~passed


def _passed(start: np.ndarray, state: np.ndarray, successor: np.ndarray) -> np.ndarray:
    """The states that an episode can reach and continue from."""
    passed = start
    while True:
        grown = passed.copy()
        grown[successor[passed[state]]] = True
        if np.array_equal(grown, passed):
            return passed
        passed = grown


def _items(table: Any):
    return table.items() if isinstance(table, Mapping) else enumerate(table)


def _has(env: Any, name: str) -> str:
    return f"an attribute {name} of another form" if hasattr(env, name) else f"no attribute {name}"


def _unsuited(env_id: str, got: str) -> SpaceError:
    expected = "whole-numbered states and actions, transitions P and initial_state_distrib"
    remedy = f"choose a tabular one, such as {_familiar()}, or build a FiniteMDP.from_transitions"
    return SpaceError(f"environment {env_id}", got=" ".join(got.split()), expected=expected, remedy=remedy)


def _familiar() -> str:
    """Examples of supported environments, in the versions installed."""
    try:
        from gymnasium import registry
    except ImportError:
        return ", ".join(FAMILIAR)
    newest = {registry[env_id].name: env_id for env_id in sorted(registry)}
    return ", ".join(newest[name] for name in FAMILIAR if name in newest)
