"""Observations that single precision or outliers would spoil are mended, others untouched; tracing does the same."""

import jax
import numpy as np
import pytest

from irleed.data.conditioning import Conditioning, Ranges, measured
from irleed.data.lazy import InMemory, LazyRows
from irleed.errors import SpaceError

ORDINARY = np.random.default_rng(0).normal(size=(400, 3))


def conditioning(obs: np.ndarray, **settings) -> Conditioning | None:
    return Conditioning.of(Ranges.of(obs, standardised=True), obs.shape[1:], **settings)


@pytest.mark.parametrize("obs", [ORDINARY, 100 + ORDINARY, 1e-6 * ORDINARY, np.ones((50, 2))], ids=str)
def test_ordinary_observations_need_nothing(obs):
    assert conditioning(obs) is None


@pytest.mark.parametrize(("offset", "scale"), [(1e8, 1.0), (1.0, 1e-12), (0.0, 1e-12), (0.0, 1e20), (-3e9, 1e-4)])
def test_centre_and_scale_are_taken_in_double_precision(offset, scale):
    """Standardised, the observations are what they were before they were moved."""
    obs = offset + scale * ORDINARY
    found = conditioning(obs)
    assert found is not None
    seen = found.rows(obs).astype(float)
    assert seen.dtype == np.float64 and found.rows(obs).dtype == np.float32
    near = obs - offset  # exact: a mean of numbers far from 0 is not
    expected = (near - near.mean(0)) / near.std(0)
    np.testing.assert_allclose((seen - seen.mean(0)) / seen.std(0), expected, atol=1e-5)


def test_only_the_entries_that_need_it_change():
    obs = ORDINARY + np.array([0.0, 1e8, 0.0])
    obs[5, 2] = 1e6
    seen = conditioning(obs).rows(obs)
    np.testing.assert_array_equal(seen[:, 0], obs[:, 0].astype(np.float32))
    np.testing.assert_array_equal(np.delete(seen[:, 2], 5), np.delete(obs[:, 2], 5).astype(np.float32))
    assert 10 < seen[5, 2] < 30 and seen[:, 2].std() < 2 * ORDINARY[:, 2].std()


def test_traced_it_is_what_it_is_in_double_precision():
    """As far as an observation in single precision says."""
    obs = (ORDINARY * np.array([1.0, 1e-12, 1.0]) + np.array([1e5, 0.0, 0.0])).astype(np.float32)
    obs[5, 2] = 1e6
    found = conditioning(obs)
    np.testing.assert_allclose(jax.vmap(found)(obs), found.exact(obs), rtol=1e-6)


def test_rows_on_disk_stay_there_and_are_the_same():
    obs = ORDINARY + 1e8
    rows = conditioning(obs).rows(LazyRows.of(InMemory(obs)))
    assert isinstance(rows, LazyRows) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows[np.array([3, 1])], conditioning(obs).rows(obs)[[3, 1]])


def test_without_a_shift_only_outliers_are_moved():
    """Agents see the environment's own observations: those of demonstrations stay in its units."""
    obs = ORDINARY + np.array([0.0, 1e8, 0.0])
    assert conditioning(obs, shift=False) is None
    obs[5, 2] = 1e6
    seen = conditioning(obs, shift=False).rows(obs)
    np.testing.assert_array_equal(seen[:, 1], obs[:, 1].astype(np.float32))
    assert seen[5, 2] < 30


def test_numbers_too_large_for_single_precision_are_refused():
    with pytest.raises(SpaceError, match="in entry 1, expected numbers up to 1e.30"):
        conditioning(ORDINARY * np.array([1.0, 1e35, 1.0]))


def test_pixels_flags_and_states_are_not_measured():
    assert measured(ORDINARY) and measured(np.zeros((4, 2), np.int64))
    for other in (np.zeros((4, 2), np.uint8), np.zeros((4, 2), bool), np.zeros(4, np.int64)):
        assert not measured(other)
