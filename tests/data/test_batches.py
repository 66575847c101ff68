"""Batches are the transitions that were drawn, with the frames before them, whether read ahead or not."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from irleed.data import Batches, Demonstrations, Episode, transitions
from irleed.data.lazy import InMemory, LazyRows, Source
from irleed.data.transitions import Transitions
from irleed.errors import ConfigError


def data() -> Demonstrations:
    """Three episodes whose observations count on: 0 to 4, 10 to 16, 20 to 21."""
    episodes = []
    for first, steps, who in ((0, 4, "ann"), (10, 6, "bob"), (20, 1, "ann")):
        obs = (first + np.arange(steps + 1, dtype=np.uint8))[:, None, None] * np.ones((1, 2, 3), np.uint8)
        episodes.append(Episode(obs, np.arange(steps) % 3, who == "ann", who))
    return Demonstrations.from_episodes(episodes)


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_the_same_key_draws_what_transitions_draw(lazily, every):
    plain = data()
    given = dataclasses.replace(plain, obs=LazyRows.of(InMemory(np.asarray(plain.obs)))) if lazily else plain
    key = jax.random.key(3)
    ours = Batches(given, 50, every=every).sample(key)
    theirs = Transitions.from_demonstrations(plain, every).sample(key, 50)
    assert ours.obs.dtype == np.uint8
    for field in dataclasses.fields(theirs):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


def test_frames_are_the_last_ones_of_the_episode_and_its_first_before_that():
    batch = Batches(data(), 200, frames=3).sample(jax.random.key(0))
    now, later = np.asarray(batch.obs)[..., 0, 0], np.asarray(batch.next_obs)[..., 0, 0]
    assert batch.obs.shape == (200, 3, 2, 3) and batch.obs.dtype == np.uint8
    seen = {tuple(stack) for stack in now.tolist()}
    expected = {(0, 0, 0), (0, 0, 1), (0, 1, 2), (1, 2, 3), (10, 10, 10), (10, 10, 11), (20, 20, 20)}
    assert expected <= seen and not seen & {(4, 10, 10), (0, 0, 10)}
    np.testing.assert_array_equal(later[:, :2], now[:, 1:])
    np.testing.assert_array_equal(later[:, 2], now[:, 2] + 1)
    first = np.asarray(batch.initial)[..., 0, 0]
    assert {tuple(stack) for stack in first.tolist()} == {(0, 0, 0), (10, 10, 10), (20, 20, 20)}


@pytest.mark.parametrize("frames", [1, 3])
def test_observations_come_apart_on_the_device_as_they_do_on_the_host(frames):
    """On an accelerator the frames that two observations share travel once."""
    random = np.random.default_rng(0)
    values, seen, initial = random.random((9, 2)), random.integers(0, 9, (5, frames + 1)), random.integers(0, 9, 5)
    there = transitions._apart_there(values[seen].astype(np.float32), values[initial].astype(np.float32))
    for one, place in zip(there, transitions._apart(seen, initial), strict=True):
        np.testing.assert_array_equal(one, values[place].astype(np.float32))


def test_batches_read_ahead_are_the_same_and_lie_on_the_device():
    batches, keys = Batches(data(), 8, frames=2), jax.random.split(jax.random.key(1), 5)
    found = list(batches.ahead(keys))
    assert len(found) == 5 and all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found))
    for batch, key in zip(found, keys, strict=True):
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), batch, batches.sample(key)))


class Counting(Source):
    """Counts how often it was read, and fails from some time on."""

    def __init__(self, values: np.ndarray, fails_after: int):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.reads, self.fails_after = 0, fails_after

    def read(self, rows):
        self.reads += 1
        if self.reads > self.fails_after:
            raise OSError("the disk is gone")
        return self.values[rows]


def counted(fails_after: int) -> tuple[Counting, Batches]:
    source = Counting(np.asarray(data().obs), fails_after)
    return source, Batches(dataclasses.replace(data(), obs=LazyRows.of(source)), 4)


def test_no_more_is_read_ahead_than_was_asked_for():
    source, batches = counted(fails_after=100)
    stream = batches.ahead((jax.random.key(i) for i in itertools.count()), depth=2)
    next(stream)
    next(stream)
    stream.close()  # waits for what was under way
    assert 2 <= source.reads <= 4


def test_what_fails_while_reading_ahead_is_raised():
    _, batches = counted(fails_after=2)
    stream = batches.ahead(jax.random.split(jax.random.key(0), 9))
    next(stream)
    next(stream)
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


def test_vectors_as_actions():
    one = Demonstrations.from_episodes([Episode(np.arange(3.0), [[0.5, 1.0], [0.25, 2.0]], True, "ann")])
    batch = Batches(one, 6).sample(jax.random.key(0))
    assert batch.action.shape == (6, 2) and batch.action.dtype == np.float32


@pytest.mark.parametrize("setting", ["count", "frames", "every"])
def test_what_makes_no_sense_is_refused(setting):
    with pytest.raises(ConfigError, match=f"{setting}: got 0"):
        Batches(data(), **({"count": 4} | {setting: 0}))
