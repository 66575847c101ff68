"""What the cameras of a LeRobot folder saw is decoded frame by frame, each at its place, or refused in one line."""

import io
import json
import multiprocessing
import pickle
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from irleed.data import lazy
from irleed.data.formats import ReadOptions, lerobot
from irleed.data.formats import media as video
from irleed.data.formats.lerobot import FORMAT
from irleed.data.lazy import LazyRows
from irleed.errors import ConfigError, DataError

SAMPLE = Path(__file__).parent / "samples" / "lerobot_video"
TOP, WRIST = ReadOptions(obs=("observation.images.top",)), ReadOptions(obs=("observation.images.wrist",))
LENGTHS = (12, 5, 20, 3)
FILES = (0, 0, 1, 1)  # of each episode
ROWS, FPS = sum(LENGTHS), 10
# A key frame in every two, as LeRobot writes them; and few of them, with frames that are stored out of order.
CODECS = {"short": {"g": "2", "bf": "0"}, "long": {"g": "250", "bf": "3", "b_strategy": "0"}}


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(lazy, "LARGE", 1)


def pictures(count: int = ROWS, height: int = 32, width: int = 48) -> np.ndarray:
    """Brighter from frame to frame above, red below on the left."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[:, : height // 2] = 20 + 5 * np.arange(count)[:, None, None, None]
    frames[:, height // 2 :, : width // 2, 0] = 200
    return frames


def film(path: Path, frames: np.ndarray, options: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options=options | {"crf": "10"})
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        stream.codec_context.thread_count = 1
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, "rgb24")))
        container.mux(stream.encode())


def png(frame: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(frame).save(stream, kind)
    return stream.getvalue()


def folder(path: Path, codec: str = "short", info=(), about=(), camera=(), frames=()) -> Path:
    """Four episodes in two videos, and the same as images in row groups of seven."""
    one = {"dtype": "video", "shape": [32, 48, 3], "names": ["height", "width", "channels"]} | dict(camera)
    features = {"observation.images.top": one, "observation.images.wrist": one | {"dtype": "image"}}
    begin = [0.0, 1.2, 0.0, 2.0]
    said = {"chunk_index": [0] * 4, "file_index": list(FILES), "from_timestamp": begin}
    said |= {"to_timestamp": [b + n / FPS for b, n in zip(begin, LENGTHS, strict=True)]} | dict(about)
    episodes = {f"videos/observation.images.top/{name}": values for name, values in said.items()}
    encoded = [{"bytes": png(frame), "path": f"{i}.png"} for i, frame in enumerate(pictures())]
    columns = {
        "episode_index": np.repeat(range(4), LENGTHS),
        "action": np.arange(ROWS) / 4,
        "observation.state": pictures()[:, :2, 0, 0].tolist(),
        "observation.images.wrist": encoded,
    }
    head = {"codebase_version": "v3.0", "fps": FPS, "features": features} | dict(info)
    tables = {"meta/episodes": {"episode_index": range(4)} | episodes, "data": columns | dict(frames)}
    for name, table in tables.items():
        (path / name / "chunk-000").mkdir(parents=True)
        pq.write_table(pa.table(table), path / name / "chunk-000" / "file-000.parquet", row_group_size=7)
    (path / "meta" / "info.json").write_text(json.dumps(head))
    for number, part in enumerate(np.split(pictures(), [17])):
        film(clip(path, number), part, CODECS[codec])
    return path


def clip(path: Path, number: int = 0) -> Path:
    return path / "videos" / "observation.images.top" / "chunk-000" / f"file-{number:03d}.mp4"


def check_frames(found: np.ndarray, rows, most: int = 2) -> None:
    """They are these rows: one brighter or darker would be 5 away."""
    assert found.dtype == np.uint8
    expected = pictures()[rows].astype(int)
    bright = found[..., : found.shape[-3] // 2, :, :].mean((-3, -2, -1))
    np.testing.assert_allclose(bright, expected[..., :16, :, :].mean((-3, -2, -1)), atol=most)
    assert np.abs(found - expected).mean() < most and np.abs(found - expected)[..., :12, :, :].max() <= most


def test_what_lerobot_filmed_is_read_as_it_was_filmed():
    frames = np.zeros((9, 32, 48, 3), int)
    frames[:, :16], frames[:, 16:, :24, 0] = 20 + 25 * np.arange(9)[:, None, None, None], 200
    top, wrist = FORMAT.read(SAMPLE, TOP), FORMAT.read(SAMPLE, WRIST)
    np.testing.assert_array_equal(wrist.obs, frames[:, ::-1])
    assert np.abs(top.obs - frames)[:, :12].max() <= 6 and np.abs(top.obs - frames).mean() < 2
    assert top.obs.shape == (9, 32, 48, 3) and top.obs.dtype == np.uint8
    np.testing.assert_array_equal(top.length, [2, 1, 3])
    np.testing.assert_array_equal(top.action[:, 0], [0, 0.25, 0, 0, 0.25, 0.5])


@pytest.mark.parametrize("codec", CODECS)
def test_frames_are_those_of_their_rows_in_any_order(tmp_path, codec, monkeypatch):
    path = folder(tmp_path / "data", codec)
    whole = FORMAT.read(path, TOP)
    monkeypatch.setattr(lazy, "LARGE", 1)
    large = FORMAT.read(path, TOP)
    assert isinstance(whole.obs, np.ndarray) and isinstance(large.obs, LazyRows)
    check_frames(whole.obs, np.arange(ROWS))
    order = np.random.default_rng(0).integers(0, ROWS, 60)
    np.testing.assert_array_equal(large.obs[order], whole.obs[order])
    for row in order[:20]:
        np.testing.assert_array_equal(large.obs[int(row)], whole.obs[row])
    part = large.take([3, 1])
    np.testing.assert_array_equal(part.obs, np.concatenate([whole.obs[37:], whole.obs[12:17]]))


def test_neighbours_are_decoded_in_one_go(tmp_path, everything_is_large, monkeypatch):
    jumps, decoded = [], []
    jump, following = video.Clip._jump, video.Clip._next
    monkeypatch.setattr(video.Clip, "_jump", lambda self, time: jumps.append(time) or jump(self, time))
    monkeypatch.setattr(video.Clip, "_next", lambda self: decoded.append(1) or following(self))
    data = FORMAT.read(folder(tmp_path / "data", "long"), TOP)
    assert len(jumps) == 3  # to the first frame, and to the last of each file: no more is decoded to open the folder
    jumps.clear(), decoded.clear()
    check_frames(data.obs[:17], np.arange(17))
    check_frames(np.stack([data.obs[row] for row in range(17, ROWS)]), np.arange(17, ROWS))
    assert len(jumps) == 2 and len(decoded) <= ROWS + 2


def test_images_are_what_was_stored(tmp_path, everything_is_large):
    jpeg = [{"bytes": png(frame, "JPEG"), "path": None} for frame in pictures()]
    for path, most in ((folder(tmp_path / "a"), 0), (folder(tmp_path / "b", frames={WRIST.obs[0]: jpeg}), 3)):
        data = FORMAT.read(path, WRIST)
        assert isinstance(data.obs, LazyRows) and data.obs.shape == (ROWS, 32, 48, 3)
        order = [39, 3, 3, 20, *range(ROWS)]
        assert np.abs(data.obs[order][:, :12] - pictures()[order].astype(int)[:, :12]).max() <= most
    np.testing.assert_array_equal(FORMAT.read(tmp_path / "a", ReadOptions()).obs, pictures()[:, :2, 0, 0])


@pytest.mark.parametrize("names", [["channels", "height", "width"], ["c", "h", "w"], None])
def test_channels_may_come_first(tmp_path, names):
    path = folder(tmp_path / "data", camera={"shape": [3, 32, 48], "names": names})
    assert FORMAT.read(path, TOP).obs.shape == FORMAT.read(path, WRIST).obs.shape == (ROWS, 32, 48, 3)


@pytest.mark.parametrize("reading", [TOP, WRIST], ids=["video", "images"])
def test_they_go_to_other_processes_and_threads(tmp_path, everything_is_large, reading):
    obs = FORMAT.read(folder(tmp_path / "data"), reading).obs
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(lambda rows: rows[[ROWS - 1, 0]], [obs, pickle.loads(pickle.dumps(obs)), obs]):
            check_frames(found, [ROWS - 1, 0])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        check_frames(pool.apply(np.asarray, (obs,)), np.arange(ROWS))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"about": {"file_index": [0, 0, 1, 2]}}, "file-002.mp4: got no file"),
        ({"about": {"file_index": [0, 0, 1, -1]}}, "whole numbers from 0"),
        ({"about": {"file_index": [0, 0, 1, None]}}, "row 3: got no videos/observation.images.top/file_index"),
        ({"about": {"file_index": [[0]] * 4}}, "got vectors"),
        ({"about": {"from_timestamp": [0.0, 1.2, 0.0, 2.1], "to_timestamp": [1.2, 1.7, 2.0, 2.4]}}, "got no frame"),
        ({"about": {"to_timestamp": [1.2, 1.6, 2.0, 2.3]}}, "episode 1: got seconds 1.200 to 1.600, expected 5 frames"),
        ({"about": {"to_timestamp": [1.2, np.nan, 2.0, 2.3]}}, "episode 1: got seconds"),
        ({"camera": {"shape": [48, 32, 3]}}, "frames of 32 x 48, expected 48 x 32"),
        ({"camera": {"shape": [32, 48]}}, "height, width and 3 channels"),
        ({"camera": {"shape": [32, 48, 10**9]}}, "height, width and 3 channels"),
        ({"camera": {"shape": [3, 32, 3], "names": ["height", "channels", "width"]}}, "32 channels"),
        ({"info": {"fps": 0}}, "fps 0"),
        ({"info": {"fps": 5e-324}}, "fps 5e-324"),
        ({"info": {"fps": 1e308}}, "fps 1e+308"),
        ({"frames": {"episode_index": np.repeat([0, 1, 2, 7], LENGTHS)}}, "no episode 7"),
    ],
)
def test_what_is_wrong_with_videos_is_said(tmp_path, changes, said, refusal):
    assert said in refusal(folder(tmp_path / "data", **changes), TOP)


@pytest.mark.parametrize(
    "row, said",
    [
        ({"bytes": png(pictures(1, 30)[0])}, "30 x 48 pixels"),
        ({"bytes": png(pictures(1)[0])[:100]}, "no picture"),
        ({"bytes": None}, "row 33: got no observation.images.wrist"),
        (None, "row 33: got no observation.images.wrist"),
        ({"bytes": png(pictures(1)[0, ..., 0])}, "shape (32, 48)"),
        ({"bytes": png(np.zeros((10_000, 10_000), bool))}, "no picture"),
    ],
)
def test_what_is_wrong_with_images_is_said(tmp_path, row, said, everything_is_large):
    encoded = [{"bytes": png(frame)} for frame in pictures()]
    encoded[33] = row
    data = FORMAT.read(folder(tmp_path / "data", frames={WRIST.obs[0]: encoded}), WRIST)
    check_frames(data.obs[:21], np.arange(21))
    with pytest.raises(DataError) as caught:
        data.obs[[33]]
    assert said in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_what_else_cannot_be_chosen(tmp_path, refusal, monkeypatch):
    path = folder(tmp_path / "data", frames={"observation.images.wrist": np.zeros(ROWS)})
    assert "'observation.images.top', 'observation.images.wrist'" in refusal(path, obs=("observation.images.left",))
    for other in ("observation.state", "observation.images.wrist"):
        assert "'observation.images.top' alone" in refusal(path, obs=("observation.images.top", other))
    assert "of type double, expected a column of images" in refusal(path, WRIST)
    shutil.rmtree(path / "meta" / "episodes")
    assert "no column 'episode_index'" in refusal(path, TOP)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"pip install 'irleed\[video\]'"):
        FORMAT.read(path, TOP)


def test_a_video_that_vanishes_is_an_error_in_one_line(tmp_path, everything_is_large):
    path = folder(tmp_path / "data")
    obs = pickle.loads(pickle.dumps(FORMAT.read(path, TOP).obs))
    clip(path, 1).unlink()
    check_frames(obs[[16, 3]], [16, 3])
    with pytest.raises(DataError, match="file-001.mp4, second 0.000: got content that cannot be read"):
        obs[[17]]


@pytest.mark.parametrize("codec", [*CODECS, "av1"])
def test_a_damaged_video_is_decoded_or_refused(tmp_path, codec):
    path = tmp_path / "data"
    shutil.copytree(SAMPLE, path) if codec == "av1" else folder(path, codec)
    content, random, refused = clip(path).read_bytes(), np.random.default_rng(0), 0
    for trial in range(60):
        at = int(random.integers(len(content)))
        flipped = content[:at] + bytes([content[at] ^ int(random.integers(1, 256))]) + content[at + 1 :]
        clip(path).write_bytes(flipped if trial % 4 else content[:at])
        try:
            data = FORMAT.read(path, TOP)
            assert np.asarray(data.obs).shape == data.obs.shape
        except DataError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused >= 15  # those that were cut at least


def test_a_size_that_is_true_is_no_number():
    """JSON's `true` counts as a whole number in Python, and as none in NumPy."""
    with pytest.raises(DataError, match="height, width and 3 channels"):
        lerobot._shape({"shape": [True, 8, 3]}, "info.json")
