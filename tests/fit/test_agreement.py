"""The correlation of what people do with what others would do, on values whose answer is known."""

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.data.transitions import Transitions
from irleed.fit import crossfit
from irleed.fit.agreement import _frequencies, rank_one, tilt

SIZE = 4_000


def people(seed=0):
    """Log probabilities of three actions; who follows them always, at random, reversed, never and half of the time."""
    rng = np.random.default_rng(seed)
    values = log_softmax(4 * rng.normal(size=(SIZE, 3)), axis=1)
    random, best, worst = rng.integers(3, size=SIZE), values.argmax(1), values.argmin(1)
    half = np.where(rng.random(SIZE) < 0.5, best, random)
    actions = [best, random, worst, np.full(SIZE, 1), half]
    return np.tile(values, (5, 1)), np.repeat(np.arange(5), SIZE), np.concatenate(actions)


@pytest.fixture(scope="module")
def tilted():
    values, who, action = people()
    return tilt(values, _frequencies(who, action, 3, 5), who, action), who


def test_following_others_is_1_randomness_and_habits_are_0_and_the_opposite_is_below(tilted):
    always, random, opposite, one_action, half = tilted[0].correlation
    assert always > 0.9 and opposite < -0.9
    assert abs(random) < 0.05 and abs(one_action) < 0.05
    assert 0.3 < half < 0.6


def test_the_parts_of_transitions_average_to_the_correlation(tilted):
    found, who = tilted
    np.testing.assert_allclose(np.bincount(who, found.part) / np.bincount(who), found.correlation)


def test_parts_are_the_derivative_by_the_weight_of_a_transition():
    """A transition that is repeated moves the correlation by its part, up to one over the number of transitions."""
    values, who, action = people(1)
    own = np.flatnonzero(who == 4)[:500]
    values, action, who = values[own], action[own], np.zeros(500, int)
    often = _frequencies(who, action, 3, 1)
    before = tilt(values, often, who, action)
    for row in (0, 7, 99):
        more = np.append(np.arange(500), np.full(5, row))
        after = tilt(values[more], often, who[more], action[more])
        expected = 5 / 505 * (before.part[row] - before.correlation[0])
        assert after.correlation[0] - before.correlation[0] == pytest.approx(expected, rel=0.2, abs=1e-4)


def test_the_scale_of_values_and_constants_make_no_difference():
    values, who, action = people(2)
    often = _frequencies(who, action, 3, 5)
    other = 7 * values + np.random.default_rng(0).normal(size=(len(values), 1))
    expected = tilt(values, often, who, action).correlation
    np.testing.assert_allclose(tilt(other, often, who, action).correlation, expected, atol=1e-6)


def test_clones_are_weighed_by_the_factor_that_explains_all_pairs():
    """Two of seven agree with each other, and with nobody else: they are below 0, not above."""
    skill, weight = np.array([0.9, 0.7, 0.6, 0.5, 0.2, -0.8, -0.8]), np.array([0.8, 0.7, 0.5, 0.5, 0.1, -0.6, -0.7])
    own = np.eye(7, dtype=bool)
    known = np.where(own, 99.0, np.outer(skill, weight))
    found = rank_one(known, own)
    np.testing.assert_allclose(found / found[0], weight / weight[0], rtol=1e-6)
    noisy = known + 0.1 * np.random.default_rng(0).normal(size=(7, 7))
    assert set(np.flatnonzero(rank_one(noisy, own) < 0)) == {5, 6}


def test_of_several_restarts_each_run_keeps_the_best(monkeypatch):
    """Two runs, three times each: the second restart is best for the first run, the third for the second."""
    score, given = np.array([0.1, 0.2, 0.9, 0.3, 0.5, 0.8]), []

    def trained(algorithm, keys, own, *rest):
        given.append((keys.shape, own.obs.shape))
        return crossfit.Stopped({"number": np.arange(6)}, 100 * np.arange(6), score)

    monkeypatch.setattr(crossfit, "train_until_held_out", trained)
    rows = np.zeros(4, np.int32)
    columns = {"obs": np.zeros((4, 2), np.float32), "next_obs": np.zeros((4, 2), np.float32)}
    seen = Transitions(
        **columns,
        action=rows,
        continuation=np.ones(4, np.float32),
        demonstrator=rows,
        initial=np.zeros((1, 2), np.float32),
        size=np.asarray(4, np.int32),
    )
    learnt = [np.array([0, 1]), np.array([2, 3])]
    found = crossfit.trained_on_rows(BehaviourCloning(), jax.random.key(0), seen, learnt, learnt, 2, 1, restarts=3)
    assert given == [((6,), (6, 2, 2))]
    np.testing.assert_array_equal(found.parameters["number"], [2, 5])
    np.testing.assert_array_equal(found.log_likelihood, [0.9, 0.8])
