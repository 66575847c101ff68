"""A summary counts right, is plain JSON, and warns of what is odd, and only then."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.data import Demonstrations, Episode, lazy, summarise
from irleed.data.summary import cautions


def walk(start: float, actions: list, who="ann", terminated: bool = True, reward=None) -> Episode:
    """An episode whose observations are two numbers that change at every step."""
    steps = start + np.arange(len(actions) + 1.0)
    return Episode(np.stack([steps, -steps], axis=1), actions, terminated, who, reward)


def warnings(*episodes: Episode) -> list[str]:
    """All but what is said of episodes as short as most of these: the action never changes, and nobody is ranked."""
    found = summarise(Demonstrations.from_episodes(episodes))["warnings"]
    return [warning for warning in found if not warning.startswith(("the action never", "too few transitions"))]


def test_the_table_has_what_was_played():
    summary = summarise(
        Demonstrations.from_episodes(
            [
                walk(0, [0, 1, 2], "ann", True, [1, 1, 1]),
                walk(10, [1], "bob", False, [-2]),
                walk(20, [0], "ann", False, [5]),
            ]
        )
    )
    assert summary["transitions"] == 5
    assert summary["episodes"] == 3
    ann = {"name": "ann", "episodes": 2, "transitions": 4, "mean_length": 2.0, "terminated": 1, "truncated": 1}
    bob = {"name": "bob", "episodes": 1, "transitions": 1, "mean_length": 1.0, "terminated": 0, "truncated": 1}
    ann |= {"mean_return": 4.0, "min_return": 3.0, "max_return": 5.0}
    bob |= {"mean_return": -2.0, "min_return": -2.0, "max_return": -2.0}
    assert summary["demonstrators"] == [ann, bob]
    never = {"constant": 0, "constant_first": []}
    ranges = {"low": [0.0, -21.0], "high": [21.0, 0.0]}
    assert summary["observation"] == {"dtype": "float64", "shape": [2], "min": -21.0, "max": 21.0, **never, **ranges}
    counted = {"histogram": {"0": 2, "1": 2, "2": 1}, "histograms": None}
    assert summary["action"] == {"dtype": "int64", "shape": [], "min": 0, "max": 2, **never, **counted}
    lengths = {"edges": [0.5, 1.5, 2.5, 3.5], "counts": [2, 0, 1]}
    assert summary["length"] == {"min": 1, "max": 3, "mean": 5 / 3, "histogram": lengths}
    assert summary["returns"]["min"] == -2 and summary["returns"]["max"] == 5
    assert sum(summary["returns"]["histogram"]["counts"]) == 3 and len(summary["returns"]["histogram"]["edges"]) == 21
    assert summary["repeated"] == {"within": 0, "between": 0, "compared": "whole episodes"}
    assert summary["reward"] == {"min": -2.0, "max": 5.0}
    (few,) = summary["warnings"]
    assert few.startswith("too few transitions to rank, fewer than 10: 'ann' (4), 'bob' (1)")


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_the_rows_add_up(drawn):
    episodes = [walk(10.0 * i, [0.5] * n, f"name {d}", end) for i, (n, d, end) in enumerate(drawn)]
    summary = summarise(Demonstrations.from_episodes(episodes))
    rows = summary["demonstrators"]
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert sum(row["episodes"] for row in rows) == summary["episodes"] == len(drawn)
    assert sum(row["transitions"] for row in rows) == summary["transitions"] == sum(n for n, _, _ in drawn)
    assert sum(row["terminated"] for row in rows) == sum(end for _, _, end in drawn)
    assert all(row["terminated"] + row["truncated"] == row["episodes"] for row in rows)


def test_without_rewards_there_are_no_returns():
    summary = summarise(Demonstrations.from_episodes([walk(0, [0, 1])]))
    assert summary["reward"] is None
    assert summary["demonstrators"][0]["mean_return"] is None
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


@pytest.mark.parametrize(
    ("actions", "histogram"),
    [
        ([0.0, 1.0], None),
        ([[0, 1], [1, 0]], None),
        ([0, 10**12], None),
        ([True, False], {"0": 1, "1": 1}),
        ([[2], [2]], {"0": 0, "1": 0, "2": 2}),
        ([-1, 1], {"-1": 1, "0": 0, "1": 1}),
    ],
    ids=str,
)
def test_only_discrete_actions_have_a_histogram(actions, histogram):
    summary = summarise(Demonstrations.from_episodes([walk(0, actions)]))
    assert summary["action"]["histogram"] == histogram
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_lone_demonstrator_is_pointed_out():
    (warning,) = warnings(walk(0, [0.5]), walk(10, [0.5]))
    assert "only one demonstrator" in warning
    assert warnings(walk(0, [0.5]), walk(10, [0.5], "bob")) == []


def test_unused_actions_are_pointed_out():
    (warning,) = warnings(walk(0, [0, 3]), walk(10, [4], "bob"))
    assert warning == "action values below the largest that never occur (2): 1, 2"
    (warning,) = warnings(walk(0, [0, 30]), walk(10, [4], "bob"))
    assert "and 20 more" in warning


def test_constant_observations_are_pointed_out():
    def frames(fill, who):
        obs = np.zeros((3, 2, 2))
        obs[:, 0, 1] = fill
        return Episode(obs, [0.5, 0.5], True, who)

    (warning,) = warnings(frames([1, 2, 3], "ann"), frames([4, 5, 6], "bob"))
    assert warning.startswith("3 of 4 observation entries never change")
    assert warning.endswith("0,0, 1,0, 1,1")
    (warning,) = warnings(Episode([7, 7], [0.5], True, "ann"), Episode([7, 7], [0.25], True, "bob"))
    assert warning == "the observation never changes"


def test_the_same_episode_under_two_names_is_pointed_out():
    episodes = [
        walk(0, [0.5, 0.5]),
        walk(10, [0.5]),
        walk(10, [0.5]),
        walk(0, [0.5, 0.5], "bob"),
        walk(5, [0.5], "bob"),
    ]
    (warning,) = warnings(*episodes)
    assert "exactly (1)" in warning
    assert "episode 3 of 'bob', a copy of episode 0 of 'ann'" in warning


def test_episodes_that_differ_in_one_action_or_in_where_they_end_are_no_copies():
    ending = walk(0, [0.5, 0.5], "bob")
    obs = np.array(ending.obs)
    obs[-1] += 1
    other = Episode(obs, ending.action, True, "bob")
    assert warnings(walk(0, [0.5, 0.5]), walk(0, [0.5, 0.25], "bob"), walk(0, [0.5], "bob"), other) == []


def test_continuous_actions_have_a_histogram_of_every_entry():
    actions = np.c_[np.linspace(-1, 1, 41), np.full(41, 7.0)]
    summary = summarise(Demonstrations.from_episodes([walk(0, actions.tolist())]))
    first, second = summary["action"]["histograms"]
    assert (
        len(first["counts"]) == 20
        and sum(first["counts"]) == 41
        and first["edges"][0] == -1
        and first["edges"][-1] == 1
    )
    assert second == {"edges": [7.0, 7.0], "counts": [41]}
    assert summary["action"]["low"] == [-1.0, 7.0] and summary["action"]["high"] == [1.0, 7.0]
    assert "1 of 2 action entries never change: 1" in summary["warnings"]


def test_repeats_are_counted_within_and_between_demonstrators():
    episodes = [walk(0, [0.5]), walk(0, [0.5]), walk(0, [0.5], "bob"), walk(3, [0.5], "bob")]
    repeated = summarise(Demonstrations.from_episodes(episodes))["repeated"]
    assert (repeated["within"], repeated["between"]) == (1, 1)


def test_data_that_stay_on_disk_have_the_same_summary(monkeypatch):
    """Chunk by chunk, and saying that less was compared."""
    data = Demonstrations.from_episodes(
        [walk(0, [0.5, 0.25]), walk(10, [1.5], "bob", False), walk(0, [0.5, 0.25], "bob")]
    )
    monkeypatch.setattr(lazy, "LARGE", 1)
    lazily = dataclasses.replace(data, obs=lazy.LazyRows.of(lazy.InMemory(np.asarray(data.obs))))
    whole, chunked = summarise(data), summarise(lazily)
    assert chunked["repeated"] == whole["repeated"] | {"compared": "actions, first and last observations"}
    assert {k: v for k, v in chunked.items() if k != "repeated"} == {k: v for k, v in whole.items() if k != "repeated"}


def test_whole_actions_as_far_apart_as_there_are_have_histograms():
    """Their difference is no number of 64 bits."""
    ends = np.iinfo(np.int64)
    actions = [[[ends.min], [ends.max]], [[ends.max - 1], [ends.max]]]
    for action in actions:
        summary = summarise(Demonstrations.from_episodes([walk(0, action)]))
        assert sum(summary["action"]["histograms"][0]["counts"]) == 2


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
