"""Transitions for training: which rows are taken, how they are filled up, and what is drawn."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from irleed.data import Batches, Demonstrations, Episode, lazy, transitions
from irleed.data.lazy import InMemory, LazyRows, Source
from irleed.data.transitions import Inputs, Resamples, Transitions, some_of_everyone, stack
from irleed.errors import ConfigError


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
    np.testing.assert_array_equal(rows.continuation, [1, 1, 1, 1, 0, 1, 1, 1, 1])  # cut short is not ended
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
    assert row.obs.shape == row.initial.shape == (50, 1) and row.action.shape == row.continuation.shape == (50,)
    assert set(np.ravel(row.initial)) == {0, 100}


def counting() -> Demonstrations:
    """Three episodes whose observations count on: 0 to 4, 10 to 16, 20 to 21."""
    episodes = []
    for first, steps, who in ((0, 4, "ann"), (10, 6, "bob"), (20, 1, "ann")):
        obs = (first + np.arange(steps + 1, dtype=np.uint8))[:, None, None] * np.ones((1, 2, 3), np.uint8)
        episodes.append(Episode(obs, np.arange(steps) % 3, who == "ann", who))
    return Demonstrations.from_episodes(episodes)


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_the_same_key_draws_what_transitions_draw(lazily, every):
    plain = counting()
    given = dataclasses.replace(plain, obs=LazyRows.of(InMemory(np.asarray(plain.obs)))) if lazily else plain
    key = jax.random.key(3)
    ours = Batches(given, 50, every=every).sample(key)
    theirs = Transitions.from_demonstrations(plain, every).sample(key, 50)
    assert ours.obs.dtype == np.uint8
    for field in dataclasses.fields(theirs):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


def test_frames_are_the_last_ones_of_the_episode_and_its_first_before_that():
    batch = Batches(counting(), 200, frames=3).sample(jax.random.key(0))
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
    there = transitions._apart_jit(values[seen].astype(np.float32), values[initial].astype(np.float32))
    for one, place in zip(there, transitions._apart(seen, initial), strict=True):
        np.testing.assert_array_equal(one, values[place].astype(np.float32))


def test_batches_read_ahead_are_the_same_and_lie_on_the_device():
    batches, keys = Batches(counting(), 8, frames=2), jax.random.split(jax.random.key(1), 5)
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
    source = Counting(np.asarray(counting().obs), fails_after)
    return source, Batches(dataclasses.replace(counting(), obs=LazyRows.of(source)), 4)


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
        Batches(counting(), **({"count": 4} | {setting: 0}))


CHOSEN = np.array([[0, 1, 2, 3], [3, 3, 0, 1], [2, 2, 2, 2]])


def images() -> Demonstrations:
    """Four episodes of small images far from nought, one pixel of which never changes."""
    random = np.random.default_rng(0)
    episodes = []
    for length, who in ((5, "ann"), (2, "bob"), (9, "ann"), (1, "cid")):
        obs = random.integers(200, 256, (length + 1, 2, 3)).astype(np.uint8)
        obs[:, 1, 2] = 250
        episodes.append(Episode(obs, random.integers(0, 3, length), who == "bob", who))
    data = Demonstrations.from_episodes(episodes)
    return dataclasses.replace(data, obs=LazyRows.of(InMemory(np.asarray(data.obs))))


def in_memory(data: Demonstrations) -> list[Transitions]:
    return [Transitions.from_demonstrations(data.take(own)) for own in CHOSEN]


def test_the_same_keys_draw_what_resamples_in_memory_draw():
    """But for whom they are of: someone without episodes would be left out, and the others renumbered."""
    keys = jax.random.split(jax.random.key(2), 3)
    found = Resamples(images(), CHOSEN, 40).sample(keys)
    for number, (key, own) in enumerate(zip(keys, in_memory(images()), strict=True)):
        batch = own.sample(key, 40)
        for name in ("obs", "next_obs", "action", "continuation", "initial"):
            part = np.asarray(getattr(found, name))[40 * number : 40 * (number + 1)]
            np.testing.assert_array_equal(part, getattr(batch, name))


def test_inputs_are_those_of_resamples_in_memory(monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK", 8 * 18)  # three rows at a time: episodes are cut anywhere
    found = Resamples(images(), CHOSEN, 4).inputs()
    assert found.centre.shape == (3, 2, 3) and found.centre.dtype == found.spread.dtype == np.float32
    for number, own in enumerate(in_memory(images())):
        np.testing.assert_allclose(found.centre[number], own.inputs.centre, rtol=1e-6)
        np.testing.assert_allclose(found.spread[number], own.inputs.spread, rtol=1e-5)
    assert np.asarray(found.spread)[:, 1, 2].tolist() == [1, 1, 1]


def test_small_columns_on_disk_are_standardised_as_in_memory():
    """In the second resample an entry is the same everywhere, though not in the data."""
    data = images()
    obs = 1e-9 * np.asarray(data.obs[:], np.float32)
    obs[-2:, 0, 0] = obs[-2, 0, 0]
    data = dataclasses.replace(data, obs=LazyRows.of(InMemory(obs)))
    chosen = np.array([[0, 1, 2, 3], [3, 3, 3, 3]])
    found = Resamples(data, chosen, 4).inputs()
    for number, own in enumerate(chosen):
        expected = Transitions.from_demonstrations(data.take(own)).inputs
        np.testing.assert_allclose(found.spread[number], expected.spread, rtol=1e-4)
    assert found.spread[1, 0, 0] == 1 and found.spread[0, 0, 0] < 1e-6


def test_some_of_everyone_are_few_even_and_of_all(monkeypatch):
    data = images()
    assert some_of_everyone(data).tolist() == list(range(17))
    monkeypatch.setattr(transitions, "MOST_LOOKED_AT", 9)  # three of each
    chosen = some_of_everyone(data)
    assert np.bincount(data.demonstrator[chosen]).tolist() == [3, 2, 1]
    assert chosen.tolist() == [0, 5, 6, 7, 12, 16]  # ann's first, sixth and eleventh
    monkeypatch.setattr(lazy, "LARGE", 1)
    assert np.bincount(data.demonstrator[some_of_everyone(data)]).tolist() == [1, 1, 1]
