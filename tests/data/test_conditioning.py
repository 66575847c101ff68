"""Observations that single precision or outliers would spoil are mended, others untouched; tracing does the same."""

import jax
import numpy as np
import pytest

from irleed.data import Demonstrations, Episode, lazy, summarise
from irleed.data.conditioning import Conditioning, Ranges, choices, measured
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


@pytest.mark.parametrize(("offset", "scale"), [(1e8, 1.0), (1.0, 1e-12), (0.0, 1e20), (-3e9, 1e-4)])
def test_conditioned_observations_are_undone(offset, scale):
    obs = offset + scale * ORDINARY
    found = conditioning(obs)
    assert found is not None
    np.testing.assert_allclose(found.undone(found.exact(obs)), obs, rtol=1e-6, atol=1e-6 * scale)


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


ROWS = 600


def columns(**more) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    bell = generator.normal(size=ROWS)
    return {
        "gripper": np.where(generator.uniform(size=ROWS) < 0.3, 1.0, -1.0),
        "stick": generator.choice([-1.0, 0.0, 0.5, 1.0], ROWS),
        "torque": np.clip(1.5 * bell, -1, 1),
        "pedal": np.maximum(bell, 0),
        "speed": bell,
        "even": generator.uniform(-1, 1, ROWS),
        "grid": np.round(10 * generator.uniform(-1, 1, ROWS)) / 10,
        "still": np.zeros(ROWS),
        **more,
    }


@pytest.mark.parametrize(
    ("name", "values", "free"),
    [
        ("gripper", (-1, 1), False),
        ("stick", (-1, 0, 0.5, 1), False),
        ("torque", (-1, 1), True),
        ("pedal", (0,), True),
        ("speed", None, True),
        ("even", None, True),
        ("grid", None, True),
        ("still", None, True),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_a_choice(name, values, free, dtype):
    found = choices(columns()[name][:, None].astype(dtype))
    assert [(each.values, each.free) for each in found] == ([] if values is None else [(values, free)])
    assert all(0.2 < sum(each.share) <= 1 for each in found)


def test_an_outlier_hides_no_choice_and_few_transitions_make_none():
    gripper = columns()["gripper"][:, None]
    stray = np.where(np.arange(ROWS)[:, None] == 7, 1e4, columns()["torque"][:, None])
    assert choices(stray)[0].values == (-1, 1)
    assert choices(gripper[:30]) == ()


def test_inspect_names_them_in_one_line():
    table = np.stack([columns()[name] for name in ("speed", "gripper", "torque")], 1).astype(np.float32)
    obs = np.zeros((ROWS + 1, 1), np.float32)
    data = Demonstrations.from_episodes([Episode(obs=obs, action=table, demonstrator="a", terminated=False)])
    said = [warning for warning in summarise(data)["warnings"] if "choices" in warning]
    assert len(said) == 1 and "1 is one of -1 (" in said[0] and "; 2 is often at -1 (" in said[0]
