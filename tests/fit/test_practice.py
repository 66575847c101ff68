"""Skill by what changes with practice: who learns, who has come how far, and when nothing can be said."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from irleed.data import Demonstrations, Episode
from irleed.fit.practice import practice

PEOPLE, NUMBERS = 12, 6


def _people(recordings: int, length: int, gain: float, *, ended: bool = True, seed: int = 0):
    """People of uneven level whose first observed number rises with level and, by `gain`, with every recording."""
    rng = np.random.default_rng(seed)
    level = rng.normal(size=PEOPLE)
    habits = rng.normal(size=(PEOPLE, NUMBERS))
    episodes = []
    for who in range(PEOPLE):
        for number in range(recordings):
            obs = habits[who] + rng.normal(size=(length + 1, NUMBERS))
            part = np.arange(length + 1) / length if recordings < 4 else number / recordings
            obs[:, 0] = level[who] + gain * part + rng.normal(size=length + 1)
            episodes.append(Episode(obs, rng.integers(3, size=length), ended, f"p{who}"))
    return Demonstrations.from_episodes(episodes), level


def test_who_has_come_far_is_told_by_the_order_of_others():
    data, level = _people(10, 40, 1.0)
    found = practice(data)
    assert found is not None and found.low > 0.3
    assert spearmanr(found.score, level).statistic > 0.8


def test_people_who_do_not_learn_have_no_score():
    assert sum(practice(_people(10, 40, 0.0, seed=seed)[0]) is not None for seed in range(20)) <= 2


def test_getting_worse_is_what_cannot_be_told():
    """What the docs admit: if people get worse as they go on, the order is reversed."""
    data, level = _people(10, 40, -1.0)
    found = practice(data)
    assert found is not None and spearmanr(found.score, level).statistic < -0.8


@pytest.mark.parametrize("ended", [False, True])
def test_within_long_recordings_only_if_the_clock_ended_them(ended):
    data, level = _people(2, 400, 2.0, ended=ended)
    found = practice(data)
    assert (found is None) == ended
    if found is not None:
        assert spearmanr(found.score, level).statistic > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_how_an_episode_begins_is_not_practice(seed):
    data, _ = _people(2, 400, 0.0, ended=False, seed=seed)
    obs = np.array(data.obs)
    for start in np.asarray(data.row)[data.start]:
        obs[start : start + 100] -= 3.0
    assert practice(dataclasses.replace(data, obs=obs)) is None


def test_few_people_few_recordings_and_large_observations_have_none():
    data, _ = _people(10, 40, 1.0)
    assert practice(data.select(range(4))) is None
    assert practice(_people(3, 40, 1.0)[0]) is None
    assert practice(dataclasses.replace(data, obs=np.zeros((len(data.obs), 40, 40)))) is None


def test_recordings_that_were_cut_stay_whole():
    """Leaving out idle actions cuts episodes; their order is still that of the recordings."""
    data, level = _people(10, 40, 1.0)
    cut = data.without(np.flatnonzero(np.asarray(data.action) == 0))
    assert cut.episodes > data.episodes == len(np.unique(cut.recordings))
    found = practice(cut)
    assert found is not None and spearmanr(found.score, level).statistic > 0.8
    taken = cut.take(np.flatnonzero(cut.recordings >= 60))
    np.testing.assert_array_equal(np.unique(taken.recordings), np.arange(60))
    assert len(np.unique(cut.take([0, 0, 1]).recordings)) == 2


def test_intervals_hold_what_more_recordings_find():
    data, _ = _people(30, 40, 1.0)
    few = practice(data.take(np.flatnonzero(np.arange(data.episodes) % 30 < 8)))
    every = practice(data)
    assert few is not None and every is not None
    inside = np.abs(few.score - every.score) < 1.645 * few.deviation
    assert inside.mean() >= 0.75
