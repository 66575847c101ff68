"""Robust ranges: what an outlier is, that ordinary data have none, and what single precision cannot tell apart."""

import numpy as np
import pytest

from irleed.data import lazy
from irleed.data.conditioning import Ranges
from irleed.data.lazy import InMemory, LazyRows

RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.normal(size=(500, 2))


def with_value(value: float, row: int = 7) -> np.ndarray:
    changed = NORMAL.copy()
    changed[row, 1] = value
    return changed


@pytest.mark.parametrize(
    "values",
    [
        NORMAL,
        RANDOM.uniform(size=(500, 2)),
        RANDOM.standard_exponential(size=(5000, 2)),
        (RANDOM.random((2000, 3)) < [0.5, 0.02, 0.001]).astype(float),  # flags, however rare
        np.zeros((50, 1)),
        RANDOM.integers(0, 3, (100, 1)),
        NORMAL[:1],
        with_value(1000.0)[:19],  # too few to tell
        NORMAL * 1e307,  # their bulk is wider than the largest number
    ],
)
def test_ordinary_data_have_no_outliers(values):
    found = Ranges.of(values)
    assert found.outliers == () and np.all(found.least == -np.inf) and np.all(found.most == np.inf)
    np.testing.assert_array_equal(found.minimum, values.min(0))
    np.testing.assert_array_equal(found.maximum, values.max(0))


@pytest.mark.parametrize("value", [1000.0, -1000.0, 1e300])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_an_outlier_is_found_at_every_scale_and_left_out_of_the_ends(value, scale):
    (found,) = Ranges.of(with_value(value) * scale).outliers
    assert found.entry == 1 and found.rows.tolist() == [7] and found.values.tolist() == [value * scale]
    others = np.delete(NORMAL[:, 1], 7) * scale
    ranges = Ranges.of(with_value(value) * scale)
    assert (ranges.minimum[1], ranges.maximum[1]) == (others.min(), others.max())
    assert ranges.least[1] < others.min() and others.max() < ranges.most[1]
    assert ranges.least[0] == -np.inf


def test_values_that_are_one_in_fifty_are_part_of_the_distribution():
    values = NORMAL.copy()
    values[:10, 0] = 1000.0
    assert Ranges.of(values).outliers == () and Ranges.of(values).maximum[0] == 1000


def test_of_standardised_columns_an_outlier_is_what_decides_the_standard_deviation():
    assert Ranges.of(with_value(30.0)).outliers and not Ranges.of(with_value(30.0), standardised=True).outliers
    assert Ranges.of(with_value(100.0), standardised=True).outliers


@pytest.mark.parametrize(
    ("offset", "width", "dtype", "coarse"),
    [
        (1e8, 1.0, np.float64, True),
        (1.0, 1e-12, np.float64, True),
        (0.0, 1e-12, np.float64, False),
        (1e8, 1e-9, np.float64, False),  # rounding of their own type
        (100.0, 1.0, np.float32, False),
        (1e9, 5, np.int64, True),
    ],
)
def test_what_single_precision_hardly_tells_apart(offset, width, dtype, coarse):
    values = (offset + width * np.linspace(-1, 1, 101)[:, None]).astype(dtype)
    assert Ranges.of(values).coarse.tolist() == [coarse]


def test_rows_on_disk_have_the_ranges_of_rows_in_memory(monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK", 160)
    values = with_value(1000.0)
    one, other = Ranges.of(values), Ranges.of(LazyRows.of(InMemory(values)))
    for name in ("low", "high", "least", "most", "minimum", "maximum"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert other.outliers[0].rows.tolist() == [7]
