"""Minari data sets are read as they were written, with their demonstrators; damaged ones are refused in one line."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from irleed.data import Demonstrations, lazy
from irleed.data.formats import ReadOptions
from irleed.data.formats.minari import FORMAT, read, read_id, write
from irleed.errors import ConfigError, DataError

minari = pytest.importorskip("minari")
spaces = pytest.importorskip("gymnasium").spaces
from minari.data_collector import EpisodeBuffer  # noqa: E402

KINDS = ("hdf5", "arrow", "parquet", "large")  # the last HDF5 too, read as data are that are too much for memory
BOX = spaces.Box(-9, 9, (2,), np.float32)
THREE = spaces.Discrete(3)
LENGTHS = (3, 2, 4)


@pytest.fixture(autouse=True)
def home(request, tmp_path, monkeypatch):
    """Minari's folder; few bytes are many, where large data are to be tried."""
    if getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind") == "large":
        monkeypatch.setattr(lazy, "LARGE", 1)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "home"))
    return tmp_path / "home"


def buffer(steps: int, number: int, people=None, **changes) -> Any:
    """An episode; the odd ones end with the task, the others with the clock."""
    random = np.random.default_rng(number)
    values = {
        "observations": random.uniform(-9, 9, (steps + 1, 2)).astype(np.float32),
        "actions": random.integers(0, 3, steps),
        "rewards": random.standard_normal(steps),
        "terminations": [False] * (steps - 1) + [number % 2 == 1],
        "truncations": [False] * (steps - 1) + [number % 2 == 0],
        "infos": people,
    }
    return EpisodeBuffer(**values | changes)


def created(name="toy/walk-v0", kind="hdf5", buffers=None, observation=BOX, action=THREE, metadata=None):
    """A data set in Minari's folder."""
    buffers = [buffer(steps, i) for i, steps in enumerate(LENGTHS)] if buffers is None else buffers
    kind = "hdf5" if kind == "large" else kind
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = minari.create_dataset_from_buffers(
            name, buffers, observation_space=observation, action_space=action, data_format=kind, jpeg_encoding=True
        )
    if metadata is not None:
        made.storage.update_episode_metadata(metadata)
    return made


def folder(made):
    """The folder of a data set."""
    return made.storage.data_path.parent


def refusal(call, *args) -> str:
    """The message of the `DataError`, which is one line."""
    with pytest.raises(DataError) as caught:
        call(*args)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert ": got " in message and ", expected " in message
    return message


def episodes(data: Demonstrations) -> list[tuple[list, list, list, bool, str]]:
    """What is in the episodes, one by one."""
    rows, parts = 0, []
    for start, length, owner in zip(data.start, data.length, data.owner, strict=True):
        span, reward = slice(start, start + length), data.reward
        assert reward is not None
        obs, rows = data.obs[rows : rows + length + 1], rows + length + 1
        ended = bool(data.terminated[span][-1])
        parts.append((obs.tolist(), data.action[span].tolist(), reward[span].tolist(), ended, data.names[owner]))
    return parts


def expected(names, numbers=(0, 1, 2)):
    """What `created` wrote, in the layout of `episodes`."""
    parts = []
    for i in numbers:
        made = buffer(LENGTHS[i], i)
        parts.append((made.observations.tolist(), made.actions.tolist(), made.rewards.tolist(), i % 2 == 1, names[i]))
    return parts


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_are_read_as_written(kind):
    path = folder(created(kind=kind))
    assert FORMAT.recognises(path) and FORMAT.recognises(path / "data")
    for data in (
        FORMAT.read(path, ReadOptions()),
        read(path / "data", ReadOptions()),
        read_id("toy/walk-v0", ReadOptions()),
    ):
        assert episodes(data) == expected(["toy/walk-v0"] * 3)
        assert data.obs.dtype == np.float32 and data.action.dtype == np.int64


def test_an_id_that_is_not_there_says_how_to_get_it():
    assert "`minari download D4RL/door/human-v2`" in refusal(read_id, "D4RL/door/human-v2", ReadOptions())


def test_what_is_no_data_set_is_not_recognised(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "file").write_bytes(b"{}")
    for path in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        assert not FORMAT.recognises(path)
        assert "check the path" in refusal(read, path, ReadOptions())
    for content in (b"", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b'{"format": 1}'):
        (tmp_path / "data" / "metadata.json").write_bytes(content)
        assert not FORMAT.recognises(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_demonstrators_of_the_metadata(kind):
    said = [{"operator": "anna", "shift": 1}, {"operator": "ben", "shift": 2}, {"operator": "anna", "shift": 2}]
    path = folder(created(kind=kind, metadata=said))
    for rule in ("data", "episode", "operator"):
        assert episodes(read(path, ReadOptions(rule))) == expected(["anna", "ben", "anna"])
    assert episodes(read(path, ReadOptions("shift"))) == expected(["1", "2", "2"])


def test_a_name_that_is_not_in_every_episode_is_no_default():
    path = folder(created(metadata=[{"operator": "anna"}, {}, {}]))
    assert episodes(read(path, ReadOptions())) == expected(["toy/walk-v0"] * 3)
    message = refusal(read, path, ReadOptions("operator"))
    assert "episode 1: got no 'operator'" in message and "'id', 'total_steps'" in message


@pytest.mark.parametrize("kind", KINDS)
def test_demonstrators_of_the_infos(kind):
    people = [
        {"demonstrator": [who] * (steps + 1)} for who, steps in zip(("anna", "ben", "anna"), LENGTHS, strict=True)
    ]
    buffers = [buffer(steps, i, people[i]) for i, steps in enumerate(LENGTHS)]
    path = folder(created(kind=kind, buffers=buffers))
    for rule in ("data", "episode", "demonstrator"):
        assert episodes(read(path, ReadOptions(rule))) == expected(["anna", "ben", "anna"])


@pytest.mark.parametrize(
    ("kind", "people"), [("hdf5", ("anna", "ben")), ("arrow", (5, 4)), ("parquet", (5, 4)), ("large", ("anna", "ben"))]
)
def test_infos_survive_a_combination(kind, people):
    """`combine_datasets` drops the metadata of episodes, not their infos; of Arrow's, only vectors can be read then."""
    parts = []
    for i, who in enumerate(people):
        values = [np.array([who]) if kind in ("arrow", "parquet") else who] * (LENGTHS[i] + 1)
        one = [buffer(LENGTHS[i], i, {"demonstrator": values})]
        parts.append(created(f"part{i}-v0", kind, one, metadata=[{"operator": "nobody"}]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder(minari.combine_datasets(parts, "both-v0"))
    assert episodes(read(path, ReadOptions())) == expected([str(who) for who in people], (0, 1))
    assert "got no 'operator'" in refusal(read, path, ReadOptions("operator"))


def test_infos_that_change_in_an_episode_name_nobody():
    infos = {"demonstrator": ["a", "b", "b"], "who": {"player": [1, 1, 1]}}
    path = folder(created(buffers=[buffer(2, 1, infos)]))
    assert read(path, ReadOptions()).names == ("toy/walk-v0",)
    assert read(path, ReadOptions("who/player")).names == ("1",)
    message = refusal(read, path, ReadOptions("demonstrator"))
    assert "got no one value of 'demonstrator'" in message and "'who/player'" in message


def test_options_are_metadata_too():
    path = folder(created(buffers=[buffer(2, 1, options={"player": {"name": "zoë"}})]))
    assert read(path, ReadOptions("options/player/name")).names == ("zoë",)


@pytest.mark.parametrize("kind", KINDS)
def test_named_observations_are_joined(kind):
    space = spaces.Dict(
        {
            "body": spaces.Dict({"speed": BOX, "gear": spaces.Discrete(5)}),
            "camera": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "task": spaces.Text(9),
        }
    )
    values = {
        "body": {"speed": np.arange(6, dtype=np.float32).reshape(3, 2), "gear": np.array([4, 3, 2])},
        "camera": np.arange(36, dtype=np.uint8).reshape(3, 2, 2, 3),
        "task": ["go"] * 3,
    }
    path = folder(created(kind=kind, buffers=[buffer(2, 1, observations=values)], observation=space))
    assert np.asarray(read(path, ReadOptions()).obs).tolist() == [[4, 0, 1], [3, 2, 3], [2, 4, 5]]
    assert np.asarray(read(path, ReadOptions(obs=("body/speed", "body/gear"))).obs).tolist() == [
        [0, 1, 4],
        [2, 3, 3],
        [4, 5, 2],
    ]
    assert np.array_equal(read(path, ReadOptions(obs=("camera",))).obs, values["camera"])
    for missing in ("speed", "task"):
        assert "'body/gear', 'body/speed', 'camera'" in refusal(read, path, ReadOptions(obs=(missing,)))


@pytest.mark.parametrize("kind", KINDS)
def test_tuples_and_images(kind):
    parts = (np.arange(6, dtype=np.float32).reshape(3, 2), np.array([1, 0, 1]))
    space = spaces.Tuple((BOX, spaces.Discrete(2)))
    path = folder(created("pair-v0", kind, [buffer(2, 1, observations=parts)], space))
    assert np.asarray(read(path, ReadOptions()).obs).tolist() == [[0, 1, 1], [2, 3, 0], [4, 5, 1]]
    images = np.full((3, 32, 32, 3), 128, np.uint8)
    space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    path = folder(created("seen-v0", kind, [buffer(2, 1, observations=images)], space))
    assert np.array_equal(read(path, ReadOptions()).obs, images)
    assert np.array_equal(read(path, ReadOptions(obs=("observations",))).obs, images)


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_actions(kind):
    shifted, rows = spaces.Discrete(3, start=-1), np.array([[1, 2], [3, 4]], np.float32)
    path = folder(created("shift-v0", kind, [buffer(2, 1, actions=np.array([-1, 1]))], action=shifted))
    assert read(path, ReadOptions(action="actions")).action.tolist() == [0, 2]
    assert "got no 'arm'" in refusal(read, path, ReadOptions(action="arm"))
    path = folder(created("box-v0", kind, [buffer(2, 1, actions=rows)], action=BOX))
    assert np.array_equal(read(path, ReadOptions()).action, rows)
    both = spaces.Dict({"arm": BOX})
    path = folder(created("arm-v0", kind, [buffer(2, 1, actions={"arm": rows})], action=both))
    assert "actions: got Dict" in refusal(read, path, ReadOptions())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"actions": np.array([0, 3])}, "actions: got 0 to 3, expected 0 to 2"),
        ({"actions": np.array([0.0, 0.5])}, "actions: got float64"),
        ({"actions": np.array([[0, 1], [1, 0]])}, "actions: got int64 of shape (2, 2)"),
        ({"actions": np.array([0, 1, 2])}, "3 observations and 3 actions"),
        ({"observations": np.zeros((2, 2), np.float32)}, "2 observations and 2 actions"),
        ({"observations": np.full((3, 2), np.nan, np.float32)}, "obs[0]: got nan"),
        ({"rewards": [0.0, np.inf]}, "reward: got inf"),
        ({"rewards": [0.0]}, "terminations: got bool of shape (2,), expected (1,)"),
        ({"terminations": [True, False]}, "a flag at step 0, expected none before the last step, 1"),
        ({"truncations": [1, 1]}, "truncations: got a flag at step 0"),
        ({"truncations": [0.5, 0.5]}, "truncations: got float64"),
    ],
)
def test_wrong_episodes_are_refused(changes, words):
    message = refusal(read, folder(created(buffers=[buffer(2, 1), buffer(2, 3, **changes)])), ReadOptions())
    assert words in message and "episode 1" in message


def test_a_recording_that_just_stops_is_truncated():
    data = read(folder(created(buffers=[buffer(2, 1, terminations=[False, False])])), ReadOptions())
    assert data.truncated.tolist() == [False, True] and not data.terminated.any()


@pytest.mark.parametrize("kind", KINDS)
def test_lost_episodes_and_spaces_are_noticed(kind):
    path = folder(created(kind=kind))
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    for changes, words in (
        ({"total_episodes": 2}, "got 5 steps, expected 9"),
        ({"total_episodes": 4}, "without 'episode_3'" if kind in ("hdf5", "large") else "got no folder"),
        ({"total_episodes": 10**12}, "without 'episode_3'" if kind in ("hdf5", "large") else "got no folder"),
        ({"total_steps": "many"}, "cannot be read"),
        ({"minari_version": "9.0"}, "a data set of Minari '9.0'"),
        ({"data_format": "tape"}, "cannot be read"),
    ):
        file.write_text(json.dumps(metadata | changes))
        assert words in refusal(read, path, ReadOptions())
    file.write_text(json.dumps({key: value for key, value in metadata.items() if key != "action_space"}))
    assert "expected observation_space and action_space, too" in refusal(read, path, ReadOptions())


@pytest.mark.parametrize("kind", ["hdf5", "arrow", "parquet"])
def test_long_episodes_are_read_whole(kind):
    """Minari 0.5.4 itself splits long episodes of Arrow into batches, and reads one of them."""
    path = folder(created("long-v0", kind, [buffer(40_000, 1), buffer(2, 2)]))
    assert read(path, ReadOptions()).length.tolist() == [40_000, 2]


def test_an_array_too_large_for_its_file_is_not_tried():
    path = folder(created())
    with pytest.importorskip("h5py").File(path / "data" / "main_data.hdf5", "a") as file:
        file["episode_1/rewards"].resize((2**40,))
    assert "/episode_1/rewards: got values that were never written" in refusal(read, path, ReadOptions())


@pytest.mark.parametrize(("kind", "rounds"), [("hdf5", 150), ("arrow", 50), ("parquet", 50), ("large", 150)])
def test_damaged_files_are_refused_or_read(kind, rounds):
    path = folder(created(kind=kind))
    random, refused = np.random.default_rng(0), 0
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for i in range(rounds):
        file = files[i % len(files)]
        whole = file.read_bytes()
        at = int(random.integers(len(whole)))
        flipped = whole[:at] + bytes([whole[at] ^ (1 << int(random.integers(8)))]) + whole[at + 1 :]
        file.write_bytes(whole[:at] if random.random() < 0.3 else flipped)
        try:
            assert isinstance(read(path, ReadOptions()), Demonstrations)
        except DataError as error:
            refused += len(str(error).splitlines()) == 1
        file.write_bytes(whole)
    assert refused > rounds // 4
    assert episodes(read(path, ReadOptions())) == expected(["toy/walk-v0"] * 3)


def test_large_data_stay_in_their_file(monkeypatch, tmp_path):
    """Pictures are decoded when they are asked for, in any order and in any process, as Minari decodes them."""
    space = spaces.Dict({"camera": spaces.Box(0, 255, (200, 160, 3), np.uint8), "arm": BOX})
    random = np.random.default_rng(0)
    buffers = [
        buffer(3, i, observations={
            "camera": np.tile(random.integers(0, 256, (4, 1, 1, 3)), (1, 200, 160, 1)).astype(np.uint8),
            "arm": random.uniform(-9, 9, (4, 2)).astype(np.float32),
        })
        for i in range(3)
    ]  # fmt: skip
    path = folder(created(buffers=buffers, observation=space))
    whole = {name: read(path, ReadOptions(obs=(name,))).obs for name in ("camera", "arm")}
    monkeypatch.setattr(lazy, "LARGE", 9 * (200 * 160 * 3 + 8))  # once decoded; the file is smaller
    assert (path / "data" / "main_data.hdf5").stat().st_size < lazy.LARGE
    asked = np.array([11, 0, 5, 5, 2])
    for name, values in whole.items():
        rows = read(path, ReadOptions(obs=(name,))).obs
        assert isinstance(rows, lazy.LazyRows if name == "camera" else np.ndarray)  # the arm's are few
        assert rows.shape == values.shape and rows.dtype == values.dtype
        assert np.array_equal(rows[asked], values[asked]) and np.array_equal(np.asarray(rows), values)
        assert np.array_equal(pickle.loads(pickle.dumps(rows))[:4], values[:4])


@pytest.mark.parametrize("cut", [0, 40])
def test_a_damaged_picture_is_one_line(monkeypatch, cut):
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    path = folder(
        created(buffers=[buffer(2, 1, observations=images)], observation=spaces.Box(0, 255, (32, 32, 3), np.uint8))
    )
    with pytest.importorskip("h5py").File(path / "data" / "main_data.hdf5", "a") as file:
        dataset = file["episode_0/observations"]
        dataset[1] = dataset[1][:cut] if dataset.dtype.kind == "O" else np.zeros_like(dataset[1])
    monkeypatch.setattr(lazy, "LARGE", 1)
    rows = read(path, ReadOptions()).obs
    assert isinstance(rows, lazy.LazyRows) and rows[:1].shape == (1, 32, 32, 3)
    assert "row 1: got no picture" in refusal(rows.__getitem__, slice(None))


def fingerprint(path) -> dict[str, str]:
    """What is in each file of a folder."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_episodes_are_copied(kind, home):
    people = [{"operator": name} for name in ("anna", "ben", "cleo")]
    buffers = [buffer(steps, i, {"level": [i] * (steps + 1)}, seed=i + 40) for i, steps in enumerate(LENGTHS)]
    path = folder(created(kind=kind, buffers=buffers, metadata=people))
    before, out = fingerprint(path), home / "toy" / "few-v0"
    write(path, out, [2, 0])
    assert fingerprint(path) == before
    assert sorted(entry.name for entry in out.parent.iterdir() if entry.is_dir()) == ["few-v0", "walk-v0"]
    assert episodes(read(out, ReadOptions())) == expected(["anna", "ben", "cleo"], [2, 0])
    assert read(out, ReadOptions("level")).names == ("2", "0")
    copied = minari.load_dataset("toy/few-v0")
    assert (copied.total_episodes, copied.total_steps, copied.id) == (2, 7, "toy/walk-v0")
    assert [episode.id for episode in copied] == [0, 1]
    assert np.array_equal(copied[0].observations, buffer(4, 2).observations)
    metadata = list(copied.storage.get_episode_metadata(range(2)))
    assert [(int(one["id"]), one["seed"], one["operator"]) for one in metadata] == [(0, 42, "cleo"), (1, 40, "anna")]


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_copied_bit_by_bit(kind, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    path = folder(created(kind=kind, buffers=[buffer(2, 1, observations=images)], observation=space))
    write(path, tmp_path / "copy", [0])
    assert np.array_equal(read(tmp_path / "copy", ReadOptions()).obs, read(path, ReadOptions()).obs)


def test_copies_that_cannot_be_made_leave_nothing_behind(tmp_path):
    path = folder(created())
    (tmp_path / "there").mkdir()
    there = sorted(tmp_path.iterdir())
    assert "a path that is taken" in refusal(write, path, tmp_path / "there", [0])
    assert "or in no folder" in refusal(write, path, tmp_path / "no" / "out", [0])
    assert "got episode 3, expected some of 0 to 2" in refusal(write, path, tmp_path / "out", [0, 3])
    assert "got no episodes" in refusal(write, path, tmp_path / "out", [])
    assert "check the path" in refusal(write, tmp_path, tmp_path / "out", [0])
    shutil.copytree(path, tmp_path / "cut")
    (tmp_path / "cut" / "data" / "main_data.hdf5").write_bytes(b"cut")
    assert "a cut or damaged file" in refusal(write, tmp_path / "cut", tmp_path / "out", [0])
    assert sorted(tmp_path.iterdir()) == sorted([*there, tmp_path / "cut"])


@pytest.mark.parametrize("kind", KINDS)
def test_paths_may_be_relative(kind, home, monkeypatch):
    """The library joins a relative path twice where it writes."""
    path = folder(created(kind=kind))
    monkeypatch.chdir(path.parent)
    write(Path(path.name), Path("few-v0"), [1])
    assert episodes(read(Path("few-v0"), ReadOptions())) == expected([path.parent.name + "/" + path.name] * 3, [1])


def test_a_full_disk_is_not_blamed_on_the_data(tmp_path, monkeypatch):
    path = folder(created())

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("irleed.data.formats.minari.shutil.copy", full)
    with pytest.raises(ConfigError, match="No space left on device.*make room there") as caught:
        write(path, tmp_path / "out", [0])
    assert str(tmp_path / "out") in str(caught.value) and not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))
