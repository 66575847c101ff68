"""Gridworlds have the geometry they are asked for, and nonsense is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.envs.mdp import Gridworld, gridworld, paper_gridworld
from irleed.errors import ConfigError, DataError

RIGHT, LEFT, DOWN, UP = range(4)


def dense(world: Gridworld) -> np.ndarray:
    transitions = np.zeros((world.mdp.states, world.mdp.actions, world.mdp.states))
    np.add.at(transitions, tuple(world.mdp.transitions()[:3]), world.mdp.transitions()[3])
    return transitions


def leads(world: Gridworld, cell: int, action: int) -> int:
    """Where a move leads in a world without slipping."""
    (reached,) = np.flatnonzero(dense(world)[cell, action])
    return int(reached)


@given(st.integers(1, 5), st.integers(2, 5), st.sampled_from([0.0, 0.3, 1.0]))
def test_moves_are_those_of_a_grid(rows, columns, slip):
    """Against a cell by cell account, edges and slipping included."""
    world = gridworld(rows, columns, goals={0: 1.0}, slip=slip)
    step = {RIGHT: (0, 1), LEFT: (0, -1), DOWN: (1, 0), UP: (-1, 0)}
    sides = {RIGHT: (DOWN, UP), LEFT: (DOWN, UP), DOWN: (RIGHT, LEFT), UP: (RIGHT, LEFT)}
    expected = np.zeros((rows * columns, 4, rows * columns))

    def move(row, column, direction):
        row, column = row + step[direction][0], column + step[direction][1]
        return (row, column) if 0 <= row < rows and 0 <= column < columns else None

    for cell in range(rows * columns):
        place = divmod(cell, columns)
        for action in range(4):
            for direction, probability in ((action, 1 - slip), *((side, slip / 2) for side in sides[action])):
                row, column = move(*place, direction) or place
                expected[cell, action, row * columns + column] += probability
    np.testing.assert_allclose(dense(world), expected, atol=1e-12)


def test_obstacles_cannot_be_entered_nor_started_in():
    world = gridworld(3, 3, goals={8: 1.0}, obstacles=[4])
    for cell, action in ((1, DOWN), (3, RIGHT), (5, LEFT), (7, UP)):
        assert leads(world, cell, action) == cell
    reached = dense(world).sum((0, 1))
    assert reached[4] == 4, "only from itself"
    assert world.mdp.initial[4] == 0 and world.mdp.initial[8] == 0
    np.testing.assert_allclose(world.mdp.initial[[0, 1, 2, 3, 5, 6, 7]], 1 / 7)


def test_walls_block_both_ways_and_nothing_else():
    plain = gridworld(2, 3, goals={5: 1.0})
    walled = gridworld(2, 3, goals={5: 1.0}, walls=[(0, 1), (4, 1)])
    blocked = {(0, RIGHT): 0, (1, LEFT): 1, (1, DOWN): 1, (4, UP): 4}
    for cell in range(6):
        for action in range(4):
            assert leads(walled, cell, action) == blocked.get((cell, action), leads(plain, cell, action))


def test_slipping_stays_on_this_side_of_walls():
    world = gridworld(2, 2, goals={3: 1.0}, slip=0.4, walls=[(0, 2)])
    np.testing.assert_allclose(dense(world)[0, RIGHT], [0.4, 0.6, 0, 0])  # down is walled, up is the edge
    np.testing.assert_allclose(dense(world)[0, DOWN], [0.8, 0.2, 0, 0])  # left is the edge, right is free


def test_the_papers_world():
    world = paper_gridworld()
    assert (world.rows, world.columns, world.mdp.states, world.mdp.actions) == (7, 7, 49, 4)
    assert np.flatnonzero(world.mdp.terminal).tolist() == [0, 6, 48]
    np.testing.assert_array_equal(world.mdp.reward, world.mdp.terminal.astype(float))
    np.testing.assert_allclose(world.mdp.initial, ~world.mdp.terminal / 46)


def test_goals_keep_their_own_rewards():
    world = gridworld(2, 2, goals={3: 2.0, 0: -1.0})
    assert np.asarray(world.mdp.reward).tolist() == [-1, 0, 0, 2]
    assert world.mdp.terminal.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 0},
        {"rows": -2, "columns": -2},
        {"rows": 1, "columns": 1},
        {"slip": -0.1},
        {"slip": 1.1},
        {"slip": float("nan")},
        {"goals": {}},
        {"goals": {9: 1.0}},
        {"goals": {-1: 1.0}},
        {"goals": dict.fromkeys(range(9), 1.0)},
        {"obstacles": [9]},
        {"obstacles": [8]},
        {"obstacles": range(8)},
        {"walls": [(0, 2)]},
        {"walls": [(2, 3)]},
        {"walls": [(0, 0)]},
        {"walls": [(8, 9)]},
        {"walls": [(-1, 0)]},
    ],
)
def test_nonsense_is_refused_in_one_line(changes):
    with pytest.raises(ConfigError) as caught:
        gridworld(**({"rows": 3, "columns": 3, "goals": {8: 1.0}} | changes))
    assert str(caught.value).startswith("gridworld ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"discount": 1.0}, {"goals": {8: float("nan")}}, {"features": np.zeros((4, 2))}])
def test_what_the_mdp_refuses_is_said_to_be_of_the_gridworld(changes):
    with pytest.raises(DataError, match=r"^gridworld, "):
        gridworld(**({"rows": 3, "columns": 3, "goals": {8: 1.0}} | changes))
