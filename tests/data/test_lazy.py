"""Rows on disk are those in memory, whatever is asked for, and no more is read than that."""

import pickle
import tracemalloc

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed._io.arrays import Budget
from irleed.data import Demonstrations, Episode, ReadOptions, lazy, load, save
from irleed.data.formats import hdf5
from irleed.data.lazy import InFile, InMemory, LazyRows, SideBySide
from irleed.errors import ConfigError, DataError


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(lazy, "LARGE", 1)


def stretches() -> tuple[LazyRows, np.ndarray]:
    """Rows of two sources in four stretches, and the same in memory."""
    one, two = np.arange(20.0).reshape(10, 2), -np.arange(12.0).reshape(6, 2)
    rows = LazyRows((InMemory(one), InMemory(two)), [0, 1, 0, 1], [4, 0, 0, 5], [3, 2, 5, 1])
    return rows, np.concatenate([one[4:7], two[:2], one[:5], two[5:]])


def images(path, length: int = 40, **options):
    """A D4RL-style file of images in four episodes, and the images."""
    frames = np.random.default_rng(0).integers(0, 256, (length, 5, 4), np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("observations", data=frames, **options)
        file["actions"], file["terminals"] = np.arange(length) % 3, np.arange(length) % 10 == 9
    return path, frames


@given(st.lists(st.integers(-11, 10), max_size=30))
def test_any_rows_in_any_order(index):
    rows, values = stretches()
    index = np.array(index, np.int64)
    np.testing.assert_array_equal(rows[index], values[index])


@given(st.integers(-12, 12), st.integers(-12, 12), st.sampled_from([1, 2, 3]))
def test_slices(start, stop, step):
    rows, values = stretches()
    np.testing.assert_array_equal(rows[start:stop:step], values[start:stop:step])


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 11)), min_size=1, max_size=6))
def test_spans_are_what_they_are_in_memory(drawn):
    rows, values = stretches()
    first = np.array([a for a, _ in drawn])
    length = np.minimum([n for _, n in drawn], len(values) - first)
    np.testing.assert_array_equal(lazy.spans(rows, first, length), lazy.spans(values, first, length))


def test_what_is_no_row_is_refused():
    rows, _ = stretches()
    for index in ([11], [-12]):
        with pytest.raises(IndexError):
            rows[index]
    with pytest.raises(TypeError):
        rows[[0.5]]
    assert len(rows) == 11 and rows.shape == (11, 2) and rows.ndim == 2 and rows.nbytes == 176
    np.testing.assert_array_equal(rows[-1], [-10, -11])


def test_arrays_and_lazy_rows_are_joined_and_put_side_by_side():
    rows, values = stretches()
    joined = lazy.concatenate([rows, np.ones((2, 2), np.float32), rows])
    assert isinstance(joined, LazyRows) and len(joined.sources) == 3
    np.testing.assert_array_equal(joined, np.concatenate([values, np.ones((2, 2)), values]))
    beside = LazyRows.of(SideBySide([rows, np.arange(11, dtype=np.int32)]))
    np.testing.assert_array_equal(beside[[3, 0]], np.c_[values, np.arange(11)][[3, 0]])


def test_too_much_at_once_is_refused_in_one_line(monkeypatch):
    rows, _ = stretches()
    monkeypatch.setattr(lazy, "MOST", 100)
    with pytest.raises(ConfigError, match=r"observations: got 0.0 GB to be read at once.*irleed.data.Batches"):
        np.asarray(rows)
    assert len(rows[:5]) == 5


@pytest.mark.parametrize("options", [{}, {"chunks": (7, 5, 4), "compression": "gzip"}], ids=["block", "chunks"])
def test_a_file_is_read_as_it_is_asked_for(tmp_path, everything_is_large, options):
    path, frames = images(tmp_path / "data.hdf5", **options)
    data = load(path)
    assert isinstance(data.obs, LazyRows) and data.length.tolist() == [9] * 4
    np.testing.assert_array_equal(data.obs, frames)
    np.testing.assert_array_equal(data.observation, np.concatenate([frames[i : i + 9] for i in (0, 10, 20, 30)]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data.obs))[[3, 39]], frames[[3, 39]])
    taken = data.take([2, 0])
    assert isinstance(taken.obs, LazyRows)
    np.testing.assert_array_equal(taken.obs, np.concatenate([frames[20:30], frames[:10]]))
    again = Demonstrations.from_episodes(data.split())
    assert isinstance(again.obs, LazyRows)
    np.testing.assert_array_equal(again.obs, frames)


@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f4", "<f8", ">i2"])
def test_a_block_of_numbers_is_read_without_h5py(tmp_path, dtype):
    """Where they begin is what the file says, also behind what another program put in front."""
    values = np.random.default_rng(0).integers(0, 100, (30, 3, 2)).astype(dtype)
    with h5py.File(tmp_path / "data.hdf5", "w", userblock_size=512) as file:
        file["other"], file["values"] = np.arange(100), values
    with hdf5.opened(tmp_path / "data.hdf5", Budget()) as file:
        begin = hdf5.sound(file, "values").in_one_block()
    assert begin is not None
    source = InFile(tmp_path / "data.hdf5", begin, values.shape, values.dtype)
    for rows in (np.arange(30), np.array([0, 1, 5, 7, 8, 29])):
        found = source.read(rows)
        assert found.dtype == values.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, values[rows])


def test_what_is_no_plain_block_of_numbers_is_left_to_h5py(tmp_path):
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["flags"], file["none"] = np.zeros(4, bool), h5py.Empty("f4")
        file.create_dataset("chunks", data=np.zeros((4, 2)), chunks=(2, 2))
        file.create_dataset("unwritten", (4, 2), "f4")
        short = h5py.h5t.STD_I16LE.copy()
        short.set_precision(12)  # of sixteen bits
        h5py.h5d.create(file.id, b"odd", short, h5py.h5s.create_simple((4,)))
        file["odd"][:] = 1
    with hdf5.opened(tmp_path / "data.hdf5", Budget()) as file:
        names = ("flags", "chunks", "unwritten", "odd")
        assert [hdf5.sound(file, name).in_one_block() for name in names] == [None] * 4


def test_a_file_that_was_cut_short_since_is_an_error_in_one_line(tmp_path, everything_is_large):
    path, frames = images(tmp_path / "data.hdf5")
    data = load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(frames[20].tobytes())])
    np.testing.assert_array_equal(data.obs[:20], frames[:20])
    with pytest.raises(DataError, match="content that cannot be read .the file ends before them"):
        data.obs[[3, 20]]


def test_demonstrations_of_a_robomimic_file_stay_apart_on_disk(tmp_path, everything_is_large):
    random = np.random.default_rng(1)
    parts = [random.standard_normal((n + 1, 3)).astype(np.float32) for n in (4, 2)]
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for number, part in enumerate(parts):
            group = file.create_group(f"data/demo_{number}")
            group["actions"], group["dones"] = np.zeros(len(part) - 1), np.zeros(len(part) - 1)
            for name, rows in {"obs": part[:-1], "next_obs": part[1:]}.items():
                group[f"{name}/pose"], group[f"{name}/speed"] = rows[:, :2], rows[:, 2]
    data = load(tmp_path / "data.hdf5")
    assert isinstance(data.obs, LazyRows)
    np.testing.assert_array_equal(data.obs, np.concatenate(parts))


def test_values_of_a_large_file_that_are_no_numbers_are_found(tmp_path, everything_is_large, monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK", 16)
    obs = np.zeros((8, 2))
    obs[[2, 5, 6], 1] = np.nan
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["observations"], file["actions"], file["terminals"] = obs, np.zeros(8), np.arange(8) % 4 == 3
    with pytest.raises(DataError) as caught:
        load(tmp_path / "data.hdf5")
    said = str(caught.value)
    assert "episode 0, step 2, obs[1]: got nan" in said and "fix all 3, in episodes 0, 1, entries [1]" in said


def test_a_file_that_vanishes_is_an_error_in_one_line(tmp_path, everything_is_large):
    path, _ = images(tmp_path / "data.hdf5")
    data = load(path)
    path.unlink()
    with pytest.raises(DataError, match="content that cannot be read"):
        data.obs[[0]]


def test_a_large_file_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lazy, "LARGE", 1 << 20)
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        file["observations"] = np.zeros((1000, 200, 200), np.uint8)  # 40 MB
        file["actions"], file["terminals"] = np.zeros(1000, np.int64), np.zeros(1000, bool)
    load(tmp_path / "data.hdf5")  # what is imported on the way counts for nothing
    tracemalloc.start()
    data = load(tmp_path / "data.hdf5", ReadOptions())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert data.obs.nbytes == 40_000_000 and peak < 2_000_000


def test_our_own_files_are_mapped_where_they_are_not_compressed(tmp_path, monkeypatch):
    frames = np.random.default_rng(0).integers(0, 256, (9, 30, 30), np.uint8)
    data = Demonstrations.from_episodes([Episode(frames, np.arange(8), True, "ann")])
    save(data, tmp_path / "stored.npz", compress=False)
    save(data, tmp_path / "small.npz")
    monkeypatch.setattr(lazy, "LARGE", 8000)
    mapped = load(tmp_path / "stored.npz")
    assert isinstance(mapped.obs, LazyRows) and isinstance(mapped.obs.sources[0], InFile)
    np.testing.assert_array_equal(mapped.obs, frames)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mapped.obs))[[8, 1]], frames[[8, 1]])
    assert isinstance(load(tmp_path / "small.npz").obs, np.ndarray)


def test_a_cut_file_of_ours_is_refused_before_it_is_mapped(tmp_path, monkeypatch):
    data = Demonstrations.from_episodes([Episode(np.zeros((9, 30, 30), np.uint8), np.arange(8), True, "ann")])
    save(data, tmp_path / "data.npz", compress=False)
    whole = (tmp_path / "data.npz").read_bytes()
    monkeypatch.setattr(lazy, "LARGE", 8000)
    for size in (len(whole) // 2, len(whole) - 30):
        (tmp_path / "data.npz").write_bytes(whole[:size])
        with pytest.raises(DataError, match="archive"):
            load(tmp_path / "data.npz")


def test_a_damaged_head_of_a_mapped_array_is_refused(tmp_path, monkeypatch):
    """Nothing has verified it by then, and NumPy parses it as Python."""
    save(
        Demonstrations.from_episodes([Episode(np.zeros((9, 30, 30), np.uint8), np.arange(8), True, "ann")]),
        tmp_path / "data.npz",
        compress=False,
    )
    whole = (tmp_path / "data.npz").read_bytes()
    monkeypatch.setattr(lazy, "LARGE", 8000)
    for old, new in ((b"(9, 30, 30)", b"(9, 30, 30("), (b"'|u1'", b"'|O1'"), (b"(9, 30, 30)", b"(9, 30, 31)")):
        assert whole.count(old) == 1
        (tmp_path / "data.npz").write_bytes(whole.replace(old, new))
        with pytest.raises(DataError, match="damaged"):
            load(tmp_path / "data.npz")


def test_next_observations_of_a_large_file_are_looked_at_here_and_there():
    obs = np.arange(1000.0)
    later, ends = obs + 1, np.zeros(1000, bool)
    hdf5.check_followed(obs, later, ends, "file", 4)
    with pytest.raises(DataError, match="row 0: got another observation"):
        hdf5.check_followed(obs, later + 1, ends, "file", 4)
