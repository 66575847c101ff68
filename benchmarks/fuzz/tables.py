"""Hostile tables: CSV and Parquet files of steps."""

import base64
import csv
import gzip
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import bombs, links, values, zips
from fuzz.case import Case
from fuzz.zips import Code


def steps() -> dict[str, Any]:
    """The columns of a sound table: a row a step, the last of an episode without an action."""
    parts = values.sample()
    return {
        "episode": np.repeat(np.arange(3), [len(part["obs"]) for part in parts]),
        "demonstrator": np.array([part["name"] for part in parts for _ in part["obs"]]),
        **{f"obs_{axis}": np.concatenate([part["obs"][:, axis] for part in parts]) for axis in range(3)},
        "action": np.concatenate([np.append(part["action"], 0) for part in parts]),
        "reward": np.concatenate([np.append(part["reward"], 0) for part in parts]),
    }


def people(case: Case, columns: dict[str, Any]) -> None:
    """A demonstrator, or a column, has a hostile name."""
    if case.chance(0.5) and "demonstrator" in columns:
        columns["demonstrator"] = np.array([values.name(case)[:1_000_000]] * len(columns["demonstrator"]), object)
    elif columns:
        key = case.pick(list(columns))
        columns[case.pick(("obs_", "action_", "")) + values.name(case)] = columns.pop(key)


COLUMNS = (*values.ARRAYS, people, people)


def text(case: Case, columns: dict[str, Any]) -> str:
    """A CSV file of columns of any lengths."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=case.pick(",,,;\t"), lineterminator=case.pick(("\n", "\n", "\r\n", "\r")))
    writer.writerow(columns)
    lists = [np.atleast_1d(column).tolist() for column in columns.values()]
    for row in range(min(max(map(len, lists), default=0), 200)):
        writer.writerow([column[row] if row < len(column) else "" for column in lists])
    return stream.getvalue()


def cells(case: Case, content: list[str]) -> None:
    """A cell holds what no table should."""
    rows = content[0].split("\n")
    row = int(case.random.integers(len(rows)))
    parts = rows[row].split(",")
    parts[int(case.random.integers(len(parts)))] = case.pick(
        ("1e999", "-inf", "nan", "9" * 400, "9" * 1_000_000, '"', '"' * 999, "0x10", "1_000", "１", "true", "NULL",
         "\0", "=1+1",
         "1;2", '"a\nb"', "\ufffe", values.name(case), "1e-400", "-0", "+1", " 1", "1 2", "2020-01-01", "[1, 2]", "'",
         "x" * 1_000_000)
    )  # fmt: skip
    rows[row] = ",".join(parts)
    content[0] = "\n".join(rows)


def long_header(case: Case, content: list[str]) -> None:
    """Thousands of columns, or a line that never ends."""
    content[0] = ",".join(["episode", *(f"obs_{n}" for n in range(case.pick((5000, 300_000)))), "action"]) + case.pick(
        ("\n", "", "\n0,1\n")
    )


def many_rows(case: Case, content: list[str]) -> None:
    """A million rows, or a million episodes."""
    row = case.pick(("0,anna,1,2,3,1,0", "", ",,,,,,", "0"))
    content[0] += f"{row}\n" * case.size(case.pick((64_000, 1_000_000)))


def marks(case: Case, content: list[str]) -> None:
    """What editors leave at the ends, and zero bytes."""
    content[0] = (
        case.pick(("\ufeff", "", "\n\n", "#", "\0", "sep=,\n"))
        + content[0]
        + case.pick(("\x1a", "\0" * 1000, "\n" * 99_999, ""))
    )


def csv_table(case: Case) -> Path:
    """A hostile CSV file, now and then compressed under a name that says so."""
    return hostile_csv(case, steps())


def scores(case: Case) -> Path:
    """A hostile table of scores, by episode or not."""
    zips.of_columns(zips.demonstrations()).write(case.home / "people.npz")
    columns = {"demonstrator": np.array(["anna", "ben", "anna"]), "score": np.array([1.0, 2.0, 0.5])}
    own = case.pick(("", "episode", "episode_of_demonstrator"))
    if own:
        columns[own] = np.array([0, 0, 1] if own != "episode" else [0, 1, 2])
    return hostile_csv(case, columns)


def hostile_csv(case: Case, columns: dict[str, Any]) -> Path:
    """A CSV file of these columns, spoilt."""
    kind = case.pick(("columns", "text", "both"))
    if kind != "text":
        case.mutate(columns, COLUMNS)
    content = [text(case, columns)]
    if kind != "columns":
        case.mutate(content, (cells, cells, cells, long_header, many_rows, marks))
    path = case.home / "given.csv"
    encoding = case.pick(("utf-8",) * 6 + ("utf-16", "utf-8-sig"))
    path.write_bytes(content[0].encode(encoding, "surrogatepass"))
    if case.chance(0.06):
        links.alone(case, path)
    elif case.chance(0.06):
        case.note("gzip")
        zeros = bombs.gzipped(case.size(1 << 30))
        head = content[0].encode("utf-8", "surrogatepass")
        path = path.with_suffix(".csv.gz")
        path.write_bytes(case.pick((gzip.compress(head), head + zeros, zeros)))
    return path


def table_of(columns: dict[str, Any]) -> pa.Table:
    """An Arrow table, whatever the arrays are."""
    arrays = {}
    length = max((len(np.atleast_1d(column)) for column in columns.values()), default=0)
    for name, column in columns.items():
        column = np.atleast_1d(column)
        column = np.array(list(map(str, column.tolist()))) if column.dtype.kind == "V" else column
        column = column.astype(str) if column.dtype.kind in "cS" or column.dtype.char == "g" else column
        column = np.resize(column, (length, *column.shape[1:])) if column.size else np.zeros(length)
        rows = column if column.ndim == 1 else list(column) if column.ndim == 2 else column.tolist()
        arrays[name.encode("utf-8", "replace").decode()] = pa.array(rows)
    return pa.table(arrays)


def put(target: dict[str, Any], name: str, column: pa.Array) -> None:
    """Put a column in the place of another, or add it."""
    table = target["table"]
    place = table.column_names.index(name) if name in table.column_names else -1
    target["table"] = table.set_column(place, name, column) if place >= 0 else table.append_column(name, column)


def a_column(case: Case, target: dict[str, Any]) -> str:
    """One of those that are read."""
    return case.pick(target["table"].column_names or ["obs"])


def types(case: Case, target: dict[str, Any]) -> None:
    """A column of another type."""
    rows, name = len(target["table"]), a_column(case, target)
    kind = case.pick(
        (pa.null(), pa.binary(), pa.large_string(), pa.decimal128(38, 3), pa.timestamp("ns"), pa.date32(),
         pa.duration("s"),
         pa.list_(pa.float64()), pa.large_list(pa.int8()), pa.list_(pa.float32(), 3), pa.struct([("bytes",
             pa.binary())]),
         pa.map_(pa.string(), pa.int8()), pa.bool_(), pa.float16(), pa.uint64(), pa.list_(pa.list_(pa.float64())),
         pa.dictionary(pa.int8(), pa.float64()), pa.dictionary(pa.int32(), pa.string()), pa.binary(4),
         pa.list_(pa.null()))
    )  # fmt: skip
    case.note(f"{name}: {kind}")
    array = pa.nulls(rows, kind)
    if case.chance(0.5) and pa.types.is_list(kind):
        array = pa.array([[]] * rows, kind)
    put(target, name, array)


def repeated(case: Case, target: dict[str, Any]) -> None:
    """A column of a long text, or of a long list, over and over: once in the file, and many times in memory."""
    rows, size = case.size(case.pick((2000, 20_000))), case.pick((100_000, 1_000_000))
    name = case.pick(("demonstrator", "episode", "obs_0", "reward", "extra"))
    case.note(f"{name}: {rows} times {size} bytes")
    values_of = {key: pa.array(np.zeros(rows)) for key in target["table"].column_names if key.startswith("obs")}
    base = {"episode": pa.array(["a"] * rows), "action": pa.array(np.zeros(rows, np.int8)), **values_of}
    base[name] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    target["table"], target["plain"] = pa.table(base), case.chance(0.5)


def runs_of_one(case: Case, target: dict[str, Any]) -> None:
    """Hundreds of millions of rows of the same number: a few bytes for each million."""
    groups = 1 + case.size(case.pick((30, 300)))
    case.note(f"{groups} million rows")

    def make(path: Path) -> None:
        one = pa.table(
            {
                key: pa.array(np.zeros(1_000_000, np.int64 if key == "action" else float))
                for key in steps()
                if key != "demonstrator"
            }
        )
        with pq.ParquetWriter(path, one.schema, compression="zstd") as writer:
            for _ in range(groups):
                writer.write_table(one)

    target["file"] = case.piece(f"{groups}.parquet", make)


def lists(case: Case, target: dict[str, Any]) -> None:
    """Observations as lists: of several lengths, of none, with gaps, or of a million zeros each."""
    rows, wide = len(target["table"]), case.pick((0, 3, case.size(1_000_000)))
    for name in [name for name in target["table"].column_names if name.startswith("obs")]:
        target["table"] = target["table"].drop_columns([name])
    width = np.full(rows, wide)
    if case.chance(0.4) and rows:
        width[int(case.random.integers(rows))] = 2
    offsets = pa.array(np.append(0, np.cumsum(width)).astype(np.int32))
    put(target, "obs", pa.ListArray.from_arrays(offsets, pa.array(np.zeros(int(width.sum()), np.float32))))


def gaps(case: Case, target: dict[str, Any]) -> None:
    """Missing values."""
    if len(target["table"]) and target["table"].num_columns:
        name = a_column(case, target)
        column = target["table"].column(name).to_pylist()
        column[int(case.random.integers(len(column)))] = None
        put(target, name, pa.array(column, target["table"].schema.field(name).type))


def metadata(case: Case, target: dict[str, Any]) -> None:
    """Metadata that some programs unpickle, and that others believe."""
    code = pickle.dumps(Code())
    kind = case.pick(("extension", "schema", "pandas", "long"))
    if kind == "extension":
        said = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": code}
        fields = [field.with_metadata(said) for field in target["table"].schema]
        target["table"] = target["table"].cast(pa.schema(fields))
    said = {
        "schema": {"ARROW:schema": base64.b64encode(code)},
        "pandas": {"pandas": '{"index_columns": ["x"]}'},
        "long": {"x" * 9: "y" * 5_000_000},
    }
    target["table"] = target["table"].replace_schema_metadata(said.get(kind, {}))


def columns_twice(case: Case, target: dict[str, Any]) -> None:
    """A column is there twice, or thousands are there."""
    name = a_column(case, target)
    column = target["table"].column(name) if target["table"].num_columns else pa.array([])
    for number in range(case.pick((1, 3000))):
        target["table"] = target["table"].append_column(case.pick((name, f"obs_{number + 9}")), column)


TABLES = (types, types, repeated, repeated, runs_of_one, lists, gaps, metadata, columns_twice)


def written(case: Case, target: dict[str, Any], path: Path) -> None:
    """Write it in one of the ways that Parquet knows."""
    if "file" in target:
        path.write_bytes(target["file"].read_bytes())
        return
    press = case.pick(("zstd", "snappy", "gzip", "brotli", "lz4", "none"))
    few = len(target["table"]) < 1000 and max(map(len, target["table"].column_names), default=0) < 1000
    rows = case.pick((1, 3, 1_000_000)) if few else 1_000_000  # names are repeated for each group of rows
    version, pages = case.pick(("1.0", "2.6")), case.pick(("1.0", "2.0"))
    pq.write_table(
        target["table"], path, compression=press, row_group_size=rows, version=version, data_page_version=pages,
        use_dictionary=not target.get("plain", False) or "repeated" in case.applied, store_schema=case.chance(0.7),
        write_page_checksum=case.chance(0.3), write_statistics=case.chance(0.5),
    )  # fmt: skip


def parquet(case: Case) -> Path:
    """A hostile Parquet file."""
    columns = steps()
    kind = case.pick(("columns", "table", "table", "both"))
    if kind != "table":
        case.mutate(columns, COLUMNS)
    target: dict[str, Any] = {"table": table_of(columns)}
    if kind != "columns":
        case.mutate(target, TABLES)
    path = case.home / "given.parquet"
    written(case, target, path)
    if case.chance(0.05):
        links.alone(case, path)
    case.large = case.chance(0.3)
    return path
