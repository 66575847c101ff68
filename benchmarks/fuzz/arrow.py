"""Hostile folders of the library imitation: Arrow streams and the JSON that describes them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fuzz import links, tables, values
from fuzz.case import Case

FEATURE = {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "List"}
INFO = {
    "citation": "", "description": "", "homepage": "", "license": "",
    "features": {"obs": {"feature": FEATURE, "_type": "List"}, "acts": {"feature": {"dtype": "int64",
    "_type": "Value"}, "_type": "List"},
                 "infos": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
                 "terminal": {"dtype": "bool", "_type": "Value"}, "rews": FEATURE},
}  # fmt: skip
STATE = {
    "_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "0123456789abcdef",
    "_format_columns": None,
    "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False, "_split": None,
}  # fmt: skip
FEATURES = (
    {"_type": "Image"}, {"_type": "Audio"}, {"_type": "Video"}, {"_type": "Array2D", "shape": [3, 3],
    "dtype": "float64"},
    {"_type": "Translation", "languages": ["a"]}, {"_type": "ClassLabel", "names": ["a"]}, {"_type": "os.system"},
    {"_type": "Value"},
    {"dtype": "object", "_type": "Value"}, {"dtype": "__import__('os')", "_type": "Value"}, {"_type": "Sequence",
    "feature": {}}, [], 5,
    {"_type": "ClassLabel", "names_file": "/etc/passwd"}, {"_type": "Array2D", "shape": [-1, 1 << 40],
    "dtype": "float64"},
)  # fmt: skip


def table() -> pa.Table:
    """The rows of a sound folder, an episode each."""
    parts = values.sample()
    return pa.table(
        {
            "obs": [part["obs"].tolist() for part in parts],
            "acts": [part["action"].tolist() for part in parts],
            "infos": [[json.dumps({"demonstrator": part["name"]})] * len(part["action"]) for part in parts],
            "terminal": [part["terminated"] for part in parts],
            "rews": [part["reward"].tolist() for part in parts],
        }
    )


def people(case: Case, target: dict[str, Any]) -> None:
    """Infos with hostile names or JSON, or a column of names."""
    rows = len(target["table"])
    if case.chance(0.4):
        name = values.name(case).encode("utf-8", "replace").decode()
        tables.put(target, case.pick(("demonstrator", "operator")), pa.array([name] * rows))
        return
    text = values.json_text(case, {"demonstrator": values.name(case)}).encode("utf-8", "replace").decode()
    tables.put(target, "infos", pa.array([[text]] * rows, pa.list_(pa.string())))


def bomb(case: Case, target: dict[str, Any]) -> None:
    """Gigabytes of zeros in Zstandard's or LZ4's hands."""
    rows = case.size(case.pick((1 << 24, 1 << 26)))
    batches, press = case.pick((4, 20)), case.pick(("zstd", "lz4"))
    case.note(f"{batches} batches of {rows * 8 >> 20} MiB")

    def make(path: Path) -> None:
        zeros = np.zeros(rows)
        obs = pa.array([None], pa.list_(pa.list_(pa.float64())))
        inner = pa.ListArray.from_arrays(
            pa.array([0, rows // 4], pa.int32()),
            pa.FixedSizeListArray.from_arrays(pa.array(zeros), 4).cast(pa.list_(pa.float64())),
        )
        obs = inner
        acts = pa.array([[0] * 3])
        batch = pa.table({"obs": obs, "acts": acts, "terminal": pa.array([True])})
        with (
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=press)) as out,
        ):
            for _ in range(batches):
                out.write_table(batch)

    target["file"] = case.piece(f"{rows}-{batches}-{press}.arrow", make)


def views(case: Case, target: dict[str, Any]) -> None:
    """Rows that share their values: a dictionary, or runs."""
    rows = case.size(case.pick((64_000, 1_000_000)))
    kind = case.pick(("dictionary", "runs", "views"))
    case.note(f"{kind} of {rows}")
    if kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 100_000]))
    elif kind == "runs":
        column = pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1.0]))
    else:
        inner = pa.array(np.zeros(10_000))
        column = pa.ListViewArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), pa.array(np.full(rows, 10_000, np.int32)), inner
        )
    name = case.pick(("obs", "acts", "infos", "rews", "demonstrator"))
    plain = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), pa.array(np.zeros(rows)))
    target["table"] = pa.table({"obs": plain, "acts": plain, "terminal": pa.array(np.ones(rows, bool))})
    tables.put(target, name, column)


def ragged(case: Case, target: dict[str, Any]) -> None:
    """Lists of odd lengths, empty ones, and hostile numbers in them."""
    parts = values.sample()
    held = {"obs": parts[0]["obs"], "acts": parts[0]["action"], "rews": parts[0]["reward"]}
    case.mutate(held, values.ARRAYS[:3], 1)
    for name, array in held.items():
        try:
            tables.put(target, name, pa.array([array.tolist()] + [None] * (len(target["table"]) - 1)))
        except (pa.ArrowException, TypeError, ValueError):
            case.note("not in Arrow")


ROWS = (
    people,
    people,
    bomb,
    bomb,
    views,
    ragged,
    ragged,
    tables.types,
    tables.gaps,
    tables.metadata,
    tables.columns_twice,
)


def features(case: Case, said: dict[str, Any]) -> None:
    """The description names types that the library makes objects of."""
    said["features"][case.pick(("obs", "acts", "infos", "extra"))] = case.pick(FEATURES)


def named_files(case: Case, said: dict[str, Any]) -> None:
    """The state names files elsewhere, or many times."""
    name = "data-00000-of-00001.arrow"
    elsewhere = str(case.outside / "secret.bin")
    said["_data_files"] = case.pick(
        ([{"filename": elsewhere}], [{"filename": "../../outside/secret.bin"}], [{"filename": name}] * 1000, [], [{}],
         [{"filename": 5}],
         [{"filename": "/dev/zero"}], [{"filename": "."}], [{"filename": ""}], [{"filename": "x" * 5000}],
         [{"filename": "a\0b"}],
         [{"filename": "http://127.0.0.1:9/x"}], [{"filename": f"./{name}"}], [{"filename": "nowhere"}])
    )  # fmt: skip
    said["_indices_files"] = case.pick((None, [{"filename": elsewhere}], [{"filename": name}]))
    said["_format_type"] = case.pick((None, "torch", "jax", "os.system", 5))


def imitation(case: Case) -> Path:
    """A hostile folder."""
    path = case.home / "given"
    path.mkdir()
    target: dict[str, Any] = {"table": table()}
    info, state = json.loads(json.dumps(INFO)), json.loads(json.dumps(STATE))
    kind = case.pick(("rows", "rows", "rows", "json", "features", "names", "folder"))
    case.note(kind)
    if kind == "rows":
        case.mutate(target, ROWS)
    if kind == "features":
        features(case, info)
    if kind == "names":
        named_files(case, state)
    texts = {"dataset_info.json": json.dumps(info), "state.json": json.dumps(state)}
    if kind == "json":
        name = case.pick(list(texts))
        texts[name] = values.json_text(case, json.loads(texts[name]))
    for name, text in texts.items():
        (path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    write(case, target, path / "data-00000-of-00001.arrow")
    if kind == "folder" or case.chance(0.2):
        case.mutate(path, links.FOLDERS)
    case.large = case.chance(0.3)
    return path


def write(case: Case, target: dict[str, Any], path: Path) -> None:
    """A stream, or a file in the other layout of Arrow's."""
    if "file" in target:
        path.write_bytes(target["file"].read_bytes())
        return
    rows, opened = target["table"], pa.ipc.new_file if case.chance(0.05) else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(
        compression=case.pick((None, None, "zstd", "lz4")), emit_dictionary_deltas=case.chance(0.5)
    )
    with pa.OSFile(str(path), "wb") as sink, opened(sink, rows.schema, options=options) as out:
        out.write_table(rows, case.pick((1, 2, 1_000_000)) if len(rows) < 1000 else None)
