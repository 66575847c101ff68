"""What imitation, LeRobot and robomimic wrote themselves is read with every value; `samples/README.md` says how."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from irleed.data import Episode, ReadOptions, load
from irleed.data.formats import imitation, lerobot, robomimic
from irleed.data.io import recognise

SAMPLES = Path(__file__).parent / "samples"
PLAYED = (("ann", 3), ("ben", 2), ("ann", 4))  # in the samples of imitation and LeRobot
DEMOS = {0: 3, 1: 2, 2: 4, 10: 3}  # in that of robomimic
OPERATORS = {0: "better_operator_1", 1: "worse_operator_1", 2: "worse_operator_1", 10: "better_operator_1"}


def played(number: int, frames: int) -> Episode:
    """An episode of that many observations: LeRobot stores as many as actions, of which the last is left out."""
    t = np.arange(frames)
    obs = np.stack([number + t / 8, -t], 1).astype(np.float32)
    return Episode(obs, (number + t[:-1]) % 3, number != 1, PLAYED[number][0], t[:-1] / 4)


def demo(number: int) -> Episode:
    """A point that moves from the origin; the task ends where its first coordinate reaches 2."""
    t = np.arange(DEMOS[number])
    action = np.stack([(1 + t) / 4, (number - t) / 16], 1)
    place = np.concatenate([np.zeros((1, 2)), np.cumsum(action, 0)])
    reward = (place[1:, 0] >= 2).astype(float)
    return Episode(np.c_[place, place.sum(1)], action, reward[-1] == 1, OPERATORS[number], reward)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("imitation", imitation.FORMAT, [played(i, n + 1) for i, (_, n) in enumerate(PLAYED)]),
        ("lerobot", lerobot.FORMAT, [played(i, n) for i, (_, n) in enumerate(PLAYED)]),
        ("robomimic.hdf5", robomimic.FORMAT, [demo(number) for number in DEMOS]),
    ],
)
def test_samples_are_read_as_they_were_written(name, kind, expected):
    assert recognise(SAMPLES / name) is kind
    data = load(SAMPLES / name)
    for found, made in zip(data.split(), expected, strict=True):
        assert found.demonstrator == made.demonstrator
        assert found.terminated == made.terminated
        for part in ("obs", "action", "reward"):
            one, other = np.asarray(getattr(found, part)), np.asarray(getattr(made, part))
            np.testing.assert_array_equal(one, other)
            assert one.dtype.kind == other.dtype.kind
    assert len(load(SAMPLES / name, ReadOptions("episode")).names) == len(expected)


def test_robomimic_finds_what_was_masked(tmp_path):
    """As its `SequenceDataset` looks a filter key up."""
    robomimic.write_masks(SAMPLES / "robomimic.hdf5", tmp_path / "copy.hdf5", {"irleed_keep": ["demo_2", "demo_10"]})
    with h5py.File(tmp_path / "copy.hdf5", "r", swmr=True, libver="latest") as file:
        assert [name.decode("utf-8") for name in np.array(file["mask/irleed_keep"][:])] == ["demo_2", "demo_10"]
        assert set(file["mask"]) == {"better_operator_1", "worse_operator_1", "train", "valid", "irleed_keep"}
    assert owners(tmp_path / "copy.hdf5") == owners(SAMPLES / "robomimic.hdf5") == list(OPERATORS.values())


def owners(path: Path) -> list[str]:
    return [episode.demonstrator for episode in load(path).split()]


def test_what_is_written_for_imitation_has_the_columns_that_it_writes(tmp_path):
    """A column more and `imitation.data.serialize.load` fails: it hands all of them to its class of trajectories."""
    imitation.write(load(SAMPLES / "imitation"), tmp_path / "copy")
    ours, theirs = (load_columns(path) for path in (tmp_path / "copy", SAMPLES / "imitation"))
    assert ours == theirs
    assert owners(tmp_path / "copy") == [name for name, _ in PLAYED]


def load_columns(path: Path) -> dict[str, str]:
    datasets = pytest.importorskip("datasets")
    return {name: str(kind) for name, kind in datasets.load_from_disk(str(path)).features.items()}


def test_weights_join_the_episodes_of_lerobot(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    lerobot.write_weights(tmp_path / "weights.parquet", [0, 1, 2], [1.0, 0.5, 2.0])
    about = parquet.read_table(SAMPLES / "lerobot/meta/episodes/chunk-000/file-000.parquet")
    both = about.select(["episode_index", "length"]).join(
        parquet.read_table(tmp_path / "weights.parquet"), "episode_index"
    )
    assert both.sort_by("episode_index").to_pydict() == {
        "episode_index": [0, 1, 2],
        "length": [steps for _, steps in PLAYED],
        "weight": [1.0, 0.5, 2.0],
    }
