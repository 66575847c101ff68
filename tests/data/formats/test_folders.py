"""Folders whose links lead out of them, and pipes and devices in place of files, are refused in one line.

A pipe that is opened waits for somebody to write to it: a test that hangs is one that failed.
"""

import json
import os
import shutil
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from irleed.data import ReadOptions, load
from irleed.data.formats import minari, robomimic
from irleed.data.io import recognise
from irleed.errors import DataError, IrleedError

SAMPLES = Path(__file__).parent / "samples"
CSV = "episode,obs,action\n0,0,1\n0,1,0\n0,0,\n"


def refused(path, *choices) -> str:
    with pytest.raises(DataError) as caught:
        load(path, ReadOptions(*choices))
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.startswith(str(path)) and "expected" in message
    return message


def walk(home, kind):
    """A Minari data set of two episodes with images, which says who acted in its infos."""
    library, spaces = pytest.importorskip("minari"), pytest.importorskip("gymnasium").spaces
    from minari.data_collector import EpisodeBuffer

    flags = {"terminations": [False] * 3, "truncations": [False, False, True]}
    buffers = [
        EpisodeBuffer(
            observations=np.full((4, 32, 32, 3), 128, np.uint8),
            actions=np.array([0, 1, 2]),
            rewards=np.zeros(3),
            infos={"operator": np.array([[5]] * 4), "level": np.arange(4)},
            **flags,
        )
        for _ in range(2)
    ]
    home.mkdir(exist_ok=True)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("MINARI_DATASETS_PATH", str(home))
        made = library.create_dataset_from_buffers(
            "walk-v0",
            buffers,
            observation_space=spaces.Box(0, 255, (32, 32, 3), np.uint8),
            action_space=spaces.Discrete(3),
            data_format=kind,
            jpeg_encoding=True,
        )
    return made.storage.data_path.parent


def grand_challenge(path):
    """A folder of one game with one episode."""
    (path / "screens/qbert/1").mkdir(parents=True)
    (path / "trajectories/qbert").mkdir(parents=True)
    for frame in range(3):
        Image.new("RGB", (4, 4)).save(path / f"screens/qbert/1/{frame}.png")
    rows = "".join(f"{frame},0,0,{int(frame == 2)},1\n" for frame in range(3))
    (path / "trajectories/qbert/1.txt").write_text("game\nframe,reward,score,terminal,action\n" + rows)
    return path


def copied(tmp_path, kind):
    """A folder of a kind that is read."""
    if kind in ("hdf5", "arrow", "parquet"):
        return walk(tmp_path, kind)
    if kind == "grand_challenge":
        return grand_challenge(tmp_path / "data")
    if kind == "tables":
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "anna.csv").write_text(CSV)
        return tmp_path / "data"
    tmp_path.mkdir(exist_ok=True)
    return Path(shutil.copytree(SAMPLES / kind, tmp_path / "data"))


FILES = [
    ("hdf5", "data/main_data.hdf5"), ("hdf5", "data/metadata.json"), ("hdf5", "data"),
    ("arrow", "data/0/part-0.arrow"), ("arrow", "data/1/metadata.json"), ("arrow", "data/0"),
    ("parquet", "data/0/part-0.parquet"), ("parquet", "data/1"),
    ("imitation", "state.json"), ("imitation", "dataset_info.json"), ("imitation", "data-00000-of-00001.arrow"),
    ("lerobot", "meta/info.json"), ("lerobot", "meta"), ("lerobot", "data/chunk-000/file-000.parquet"),
    ("lerobot", "data/chunk-000"), ("lerobot_video", "meta/episodes/chunk-000/file-000.parquet"),
    ("lerobot_video", "videos"), ("lerobot_video", "videos/observation.images.top/chunk-000/file-000.mp4"),
    ("grand_challenge", "screens/qbert/1/0.png"), ("grand_challenge", "screens/qbert/1/1.png"),
    ("grand_challenge", "screens/qbert/1"), ("grand_challenge", "screens/qbert"),
    ("grand_challenge", "trajectories/qbert"), ("grand_challenge", "trajectories/qbert/1.txt"),
    ("grand_challenge", "trajectories"), ("grand_challenge", "screens"),
    ("lerobot_video", "meta/episodes"), ("tables", "anna.csv"),
]  # fmt: skip


def reading(kind):
    return ReadOptions(obs=("observation.images.top",)) if kind == "lerobot_video" else ReadOptions()


def whole(path, kind):
    if kind == "lerobot_video":
        pytest.importorskip("av")
    return np.asarray(load(path, reading(kind)).obs)


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_links_may_lead_anywhere_in_their_folder_and_nowhere_else(tmp_path, kind, name):
    path = copied(tmp_path, kind)
    expected = whole(path, kind)
    (tmp_path / "link").symlink_to(path)
    np.testing.assert_array_equal(whole(tmp_path / "link", kind), expected)  # the user's own link
    place = path / name
    inner = path / "moved" / f"file{place.suffix}"
    inner.parent.mkdir()
    place.rename(inner)
    place.symlink_to(inner)
    np.testing.assert_array_equal(whole(path, kind), expected)
    outer = tmp_path / f"outside{place.suffix}"
    inner.rename(outer)
    place.unlink()
    place.symlink_to(outer)
    for _ in range(2):
        with pytest.raises(DataError, match="a link that leads out of its folder") as caught:
            load(path, reading(kind))
        assert len(str(caught.value).splitlines()) == 1
        if outer.is_dir():  # then without anything in it: what is there is not even looked up
            shutil.rmtree(outer)
            outer.mkdir()


@pytest.mark.parametrize(("kind", "name"), [file for file in FILES if "." in file[1]])
def test_pipes_and_loops_in_place_of_files_are_refused(tmp_path, kind, name):
    path = copied(tmp_path, kind)
    whole(path, kind)
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(IrleedError) as caught:
        load(path, reading(kind))
    assert len(str(caught.value).splitlines()) == 1
    (path / name).unlink()
    (path / name).symlink_to(path / name)
    with pytest.raises(IrleedError) as caught:
        load(path, reading(kind))
    assert len(str(caught.value).splitlines()) == 1


def test_pipes_and_devices_are_of_no_format(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        assert recognise(path) is None
        with pytest.raises(IrleedError, match="a device or pipe"):
            load(path)
    for kind in (robomimic.D4RL, robomimic.FORMAT):
        with pytest.raises(DataError, match="no file"):
            kind.read(tmp_path / "pipe", ReadOptions())


def test_folders_that_contain_themselves_are_read_once(tmp_path):
    path = copied(tmp_path, "tables")
    (path / "self").symlink_to(".")
    assert load(path).names == ("anna",)
    (path / "above").symlink_to("..")
    assert "a link that leads out of its folder" in refused(path)


def test_the_name_of_a_camera_leads_nowhere_else(tmp_path):
    """It is a part of the path of its videos."""
    pytest.importorskip("av")
    parquet, name, other = pytest.importorskip("pyarrow.parquet"), "observation.images.top", "../../outside"
    path = copied(tmp_path, "lerobot_video")
    info = json.loads((path / "meta/info.json").read_text())
    info["features"][other] = info["features"].pop(name)
    (path / "meta/info.json").write_text(json.dumps(info))
    about = path / "meta/episodes/chunk-000/file-000.parquet"
    table = parquet.read_table(about)
    parquet.write_table(table.rename_columns([column.replace(name, other) for column in table.column_names]), about)
    (path / "videos" / name).rename(tmp_path / "outside")
    with pytest.raises(DataError, match="a link that leads out of its folder"):
        load(path, ReadOptions(obs=(other,)))


def test_a_copy_of_a_data_set_takes_nothing_from_outside(tmp_path):
    for kind, name in (("arrow", "data/1/part-0.arrow"), ("hdf5", "data/main_data.hdf5")):
        path = copied(tmp_path / kind, kind)
        outer = tmp_path / f"outside-{kind}"
        (path / name).rename(outer)
        (path / name).symlink_to(outer)
        with pytest.raises(DataError, match="a link that leads out of its folder"):
            minari.write(path, tmp_path / "copy", [0])
        assert not (tmp_path / "copy").exists()
    path = copied(tmp_path / "external", "hdf5")
    with h5py.File(path / "data/main_data.hdf5", "r+") as file:
        file["episode_0/infos/more"] = h5py.ExternalLink("other.h5", "/")
    with pytest.raises(DataError, match="a link to another file"):
        minari.write(path, tmp_path / "copy", [1])


def test_a_json_file_of_any_size_is_not_parsed(tmp_path):
    for kind, name in (("hdf5", "data/metadata.json"), ("lerobot", "meta/info.json")):
        path = copied(tmp_path / kind, kind)
        with (path / name).open("ab") as file:
            file.truncate(1 << 26)
        assert "67,108,864 bytes, expected at most 33,554,432" in refused(path)
