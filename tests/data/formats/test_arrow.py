"""What pages take in memory is known before Arrow decompresses them, whatever the file says of itself."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed._io import arrays as _arrays
from irleed._io.arrays import Budget
from irleed.data import lazy
from irleed.data.formats import ReadOptions
from irleed.data.formats.arrow import Opened, size_of_pages
from irleed.data.formats.tables import FORMAT
from irleed.data.lazy import LazyRows
from irleed.errors import DataError

MB = 1 << 20
ROWS = 200_000
DELTA = "DELTA_BINARY_PACKED"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One MiB is enough for every file, so that bombs in these tests can be small."""
    monkeypatch.setattr(_arrays, "ALWAYS", MB)


def stored(path, columns, rows: int = ROWS, **options):
    others = {"episode": np.arange(rows) // (rows // 2), "action": np.arange(rows, dtype="u1")}
    pq.write_table(pa.table(others | columns), path, row_group_size=rows, **options)
    return path


def repeated(value, rows: int = ROWS) -> pa.Array:
    return pa.array([value]).take(pa.array(np.zeros(rows, int)))


BOMBS = {
    "a dictionary": ({"obs": np.zeros(ROWS)}, {}),
    "compression": ({"obs": np.zeros(ROWS)}, {"use_dictionary": False, "compression": "zstd"}),
    "differences": ({"obs": np.arange(ROWS)}, {"use_dictionary": False, "column_encoding": {"obs": DELTA}}),
    "lists": ({"obs": repeated([0.0] * 1000, 200)}, {"rows": 200}),
    "missing values": ({"obs": np.zeros(ROWS), "truncated": pa.nulls(ROWS, pa.float64())}, {}),
    "new pages": ({"obs": np.zeros(ROWS)}, {"data_page_version": "2.0"}),
}  # fmt: skip


@pytest.mark.parametrize("columns, options", BOMBS.values(), ids=BOMBS)
def test_what_is_small_in_the_file_only_is_refused(tmp_path, columns, options):
    path = stored(tmp_path / "data.parquet", columns, **options)
    with pytest.raises(DataError, match=r"bytes in memory from .* on disk.*--expansion"):
        FORMAT.read(path, ReadOptions(expansion=1.0))
    assert FORMAT.read(path, ReadOptions(expansion=1e6)).transitions == options.get("rows", ROWS) - 2


def test_what_would_stay_on_disk_counts_too(tmp_path, monkeypatch):
    """To open it is to look through it once."""
    monkeypatch.setattr(lazy, "LARGE", 1)
    path = stored(tmp_path / "data.parquet", {"obs": np.zeros(ROWS)})
    with pytest.raises(DataError, match="--expansion"):
        FORMAT.read(path, ReadOptions(expansion=1.0))
    obs = FORMAT.read(path, ReadOptions(expansion=1e6)).obs
    assert isinstance(obs, LazyRows) and obs[[ROWS - 1]] == 0


def test_text_is_not_multiplied(tmp_path):
    """The same name in every row is in memory once: here it would take 2 GB otherwise."""
    names = repeated("x" * 999)
    path = stored(tmp_path / "data.parquet", {"obs": np.zeros(ROWS), "demonstrator": names})
    assert FORMAT.read(path, ReadOptions(expansion=1e4)).names == ("x" * 999,)
    budget = Budget(1e6)
    budget.admit(path)
    with Opened(path) as opened:
        opened.count(["demonstrator"], budget)
        assert opened.parquet.read(["demonstrator"]).nbytes < 5 * ROWS
    options = {"use_dictionary": False, "column_encoding": {"demonstrator": "DELTA_BYTE_ARRAY"}}
    stored(path, {"obs": np.zeros(ROWS), "demonstrator": names}, **options)
    with pytest.raises(DataError, match="DELTA_BYTE_ARRAY"):
        FORMAT.read(path, ReadOptions(expansion=1e6))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_no_less_is_counted_than_is_read(tmp_path, version, codec):
    random = np.random.default_rng(0)
    columns = {
        "whole": random.integers(0, 9, 5000),
        "flags": random.random(5000) > 0.5,
        "bytes": random.integers(0, 9, 5000).astype("u1"),
        "lists": pa.array(random.random((5000, 3)).tolist()),
        "gaps": pa.array([None if n % 3 else float(n) for n in range(5000)]),
        "texts": [f"text {n % 700}" for n in range(5000)],
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "data.parquet", 777, compression=codec, data_page_version=version)
    for name in table.column_names:
        budget = Budget(1e6)
        budget.admit(tmp_path / "data.parquet")
        before = budget.left
        with Opened(tmp_path / "data.parquet") as opened:
            opened.count([name], budget)
            found = opened.parquet.read([name])
        assert (
            found.nbytes <= before - budget.left <= 3 * 5000 * (8 + 12)
        )  # each value once in a dictionary, once where it stands
        assert found.column(name).cast(table.column(name).type).equals(table.column(name))


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = b""
    while number >= 128:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def header(*fields: tuple[int, int, int | bytes]) -> bytes:
    """A structure of Thrift; each field its number, its type, and a whole number or what it is made of."""
    written = b""
    for number, kind, value in fields:
        written += bytes([kind]) + varint(number) + (value if isinstance(value, bytes) else varint(value))
    return written + b"\0"


def page(count: int, size: int = 10, *more: tuple[int, int, int | bytes]) -> bytes:
    return header((1, 5, 0), (2, 5, size), (3, 5, 4), (5, 12, header((1, 5, count), (2, 5, 8), *more))) + b"data"


def test_headers_are_read_as_arrow_reads_them():
    assert size_of_pages(page(100) + page(7), 8) == 12 * 107
    assert size_of_pages(page(1, 5000), 8) == 5000
    statistics = (5, 12, header((1, 8, b"\x03abc"), (3, 6, 1 << 40), (7, 1, b""), (8, 7, bytes(8)), (9, 3, b"x")))
    assert size_of_pages(page(100, 10, statistics), 16) == 20 * 100
    # A field of another type is another field, and numbers of too many bits lose those on the left.
    assert size_of_pages(page(1 << 30, 10, (1, 6, 1), (1, 4, 1)), 8) == 12 << 30
    assert size_of_pages(page(5 + (1 << 32)), 8) == 12 * 5
    both = header((2, 5, 9), (3, 5, 0), (5, 12, header((1, 5, 1))), (8, 12, header((1, 5, 1 << 30))))
    assert size_of_pages(both, 8) == 12 << 30


@pytest.mark.parametrize(
    "content, said",
    [
        (b"\xff" * 50, "without headers"),
        (page(1)[:-6], "without headers"),
        (header((2, 5, 9)), "without headers"),
        (page(-1), "negative"),
        (page(1, -1), "negative"),
        (header((2, 5, 9), (3, 5, -9)), "negative"),
        (header((2, 5, 9), (3, 5, 0), (9, 9, b"\x15\x02")), "without headers"),
        (bytes([0x1C] * 1000), "without headers"),
        (header((2, 5, 9), (3, 5, 0), (8, 12, header((1, 5, 1), (4, 5, 7)))), "DELTA_BYTE_ARRAY"),
    ],
)
def test_pages_of_no_known_size_are_refused(content, said):
    with pytest.raises(ValueError, match=said):
        size_of_pages(content, 8)
