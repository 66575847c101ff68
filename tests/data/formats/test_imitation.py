"""Folders of the imitation library are read as they were written; what is written here, its library reads."""

import json
import pickle
import random
import shutil
from pathlib import Path

import datasets
import jax
import numpy as np
import pyarrow as pa
import pytest

from irleed._io import arrays as _arrays
from irleed.data import Demonstrations, Episode, lazy
from irleed.data.formats import ReadOptions
from irleed.data.formats.imitation import FORMAT, write
from irleed.errors import DataError


def columns(shape=(2,), kind="f4", **changes) -> dict:
    """Two trajectories, of 3 and 2 steps; a column that is None is left out."""
    rng = np.random.default_rng(0)
    found = {
        "obs": [(100 * rng.random((n + 1, *shape))).astype(kind) for n in (3, 2)],
        "acts": [rng.integers(0, 4, n) for n in (3, 2)],
        "infos": [[json.dumps({"pilot": who, "level": 3})] + ["{}"] * n for who, n in (("Zoë", 2), ("Ann", 1))],
        "terminal": [True, False],
        "rews": [rng.random(n) for n in (3, 2)],
    } | changes
    return {name: column for name, column in found.items() if column is not None}


@pytest.fixture
def stored(tmp_path):
    """A function that saves columns as a folder, as imitation does."""

    def store(data: dict):
        path = tmp_path / "expert"
        shutil.rmtree(path, ignore_errors=True)
        datasets.Dataset.from_dict(data).save_to_disk(str(path))
        return path

    return store


def read(path, **reading) -> Demonstrations:
    return FORMAT.read(path, ReadOptions(**reading))


@pytest.mark.parametrize("shape, kind", [((2,), "f4"), ((), "i8"), ((4, 3, 3), "u1"), ((2,), "f8"), ((1,), "?")])
def test_large_folders_are_read_later(stored, shape, kind, monkeypatch):
    """Rows come from where they lie in the file; but for flags, eight of which are a byte."""
    data = columns(shape, kind)
    path = stored(data)
    monkeypatch.setattr(lazy, "LARGE", 1)
    monkeypatch.setattr(datasets, "load_from_disk", None)  # which would read all
    found, whole = read(path), np.concatenate(data["obs"])
    assert isinstance(found.obs, lazy.LazyRows) == (kind != "?")
    assert found.obs.dtype == whole.dtype and found.obs.shape == whole.shape
    np.testing.assert_array_equal(found.obs[np.array([6, 0, 3, 3])], whole[[6, 0, 3, 3]])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found.obs)), whole)
    np.testing.assert_array_equal(found.action, np.concatenate(data["acts"]))
    np.testing.assert_array_equal(found.reward, np.concatenate(data["rews"]))
    assert read(path, demonstrator="pilot").names == ("Zoë", "Ann")


def test_a_large_folder_that_is_cut_short_later_is_one_line(stored, monkeypatch):
    path = stored(columns())
    monkeypatch.setattr(lazy, "LARGE", 1)
    rows, file = read(path).obs, next(path.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(DataError, match="expected the rows that were there"):
        rows[:]


@pytest.mark.parametrize("shape, kind", [((2,), "f4"), ((), "i8"), ((4, 3, 3), "u1"), ((2,), "f8"), ((1,), "?")])
def test_what_was_saved_is_read(stored, shape, kind, capsys):
    data = columns(shape, kind)
    path = stored(data)
    capsys.readouterr()
    assert FORMAT.recognises(path)
    found = read(path)
    assert capsys.readouterr() == ("", "")
    np.testing.assert_array_equal(found.obs, np.concatenate(data["obs"]))
    assert found.obs.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found.action, np.concatenate(data["acts"]))
    np.testing.assert_array_equal(found.reward, np.concatenate(data["rews"]))
    np.testing.assert_array_equal(found.terminated, [False, False, True, False, False])
    np.testing.assert_array_equal(found.truncated, [False, False, False, False, True])
    assert found.names == ("expert",)
    assert read(stored(columns(rews=None))).reward is None


def test_demonstrators(stored, refusal):
    path = stored(columns(who=["a", "b"], number=[4, 5], missing=["a", None], part=[0.5, 1.0]))
    assert read(path).names == read(path, demonstrator="episode").names == ("expert",)
    assert read(path, demonstrator="who").names == ("a", "b")
    assert read(path, demonstrator="number").names == ("4", "5")
    assert read(path, demonstrator="pilot").names == ("Zoë", "Ann")
    assert read(path, demonstrator="level").names == ("3",)
    message = refusal(path, demonstrator="nobody")
    assert "'who'" in message and "'level', 'pilot'" in message
    for name in ("missing", "part", "obs"):
        assert "other kinds" in refusal(path, demonstrator=name)
    assert read(stored(columns(operator=["c", "d"]))).names == ("c", "d")
    assert read(stored(columns(operator=["c", "d"], demonstrator=["e", "e"]))).names == ("e",)
    said = [[json.dumps({"operator": who})] for who in ("f", "g")]
    assert read(stored(columns(infos=said))).names == ("f", "g")
    assert read(stored(columns(infos=said, demonstrator=["e", "e"]))).names == ("e",)
    assert read(stored(columns(infos=[said[0], ["{}"]]))).names == ("expert",)
    assert read(stored(columns(infos=[said[0], ["{"]]))).names == ("expert",)
    assert read(stored(columns(operator=[0.5, 1.0])), demonstrator="episode").names == ("expert",)
    assert "no JSON" in refusal(stored(columns(infos=[["{"], ["{}"]])), demonstrator="pilot")
    assert "no 'pilot'" in refusal(stored(columns(infos=None)), demonstrator="pilot")
    assert "no others" in refusal(path, obs=("image",))


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"terminal": None}, "no terminal"),
        ({"terminal": [1, 0]}, "true or false"),
        ({"terminal": [True, None]}, "true or false"),
        ({"acts": [[0, 1, 2], [0]]}, "3 observations and 1 actions"),
        ({"acts": [[0, 1, 2], [0, None]]}, "trajectory 1, acts: got missing values"),
        ({"acts": [[0, 1, 2], None]}, "trajectory 1, acts: got nothing"),
        ({"acts": [1, 2]}, "a list of numbers"),
        ({"acts": [["a", "b", "c"], ["a", "b"]]}, "trajectory 0, acts: got string"),
        ({"rews": [[0.0, 1.0, float("nan")], [0.0, 1.0]]}, "finite"),
        ({"obs": [[[1], [2], [3], [4, 5]], [[1], [2], [3]]]}, "lengths 1 and 2"),
        ({"obs": [[{"x": 1}] * 4, [{"x": 1}] * 3]}, "trajectory 0, obs"),
    ],
)
def test_what_does_not_fit_is_named(stored, changes, says, refusal):
    assert says in refusal(stored(columns(**changes)))


def test_other_folders_are_not_recognised(stored, tmp_path, refusal):
    assert not FORMAT.recognises(tmp_path)
    assert not FORMAT.recognises(tmp_path / "none")
    assert not FORMAT.recognises(stored(columns(acts=None)))
    (tmp_path / "expert" / "dataset_info.json").write_text("[")
    assert not FORMAT.recognises(tmp_path / "expert")
    refusal(tmp_path / "none")


def test_files_elsewhere_are_not_read(stored, refusal):
    path = stored(columns())
    state = json.loads((path / "state.json").read_text())
    state["_data_files"] = [{"filename": "../other.arrow"}]
    (path / "state.json").write_text(json.dumps(state))
    assert "a file elsewhere" in refusal(path)


@pytest.mark.parametrize(
    "name, tries, large",
    [("data-00000-of-00001.arrow", 100, 0), ("data-00000-of-00001.arrow", 100, 1), ("state.json", 25, 0)],
)
def test_spoilt_folders_are_refused_or_read(stored, name, tries, large, monkeypatch):
    monkeypatch.setattr(lazy, "LARGE", 1 if large else lazy.LARGE)
    path, chance = stored(columns()), random.Random(0)
    sound, refused = (path / name).read_bytes(), 0
    for _ in range(tries):
        spoilt = bytearray(sound)
        spoilt[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        for content in (bytes(spoilt), sound[: chance.randrange(len(sound))]):
            (path / name).write_bytes(content)
            try:
                found = read(path)
                assert np.asarray(found.obs).shape == (7, 2)
            except DataError as error:
                assert len(str(error).splitlines()) == 1
                refused += 1
    assert refused > 0


def rewritten(path, table: pa.Table, **options) -> Path:
    """The folder with another table in it."""
    with pa.ipc.new_stream(path / "data-00000-of-00001.arrow", table.schema, **options) as stream:
        stream.write_table(table)
    return path


@pytest.mark.parametrize("large", [False, True])
def test_nothing_in_a_table_grows_when_it_is_read(stored, refusal, large, monkeypatch):
    """A kilobyte of zstd is a gigabyte; an entry of a dictionary, or a view, may be in every row."""
    monkeypatch.setattr(lazy, "LARGE", 1 if large else lazy.LARGE)
    path = stored(columns())
    table = pa.ipc.open_stream((path / "data-00000-of-00001.arrow").read_bytes()).read_all()
    assert read(rewritten(path, table)).transitions == 5
    for codec in ("zstd", "lz4"):
        options = pa.ipc.IpcWriteOptions(compression=codec)
        assert "compressed" in refusal(rewritten(path, table, options=options))
    who = pa.array(["a", "b"])
    assert "dictionaries" in refusal(rewritten(path, table.append_column("who", who.dictionary_encode())))
    views = table.append_column("who", who.cast(pa.string_view()))
    assert "other kinds" in refusal(rewritten(path, views), demonstrator="who")
    place = table.column_names.index("infos")
    info = pa.ListViewArray.from_arrays([0, 0], [1, 1], pa.array([json.dumps({"pilot": "x"})]))
    assert read(rewritten(path, table.set_column(place, "infos", info))).names == ("expert",)
    place = table.column_names.index("obs")
    shared = pa.ListViewArray.from_arrays([0, 0], [4, 4], pa.array([[0.0, 1.0]] * 4, pa.list_(pa.float32())))
    assert "list_view" in refusal(rewritten(path, table.set_column(place, "obs", shared)))
    kind = pa.list_(pa.list_(pa.float32(), 0))
    empty = pa.array([[[]] * 4, [[]] * 3], kind)
    place = table.column_names.index("obs")
    assert "lists of no numbers" in refusal(rewritten(path, table.set_column(place, "obs", empty)))
    assert "every name once" in refusal(rewritten(path, table.append_column("acts", table.column("acts"))))


def test_files_and_trajectories_count(stored, refusal, monkeypatch):
    path = stored(columns())
    state = json.loads((path / "state.json").read_text())
    state["_data_files"] = 2 * state["_data_files"]
    (path / "state.json").write_text(json.dumps(state))
    assert "a file twice" in refusal(path)
    path = stored(columns())
    monkeypatch.setattr(_arrays, "ALWAYS", 1000)
    assert "--expansion" in refusal(path, expansion=0.1)


def played(rewards=True, kind="f4") -> Demonstrations:
    data = columns(kind=kind)
    pairs = zip(data["obs"], data["acts"], data["terminal"], ("Zoë", "Ann"), data["rews"], strict=True)
    return Demonstrations.from_episodes([Episode(o, a, t, d, r if rewards else None) for o, a, t, d, r in pairs])


@pytest.mark.parametrize("rewards", [True, False])
@pytest.mark.parametrize("kind", ["f4", "f8", "u1", "?"])
def test_what_is_written_is_read(tmp_path, rewards, kind, capsys):
    data = played(rewards, kind)
    write(data, tmp_path / "out")
    found = read(tmp_path / "out")
    assert capsys.readouterr() == ("", "")
    assert found.names == data.names
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(data), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    rows = datasets.load_from_disk(str(tmp_path / "out"))
    assert set(rows.column_names) == {"obs", "acts", "infos", "terminal"} | ({"rews"} if rewards else set())
    assert rows["terminal"][:] == [True, False]
    assert rows["infos"][1] == ['{"demonstrator": "Ann"}'] * 2
    assert [len(obs) for obs in rows["obs"]] == [4, 3]


def test_nothing_is_written_over_and_nothing_left_behind(tmp_path, monkeypatch):
    write(played(), tmp_path / "out")
    with pytest.raises(DataError, match="exists"):
        write(played(), tmp_path / "out")
    monkeypatch.setattr("irleed._io.files.os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(played(), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("large", [False, True])
def test_a_message_with_an_enormous_header_is_refused(stored, refusal, large, monkeypatch):
    """Arrow copies such headers before it looks at them: those of a file of nothing too, which takes no disk."""
    monkeypatch.setattr(lazy, "LARGE", 1 if large else lazy.LARGE)
    path = stored(columns())
    file = path / "data-00000-of-00001.arrow"
    with file.open("r+b") as stream:
        stream.write(b"\xff\xff\xff\xff\x00\x00\x00\x02")  # 32 MiB
        stream.truncate(1 << 26)
    assert "a message with a header of 33,554,432 bytes" in refusal(path)
