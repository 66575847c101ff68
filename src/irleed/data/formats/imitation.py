"""Demonstrations as the library `imitation` stores them: a folder of Hugging Face `datasets`, one row a trajectory."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import EPISODE, Budget
from irleed._io.files import replacing
from irleed._io.text import printable
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, read_json, refuse, regular
from irleed.data.formats.arrow import read_table
from irleed.data.lazy import InFile, LazyRows
from irleed.data.validation import listed
from irleed.errors import DataError, library

COLUMNS = ("obs", "acts", "terminal")  # required; infos, rews and others are optional
OWNERS = ("demonstrator", "operator")  # default columns or entries of infos with the demonstrator


def write(demonstrations: Demonstrations, out: Path) -> None:
    """Write a new folder for `imitation` and `datasets.load_from_disk`."""
    if out.exists():
        refuse(out, "a folder or file that exists", "a new name", "choose another name, or remove it")
    datasets = library("datasets", "formats")
    with replacing(out) as part, _quiet(datasets):
        datasets.Dataset.from_dict(_columns(demonstrations)).save_to_disk(str(part))


def _columns(demonstrations: Demonstrations) -> dict[str, list[Any]]:
    """Columns with an entry for each trajectory; demonstrators are in the infos: `imitation` refuses other columns."""
    start, length = demonstrations.start, demonstrations.length
    steps = [slice(first, first + count) for first, count in zip(start, length, strict=True)]
    obs, action = np.asarray(demonstrations.obs), np.asarray(demonstrations.action)
    rows = np.asarray(demonstrations.row)[start]
    infos = [json.dumps({"demonstrator": demonstrations.names[owner]}) for owner in demonstrations.owner]
    columns = {
        "obs": [obs[row : row + count + 1] for row, count in zip(rows, length, strict=True)],
        "acts": [action[step] for step in steps],
        "infos": [[info] * int(count) for info, count in zip(infos, length, strict=True)],
        "terminal": [bool(demonstrations.terminated[step.stop - 1]) for step in steps],
    }
    rewards = demonstrations.reward
    return columns if rewards is None else columns | {"rews": [np.asarray(rewards[step]) for step in steps]}


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Disable progress bars."""
    before = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            datasets.enable_progress_bars()


def _recognises(path: Path) -> bool:
    """A saved data set with the columns of trajectories."""
    try:
        place = path / "dataset_info.json"
        features = read_json(path, place)["features"] if place.is_file() else ()
        return (path / "state.json").is_file() and {"obs", "acts"} <= set(features)
    except DataError:
        return True  # reading says what is wrong
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _read(path: Path, reading: ReadOptions) -> Demonstrations:
    """Read every row as an episode."""
    where = printable(path)
    if reading.obs not in ((), ("obs",)) or reading.action not in (None, "acts"):
        got = f"a choice of {listed([*reading.obs, *filter(None, [reading.action])])}"
        refuse(where, got, "'obs' and 'acts'", "leave the choice out: there are no others")
    table, maps = _table(path, reading.budget())
    if len(set(table.column_names)) < len(table.column_names):
        refuse(where, f"columns {listed(table.column_names)}", "every name once", "write the folder again")
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        remedy = "write it with imitation.data.serialize.save"
        refuse(where, f"no {', '.join(missing)}", f"these besides {listed(table.column_names)}", remedy)
    terminal = table.column("terminal")
    if not library("pyarrow", "formats").types.is_boolean(terminal.type) or terminal.null_count:
        refuse(f"{where}, terminal", str(terminal.type)[:80], "true or false", "store one a trajectory")
    columns = {name: _arrays(table, name, where) for name in ("acts", "rews") if name in table.column_names}
    rewards = columns.get("rews", [None] * len(table))
    owners = _owners(table, reading, path)
    rows = zip(_arrays(table, "obs", where, maps), columns["acts"], terminal.to_pylist(), owners, rewards, strict=True)
    return Demonstrations.from_episodes([Episode(*row) for row in rows], where=where)


def _table(path: Path, budget: Budget) -> tuple[Any, list[tuple[Path, Any]]]:
    """The validated Arrow table, and memory maps of its files if they are large."""
    arrow = library("pyarrow", "formats")
    where, remedy = printable(path), "write the folder again with imitation.data.serialize.save"
    try:
        regular(path, path / "dataset_info.json")
        names = [file["filename"] for file in read_json(path, path / "state.json")["_data_files"]]
        for name in names:
            if Path(name).name != name:
                refuse(where, f"a file elsewhere, {ascii(name[:80])}", "files in the folder", remedy)
        if len(set(names)) < len(names):
            refuse(f"{where}, state.json", "a file twice", "every file once", remedy)
        files, maps = [regular(path, path.absolute() / name) for name in names], []
        large = sum(file.stat().st_size for file in files) >= lazy.LARGE
        if large:
            maps = [(file, arrow.memory_map(str(file)).read_buffer()) for file in files]
        buffers = [buffer for _, buffer in maps] if large else [arrow.py_buffer(file.read_bytes()) for file in files]
        table = arrow.concat_tables([read_table(arrow.BufferReader(buffer)) for buffer in buffers])
        table.validate(full=True)
        for file in files:
            budget.admit(file)
        budget.take(path, EPISODE * len(table))
        return table, maps
    except DataError:
        raise
    except Exception as error:  # Arrow, JSON and files each have their own
        refuse(where, ascii(f"{type(error).__name__}: {error}"[:120]), "a data set that loads", remedy)


def _arrays(
    table: Any, name: str, where: str, maps: list[tuple[Path, Any]] | None = None
) -> list[np.ndarray | LazyRows]:
    """The array of each trajectory; lazy if its file is in `maps`."""
    arrays, kind, types = [], table.schema.field(name).type, library("pyarrow", "formats").types
    if _has_views(kind):  # many rows may share the same numbers: a small file, and any amount of memory
        refuse(f"{where}, {name}", str(kind)[:80], "lists of numbers", "write the folder again")
    for i, row in enumerate(table.column(name)):
        values, place = getattr(row, "values", None), f"{where}, trajectory {i}, {name}"
        if values is None:
            refuse(place, kind if row.is_valid else "nothing", "a list of numbers", "store one list a trajectory")
        values, shape = _flat(values, place, types)
        stored = _in_file(values, shape, maps or [])
        arrays.append(values.to_numpy(zero_copy_only=False).reshape(shape) if stored is None else LazyRows.of(stored))
    return arrays


def _has_views(kind: Any) -> bool:
    """Whether a type is, or contains, one whose lists may overlap in memory."""
    types = library("pyarrow", "formats").types
    kind = getattr(kind, "storage_type", kind)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return True
    return any(_has_views(kind.field(i).type) for i in range(kind.num_fields))


def _flat(values: Any, where: str, types: Any) -> tuple[Any, tuple[int, ...]]:
    """The numbers in nested lists of equal lengths, without a copy, and their shape; `types` is Arrow's."""
    shape = [len(values)]
    while True:
        values = getattr(values, "storage", values)
        if values.null_count:
            refuse(where, "missing values", "numbers", "leave the trajectory out")
        if not (
            types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type)
        ):
            break
        width = values.type.list_size if types.is_fixed_size_list(values.type) else None
        if width == 0:  # any number of them take no space
            refuse(where, "lists of no numbers", "numbers", "leave the trajectory out")
        lengths = np.asarray(values.value_lengths()) if width is None and len(values) else np.array([width or 0])
        if lengths.min() < lengths.max():
            got = f"entries of lengths {lengths.min()} and {lengths.max()}"
            refuse(where, got, "equal lengths", "make all entries alike")
        shape.append(int(lengths[0]))
        values = values.flatten()
    if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_boolean(values.type)):
        refuse(where, values.type, "numbers", "encode it as numbers")
    return values, tuple(shape)


def _in_file(values: Any, shape: tuple[int, ...], maps: list[tuple[Path, Any]]) -> InFile | None:
    """The place of numbers in a file, if they are stored contiguously."""
    if not maps or library("pyarrow", "formats").types.is_boolean(values.type):  # eight of which are a byte
        return None
    dtype = np.dtype(values.type.to_pandas_dtype())
    first, size = values.buffers()[1].address + values.offset * dtype.itemsize, len(values) * dtype.itemsize
    for path, whole in maps:
        if whole.address <= first and first + size <= whole.address + whole.size:
            return InFile(path, first - whole.address, shape, dtype)
    return None


def _owners(table: Any, reading: ReadOptions, path: Path) -> list[str]:
    """The demonstrators: a column, else an entry of the first info of each trajectory, else the name of the folder."""
    if reading.demonstrator == "episode":
        return [path.stem] * len(table)
    where, wanted, columns = f"{printable(path)}, demonstrators", reading.named, table.column_names
    infos = _first_infos(table)
    there = sorted(set.intersection(*(set(info or {}) for info in infos))) if infos else []
    name = next((name for name in ([wanted] if wanted else OWNERS) if name in (*columns, *there)), None)
    if name is None and wanted is None:
        return [path.stem] * len(table)
    if name is None and None in infos:
        refuse(f"{printable(path)}, infos", "text that is no JSON", "JSON", "name a column instead")
    if name is None:
        expected = f"one of the columns {listed(columns)} or of the first infos {listed(there) or 'none'}"
        refuse(where, f"no {wanted!r}", expected, "name the one that says who acted")
    types = library("pyarrow", "formats").types
    texts = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    if name in columns and not any(kind(table.column(name).type) for kind in texts):
        refuse(where, f"{name!r} of other kinds", "one text or whole number a trajectory", "name another")
    values = table.column(name).to_pylist() if name in columns else [(info or {})[name] for info in infos]
    if not all(isinstance(value, str | int) for value in values):
        refuse(where, f"{name!r} of other kinds", "one text or whole number a trajectory", "name another")
    return [str(value) for value in values]


def _first_infos(table: Any) -> list[dict[str, Any] | None]:
    """The first info of every trajectory, decoded from JSON; None if it is no JSON."""
    if "infos" not in table.column_names:
        return []
    column, types = table.column("infos"), library("pyarrow", "formats").types
    lists = types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)
    if not lists or not (types.is_string(column.type.value_type) or types.is_large_string(column.type.value_type)):
        return []  # views could show the same long text in every row
    return [_info(row.values) for row in column]


def _info(infos: Any) -> dict[str, Any] | None:
    try:
        info = json.loads(infos[0].as_py()) if infos is not None and len(infos) else {}
    except (ValueError, TypeError, RecursionError):
        return None
    return info if isinstance(info, dict) else {}


FORMAT = Format(name="data set of the imitation library", recognises=_recognises, read=_read)
