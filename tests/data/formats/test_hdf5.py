"""Files of robomimic and D4RL are read as they were written, or refused in one line."""

import sys
from typing import Any

import h5py
import numpy as np
import pytest

from irleed.data import Demonstrations
from irleed.data.formats import ReadOptions, hdf5
from irleed.data.formats.robomimic import D4RL, NEEDED, demo_names, write_masks
from irleed.data.formats.robomimic import FORMAT as ROBOMIMIC
from irleed.errors import ConfigError, DataError

NUMBERS = (0, 1, 2, 10)


def demonstration(number: int, length: int = 3) -> dict[str, np.ndarray]:
    """The arrays of one demonstration; `next_obs` follow `obs`."""
    random = np.random.default_rng(number)
    pose, image = random.standard_normal((length + 1, 2)), random.integers(0, 256, (length + 1, 4, 4, 3), np.uint8)
    speed = random.standard_normal(length + 1)
    named = {"pose": pose, "image": image, "speed": speed}
    return {
        "actions": random.standard_normal((length, 2)),
        "rewards": np.arange(length, dtype=float),
        "dones": np.array([0] * (length - 1) + [number % 2]),
        **{f"obs/{name}": values[:-1] for name, values in named.items()},
        **{f"next_obs/{name}": values[1:] for name, values in named.items()},
    }


def robomimic(path, masks=None, drop=(), change=None, numbers=NUMBERS, **options):
    """A file as robomimic writes it, without the entries that start like those of `drop`, and with some changed."""
    with h5py.File(path, "w") as file:
        file.create_group("data")
        for number in numbers:
            group = file.create_group(f"data/demo_{number}")
            group.attrs["num_samples"] = 3
            group.attrs["operator"] = f"op {number % 2}"
            group.attrs["number"] = number // 2
            arrays = demonstration(number) | ((change or {}) if number == 2 else {})
            for name, values in arrays.items():
                if not name.startswith(tuple(drop)):
                    group.create_dataset(name, data=values, **options)
        for name, members in (masks or {}).items():
            file[f"mask/{name}"] = np.array([f"demo_{i}" for i in members], dtype="S")
    return path


def steps() -> dict[str, np.ndarray]:
    """Columns of 9 steps: episodes of 3 steps, 4 steps and the first 2 steps of another."""
    random, start = np.random.default_rng(0), np.array([0, 3, 7])
    rows = random.standard_normal((12, 2)).astype("f4")
    row = np.array([0, 1, 2, 4, 5, 6, 7, 9, 10])
    return {
        "observations": rows[row],
        "next_observations": rows[row + 1],
        "actions": random.standard_normal((9, 1)).astype("f4"),
        "rewards": np.arange(9, dtype="f4"),
        "terminals": np.arange(9) == start[1] - 1,
        "timeouts": np.arange(9) == start[2] - 1,
        "infos/who": np.array([b"anna"] * 3 + [b"ben"] * 4 + [b"anna"] * 2),
        "infos/person": np.repeat([4, 4, 5], [3, 4, 2]),
        "infos/pose": np.arange(27.0).reshape(9, 3),
        "metadata/version": np.array(2),
    }


def columns(path, drop=(), **change):
    """A file as D4RL writes it."""
    with h5py.File(path, "w") as file:
        for name, values in (steps() | change).items():
            if name not in drop:
                file[name] = values
    return path


def owners(data: Demonstrations) -> list[str]:
    return [data.names[i] for i in data.owner]


def test_a_robomimic_file_is_read_by_number(tmp_path):
    path = robomimic(tmp_path / "lift.hdf5")
    data = ROBOMIMIC.read(path, ReadOptions())
    assert ROBOMIMIC.recognises(path)
    assert demo_names(path) == ("demo_0", "demo_1", "demo_2", "demo_10")
    assert data.names == ("lift",)
    assert data.length.tolist() == [3] * 4
    for i, number in enumerate(NUMBERS):
        demo, mine = demonstration(number), data.take([i])
        np.testing.assert_array_equal(mine.observation, np.c_[demo["obs/pose"], demo["obs/speed"]])
        np.testing.assert_array_equal(mine.next_observation, np.c_[demo["next_obs/pose"], demo["next_obs/speed"]])
        np.testing.assert_array_equal(mine.action, demo["actions"])
        np.testing.assert_array_equal(mine.reward, demo["rewards"])
        assert mine.terminated.tolist() == [False, False, number % 2 == 1]


def test_robomimic_images_are_read_when_chosen_and_actions_by_name(tmp_path, refusal):
    path = robomimic(tmp_path / "lift.hdf5", compression="gzip")
    data = ROBOMIMIC.read(path, ReadOptions(obs=("image",), action="obs/pose"))
    np.testing.assert_array_equal(data.take([3]).observation, demonstration(10)["obs/image"])
    np.testing.assert_array_equal(data.take([3]).action, demonstration(10)["obs/pose"])
    assert "'pose'" in refusal(path, kind=ROBOMIMIC, obs=("touch",))


def test_without_next_obs_the_last_action_is_dropped(tmp_path):
    early = {"dones": np.array([0, 1, 1])}
    data = ROBOMIMIC.read(robomimic(tmp_path / "x.h5", drop=("next_obs", "rewards"), change=early), ReadOptions())
    assert data.length.tolist() == [2] * 4
    assert data.reward is None
    np.testing.assert_array_equal(data.take([0]).next_observation[:, :2], demonstration(0)["obs/pose"][1:])
    assert data.terminated.tolist() == [False] * 5 + [True] + [False] * 2  # by the flag of the last action kept


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({"better_operator_1": [0, 10], "worse_operator_2": [1, 2], "better_operator_1_train": [0], "better": [0]},
         ["better_operator_1", "worse_operator_2", "worse_operator_2", "better_operator_1"]),
        ({"better_operator_1": [0], "better": [0, 1], "okay": [2], "worse": [10, 11], "train": [0]},
         ["better", "better", "okay", "worse"]),
        ({"better": [0, 1, 2], "worse": [2, 10]}, ["x"] * 4),
        ({"better_operator_1": [0, 1], "worse_operator_1": [2]}, ["x"] * 4),
        ({"train": [0, 1], "valid": [2, 10]}, ["x"] * 4),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rule", ["data", "episode"])
def test_robomimic_masks_name_operators_if_they_share_out_the_demos(tmp_path, masks, expected, rule):
    path = robomimic(tmp_path / "x.hdf5", masks)
    assert owners(ROBOMIMIC.read(path, ReadOptions(demonstrator=rule))) == expected


def test_robomimic_demonstrators_by_attribute_and_by_masks(tmp_path, refusal):
    path = robomimic(tmp_path / "x.hdf5", {"a": [0, 1], "b": [2, 10], "train": [0], "b_valid": [2]})

    def by(rule):
        return owners(ROBOMIMIC.read(path, ReadOptions(demonstrator=rule)))

    assert by("operator") == ["op 0", "op 1", "op 0", "op 0"]
    assert by("number") == ["0", "0", "1", "5"]
    assert by("mask") == by("a,b") == by("b, a") == ["a", "a", "b", "b"]
    assert "demo_1 in masks none" in refusal(path, kind=ROBOMIMIC, demonstrator="b,train")
    assert "demo_0 in masks 'a', 'train'" in refusal(path, kind=ROBOMIMIC, demonstrator="a,b,train")
    message = refusal(path, kind=ROBOMIMIC, demonstrator="who")
    assert "no attribute 'who'" in message
    assert "'number', 'operator'" in message
    assert "'a', 'b', 'b_valid', 'train'" in message
    with h5py.File(path, "r+") as file:
        file["data/demo_2"].attrs["operator"] = [1, 2]
    assert "attribute 'operator'" in refusal(path, kind=ROBOMIMIC, demonstrator="operator")
    assert "demo_0 in masks none" in refusal(robomimic(tmp_path / "y.hdf5"), kind=ROBOMIMIC, demonstrator="mask")


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("actions", np.zeros((4, 2)), "/data/demo_2: got lengths actions 4, dones 3, obs 3"),
        ("actions", np.array([b"x"] * 3), "numbers"),
        ("actions", np.full((3, 2), np.nan), "finite"),
        ("obs/pose", np.zeros((3, 3)), "'pose': (3,)"),
        ("obs/extra", np.zeros((3, 3)), "'extra': (3,)"),
        ("next_obs/pose", np.zeros((3, 2)), "/data/demo_2/next_obs, row 0"),
        ("next_obs/pose", np.zeros((3, 3)), "shape (3, 4)"),
        ("dones", np.array([0, 0, 2]), "/data/demo_2/dones, row 2: got 2"),
        ("dones", np.zeros((3, 2)), "shape (3, 2)"),
        ("rewards", np.zeros((3, 2)), "shape (3, 2)"),
        ("rewards", np.zeros(0), "at least one row"),
    ],
)
def test_what_robomimic_would_not_write_is_refused(tmp_path, name, values, said, refusal):
    assert said in refusal(robomimic(tmp_path / "x.hdf5", change={name: values}), kind=ROBOMIMIC)


@pytest.mark.parametrize("name", ["actions", "dones", "obs"])
def test_what_is_missing_in_a_demo_is_said_with_what_is_there(tmp_path, name, refusal):
    message = refusal(robomimic(tmp_path / "x.hdf5", drop=(name,)), kind=ROBOMIMIC)
    assert f"/data/demo_0/{name}: got no" in message
    assert "'rewards'" in message


def test_groups_that_are_no_demos_and_wrong_counts_are_refused(tmp_path, refusal):
    path = robomimic(tmp_path / "x.hdf5")
    with h5py.File(path, "r+") as file:
        file["data/demo_1"].attrs["num_samples"] = 5
    assert "num_samples 5" in refusal(path, kind=ROBOMIMIC)
    with h5py.File(path, "r+") as file:
        file.create_group("data/episode_1")
    assert "'episode_1'" in refusal(path, kind=ROBOMIMIC)
    assert "nothing" in refusal(robomimic(tmp_path / "y.hdf5", numbers=()), kind=ROBOMIMIC)
    assert "'observations'" in refusal(columns(tmp_path / "z.hdf5"), kind=ROBOMIMIC)


@pytest.mark.parametrize("chunks", [None, (2, 2)])
def test_values_never_written_or_kept_elsewhere_are_refused(tmp_path, chunks, refusal):
    path = robomimic(tmp_path / "x.hdf5", drop=("actions",))
    with h5py.File(path, "r+") as file:
        for number in NUMBERS:
            file.create_dataset(f"data/demo_{number}/actions", (3, 2), "f8", chunks=chunks)
    assert "never written" in refusal(path, kind=ROBOMIMIC)
    with h5py.File(path, "r+") as file:
        del file["data/demo_0/actions"]
        layout = h5py.VirtualLayout((3, 2), "f8")
        layout[:] = h5py.VirtualSource("other.h5", "actions", (3, 2))
        file.create_virtual_dataset("data/demo_0/actions", layout)
    assert "another file" in refusal(path, kind=ROBOMIMIC)


def test_masks_are_written_as_robomimic_reads_them(tmp_path):
    source, out = robomimic(tmp_path / "x.hdf5", {"train": [0, 1]}), tmp_path / "y.hdf5"
    before = source.read_bytes()
    write_masks(source, out, {"best": ["demo_10", "demo_2"], "rest": ("demo_0", "demo_1")})
    assert source.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"x.hdf5", "y.hdf5"}
    with h5py.File(out) as file:
        f: Any = file
        assert [elem.decode("utf-8") for elem in np.array(f["mask/best"][:])] == ["demo_10", "demo_2"]
        assert [elem.decode("utf-8") for elem in np.array(f["mask/train"][:])] == ["demo_0", "demo_1"]
        assert f["mask/best"].dtype == "S7"
    data = ROBOMIMIC.read(out, ReadOptions(demonstrator="best,rest"))
    assert owners(data) == ["rest", "rest", "best", "best"]


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        ({"train": ["demo_0"]}, "a mask that exists"),
        ({"a": ["demo_3"]}, "'demo_3'"),
        ({"a": ["demo_0", "demo_0"]}, "2 names, 1 of them different"),
        ({"a": []}, "0 names"),
        ({"a/b": ["demo_0"]}, "no name for a mask"),
    ],
)
def test_masks_that_cannot_be_added_are_refused_and_nothing_is_left(tmp_path, masks, said):
    source = robomimic(tmp_path / "x.hdf5", {"train": [0]})
    with pytest.raises(DataError, match=said):
        write_masks(source, tmp_path / "y.hdf5", masks)
    assert list(tmp_path.iterdir()) == [source]


def test_masks_are_written_over_nothing_and_only_where_a_file_can_be(tmp_path):
    source = robomimic(tmp_path / "x.hdf5")
    (tmp_path / "y.hdf5").write_text("mine")
    for out in (source, tmp_path / "y.hdf5"):
        with pytest.raises(DataError, match="a file that exists"):
            write_masks(source, out, {"a": ["demo_0"]})
    assert (tmp_path / "y.hdf5").read_text() == "mine"
    for out in (tmp_path / "no" / "z.hdf5", source / "z.hdf5"):
        with pytest.raises(DataError, match="an unwritable place"):
            write_masks(source, out, {"a": ["demo_0"]})
    with pytest.raises(DataError, match="damaged"):
        write_masks(tmp_path / "y.hdf5", tmp_path / "z.hdf5", {"a": ["demo_0"]})


def test_a_d4rl_file_is_cut_where_episodes_end(tmp_path):
    path = columns(tmp_path / "hopper.hdf5")
    data = D4RL.read(path, ReadOptions())
    assert D4RL.recognises(path)
    assert not ROBOMIMIC.recognises(path)
    assert data.names == ("hopper",)
    assert data.length.tolist() == [3, 4, 2]
    np.testing.assert_array_equal(data.observation, steps()["observations"])
    np.testing.assert_array_equal(data.next_observation, steps()["next_observations"])
    np.testing.assert_array_equal(data.action, steps()["actions"])
    np.testing.assert_array_equal(data.reward, steps()["rewards"])
    assert np.flatnonzero(data.terminated).tolist() == [2]
    assert np.flatnonzero(data.truncated).tolist() == [6, 8]


def test_without_next_observations_the_last_action_of_every_episode_is_dropped(tmp_path, refusal):
    drop = ("next_observations", "timeouts", "rewards")
    ends = np.array([[0], [0], [1.0], [1], [0], [0], [0], [1], [0]])  # two episodes of one step
    data = D4RL.read(columns(tmp_path / "x.hdf5", drop, terminals=ends), ReadOptions())
    obs = steps()["observations"]
    np.testing.assert_array_equal(data.observation, obs[[0, 1, 4, 5, 6]])
    np.testing.assert_array_equal(data.next_observation, obs[[1, 2, 5, 6, 7]])
    np.testing.assert_array_equal(data.action, steps()["actions"][[0, 1, 4, 5, 6]])
    assert not data.terminated.any()
    assert data.reward is None
    assert "no episodes" in refusal(columns(tmp_path / "y.hdf5", drop, terminals=np.ones(9, bool)), kind=D4RL)


def test_d4rl_demonstrators_and_observations_by_path(tmp_path, refusal):
    path = columns(tmp_path / "x.hdf5")
    assert owners(D4RL.read(path, ReadOptions("infos/who"))) == ["anna", "ben", "anna"]
    assert owners(D4RL.read(path, ReadOptions("infos/person"))) == ["4", "4", "5"]
    data = D4RL.read(path, ReadOptions("episode", obs=("infos/pose",), action="infos/person"))
    np.testing.assert_array_equal(data.observation, steps()["infos/pose"][[0, 1, 3, 4, 5, 7]])
    assert data.action.tolist() == [4] * 5 + [5]
    message = refusal(path, kind=D4RL, demonstrator="who")
    assert "'infos/person', 'infos/pose', 'infos/who'" in message
    assert "metadata/version" not in message
    assert "shape (9, 3)" in refusal(path, kind=D4RL, demonstrator="infos/pose")
    assert "'infos/pose'" in refusal(path, kind=D4RL, obs=("pose",))
    changed = {"infos/person": np.repeat([4, 5], [4, 5])}
    message = refusal(columns(tmp_path / "y.hdf5", **changed), kind=D4RL, demonstrator="infos/person")
    assert "infos/person, row 4" in message


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("observations", np.zeros((8, 2)), "observations 8"),
        ("actions", np.zeros((8, 1)), "actions 8"),
        ("timeouts", np.zeros(8), "timeouts 8"),
        ("rewards", np.zeros((9, 2)), "/rewards: got shape (9, 2)"),
        ("terminals", np.arange(9), "/terminals, row 2: got 2"),
        ("terminals", np.zeros(9, bool), "/next_observations, row 2"),
        ("next_observations", np.zeros((9, 3)), "shape (9, 3)"),
        ("observations", np.full((9, 2), np.inf), "another observation"),
        ("actions", np.full((9, 1), np.nan), "finite"),
    ],
)
def test_what_d4rl_would_not_write_is_refused(tmp_path, name, values, said, refusal):
    assert said in refusal(columns(tmp_path / "x.hdf5", **{name: values}), kind=D4RL)


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_missing_in_columns_is_said_with_what_is_there(tmp_path, name, refusal):
    message = refusal(columns(tmp_path / "x.hdf5", drop=(name,)), kind=D4RL)
    assert f"got no {name}" in message
    assert "'infos', 'metadata', 'next_observations'" in message


def test_other_files_are_not_recognised(tmp_path, refusal):
    (tmp_path / "text").write_text("text")
    (tmp_path / "magic").write_bytes(hdf5.MAGIC)
    for kind in (ROBOMIMIC, D4RL):
        for path in (tmp_path, tmp_path / "none", tmp_path / "text", tmp_path / "a\0b"):
            assert not kind.recognises(path)
        assert "damaged" in refusal(tmp_path / "magic", kind=kind)
    assert not ROBOMIMIC.recognises(tmp_path / "magic")


def test_without_h5py_files_are_recognised_and_reading_says_what_to_install(tmp_path, monkeypatch):
    path = robomimic(tmp_path / "x.hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    for kind in (ROBOMIMIC, D4RL):
        assert kind.recognises(path)
        with pytest.raises(ConfigError, match=r"pip install 'irleed\[formats\]'"):
            kind.read(path, ReadOptions())
        assert not kind.recognises(tmp_path)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [ROBOMIMIC, D4RL])
def test_damaged_files_are_read_or_refused(tmp_path, kind, seed):
    path, random = tmp_path / "x.hdf5", np.random.default_rng(seed)
    if kind is D4RL:
        columns(path)
    else:
        robomimic(path, {"better": [0], "worse": [1]}, numbers=(0, 1), compression="gzip" if seed else None)
    sound, refused = path.read_bytes(), 0
    rule = "data" if kind is ROBOMIMIC else "infos/who"
    for i in range(60):
        spoilt = bytearray(sound)
        if i % 4 == 0:
            spoilt = spoilt[: random.integers(len(sound))]
        else:
            spoilt[random.integers(len(sound))] ^= 1 << random.integers(8)
        path.write_bytes(spoilt)
        kind.recognises(path)
        try:
            assert kind.read(path, ReadOptions(rule)).episodes
        except DataError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused >= 15
