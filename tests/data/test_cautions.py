"""Warnings say which entry is off, where, whose it is and how far; ordinary data have none."""

import dataclasses

import numpy as np

from irleed.data import Demonstrations, Episode, summarise
from irleed.data.summary import cautions


def demonstrations(steps: int = 30, people: int = 2) -> Demonstrations:
    """Ordinary: continuous actions within -1 and 1, observations about 0."""
    random = np.random.default_rng(0)
    return Demonstrations.from_episodes(
        Episode(random.normal(size=(steps + 1, 2)), random.uniform(-1, 1, (steps, 2)), False, f"p{number % people}")
        for number in range(2 * people)
    )


def changed(name: str, row: int, value: float) -> Demonstrations:
    data = demonstrations()
    values = np.array(getattr(data, name))
    values[row, 1] = value
    return dataclasses.replace(data, **{name: values})


def test_ordinary_data_raise_no_caution():
    assert cautions(demonstrations()) == []


def test_an_outlying_action_is_placed():
    (said,) = cautions(changed("action", 35, 1000.0))  # the sixth of the second episode
    assert said.startswith("1 outlier in action entry 1: 1000 in episode 1, step 5, of 'p1' is ")
    assert said in summarise(changed("action", 35, 1000.0))["warnings"]


def test_an_outlying_observation_is_placed():
    """An episode has one observation more than actions."""
    (said,) = cautions(changed("obs", 31 + 4, -1e5))
    assert said.startswith("1 outlier in observation entry 1: -100000 in episode 1, step 4, of 'p1' is ")


def test_actions_far_narrower_than_their_bounds_are_pointed_out():
    data = demonstrations()
    small = dataclasses.replace(data, action=data.action * np.array([1.0, 0.001]))
    (said,) = cautions(small)
    assert said.startswith("action entries far narrower than the range from -1 to 1, as if in another unit: 1 (-0.0")
    wide = (np.full(2, -50.0), np.full(2, 50.0))
    (said,) = cautions(data, wide)
    assert said.startswith("action entries far narrower than the environment's bounds") and "of -50 to 50" in said
    assert cautions(dataclasses.replace(data, action=data.action * 5)) == []  # in what unit is not known


def test_observations_that_single_precision_cannot_tell_apart_are_pointed_out():
    data = demonstrations()
    (said,) = cautions(dataclasses.replace(data, obs=data.obs + np.array([0.0, 1e8])))
    assert "single precision hardly tells apart: 1 (9999999" in said


def test_who_has_too_few_transitions_is_named():
    (said,) = cautions(demonstrations(steps=4))
    assert said.startswith("too few transitions to rank, fewer than 10: 'p0' (8), 'p1' (8);")
    assert cautions(demonstrations(steps=4, people=1)) == []  # nobody to be ranked among
    assert cautions(demonstrations(steps=2, people=9))[0].count("'p") == 4


def test_many_entries_are_not_all_listed():
    data = demonstrations()
    obs = np.random.default_rng(0).normal(size=(len(data.obs), 9))
    obs[3] = 1e6
    found = cautions(dataclasses.replace(data, obs=obs))
    assert len(found) == 5 and found[-1] == "5 more observation entries have outliers"
