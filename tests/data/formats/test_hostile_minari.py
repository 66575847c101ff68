"""Minari data sets made to read other files or to fill the memory are refused in one line."""

import json
import tracemalloc

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed.data import ReadOptions, load
from irleed.data.formats import hdf5_values, minari
from irleed.errors import DataError

BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-9, -9], "high": [9, 9]}
IMAGE = {"type": "Box", "dtype": "uint8", "shape": [32, 32], "low": [[0] * 32] * 32, "high": [[255] * 32] * 32}
STEPS = 3


def metadata(path, observation=BOX, **changes):
    said = {
        "data_format": "hdf5",
        "total_episodes": 1,
        "total_steps": STEPS,
        "dataset_id": "walk-v0",
        "minari_version": "0.5.4",
        "observation_space": json.dumps(observation),
        "action_space": json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}),
    }
    (path / "data").mkdir(parents=True, exist_ok=True)
    (path / "data" / "metadata.json").write_text(json.dumps(said | changes))
    return path


def episode(path, without=(), observation=BOX):
    """The HDF5 file of a data set of one episode, open for more to be written."""
    file = h5py.File(metadata(path, observation) / "data" / "main_data.hdf5", "w")
    end = np.arange(STEPS) == STEPS - 1
    arrays = {"observations": np.zeros((4, 2), "f4"), "actions": np.zeros(3, int), "rewards": np.zeros(3)}
    for name, values in (arrays | {"terminations": end, "truncations": end}).items():
        if name not in without:
            file[f"episode_0/{name}"] = values
    return file


def tables(path, table, kind="arrow", **options):
    """A data set in Arrow or Parquet, of one episode."""
    (metadata(path, data_format=kind) / "data" / "0").mkdir()
    (path / "data/0/metadata.json").write_text("{}")
    file = path / f"data/0/part-0.{kind}"
    if kind == "parquet":
        pq.write_table(table, file, **options)
    else:
        with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table)
    return path


def rows(count=4, **change):
    zeros, flags = pa.array(np.zeros(count)), pa.array([False] * count)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * count, "f4")), 2)
    columns = {"observations": vectors, "actions": pa.array(np.zeros(count, int)), "rewards": zeros}
    return pa.table(columns | {"terminations": flags, "truncations": flags} | change)


def refused(path, *choices) -> str:
    with pytest.raises(DataError) as caught:
        load(path, ReadOptions(*choices))
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.startswith(str(path)) and "expected" in message
    assert "SECRET" not in message
    return message


@pytest.mark.parametrize("name", ["infos/operator", "observations", "actions", "rewards", "infos/deep/other"])
@pytest.mark.parametrize("way", ["external", "linked", "virtual"])
def test_no_part_of_an_episode_is_read_from_another_file(tmp_path, name, way):
    """A line of a local file once became a demonstrator's name."""
    (tmp_path / "secret").write_bytes(b"SECRET__" * 4)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["who"] = np.array([b"SECRET__"] * 4)
    with episode(tmp_path / "data set", without=(name,)) as file:
        place = f"episode_0/{name}"
        if way == "external":
            file.create_dataset(place, (4,), "S8", external=[(str(tmp_path / "secret"), 0, 32)])
        elif way == "linked":
            file[place] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/who")
        else:
            layout = h5py.VirtualLayout((4,), "S8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "who", (4,), "S8")
            file.create_virtual_dataset(place, layout)
    assert "another file" in refused(tmp_path / "data set")


def test_episodes_and_infos_in_another_file_are_refused(tmp_path):
    for place in ("episode_0", "episode_0/infos", "episode_0/observations"):
        with episode(tmp_path / "data set") as file:
            if place in file:
                del file[place]
            file[place] = h5py.ExternalLink("other.h5", "/")
        assert "a link to another file" in refused(tmp_path / "data set")


@pytest.mark.parametrize(
    "space",
    [
        BOX | {"shape": [10**6, 10**6], "low": 0, "high": 1},
        BOX | {"shape": [-1]},
        BOX | {"dtype": "S1000000000"},
        BOX | {"dtype": "O"},
        {"type": "Discrete", "n": "many", "start": 0},
        {"type": "Dict"},
        {"type": "MultiBinary", "n": 10**12},
        {"type": ["Box"]},
        [],
        {},
        None,
    ],
)
def test_spaces_are_not_made_as_large_as_they_say(tmp_path, space):
    with episode(tmp_path / "data set", observation=space):
        pass
    try:  # what is stored decides, not what is said of it
        assert load(tmp_path / "data set").transitions == STEPS
    except DataError as error:
        assert len(str(error).splitlines()) == 1
        assert "content that cannot be read" in str(error)


@pytest.mark.parametrize(
    "change",
    [
        {"dataset_id": "a" * 200_000}, {"dataset_id": ["a"]}, {"total_episodes": -1}, {"total_episodes": 10**15},
        {"total_episodes": 1.5}, {"total_steps": True}, {"data_format": "../x"}, {"minari_version": ["0.5"]},
        {"observation_space": "[" * 100_000}, {"observation_space": "\0"}, {"action_space": "{}"},
    ],
)  # fmt: skip
def test_metadata_that_are_none_are_refused(tmp_path, change):
    with episode(tmp_path / "data set"):
        pass
    assert load(tmp_path / "data set").transitions == STEPS
    refused(metadata(tmp_path / "data set", **change))


def test_texts_that_are_repeated_are_in_memory_once(tmp_path):
    """A few kilobytes of dictionary and indices can stand for gigabytes of text."""
    infos = pa.StructArray.from_arrays([pa.array(["x" * 1000] * 30_000)], ["operator"])
    path = tables(tmp_path / "data set", rows(30_000, infos=infos), "parquet")
    metadata(path, data_format="parquet", total_steps=29_999)
    tracemalloc.start()
    try:
        assert load(path).names == ("x" * 1000,)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000  # of Python's objects; all texts are 30 MB
    finally:
        tracemalloc.stop()


def test_spaces_in_spaces_without_end_are_refused(tmp_path):
    space = "{}"
    for _ in range(5000):
        space = '{"type": "Tuple", "subspaces": [' + space + "]}"
    with episode(tmp_path / "data set"):
        pass
    assert "metadata.json" in refused(metadata(tmp_path / "data set", observation_space=space))


def test_arrow_and_parquet_are_read_to_their_budget(tmp_path):
    assert load(tables(tmp_path / "a", rows())).transitions == STEPS
    assert load(tables(tmp_path / "p", rows(), "parquet")).transitions == STEPS
    for kind in ("zstd", "lz4"):
        assert "compressed" in refused(tables(tmp_path / kind, rows(10**6), compression=kind))
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4, "i4")), pa.array(["x" * 100]))
    assert "dictionaries" in refused(tables(tmp_path / "d", rows(infos=names)))


def test_texts_that_parquet_repeats_stay_encoded(tmp_path):
    """A few kilobytes of dictionary and indices can stand for gigabytes of text, which are never made."""
    part = pa.array(["x" * 10**6] * 500)
    text = pa.chunked_array([part] * 6)
    columns = {name: rows(3000).column(name) for name in rows().column_names}
    path = tables(tmp_path / "data set", pa.table(columns | {"infos": text}), "parquet", compression="zstd")
    assert "2999 steps" in refused(path)


def test_texts_in_one_place_are_not_multiplied_in_a_copy(tmp_path, monkeypatch):
    """HDF5 copies each text that a dataset names, though all may lie in the same place."""
    with episode(tmp_path / "data set") as file:
        texts = file.create_dataset("episode_0/infos/note", (1000,), h5py.string_dtype(), chunks=(1000,))
        texts[:] = ["x" * 10_000] + [""] * 999
        first = texts.id.read_direct_chunk((0,))[1][:16]
        texts.id.write_direct_chunk((0,), first * 1000)
    monkeypatch.setattr(hdf5_values, "ALWAYS", 1 << 20)
    assert load(tmp_path / "data set").transitions == STEPS  # infos are not read
    with pytest.raises(DataError, match="bytes of text or more"):
        minari.write(tmp_path / "data set", tmp_path / "copy", [0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data set"]
