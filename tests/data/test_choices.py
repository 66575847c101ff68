"""Entries of actions that are choices are found, and others are not."""

import numpy as np
import pytest

from irleed.data import Demonstrations, Episode, summarise
from irleed.data.conditioning import choices

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
