"""Minari data sets in Arrow and Parquet: a folder an episode, with a row a step and one more, of which actions, rewards
and flags are left out.
"""

from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed.data.formats import arrow_stream
from irleed.data.formats.arrow import arrow_errors, numbers, refuse_row
from irleed.data.formats.base import library, refuse
from irleed.data.formats.folders import read_json, regular
from irleed.data.formats.media import Pictures
from irleed.data.formats.minari_hdf5 import StoredEpisode
from irleed.data.formats.minari_spaces import NUMBERS, About, Space
from irleed.data.formats.parquet import Opened, size_of_footer
from irleed.data.lazy import InMemory, LazyRows
from irleed.data.limits import Budget

MAGIC = b"ARROW1\0\0"
FLAGS = ("rewards", "terminations", "truncations")


def episodes(about: About, root: Path, data: Path, budget: Budget, wanted: tuple[str, ...]) -> list[StoredEpisode]:
    """All of them, in their order, with those of their infos that are `wanted`, from a folder in that named."""
    return [_episode(about, root, data / str(number), budget, wanted) for number in range(about.episodes)]


def files(root: Path, folder: Path, kind: str) -> list[Path]:
    """The files of an episode's folder that hold its steps, in order, and its metadata if there are any."""
    if not folder.is_dir():
        refuse(folder, "no folder", "one for each episode, as the metadata say", "copy or download it again")
    regular(root, folder / "metadata.json")  # before the folder is listed: a link may have put it elsewhere
    found = sorted(path for path in folder.iterdir() if path.suffix in (f".{kind}", ".json"))
    return [regular(root, path) for path in found]


def _episode(about: About, root: Path, folder: Path, budget: Budget, wanted: tuple[str, ...]) -> StoredEpisode:
    stored = [path for path in files(root, folder, about.kind) if path.suffix != ".json"]
    if not stored:
        refuse(folder, "no files", f"files of type {about.kind}", "copy or download it again")
    with arrow_errors(folder):
        table = library("pyarrow", "formats").concat_tables([_table(path, about.kind, budget) for path in stored])
        table.validate(full=True)
    missing = [name for name in ("observations", "actions", *FLAGS) if name not in table.column_names]
    if missing or len(table) < 2:
        got = f"no {missing[0]!r}" if missing else f"{len(table)} rows"
        refuse(folder, got, "steps of an episode", "copy or download it again")
    steps = table.slice(0, len(table) - 1)
    infos = _leaves(table.column("infos").combine_chunks()) if "infos" in table.column_names else {}
    return StoredEpisode(
        observations=_values(table.column("observations").combine_chunks(), about.observation, about, folder),
        actions=None if about.action.parts else _plain(steps.column("actions"), about.action, folder),
        rewards=_plain(steps.column("rewards"), Space("Box"), folder),
        terminations=_plain(steps.column("terminations"), Space("Box"), folder),
        truncations=_plain(steps.column("truncations"), Space("Box"), folder),
        metadata=read_json(root, folder / "metadata.json"),
        infos={name: _said(values, folder) if name in wanted else None for name, values in infos.items()},
    )


def _table(path: Path, kind: str, budget: Budget) -> Any:
    """The rows of a file, counted before they are read."""
    budget.admit(path)
    if kind == "parquet":
        budget.take(path, size_of_footer(path))
        with Opened(path) as opened:
            opened.count(opened.schema.names, budget)
            return opened.parquet.read()
    with path.open("rb") as file:
        budget.take(path, path.stat().st_size)  # nothing in it is compressed
        file.seek(len(MAGIC))  # what follows in the file is a stream
        return arrow_stream.read_table(library("pyarrow", "formats").PythonFile(file, mode="r"))


def _values(column: Any, space: Space, about: About, folder: Path) -> Any:
    """Observations, in the structure of their space."""
    if space.parts:
        return {name: _values(column.field(name), part, about, folder) for name, part in space.parts.items()}
    if about.compressed and space.image:
        encoded = np.empty(len(column), object)
        encoded[:] = [getattr(value, "value", value).as_buffer() for value in column]  # Parquet's are in dictionaries
        where = f"{printable(folder)}, observations"
        return LazyRows.of(Pictures(InMemory(encoded), space.shape, where))
    return _plain(column, space, folder) if space.kind in NUMBERS else np.empty(len(column), object)


def _plain(column: Any, space: Space, folder: Path) -> np.ndarray:
    """A column of numbers, each of the shape of its space."""
    values, empty = numbers(library("pyarrow", "formats").table({"": column}), "", folder)
    refuse_row(empty, folder, "no value", "one in every row", "copy or download it again")
    return values.reshape(len(values), *space.shape) if space.shape else values


def _said(column: Any, folder: Path) -> Any:
    """The values of an info, texts each once: one may stand in a column any number of times."""
    types = library("pyarrow", "formats").types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return column.unique().to_pylist()
    return _plain(column, Space("Box"), folder)


def _leaves(column: Any, under: str = "") -> dict[str, Any]:
    """The columns in a column of structures, by their names joined with slashes."""
    if not library("pyarrow", "formats").types.is_struct(column.type):
        return {under: column}
    below = ((field.name, column.field(i)) for i, field in enumerate(column.type))
    return {k: v for name, part in below for k, v in _leaves(part, f"{under}/{name}".lstrip("/")).items()}
