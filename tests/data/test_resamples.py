"""Resamples that stay on disk are those in memory: what is drawn from them, and how they are standardised."""

import dataclasses

import jax
import numpy as np

from irleed.data import Demonstrations, Episode, lazy
from irleed.data import transitions as resamples
from irleed.data.lazy import InMemory, LazyRows
from irleed.data.transitions import Resamples, Transitions, some_of_everyone

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
        for name in ("obs", "next_obs", "action", "proceeds", "initial"):
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
    monkeypatch.setattr(resamples, "MOST_LOOKED_AT", 9)  # three of each
    chosen = some_of_everyone(data)
    assert np.bincount(data.demonstrator[chosen]).tolist() == [3, 2, 1]
    assert chosen.tolist() == [0, 5, 6, 7, 12, 16]  # ann's first, sixth and eleventh
    monkeypatch.setattr(lazy, "LARGE", 1)
    assert np.bincount(data.demonstrator[some_of_everyone(data)]).tolist() == [1, 1, 1]
