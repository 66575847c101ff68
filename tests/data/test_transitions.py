"""Transitions for training: which rows are taken, how they are filled up, and what is drawn."""

import jax
import numpy as np
import pytest

from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.transitions import Inputs, Transitions, stack


@pytest.fixture
def data() -> Demonstrations:
    """Two demonstrators; observations count up, so that every row is known by its number."""

    def episode(first, length, terminated, who):
        obs = np.arange(first, first + length + 1, dtype=np.float32)[:, None]
        return Episode(obs=obs, action=np.arange(length) % 2, terminated=terminated, demonstrator=who)

    return Demonstrations.from_episodes([episode(0, 5, True, 0), episode(100, 4, False, 1)])


def test_rows(data):
    rows = Transitions.from_demonstrations(data)
    np.testing.assert_array_equal(rows.obs[:, 0], [0, 1, 2, 3, 4, 100, 101, 102, 103])
    np.testing.assert_array_equal(rows.next_obs[:, 0], rows.obs[:, 0] + 1)
    np.testing.assert_array_equal(rows.proceeds, [1, 1, 1, 1, 0, 1, 1, 1, 1])  # cut short is not ended
    np.testing.assert_array_equal(rows.demonstrator, [0] * 5 + [1] * 4)
    np.testing.assert_array_equal(rows.initial[:, 0], [0, 100])
    assert rows.size == 9


def test_every_second_row_of_each_episode(data):
    rows = Transitions.from_demonstrations(data, every=2)
    np.testing.assert_array_equal(rows.obs[:, 0], [0, 2, 4, 100, 102])


def test_what_fills_up_is_never_drawn(data):
    rows = Transitions.from_demonstrations(data)
    both = stack([rows, Transitions.from_demonstrations(data, every=3)])
    assert both.obs.shape == (2, 9, 1) and both.size.tolist() == [9, 4]
    drawn = jax.vmap(lambda own: own.sample(jax.random.key(0), 200))(both)
    assert set(np.ravel(drawn.obs[0])) == set(np.ravel(rows.obs))
    assert set(np.ravel(drawn.obs[1])) == {0, 3, 100, 103}
    np.testing.assert_array_equal(drawn.next_obs, drawn.obs + 1)
    assert set(np.ravel(drawn.initial[1])) == {0, 100}


def test_inputs_are_those_of_the_rows_that_count(data):
    """Mean and standard deviation, whatever a stack was filled up with."""
    sets = [Transitions.from_demonstrations(data, every) for every in (1, 2, 3)]
    found = jax.vmap(lambda own: own.inputs)(stack(sets))
    for lane, own in enumerate(sets):
        for inputs in (own.inputs, jax.tree.map(lambda leaf, lane=lane: leaf[lane], found)):
            np.testing.assert_allclose(inputs.centre, own.obs.mean(0), rtol=1e-5)
            np.testing.assert_allclose(inputs.spread, own.obs.std(0), rtol=1e-5)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1e6])
def test_a_column_that_never_changes_keeps_its_scale(constant):
    obs = np.stack([np.full(50, constant), np.arange(50)], -1).astype(np.float32)
    episode = Episode(obs=obs, action=np.zeros(49, int), terminated=True, demonstrator=0)
    inputs = Transitions.from_demonstrations(Demonstrations.from_episodes([episode])).inputs
    assert inputs.spread[0] == 1 and inputs.spread[1] > 10
    np.testing.assert_allclose(inputs.centre[0], constant, rtol=1e-6)


@pytest.mark.parametrize(("offset", "width"), [(0.0, 1e-12), (1e-9, 1e-12), (1.0, 1e-5), (0.0, 1e12)])
def test_a_column_is_constant_by_its_rounding_not_by_its_size(offset, width):
    column = (offset + width * np.linspace(0, 1, 50)).astype(np.float32)
    episode = Episode(obs=column[:, None], action=np.zeros(49, int), terminated=True, demonstrator=0)
    inputs = Transitions.from_demonstrations(Demonstrations.from_episodes([episode])).inputs
    np.testing.assert_allclose(inputs.spread[0], column[:-1].std(dtype=float), rtol=1e-2)


def test_plain_inputs_change_nothing():
    inputs = Inputs.plain(np.zeros((2, 3), np.uint8))
    assert inputs.centre.shape == inputs.spread.shape == (2, 3)
    assert not np.any(inputs.centre) and np.all(inputs.spread == 1)


def test_a_drawn_row_has_a_first_observation_beside_it(data):
    row = Transitions.from_demonstrations(data).sample(jax.random.key(0), 50)
    assert row.obs.shape == row.initial.shape == (50, 1) and row.action.shape == row.proceeds.shape == (50,)
    assert set(np.ravel(row.initial)) == {0, 100}
