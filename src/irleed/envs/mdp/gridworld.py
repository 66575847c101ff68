"""Gridworlds of any size, with slipping, obstacles and walls."""

from collections.abc import Iterable, Mapping

import equinox as eqx
import numpy as np

from irleed.envs.mdp.model import FiniteMDP
from irleed.errors import ConfigError

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
    _check(rows, columns, goals, slip, obstacles, between)
    target = _targets(rows, columns, obstacles, between)
    cell = np.arange(cells)
    entries = []  # state, action, successor, probability
    for action, sides in enumerate(SIDEWAYS):
        for move, probability in ((action, 1 - slip), *((side, slip / 2) for side in sides)):
            if probability > 0:
                entries.append((cell, np.full(cells, action), target[move], np.full(cells, probability)))
    state, action, successor, probability = (np.concatenate(column) for column in zip(*entries, strict=True))
    reward = np.zeros(cells)
    reward[list(goals)] = list(goals.values())
    initial = np.ones(cells)
    initial[[*goals, *obstacles]] = 0.0
    mdp = FiniteMDP.from_transitions(
        state,
        action,
        successor,
        probability,
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


def _check(rows, columns, goals, slip, obstacles, walls) -> None:
    cells = rows * columns
    if rows < 1 or columns < 1 or cells < 2:
        raise ConfigError(
            "gridworld size", got=f"{rows} x {columns}", expected="two cells or more", remedy="enlarge it"
        )
    if not 0 <= slip <= 1:
        raise ConfigError("gridworld slip", got=slip, expected="a probability in [0, 1]", remedy="choose, say, 0.2")
    for name, listed in (("goal", goals), ("obstacle", obstacles)):
        for cell in listed:
            if not 0 <= cell < cells:
                raise ConfigError(
                    f"gridworld {name}", got=cell, expected=f"a cell from 0 to {cells - 1}", remedy="move it"
                )
    if not goals or len(set(goals) | set(obstacles)) >= cells or set(goals) & set(obstacles):
        raise ConfigError(
            "gridworld goals",
            got=f"{len(goals)} goals and {len(obstacles)} obstacles in {cells} cells",
            expected="a goal or more, none on an obstacle, and a free cell to start in",
            remedy="change one of them",
        )
    for pair in walls:
        (ra, ca), (rb, cb) = (divmod(cell, columns) for cell in (min(pair), max(pair)))
        if len(pair) != 2 or not (0 <= min(pair) and max(pair) < cells) or abs(ra - rb) + abs(ca - cb) != 1:
            raise ConfigError(
                "gridworld wall", got=sorted(pair), expected="two neighbouring cells", remedy="mend the pair"
            )
