"""Skill and precision from measured transitions: known values, honest intervals, little data near the mean."""

import numpy as np
import pytest

from irleed.fit.posterior import GRID, Measured, better, evidence, posterior


def measured(rng, skill, episodes, steps, actions=4, spread=0.0, precision=2.0):
    """People who take the best action with some probability, that varies between episodes, else a random one."""
    who, episode, realised, curve = [], [], [], []
    values = precision * np.eye(actions)[0]
    log_prob = GRID_LOGITS(values)
    number = 0
    for person, (own, count, length) in enumerate(zip(skill, episodes, steps, strict=True)):
        for _ in range(count):
            chance = np.clip(own + spread * rng.normal(), 0, 1)
            best = rng.random(length) < chance + (1 - chance) / actions
            who.append(np.full(length, person))
            episode.append(np.full(length, number))
            realised.append(np.where(best, values[0] - values.mean(), -values.mean()))
            curve.append(np.where(best[:, None], log_prob[0], log_prob[1]))
            number += 1
    possible = np.full(number and len(np.concatenate(who)), values.max() - values.mean())
    found = Measured(np.concatenate(realised), possible, np.concatenate(curve))
    return found, np.concatenate(who), np.concatenate(episode)


def GRID_LOGITS(values):  # noqa: N802
    logits = np.exp(GRID)[None] * values[:2, None]
    every = np.exp(GRID)[None] * values[:, None]
    return logits - np.log(np.exp(every).sum(0))


def judged(rng, skill, episodes, steps, **settings):
    found, who, episode = measured(rng, skill, episodes, steps, **settings)
    return posterior([evidence(found, np.ones(len(who)), who, [episode], len(skill))])


def test_skill_is_the_share_of_the_advantage_that_is_realised():
    truth = np.array([0.9, 0.6, 0.3, 0.0])
    found = judged(np.random.default_rng(0), truth, [20] * 4, [200] * 4)
    np.testing.assert_allclose(found.skill, truth, atol=0.03)
    chance = truth + (1 - truth) / 4
    precision = np.log(chance / ((1 - chance) / 3)) / 2  # of a softmax with a value of 2 for the best action
    told = np.log(found.precision(0.5)[:3]) - np.log(found.precision(0.5)[:3]).mean()
    np.testing.assert_allclose(told, np.log(precision[:3]) - np.log(precision[:3]).mean(), atol=0.1)


@pytest.mark.parametrize("spread", [0.0, 0.15])
def test_intervals_hold_with_unequal_amounts_of_data(spread):
    """Episodes that differ more than their transitions say are told from the variance between them."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(40):
        truth = rng.uniform(0.35, 0.65, 12)  # so that no chance is cut off at 0 or 1
        episodes = rng.integers(3, 15, 12)
        found = judged(rng, truth, episodes, rng.integers(10, 60, 12), spread=spread)
        low, high = found.skill_interval(0.9)
        inside.append((low <= truth) & (truth <= high))
    assert 0.85 <= np.mean(inside) <= 0.96


def test_whoever_has_ten_transitions_is_drawn_to_the_mean_and_has_a_wide_interval():
    rng = np.random.default_rng(2)
    truth = [0.5, 0.55, 0.45, 0.52, 0.48, 1.0]
    found = judged(rng, truth, [10] * 5 + [1], [100] * 5 + [10])
    low, high = found.skill_interval(0.9)
    assert abs(found.skill[5] - np.mean(truth[:5])) < 0.25
    assert (high - low)[5] > 2 * (high - low)[:5].max()
    assert abs(np.log(found.precision(0.5))[5]) < 0.7


def test_probabilities_of_being_better_are_those_of_two_normal_distributions():
    found = better(np.array([0.5, 0.3]), np.array([0.1, 0.1]))
    np.testing.assert_allclose(found + found.T, 1.0)
    np.testing.assert_allclose(found[0, 1], 0.9214, atol=1e-4)  # 0.2 / (0.1 sqrt 2) standard deviations


def test_errors_that_similar_situations_share_widen_intervals():
    """The others' values are off by the same in all transitions of a situation, however many there are."""
    rng = np.random.default_rng(3)
    inside, without = [], []
    for _ in range(30):
        truth, who = rng.uniform(0.35, 0.65, 8), np.repeat(np.arange(8), 600)
        situation = rng.integers(20, size=len(who))
        chance = truth[who] + rng.normal(0, 0.2, (8, 20))[who, situation]
        best = rng.random(len(who)) < chance + (1 - chance) / 4
        curve = GRID_LOGITS(2.0 * np.eye(4)[0])[np.where(best, 0, 1)]
        found = Measured(np.where(best, 1.5, -0.5), np.full(len(who), 1.5), curve)
        for kept, groups in ((inside, [situation]), (without, [])):
            low, high = posterior([evidence(found, np.ones(len(who)), who, groups, 8)]).skill_interval(0.9)
            kept.append((low <= truth) & (truth <= high))
    assert np.mean(inside) > 0.85 and np.mean(without) < 0.75


def test_whoever_is_alone_in_most_situations_is_uncertain():
    rng = np.random.default_rng(4)
    found, who, episode = measured(rng, [0.8, 0.6, 0.4, 0.5], [10] * 4, [100] * 4)
    alone = np.where((who == 3) & (rng.random(len(who)) < 0.97), 1e-6, 1.0)
    deviation = [posterior([evidence(found, own, who, [episode], 4)]).deviation for own in (np.ones(len(who)), alone)]
    assert deviation[1][3] > 2 * deviation[0][3]


def test_repetitions_that_differ_widen_precision_and_skill():
    rng = np.random.default_rng(5)
    found, who, episode = measured(rng, [0.8, 0.6, 0.4, 0.5], [10] * 4, [100] * 4)
    other = measured(rng, [0.5, 0.7, 0.6, 0.3], [10] * 4, [100] * 4)[0]
    same, differ = (
        posterior([evidence(each, np.ones(len(who)), who, [episode], 4) for each in pair])
        for pair in ((found, found), (found, other))
    )
    assert (differ.deviation > 1.5 * same.deviation).all()
    widths = [each.precision(0.95) / each.precision(0.05) for each in (same, differ)]
    assert (widths[1] > 1.2 * widths[0]).all()
