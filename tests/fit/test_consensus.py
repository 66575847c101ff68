"""Demonstrators judged by the others: the noisy, the opposite, the few, and that nobody's own data judge them."""

import dataclasses

import jax
import numpy as np
import pytest

from irleed.algorithms.iq import OfflineIrleed
from irleed.data import Demonstrations, Episode
from irleed.data.transitions import Transitions
from irleed.fit.agreement import _log_probs
from irleed.fit.consensus import _capped, _policy_weight, consensus, final_learner, situations
from irleed.fit.crossfit import cross_fitted, held_out, resampled_rows
from irleed.fit.posterior import GRID, Posterior

pytestmark = pytest.mark.optax
SMALL = OfflineIrleed(hidden=(16,), steps=2_000, batch_size=32, learning_rate=3e-3)


def demonstrations(noise, opposite, episodes, length=30, seed=0):
    """A walk on a line to be driven to its middle: the right action is the one towards 0."""
    rng = np.random.default_rng(seed)
    made = []
    for who, (random, against, count) in enumerate(zip(noise, opposite, episodes, strict=True)):
        for _ in range(count):
            place, obs, actions = rng.uniform(-1, 1), [], []
            for _ in range(length):
                obs.append([place, 1.0])
                right = int(place < 0) if not against else int(place >= 0)
                action = int(rng.integers(2)) if rng.random() < random else right
                place = float(np.clip(place + (0.2 if action else -0.2) + 0.05 * rng.normal(), -1.5, 1.5))
                actions.append(action)
            obs.append([place, 1.0])
            made.append(Episode(np.array(obs, np.float32), np.array(actions), False, f"{who}"))
    return Demonstrations.from_episodes(made)


def judged(data, seed=0, algorithm=SMALL):
    rows = np.arange(data.transitions)
    return consensus(jax.random.key(seed), data, Transitions.at(data, rows), rows, algorithm, 2)


@pytest.fixture(scope="module")
def outsider():
    data = demonstrations([0.0, 0.2, 0.4, 0.0], [False, False, False, True], [6, 6, 6, 20])
    return data, judged(data)


def test_skill_is_how_often_people_do_what_the_others_would(outsider):
    _, found = outsider
    np.testing.assert_allclose(found.posterior.skill[:3], [1.0, 0.8, 0.6], atol=0.12)


def test_whoever_does_the_opposite_is_last_however_much_they_show(outsider):
    data, found = outsider
    assert np.argmin(found.posterior.skill) == 3 and found.posterior.skill[3] < 0.2
    assert np.argmin(found.posterior.precision(0.5)) == 3
    assert found.weight[3] < 0.05 * found.weight.max()
    assert found.episode_skill[data.owner == 3].max() < found.episode_skill[data.owner == 0].min()


def test_the_algorithm_that_is_settled_on_holds_the_judged_precisions(outsider):
    data, found = outsider
    rows = np.arange(data.transitions)
    learner = final_learner(jax.random.key(1), found, Transitions.at(data, rows), SMALL, 2, 4)
    assert learner.precision_learning_rate is None and 0 < learner.steps <= SMALL.steps and learner.anneal_lr
    np.testing.assert_allclose(learner.held_log_precision, np.log(found.posterior.precision(0.5)), rtol=1e-5)


def test_the_policy_that_judges_someone_has_not_seen_their_actions():
    data = demonstrations([0.0, 0.3, 0.6], [False] * 3, [4] * 3)
    rows = np.arange(data.transitions)
    seen = Transitions.at(data, rows)
    who, held = np.asarray(seen.demonstrator), held_out(jax.random.key(0), data)
    small = dataclasses.replace(SMALL, steps=100, precision_learning_rate=None, bias_learning_rate=None)

    def log_probs(action):
        other = dataclasses.replace(seen, action=action)
        return cross_fitted(jax.random.key(2), small, other, np.ones(len(who)), held, 2, 3, _log_probs)[0][0]

    before, after = (log_probs(np.where(who == 0, change, seen.action).astype(np.int32)) for change in (0, 1))
    np.testing.assert_array_equal(before[who == 0], after[who == 0])
    assert np.abs(before[who == 1] - after[who == 1]).max() > 1e-3


def test_two_who_do_the_opposite_do_not_vouch_for_each_other():
    data = demonstrations([0.0, 0.2, 0.4, 0.5, 0.8, 0.0, 0.0], [False] * 5 + [True] * 2, [6] * 5 + [12] * 2)
    found = judged(data)
    assert set(np.argsort(found.posterior.skill)[:2]) == {5, 6}
    assert found.weight[5:].max() < 0.05 * found.weight.max()


def test_whoever_surely_does_the_opposite_has_next_to_no_weight_in_the_policy():
    skill, deviation = np.array([0.9, 0.5, 0.05, -0.1, -0.6]), np.array([0.1, 0.2, 0.1, 0.3, 0.1])
    found = _policy_weight(Posterior(skill, deviation, np.ones((5, len(GRID))) / len(GRID), 0.0))
    np.testing.assert_allclose(found, [0.64, 0.09, 0.01, 0.01, 0.0001])


def test_nobody_counts_for_more_than_three_times_the_median():
    who = np.repeat(np.arange(4), [10, 100, 120, 5_000])
    counted = _capped(who, 4) * np.bincount(who)
    np.testing.assert_allclose(counted, [10, 100, 120, 330])


def test_random_demonstrators_come_last_and_amounts_of_data_make_no_difference():
    data = demonstrations([0.2, 0.2, 0.2, 1.0, 1.0], [False] * 5, [3, 6, 24, 3, 24])
    skill = judged(data).posterior.skill
    assert skill[:3].min() > 0.55 and skill[3:].max() < 0.35
    assert np.ptp(skill[:3]) < 0.25


def test_the_same_key_gives_the_same_judgement():
    data = demonstrations([0.0, 0.5], [False] * 2, [4] * 2)
    small = dataclasses.replace(SMALL, steps=200)
    first, second = (judged(data, 3, small).posterior.skill for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_fifth_of_everyone_is_held_out():
    data = demonstrations([0.0, 0.0], [False] * 2, [10, 2])
    held, who = held_out(jax.random.key(0), data), np.asarray(data.demonstrator)
    assert held[who == 0].mean() == pytest.approx(0.2) and held[who == 1].mean() == pytest.approx(0.2)
    whole = [held[data.episode == e].all() for e in range(10)]
    assert sum(whole) == 2  # whole episodes, where there are several
    assert held[data.episode == 10][-6:].all() and not held[data.episode == 10][:-6].any()


def test_rows_are_resampled_as_often_as_their_weights_say():
    rows = resampled_rows(jax.random.key(0), np.array([0.0, 1.0, 3.0, 0.0, 4.0]), 5)
    assert set(rows) <= {1, 2, 4} and len(rows) == 3
    many = resampled_rows(jax.random.key(0), np.repeat([1.0, 3.0], 500), 1000)
    assert np.mean(many >= 500) == pytest.approx(0.75, abs=0.01)


def test_situations_are_groups_of_similar_observations():
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(5, 3))
    which = rng.integers(5, size=500)
    found = situations(centres[which] + 0.01 * rng.normal(size=(500, 3)))
    assert all(len(np.unique(which[found == group])) == 1 for group in np.unique(found))
    assert len(np.unique(situations(rng.integers(256, size=(300, 12, 12, 3), dtype=np.uint8)))) > 5
    assert (situations(np.ones((10, 2))) == 0).all()
    flag = np.arange(100)[:, None] % 2
    assert len(np.unique(situations(flag))) == 2
