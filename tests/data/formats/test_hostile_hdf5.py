"""HDF5 files made to read other files, to fill the memory or to have no end are refused in one line.

Every case is a valid HDF5 file, or nearly, and goes through `load`, as files of users do.
"""

import os
import pickle
import zlib

import h5py
import numpy as np
import pytest

from irleed._io import arrays as _arrays
from irleed.data import ReadOptions, load
from irleed.data.formats import hdf5
from irleed.data.lazy import LazyRows
from irleed.errors import DataError

STEPS = 9
NAMES = ("observations", "actions", "terminals")


def columns(path, without=()):
    """A D4RL file, open for more to be written."""
    file = h5py.File(path, "w")
    arrays = {"observations": np.arange(18.0).reshape(9, 2), "actions": np.zeros((9, 1)), "terminals": np.arange(9) > 7}
    for name in NAMES:
        if name not in without:
            file[name] = arrays[name]
    return file


def refused(path, *choices) -> str:
    with pytest.raises(DataError) as caught:
        load(path, ReadOptions(*choices))
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and message.startswith(str(path)) and "expected" in message
    assert "SECRET" not in message
    return message


def stored(file, name, shape, filters, chunk=None, dtype="f4"):
    """A dataset whose chunk is written as it is, with a pipeline of filters by their numbers."""
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk(chunk or shape)
    for number in filters:
        {1: lambda: plan.set_deflate(9), 2: plan.set_shuffle, 3: plan.set_fletcher32}.get(
            number, lambda number=number: plan.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
        )()
    space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * len(shape))
    return h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), space, plan)


@pytest.fixture
def secret(tmp_path):
    """Files beside the data set that are none of its business."""
    (tmp_path / "secret").write_bytes(b"SECRET__" * 100)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["observations"] = np.ones((9, 2))
        other["who"] = np.array([b"SECRET"] * 9)
        other["demo_0/actions"] = np.ones((9, 2))
    return tmp_path


def external(file, name):
    file.create_dataset(name, (9,), "S8", external=[(str(file.filename).replace("x.hdf5", "secret"), 0, 72)])


def linked(file, name):
    file[name] = h5py.ExternalLink("other.h5", "/who")


def virtual(file, name):
    layout = h5py.VirtualLayout((9,), "S6", maxshape=(None,))
    source = h5py.VirtualSource("other.h5", "who", (9,), "S6", (None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("way", [external, linked, virtual])
@pytest.mark.parametrize("name", ["infos/who", "observations", "rewards", "timeouts", "next_observations"])
def test_no_dataset_of_a_d4rl_file_reads_another_file(secret, way, name):
    with columns(secret / "x.hdf5", without=(name,)) as file:
        way(file, name)
    assert "another file" in refused(secret / "x.hdf5", *(["infos/who"] if name == "infos/who" else []))


@pytest.mark.parametrize("way", [external, linked, virtual])
@pytest.mark.parametrize("name", ["data/demo_0/obs/x", "data/demo_0/rewards", "data/demo_0/next_obs/x", "mask/better"])
def test_no_dataset_of_a_robomimic_file_reads_another_file(secret, way, name):
    with h5py.File(secret / "x.hdf5", "w") as file:
        for part, values in {"actions": np.zeros((9, 1)), "dones": np.arange(9) > 7, "obs/y": np.zeros((9, 2))}.items():
            file[f"data/demo_0/{part}"] = values
        file.require_group("mask")
        way(file, name)
    assert "another file" in refused(secret / "x.hdf5", *(["mask"] if name == "mask/better" else []))


@pytest.mark.parametrize("name", ["data", "data/demo_0", "mask", "data/demo_0/obs"])
def test_no_group_of_a_robomimic_file_is_in_another_file(secret, name):
    with h5py.File(secret / "x.hdf5", "w") as file:
        for part, values in {"actions": np.zeros((9, 1)), "dones": np.arange(9) > 7, "obs/y": np.zeros((9, 2))}.items():
            file[f"data/demo_0/{part}"] = values
        if name in file:
            del file[name]
        file[name] = h5py.ExternalLink("other.h5", "/")
    message = refused(secret / "x.hdf5", *(["mask"] if name == "mask" else []))
    assert "a link to another file" in message or "got no observations" in message


def test_files_that_datasets_name_are_not_even_opened(secret):
    """A virtual dataset of open length looks its sources up to say how long it is; opening a pipe would wait."""
    os.mkfifo(secret / "pipe")
    with columns(secret / "x.hdf5", without=("observations",)) as file:
        layout = h5py.VirtualLayout((9, 2), "f8", maxshape=(None, 2))
        source = h5py.VirtualSource("pipe", "who", (9, 2), "f8", (None, 2))
        layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
        file.create_virtual_dataset("observations", layout)
    assert "another file" in refused(secret / "x.hdf5")


def test_links_within_the_file_are_followed_and_loops_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "LOOKUPS", 2000)
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        file["deep/values"] = np.arange(18.0).reshape(9, 2)
        file["deep/next"] = h5py.SoftLink("values")
        file["observations"] = h5py.SoftLink("/deep/./next")
    np.testing.assert_array_equal(load(tmp_path / "x.hdf5").observation, np.arange(16.0).reshape(8, 2))
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        file["observations"], file["a"] = h5py.SoftLink("a"), h5py.SoftLink("/observations")
    assert "a link that leads back to itself" in refused(tmp_path / "x.hdf5")
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        file["observations"], file["l0"] = h5py.SoftLink("l25"), h5py.SoftLink("/.")
        for i in range(1, 26):
            file[f"l{i}"] = h5py.SoftLink(f"l{i - 1}/l{i - 1}/l{i - 1}")
    assert "more entries than" in refused(tmp_path / "x.hdf5")


def test_groups_that_share_groups_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "LOOKUPS", 2000)
    with columns(tmp_path / "x.hdf5") as file:
        group = file.create_group("first")
        for _ in range(28):
            group["again"] = group.create_group("next")
            group = group["next"]
    assert "more entries than" in refused(tmp_path / "x.hdf5")
    with columns(tmp_path / "x.hdf5") as file:
        file["self"] = file["/"]
    assert "a group that contains itself" in refused(tmp_path / "x.hdf5")
    with columns(tmp_path / "x.hdf5") as file:
        file.create_group("/".join(["deep"] * 100))
    assert "nested more than 32 deep" in refused(tmp_path / "x.hdf5")
    with h5py.File(tmp_path / "x.hdf5", "w", libver="latest") as file:
        demo = file.create_group("data/demo_0")
        for i in range(1, 5000):
            file["data"][f"demo_{i}"] = demo
    assert "more entries than" in refused(tmp_path / "x.hdf5")


@pytest.mark.parametrize(
    "filters",
    [(1, 1), (1, 1, 1), (1, 2), (2, 2, 1), (3, 1, 3), (32000, 1), (6,), (5,), (4,), (307,), (32001,), (32015,)],
)
def test_filters_other_than_gzip_or_lzf_once_are_refused(tmp_path, filters):
    data = b"\0" * 72
    for _ in range(filters.count(1)):
        data = zlib.compress(data)
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        stored(file, "observations", (9, 2), filters).write_direct_chunk((0, 0), data)
    assert "got the filters" in refused(tmp_path / "x.hdf5")


@pytest.mark.parametrize("filters", [(1,), (2, 1), (1, 3), (3, 1)])
@pytest.mark.parametrize("size", [1 << 24, 64])
def test_chunks_that_inflate_to_another_size_than_a_chunk_has_are_refused(tmp_path, filters, size):
    """More would be any amount of memory, less would leave what was in memory before as values."""
    data = zlib.compress(b"\0" * size)
    rows = 9 if size > 100 else 1000
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["actions"], file["terminals"] = np.zeros((rows, 1)), np.arange(rows) == rows - 1
        stored(file, "observations", (rows, 2000), filters, dtype="u1").write_direct_chunk((0, 0), data)
    assert "a chunk that decompresses to another size" in refused(tmp_path / "x.hdf5")


@pytest.mark.parametrize("filters", [(), (2,), (3,)])
def test_chunks_stored_in_too_few_bytes_are_refused(tmp_path, filters):
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        stored(file, "observations", (9, 2), filters).write_direct_chunk((0, 0), b"\1" * 20)
    assert "a chunk of 20 bytes, expected 7" in refused(tmp_path / "x.hdf5")


def test_chunks_of_lzf_of_another_size_are_refused(tmp_path):
    for rows, said in ((8, "decompresses to another size"), (2000, "decompresses to another size"), (9, None)):
        with h5py.File(tmp_path / "from.hdf5", "w") as file:
            source = file.create_dataset("x", data=np.zeros((rows, 2)), chunks=(rows, 2), compression="lzf")
            skipped, data = source.id.read_direct_chunk((0, 0))
        with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
            target = file.create_dataset("observations", (9, 2), chunks=(9, 2), compression="lzf", dtype="f8")
            target.id.write_direct_chunk((0, 0), data, skipped)
        if said is None:
            assert load(tmp_path / "x.hdf5").transitions == 8
        else:
            assert said in refused(tmp_path / "x.hdf5")


def test_sizes_are_counted_before_anything_is_read(tmp_path):
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        file.create_dataset("observations", (2**50, 2), "f4", chunks=(1024, 2))
    assert "values that were never written" in refused(tmp_path / "x.hdf5")
    with columns(tmp_path / "x.hdf5", without=("observations",)) as file:
        stored(file, "observations", (9, 2), (1,), (2**28, 2)).write_direct_chunk((0, 0), zlib.compress(b"\0" * 9))
    assert "chunks or rows of 2,147,483,648 bytes, expected at most 268,435,456" in refused(tmp_path / "x.hdf5")
    chunk = zlib.compress(b"\0" * (1 << 27), 9)
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["actions"], file["terminals"] = np.zeros((6, 1)), np.arange(6) == 5
        for name in ("observations", "next_observations"):
            data = stored(file, name, (6, 1 << 26), (1,), (1, 1 << 26), "u2")
            for row in range(6):
                data.write_direct_chunk((row, 0), chunk)
    message = refused(tmp_path / "x.hdf5")
    assert "bytes in memory" in message and "--expansion" in message


def test_a_limit_is_lifted_by_name(tmp_path):
    rows = (1 << 28) // 1000 + 1000
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["actions"], file["terminals"] = np.zeros((rows, 1), "u1"), np.arange(rows) == rows - 1
        data = file.create_dataset("observations", (rows, 1000), "u1", chunks=(1 << 14, 1000), compression="gzip")
        for first in range(0, rows, 1 << 14):
            data.id.write_direct_chunk((first, 0), zlib.compress(b"\0" * (1000 << 14)))
    assert "--expansion" in refused(tmp_path / "x.hdf5")
    data = load(tmp_path / "x.hdf5", ReadOptions(expansion=2000.0))
    assert isinstance(data.obs, LazyRows) and data.obs[[5, rows - 1]].tolist() == [[0] * 1000] * 2


def test_texts_in_one_place_are_counted_as_often_as_they_are_named(tmp_path):
    """HDF5 stores texts apart from their dataset, where any number of rows may share one."""
    rows, who = 100_000, h5py.string_dtype()
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["observations"], file["actions"] = np.zeros((rows, 1), "u1"), np.zeros((rows, 1), "u1")
        file["terminals"] = np.arange(rows) == rows - 1
        one = file.create_dataset("one", (1,), who, chunks=(1,))
        one[0] = "x" * 10_000
        text = file.create_dataset("infos/who", (rows,), who, chunks=(rows,))
        text.id.write_direct_chunk((0,), one.id.read_direct_chunk((0,))[1] * rows)
    assert "bytes of text or more" in refused(tmp_path / "x.hdf5", "infos/who")


@pytest.mark.parametrize("chunks", [None, (4,)])
@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_texts_of_various_lengths_say_who_acted(tmp_path, chunks, compression):
    if compression and chunks is None:
        chunks = True
    with columns(tmp_path / "x.hdf5") as file:
        values = np.array(["zoë"] * 9, object)
        file.create_dataset("who", data=values, dtype=h5py.string_dtype(), chunks=chunks, compression=compression)
    assert load(tmp_path / "x.hdf5", ReadOptions("who")).names == ("zoë",)


@pytest.mark.parametrize(
    "kind", [np.dtype([("name", "S3"), ("value", "f8")]), h5py.ref_dtype, h5py.regionref_dtype, np.dtype("V8")]
)
def test_values_that_are_no_numbers_or_texts_are_refused(tmp_path, kind):
    with columns(tmp_path / "x.hdf5") as file:
        file.create_dataset("who", (9,), kind, chunks=(9,))
    load(tmp_path / "x.hdf5")  # unless they are asked for, they may be there
    assert "values of an unusual type" in refused(tmp_path / "x.hdf5", "who")


@pytest.mark.parametrize("value", [np.zeros(1 << 20, "u1"), np.array(["x" * 100] * 3, object), np.zeros(3, "f4,f4")])
def test_attributes_that_are_large_or_odd_are_refused(tmp_path, value):
    with h5py.File(tmp_path / "x.hdf5", "w", libver="latest") as file:
        for part, values in {"actions": np.zeros((9, 1)), "dones": np.arange(9) > 7, "obs/y": np.zeros((9, 2))}.items():
            file[f"data/demo_0/{part}"] = values
        kind = h5py.string_dtype() if value.dtype.kind == "O" else None
        file["data/demo_0"].attrs.create("who", value, dtype=kind)
    assert "attribute 'who': got a large value or an unusual type" in refused(tmp_path / "x.hdf5", "who")


@pytest.mark.parametrize("options", [
    {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf", "shuffle": True},
    {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf", "fletcher32": True},
    {"fletcher32": True}, {"shuffle": True}, {},
])  # fmt: skip
@pytest.mark.parametrize("kind", ["<f4", ">i2", "u1", "?", "f8", "odd"])
def test_chunks_are_read_as_h5py_reads_them(tmp_path, options, kind, monkeypatch):
    """Whole and row by row, with chunks cut at every edge, whatever is done here and what is left to HDF5."""
    values = np.random.default_rng(0).integers(0, 2, (23, 5, 3)).astype("i2" if kind == "odd" else kind)
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        dtype = values.dtype
        if kind == "odd":
            dtype = h5py.h5t.STD_I16LE.copy()
            dtype.set_precision(12)  # of sixteen bits
            dtype = h5py.Datatype(dtype)
        file.create_dataset("observations", values.shape, dtype, chunks=(4, 2, 2), **options)[:] = values
        file["actions"], file["terminals"] = np.zeros((23, 1)), np.arange(23) == 22
    np.testing.assert_array_equal(load(tmp_path / "x.hdf5").obs, values)
    monkeypatch.setattr(hdf5.lazy, "LARGE", 1)
    data = load(tmp_path / "x.hdf5")
    assert isinstance(data.obs, LazyRows)
    for rows in ([22, 0, 3, 4, 11], [7], range(5, 20), range(23)):
        found = data.obs[np.array(rows)]
        np.testing.assert_array_equal(found, values[np.array(rows)])
        assert found.dtype == values.dtype.newbyteorder("=")


def test_the_gate_is_passed_again_when_a_file_is_opened_again(secret, monkeypatch):
    monkeypatch.setattr(hdf5.lazy, "LARGE", 1)
    with columns(secret / "x.hdf5", without=("observations",)) as file:
        file.create_dataset("observations", data=np.zeros((9, 2)), chunks=(3, 2))
    data = load(secret / "x.hdf5")
    with columns(secret / "x.hdf5", without=("observations",)) as file:
        file["observations"] = h5py.ExternalLink("other.h5", "/observations")
    with pytest.raises(DataError, match="a link to another file"):
        data.obs[:1]
    (secret / "x.hdf5").unlink()
    os.mkfifo(secret / "x.hdf5")
    with pytest.raises(DataError, match="no such file"):
        pickle.loads(pickle.dumps(data.obs))[:1]


def test_many_entries_cannot_share_a_long_name(tmp_path):
    """Groups of old versions keep names apart from the entries that they belong to."""
    path, name = tmp_path / "x.hdf5", b"z" * 50_000
    with columns(path) as file:
        group = file.create_group("shared")
        for number in range(50):
            group[f"{number:02d}"] = file["actions"]
        group[name] = file["actions"]
    content = bytearray(path.read_bytes())
    nodes = [at for at in range(0, len(content), 8) if content[at : at + 4] == b"SNOD" and content[at + 6] > 4]
    entries = [at + 8 + 40 * number for at in nodes for number in range(content[at + 6])]  # not the four of the root
    places = [bytes(content[at : at + 8]) for at in entries]  # of their names
    for at in entries:
        content[at : at + 8] = max(places, key=lambda place: int.from_bytes(place, "little"))
    path.write_bytes(content)
    assert "names that take more bytes than the file has" in refused(path)


def test_long_paths_of_many_entries_are_counted(tmp_path, monkeypatch):
    """Every entry of a group keeps the name of that group as a part of its own."""
    monkeypatch.setattr(hdf5, "LOOKUPS", 2000)
    with columns(tmp_path / "x.hdf5") as file:
        group = file.create_group("z" * 50_000)
        for number in range(100):
            group[f"{number:02d}"] = file["actions"]
    assert "more entries than" in refused(tmp_path / "x.hdf5")


def test_names_in_masks_count_as_texts(tmp_path, monkeypatch):
    """Bytes that deflate to nothing are millions of names, each looked up."""
    monkeypatch.setattr(_arrays, "ALWAYS", 1 << 20)
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        demo = file.create_group("data/demo_0")
        demo["obs/state"], demo["actions"], demo["dones"] = np.zeros((9, 2)), np.zeros((9, 1)), np.arange(9) > 7
        file.create_dataset("mask/better", (1 << 17,), "S4", np.zeros(1 << 17, "S4"), chunks=True, compression="gzip")
    assert "bytes in memory from" in refused(tmp_path / "x.hdf5")
