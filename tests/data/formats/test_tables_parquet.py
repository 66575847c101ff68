"""Large Parquet files are the same as small ones, and no more of them is in memory than was asked for."""

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed._io.arrays import Budget
from irleed.data import Demonstrations, lazy
from irleed.data.formats import ReadOptions, tables
from irleed.data.formats.tables import FORMAT
from irleed.data.lazy import LazyRows
from irleed.errors import DataError

ROWS = 40
VALUES = np.random.default_rng(0).integers(0, 100, (ROWS, 3))


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(lazy, "LARGE", 1)


@pytest.fixture
def groups_read(monkeypatch) -> list[tuple[int, list[str]]]:
    """The row groups that are read one by one from now on, and of which columns."""
    seen = []
    read = pq.ParquetFile.read_row_group

    def counted(self, number, columns=None, **options):
        seen.append((number, columns))
        return read(self, number, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    return seen


def stored(path, group: int = 7, **columns):
    """A table of four episodes in groups of so many rows."""
    others = {"episode": np.arange(ROWS) // 10, "action": np.arange(ROWS), "note": ["x"] * ROWS}
    pq.write_table(pa.table(others | columns), path, row_group_size=group)
    return path


def of(kind: pa.DataType, values=VALUES) -> pa.Array:
    return pa.array(values.tolist(), kind)


KINDS = {
    "lists": {"obs": of(pa.list_(pa.float64()))},
    "long lists": {"obs": of(pa.large_list(pa.float32()))},
    "lists of fixed length": {"obs": of(pa.list_(pa.uint8(), 3))},
    "numbers": {f"obs_{i}": VALUES[:, i] for i in range(3)},
    "one number": {"obs": VALUES[:, 0].astype(np.int16)},
    "categories": {"obs": pa.array(VALUES[:, 0]).dictionary_encode()},
    "flags": {"obs": VALUES[:, 0] > 50},
    "of several types": {"obs_0": VALUES[:, 0].astype(np.float32), "obs_1": of(pa.list_(pa.int32(), 3))},
    "behind structures": {"a": [{"b": 1, "c": [{"d": 2}]}] * ROWS, "obs": of(pa.list_(pa.uint8(), 3))},
}


@pytest.mark.parametrize("columns", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("group", [1, 7, ROWS])
def test_what_is_large_is_what_it_would_be_in_memory(tmp_path, columns, group, monkeypatch):
    path = stored(tmp_path / "data.parquet", group, **columns)
    whole = FORMAT.read(path, ReadOptions())
    monkeypatch.setattr(lazy, "LARGE", whole.obs.nbytes)
    large = FORMAT.read(path, ReadOptions())
    assert isinstance(whole.obs, np.ndarray) and isinstance(large.obs, LazyRows)
    assert large.obs.dtype == whole.obs.dtype and large.obs.shape == whole.obs.shape
    np.testing.assert_array_equal(large.obs, whole.obs)
    order = np.random.default_rng(1).integers(0, ROWS, 100)
    np.testing.assert_array_equal(large.obs[order], whole.obs[order])
    for name in ("row", "action", "terminated", "truncated", "episode"):
        np.testing.assert_array_equal(getattr(large, name), getattr(whole, name))
    monkeypatch.setattr(lazy, "LARGE", whole.obs.nbytes + 1)
    assert isinstance(FORMAT.read(path, ReadOptions()).obs, np.ndarray)


def test_opening_sees_every_group_once_and_keeps_few(tmp_path, everything_is_large, groups_read, monkeypatch):
    """To find what is missing; and nothing of other columns."""
    monkeypatch.setattr(tables, "KEPT", 1)
    path = stored(tmp_path / "data.parquet", obs=of(pa.list_(pa.uint8(), 3)), obs_not=VALUES[:, 0])
    data = FORMAT.read(path, ReadOptions(obs=("obs",)))
    assert groups_read == [(number, ["obs"]) for number in range(6)]
    np.testing.assert_array_equal(data.obs[[39, 15]], VALUES[[39, 15]])
    assert groups_read[6:] == [(2, ["obs"]), (5, ["obs"])]


def test_fractions_are_seen_once_and_not_kept(tmp_path, everything_is_large, groups_read, monkeypatch):
    """They are looked through for values that are no numbers, a group at a time."""
    monkeypatch.setattr(tables, "KEPT", 1)
    data = FORMAT.read(stored(tmp_path / "data.parquet", obs=of(pa.list_(pa.float32()))), ReadOptions())
    assert [number for number, _ in groups_read] == [0, 1, 2, 3, 4, 5]
    data.obs[[38]], data.obs[[0, 35, 39]], data.obs[[2, 1]]
    assert [number for number, _ in groups_read[6:]] == [0, 5, 0]


def test_columns_that_are_not_needed_are_not_read(tmp_path, monkeypatch):
    path = stored(tmp_path / "data.parquet", obs=VALUES[:, 0], obs_1=VALUES[:, 1], reward=np.ones(ROWS))
    seen, read = [], pq.ParquetFile.read
    monkeypatch.setattr(pq.ParquetFile, "read", lambda self, columns: seen.extend(columns) or read(self, columns))
    FORMAT.read(path, ReadOptions(obs=("obs",)))
    assert sorted(seen) == ["action", "episode", "obs", "reward"]


def test_groups_that_are_still_in_memory_are_not_read_again(tmp_path, everything_is_large, groups_read, monkeypatch):
    monkeypatch.setattr(tables, "KEPT", 2 * 7 * 3)  # two groups
    data = FORMAT.read(stored(tmp_path / "data.parquet", obs=of(pa.list_(pa.uint8(), 3))), ReadOptions())
    groups_read.clear()
    for row in (0, 8, 6, 13, 1, 20, 2, 8):
        np.testing.assert_array_equal(data.obs[row], VALUES[row])
    assert [number for number, _ in groups_read] == [0, 1, 2, 1]


@pytest.mark.parametrize(
    "kind, values, said",
    [
        (pa.list_(pa.uint8(), 3), None, "row 33: got no observation"),
        (pa.list_(pa.float32(), 3), None, "row 33: got no observation"),
        (pa.list_(pa.int64()), None, "row 33: got no observation"),
        (pa.list_(pa.int64()), [1, 2], "lists of 2 lengths"),
        (pa.list_(pa.float64()), [1, 2], "lists of 2 lengths"),
        (pa.list_(pa.int64()), [1, 2, None], "empty entries"),
        (pa.list_(pa.uint8(), 3), [1, 2, None], "empty entries"),
        (pa.list_(pa.float64()), [1, 2, np.nan], "got nan, expected a finite number"),
        (pa.list_(pa.string()), ["a"], "no column"),
    ],
)
def test_what_is_wrong_far_in_a_large_file_is_found(tmp_path, everything_is_large, refusal, kind, values, said):
    rows = VALUES.tolist() if kind.value_type != pa.string() else [["a"]] * ROWS
    obs = pa.array([*rows[:33], values, *rows[34:]], kind)
    assert said in refusal(stored(tmp_path / "data.parquet", obs=obs), ReadOptions(obs=("obs",)))


def test_groups_of_rows_of_another_length_are_found(tmp_path, everything_is_large, refusal):
    for number in (float, int):
        rows = [[number(1), number(2)]] * 30 + [[number(1)]] * 10
        path = stored(tmp_path / "data.parquet", 10, obs=rows)
        assert "row 30: got rows of shape (1,), expected (2,), as in row 0" in refusal(path)


def test_row_groups_that_no_memory_would_hold_are_refused(tmp_path, everything_is_large, refusal, monkeypatch):
    monkeypatch.setattr(lazy, "MOST", 6 * 24)
    path = stored(tmp_path / "data.parquet", obs=VALUES.astype(float).tolist())
    assert "fewer rows in each" in refusal(path)


def rows_of(obs: LazyRows, rows: list[int]) -> np.ndarray:
    return obs[rows]


def test_they_go_to_other_processes_and_threads(tmp_path, everything_is_large):
    data = FORMAT.read(stored(tmp_path / "data.parquet", obs=of(pa.list_(pa.float32(), 3))), ReadOptions())
    rows = [[39, 0, 12], [5, 5], list(range(40))]
    again = pickle.loads(pickle.dumps(data.obs))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(rows_of, [data.obs, data.obs, again], rows))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found += pool.starmap(np.asarray, [(data.obs,)])
    for some, index in zip(found, [*rows, list(range(40))], strict=True):
        np.testing.assert_array_equal(some, VALUES[index])


def test_a_file_that_is_another_since_is_an_error_in_one_line(tmp_path, everything_is_large):
    path = stored(tmp_path / "data.parquet", obs=of(pa.list_(pa.uint8(), 3)))
    obs = FORMAT.read(path, ReadOptions()).obs
    others = (
        lambda: stored(path, 9, obs=of(pa.list_(pa.uint8(), 3))),
        lambda: stored(path, obs=[["x"]] * ROWS),
        lambda: stored(path),
        lambda: path.write_bytes(path.read_bytes()[:300]),
        path.unlink,
    )
    for change in others:
        change()
        with pytest.raises(DataError) as caught:
            pickle.loads(pickle.dumps(obs))[[20]]
        assert len(str(caught.value).splitlines()) == 1 and str(path) in str(caught.value)


@pytest.mark.parametrize("kind", [pa.list_(pa.uint8(), 3), pa.list_(pa.float32())])
def test_a_damaged_large_file_is_read_or_refused(tmp_path, everything_is_large, kind):
    path = stored(tmp_path / "data.parquet", obs=of(kind))
    content = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for trial in range(200):
        at = int(random.integers(len(content)))
        flipped = content[:at] + bytes([content[at] ^ int(random.integers(1, 256))]) + content[at + 1 :]
        path.write_bytes(flipped if trial % 4 else content[:at])
        try:
            data = FORMAT.read(path, ReadOptions())
            assert isinstance(data, Demonstrations) and np.asarray(data.obs).shape == data.obs.shape
        except DataError as error:
            assert len(str(error).splitlines()) == 1
            refused += 1
    assert refused > 50


def test_files_may_have_their_columns_in_other_orders(tmp_path, everything_is_large):
    obs, other = of(pa.list_(pa.uint8(), 3)), [{"a": None, "b": "x"}] * ROWS
    one = stored(tmp_path / "one.parquet", obs=obs, other=other)
    two = stored(tmp_path / "two.parquet", other=other, obs=obs)
    rows, empty = tables.Files([one, two], tmp_path, Budget()).observations(["obs"])
    assert isinstance(rows, LazyRows) and not empty.any()
    np.testing.assert_array_equal(rows, np.concatenate([VALUES, VALUES]))
