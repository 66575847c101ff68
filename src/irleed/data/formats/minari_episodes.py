"""Metadata, spaces, and episodes of Minari data sets, read without Minari and Gymnasium.

These two would trust the metadata: spaces with arrays of any size, and names whose matching takes hours. In HDF5, an
episode is a group, with a dataset for a plain space and groups for Dict and Tuple spaces; large observations, and all
infos, are lazy. In Arrow and Parquet it is a folder, with one row more than steps, without actions, rewards and flags.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import Budget
from irleed._io.text import printable
from irleed.data import lazy
from irleed.data.formats import hdf5, read_json, refuse, regular
from irleed.data.formats.arrow import Opened, arrow_errors, numbers, read_table, refuse_row, size_of_footer
from irleed.data.formats.hdf5 import Group
from irleed.data.formats.media import Pictures
from irleed.data.lazy import InMemory, LazyRows
from irleed.data.validation import listed
from irleed.errors import library

MARKS = {"data_format", "total_episodes", "total_steps"}  # keys in the metadata of every Minari data set
KINDS = ("hdf5", "arrow", "parquet")
VERSIONS = ("0.4.", "0.5.")  # of Minari with this layout
NUMBERS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
LEAST_SIDE = 32  # pixels of an image in Minari
LONGEST_NAME = 1000


@dataclasses.dataclass(frozen=True)
class Space:
    """A space of observations or actions."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype = np.dtype(np.int64)
    start: int = 0  # the lowest discrete value
    count: int = 0  # number of discrete values
    image: bool = False
    parts: Mapping[str, "Space"] = dataclasses.field(default_factory=dict)  # of Dict and Tuple, by name or number

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        here = math.prod(self.shape) * self.dtype.itemsize if self.kind in NUMBERS else 0
        return here + sum(part.nbytes for part in self.parts.values())


@dataclasses.dataclass(frozen=True)
class About:
    """The content of `metadata.json`."""

    kind: str  # hdf5, arrow or parquet
    name: str
    episodes: int
    steps: int
    compressed: bool  # images are JPEG
    observation: Space
    action: Space


def about(root: Path, folder: Path) -> About:
    """The metadata in a folder, which is that of the data set or inside it."""
    place = folder / "metadata.json"
    try:
        metadata = dict(read_json(root, place))
        if not {"observation_space", "action_space"} <= set(metadata):
            expected = "observation_space and action_space, too"
            refuse(place, listed(sorted(metadata), 16), expected, "write it with a newer Minari")
        if not str(metadata["minari_version"]).startswith(VERSIONS):
            got = f"a data set of Minari {ascii(metadata['minari_version'])[:20]}"
            refuse(place, got, f"one of {', '.join(VERSIONS)}x", "write it with another Minari")
        spaces = [_space(json.loads(metadata[name])) for name in ("observation_space", "action_space")]
        counts = metadata["total_episodes"], metadata["total_steps"]
        sound = all(type(count) is int and count >= 0 for count in counts) and metadata["data_format"] in KINDS
        name = metadata["dataset_id"]
        if not (sound and isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
            raise ValueError("data_format, dataset_id, total_episodes or total_steps are not what they should be")
        return About(metadata["data_format"], name, *counts, bool(metadata.get("jpeg_encoding", True)), *spaces)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        text = printable(" ".join(f"{type(error).__name__}: {error}".split())[:200])
        got, expected = f"content that cannot be read ({text})", "the metadata of a Minari data set"
        refuse(place, got, expected, "copy or download it again")


def _space(description: Mapping[str, Any]) -> Space:
    """A space from its description by Minari."""
    kind = description["type"]
    if kind in ("Dict", "Tuple"):
        inner = description["subspaces"]
        named = inner.items() if kind == "Dict" else enumerate(inner)
        return Space(kind, parts={str(name): _space(part) for name, part in named})
    if kind == "Discrete":
        return Space(kind, start=int(description["start"]), count=int(description["n"]))
    if kind == "Box":
        shape, dtype = tuple(int(size) for size in description["shape"]), np.dtype(description["dtype"])
        if dtype.kind not in "biuf" or any(size < 0 for size in shape):
            raise ValueError(f"a Box of {dtype} and shape {shape}")
        large = len(shape) in (2, 3) and min(shape[:2]) >= LEAST_SIDE and dtype == np.uint8
        image = large and bool(
            np.all(np.asarray(description["low"]) == 0) and np.all(np.asarray(description["high"]) == 255)
        )
        return Space(kind, shape, dtype, image=image)
    if kind == "MultiDiscrete":
        return Space(kind, np.shape(description["nvec"]), np.dtype(np.int64))
    if kind == "MultiBinary":
        size = description["n"]
        return Space(kind, tuple(map(int, size)) if isinstance(size, list) else (int(size),), np.dtype(np.int8))
    return Space(str(kind))


FILE = "main_data.hdf5"


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
    """A stored episode; large observations are lazy."""

    observations: Any  # an array or LazyRows, or a mapping of such
    actions: np.ndarray | None  # None if they are of a Dict, Tuple or Text space
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    metadata: Mapping[str, Any]  # by names joined with slashes, as are infos; only wanted values
    infos: Mapping[str, Any]  # arrays, or convertible to such


@dataclasses.dataclass(frozen=True)
class Info:
    """A lazy array of a file."""

    file: hdf5.Reopened
    name: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The array."""
        return np.asarray(self.file.values(self.name).read(), dtype)


def in_hdf5(about: About, root: Path, data: Path, budget: Budget, wanted: tuple[str, ...]) -> list[StoredEpisode]:
    """All episodes in order, with `wanted` entries of their metadata; `data` is a folder in `root`."""
    path = regular(root, data / FILE)
    with hdf5.opened(path, budget) as file:
        again, found = hdf5.Reopened.of(file), []
        large = hdf5.is_large(path) or about.steps * about.observation.nbytes >= lazy.LARGE
        for number in range(about.episodes):
            group = file.get(f"episode_{number}")
            if not isinstance(group, Group):
                got = f"{len(file.names())} entries, without 'episode_{number}'"
                refuse(path, got, f"{about.episodes} episodes, as its metadata say", "copy or download it again")
            found.append(_in_group(group, about, again, wanted, large))
        return found


def check(path: Path) -> None:
    """Refuse a file with references to other files, or other values that may not be read.

    Texts are read, as HDF5 would copy each, though several may share storage.
    """
    with hdf5.opened(path, Budget()) as file:
        for _, values in file.walk():
            values.read() if values.dtype.hasobject else values.check()


def _in_group(group: Group, about: About, again: hdf5.Reopened, wanted: tuple[str, ...], large: bool) -> StoredEpisode:
    infos = group.get("infos")
    return StoredEpisode(
        observations=_observations(group, "observations", about.observation, about, again, large),
        actions=None if about.action.parts else hdf5.array(group, "actions"),
        rewards=hdf5.array(group, "rewards"),
        terminations=hdf5.array(group, "terminations"),
        truncations=hdf5.array(group, "truncations"),
        metadata={name: group.attribute(name) if name in wanted else None for name in group.attributes()},
        infos={name: Info(again, entry.name) for name, entry in infos.walk()} if isinstance(infos, Group) else {},
    )


def _observations(group: Group, name: str, space: Space, about: About, again: hdf5.Reopened, large: bool) -> Any:
    """The observations at a name, in the structure of their space."""
    if space.parts:
        inner = group.get(name)
        if not isinstance(inner, Group):
            refuse(hdf5.place(group, name), "no group", f"one, for {space.kind}", "write it again")
        stored = {part: part if space.kind == "Dict" else f"_index_{part}" for part in space.parts}
        return {
            part: _observations(inner, stored[part], below, about, again, large) for part, below in space.parts.items()
        }
    values = hdf5.sound(group, name)
    if (about.compressed and space.image) or values.dtype.kind not in "biuf":
        values.claim()
        source = hdf5.Stored(again, values.name, values.shape, values.dtype)
        if about.compressed and space.image:
            return LazyRows.of(Pictures(source, space.shape, values.where))
        return LazyRows.of(source)
    return hdf5.rows(group, name, again, large)


MAGIC = b"ARROW1\0\0"
FLAGS = ("rewards", "terminations", "truncations")


def in_arrow(about: About, root: Path, data: Path, budget: Budget, wanted: tuple[str, ...]) -> list[StoredEpisode]:
    """All episodes in order, with `wanted` infos; `data` is a folder in `root`."""
    return [_in_folder(about, root, data / str(number), budget, wanted) for number in range(about.episodes)]


def files(root: Path, folder: Path, kind: str) -> list[Path]:
    """The files of an episode, in order: its steps, and its metadata if there are any."""
    if not folder.is_dir():
        refuse(folder, "no folder", "one for each episode, as the metadata say", "copy or download it again")
    regular(root, folder / "metadata.json")  # before the folder is listed: it may be a link
    found = sorted(path for path in folder.iterdir() if path.suffix in (f".{kind}", ".json"))
    return [regular(root, path) for path in found]


def _in_folder(about: About, root: Path, folder: Path, budget: Budget, wanted: tuple[str, ...]) -> StoredEpisode:
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
        infos={name: _info(values, folder) if name in wanted else None for name, values in infos.items()},
    )


def _table(path: Path, kind: str, budget: Budget) -> Any:
    """The rows of a file, counted against the budget before they are read."""
    budget.admit(path)
    if kind == "parquet":
        budget.take(path, size_of_footer(path))
        with Opened(path) as opened:
            opened.count(opened.schema.names, budget)
            return opened.parquet.read()
    with path.open("rb") as file:
        budget.take(path, path.stat().st_size)  # nothing in it is compressed
        file.seek(len(MAGIC))  # what follows in the file is a stream
        return read_table(library("pyarrow", "formats").PythonFile(file, mode="r"))


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


def _info(column: Any, folder: Path) -> Any:
    """The values of an info; distinct ones of texts, which may occur many times."""
    types = library("pyarrow", "formats").types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return column.unique().to_pylist()
    return _plain(column, Space("Box"), folder)


def _leaves(column: Any, under: str = "") -> dict[str, Any]:
    """The leaves of a column of structures, by their names joined with slashes."""
    if not library("pyarrow", "formats").types.is_struct(column.type):
        return {under: column}
    below = ((field.name, column.field(i)) for i, field in enumerate(column.type))
    return {k: v for name, part in below for k, v in _leaves(part, f"{under}/{name}".lstrip("/")).items()}
