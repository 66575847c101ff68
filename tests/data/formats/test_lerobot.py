"""A LeRobot folder is read whole and in order, or refused in one line; weights are written whole or not at all."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed.data import Demonstrations, lazy
from irleed.data.formats import ReadOptions
from irleed.data.formats.lerobot import FORMAT, episode_names, write_frame_weights, write_weights
from irleed.data.lazy import LazyRows
from irleed.errors import DataError

LENGTHS = (3, 2, 4)
EPISODE = np.repeat(np.arange(3), LENGTHS)
FRAME = np.concatenate([np.arange(n) for n in LENGTHS])
STATE = np.stack([np.arange(9), 10 * np.arange(9)], 1).astype(np.float32)
ACTION = STATE + 0.5


def frames(**changes) -> dict:
    """The columns of three episodes."""
    columns = {
        "observation.state": STATE.tolist(),
        "action": ACTION.tolist(),
        "episode_index": EPISODE,
        "frame_index": FRAME,
        "timestamp": FRAME / 10,
        "index": np.arange(9),
        "task_index": np.zeros(9, int),
        "observation.image": [{"bytes": b"x", "path": None}] * 9,
    }
    return {name: values for name, values in (columns | changes).items() if values is not None}


def features(columns: dict) -> dict:
    kinds = {"observation.image": "image", "observation.said": "string"}
    return {name: {"dtype": kinds.get(name, "float32"), "shape": [2], "names": None} for name in columns}


def folder(path, info=(), about=(), split=(5,), **changes):
    """A folder of LeRobot's, its frames in files that start at the rows `split`."""
    columns = frames(**changes)
    table = pa.table(columns)
    head = {"codebase_version": "v3.0", "total_frames": 9, "total_episodes": 3, "features": features(columns)}
    (path / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    (path / "meta" / "info.json").write_text(json.dumps(head | dict(info)))
    for i, (a, z) in enumerate(zip((0, *split), (*split, 9), strict=True)):
        pq.write_table(table[a:z], path / "data" / "chunk-000" / f"file-{i + 998:03d}.parquet")
    episodes = {"episode_index": [2, 0, 1], "tasks": [["lift"]] * 3, "length": [4, 3, 2]} | dict(about)
    pq.write_table(pa.table(episodes), path / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    return path


def test_all_files_are_read_in_the_order_of_their_numbers(tmp_path):
    done = [False, False, True, False, False, False, False, False, False]
    path = folder(tmp_path / "lift.v1", split=(2, 5, 6), **{"next.done": done, "next.reward": np.arange(9.0)})
    assert FORMAT.recognises(path)
    data = FORMAT.read(path, ReadOptions())
    used = [0, 1, 3, 5, 6, 7]
    np.testing.assert_array_equal(data.obs, STATE)
    np.testing.assert_array_equal(data.action, ACTION[used])
    np.testing.assert_array_equal(data.reward, used)
    np.testing.assert_array_equal(data.length, [2, 1, 3])
    np.testing.assert_array_equal(data.terminated, [False, True, False, False, False, False])
    np.testing.assert_array_equal(data.truncated, [False, False, True, False, False, True])
    assert data.names == ("lift.v1",)


def test_who_acted(tmp_path, refusal):
    about = {"operator": ["zoe", "ann", "zoe"], "station": [8, 9, 9]}
    path = folder(tmp_path / "data", about=about, pilot=list("aaabbaaaa"))
    data = FORMAT.read(path, ReadOptions())
    assert data.names == ("ann", "zoe") and data.owner.tolist() == [0, 1, 1]
    assert FORMAT.read(path, ReadOptions("pilot")).names == ("a", "b")
    assert FORMAT.read(path, ReadOptions("station")).names == ("9", "8")
    assert FORMAT.read(path, ReadOptions("episode")).names == ("data",)
    message = refusal(path, ReadOptions("height"))
    assert "'pilot'" in message and "'operator'" in message
    nearer = folder(tmp_path / "nearer", about=about, operator=list("xxxyyxxxx"))
    assert FORMAT.read(nearer, ReadOptions()).names == ("x", "y")
    changing = folder(tmp_path / "changing", operator=list("xxyyyxxxx"))
    assert "row 2: got another" in refusal(changing)


@pytest.mark.parametrize(
    "about, said",
    [
        ({"episode_index": [0, 1, 3]}, "no episode 2"),
        ({"episode_index": [0, 1, 1]}, "no episode 2"),
        ({"episode_index": [0, 1, 2, 2], "tasks": [1] * 4, "length": [1] * 4, "operator": list("abcd")}, "twice"),
        ({"operator": ["a", None, "b"]}, "row 1: got no operator"),
    ],
)
def test_what_is_wrong_with_the_episodes_is_said(tmp_path, about, said, refusal):
    assert said in refusal(folder(tmp_path / "data", about={"operator": ["a", "b", "c"]} | about))


def test_without_a_table_of_episodes_there_is_one_demonstrator(tmp_path, refusal):
    path = folder(tmp_path / "data")
    shutil.rmtree(path / "meta" / "episodes")
    assert FORMAT.read(path, ReadOptions()).names == ("data",)
    assert "'task_index'" in refusal(path, ReadOptions("operator"))


def test_observations_and_actions_can_be_chosen(tmp_path, refusal):
    more = {"observation.environment_state": np.arange(9.0) + 100, "told": np.arange(9), "observation.said": ["x"] * 9}
    path = folder(tmp_path / "data", **more)
    assert FORMAT.read(path, ReadOptions()).obs[1].tolist() == [101.0, 1.0, 10.0]
    data = FORMAT.read(path, ReadOptions(obs=("observation.environment_state",), action="told"))
    assert data.obs.shape == (9, 1) and data.action.tolist() == [0, 1, 3, 5, 6, 7]
    assert "no 'height'" in refusal(path, ReadOptions(obs=("height",)))
    assert "no 'height'" in refusal(path, ReadOptions(action="height"))
    assert "string" in refusal(path, ReadOptions(obs=("observation.said",)))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"action": None}, "no 'action'"),
        ({"observation.state": None}, "no vector"),
        ({"episode_index": None}, "no 'episode_index'"),
        ({"frame_index": np.arange(9)}, "row 3: got another frame_index"),
        ({"frame_index": [*FRAME[:4], 5, *FRAME[5:]]}, "row 4: got another frame_index"),
        ({"episode_index": [0, 0, 0, 1, 1, 0, 0, 2, 2], "frame_index": None}, "row 5: got a second part"),
        ({"next.done": [True] * 9}, "row 0: got an end"),
        ({"observation.state": [[1.0]] + STATE[1:].tolist()}, "lengths"),
        ({"observation.state": np.full((9, 1), np.nan).tolist()}, "finite"),
        ({"action": [None] + ACTION[1:].tolist()}, "row 0: got no action"),
        ({"info": {"total_frames": 10}}, "got 9, expected 10"),
        ({"info": {"total_episodes": 2}}, "got 3, expected 2"),
        ({"info": {"codebase_version": "v2.1"}}, "version v2.1"),
        ({"info": {"features": {"action": "float"}}}, "each feature with its dtype"),
        ({"info": {"features": 3}}, "features"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, changes, said, refusal):
    assert said in refusal(folder(tmp_path / "data", **changes))


def test_a_missing_file_is_noticed(tmp_path, refusal):
    path = folder(tmp_path / "data")
    (path / "data" / "chunk-000" / "file-999.parquet").unlink()
    assert "total_frames: got 5, expected 9" in refusal(path)
    (path / "data" / "chunk-000" / "file-998.parquet").unlink()
    assert "no files" in refusal(path)


def test_files_with_different_columns_are_refused(tmp_path, refusal):
    path = folder(tmp_path / "data")
    last = path / "data" / "chunk-000" / "file-999.parquet"
    pq.write_table(pq.read_table(last).drop_columns(["action"]), last)
    assert "file-999.parquet: got no 'action'" in refusal(path)
    pq.write_table(pa.table(frames(action=np.arange(9)))[5:], last)
    assert "column 'action' of type int64, expected list<element: double>" in refusal(path)


@pytest.mark.parametrize(
    "state", [STATE.tolist(), pa.array(STATE.tolist(), pa.list_(pa.float32(), 2)), STATE[:, 0], np.arange(9)]
)
def test_large_folders_stay_on_disk_and_are_the_same(tmp_path, state, monkeypatch):
    path = folder(tmp_path / "data", split=(2, 5, 6), **{"observation.state": state, "observation.x": STATE.tolist()})
    for obs in ((), ("observation.state",), ("observation.x", "observation.state")):
        whole = FORMAT.read(path, ReadOptions(obs=obs))
        with monkeypatch.context() as patch:
            patch.setattr(lazy, "LARGE", 1)
            large = FORMAT.read(path, ReadOptions(obs=obs))
        assert isinstance(whole.obs, np.ndarray) and isinstance(large.obs, LazyRows)
        assert large.obs.dtype == whole.obs.dtype and large.obs.shape == whole.obs.shape
        np.testing.assert_array_equal(large.obs[[8, 0, 4, 4]], whole.obs[[8, 0, 4, 4]])
        np.testing.assert_array_equal(large.action, whole.action)


def test_what_is_missing_in_a_large_folder_is_said_with_its_row(tmp_path, refusal, monkeypatch):
    state = pa.array([*STATE[:6].tolist(), None, *STATE[7:].tolist()], pa.list_(pa.float32(), 2))
    path = folder(tmp_path / "data", **{"observation.state": state})
    said = refusal(path)
    monkeypatch.setattr(lazy, "LARGE", 1)
    assert "row 6: got no observation" in said and refusal(path) == said


def test_other_folders_are_not_recognised(tmp_path, refusal):
    assert not FORMAT.recognises(tmp_path) and not FORMAT.recognises(tmp_path / "none")
    (tmp_path / "meta").mkdir()
    for content in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"codebase_version": 3, "features": {}}'):
        (tmp_path / "meta" / "info.json").write_bytes(content)
        assert not FORMAT.recognises(tmp_path)
        refusal(tmp_path)


@pytest.mark.parametrize(
    "name", ["data/chunk-000/file-998.parquet", "meta/info.json", "meta/episodes/chunk-000/file-000.parquet"]
)
def test_a_damaged_folder_is_read_or_refused(tmp_path, name):
    path = folder(tmp_path / "data", about={"operator": ["a", "b", "c"]})
    content = (path / name).read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for trial in range(100):
        at = int(random.integers(len(content)))
        flipped = content[:at] + bytes([content[at] ^ int(random.integers(1, 256))]) + content[at + 1 :]
        (path / name).write_bytes(flipped if trial % 4 else content[:at])
        FORMAT.recognises(path)
        try:
            assert isinstance(FORMAT.read(path, ReadOptions()), Demonstrations)
        except DataError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused > 20


def test_weights_are_written_once(tmp_path):
    out = tmp_path / "weights.parquet"
    write_weights(out, [2, 0], np.array([0.5, 1.0]), demonstrator=["a", "b"], level=[1.0, 2.0])
    expected = {"episode_index": [2, 0], "weight": [0.5, 1.0], "demonstrator": ["a", "b"], "level": [1.0, 2.0]}
    assert pq.read_table(out).to_pydict() == expected
    with pytest.raises(DataError, match="an existing file"):
        write_weights(out, [0], [1.0])
    assert pq.read_table(out).to_pydict() == expected
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "call, said",
    [
        ({"episode": [0, 1], "weight": [1.0]}, "equal lengths"),
        ({"episode": [0], "weight": [1.0], "level": [1.0, 2.0]}, "equal lengths"),
        ({"episode": [0], "weight": [1.0], "episode_index": [1]}, "every name once"),
        ({"episode": [0], "weight": [float("nan")]}, "finite"),
        ({"episode": [0], "weight": [1.0], "odd": np.array([object()])}, "cannot be written"),
    ],
)
def test_other_weights_are_refused(tmp_path, call, said):
    with pytest.raises(DataError, match=said):
        write_weights(tmp_path / "weights.parquet", **call)
    assert not list(tmp_path.iterdir())
    with pytest.raises(DataError, match="does not exist"):
        write_weights(tmp_path / "none" / "weights.parquet", [0], [1.0])


def test_every_frame_gets_the_weight_of_its_episode_by_its_own_index(tmp_path):
    """Episodes and frames that another program left out keep their numbers."""
    path = folder(tmp_path / "lift", episode_index=np.repeat([4, 2, 7], LENGTHS), index=np.arange(9) + 100)
    assert episode_names(path, ReadOptions()) == ("4", "2", "7")
    out = tmp_path / "frames.parquet"
    write_frame_weights(out, path, [0.5, 1.0, 2.0], ReadOptions())
    weight = [0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert pq.read_table(out).to_pydict() == {"index": list(range(100, 109)), "weight": weight}
    with pytest.raises(DataError, match="3 episodes, expected 2"):
        write_frame_weights(tmp_path / "other.parquet", path, [1.0, 1.0], ReadOptions())
    with pytest.raises(DataError, match="no 'index'"):
        write_frame_weights(tmp_path / "other.parquet", folder(tmp_path / "b", index=None), [1.0] * 3, ReadOptions())
