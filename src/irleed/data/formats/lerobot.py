"""LeRobot v3 folders: what robots sensed and were told, in Parquet files and videos; and weights put beside them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from irleed._io.files import beside
from irleed._io.npz import CORRUPT, printable
from irleed._io.text import one_line
from irleed.data.demonstrations import Demonstrations
from irleed.data.formats.arrow import labelled, numbers, refuse_row
from irleed.data.formats.base import Format, ReadOptions, library, refuse
from irleed.data.formats.folders import inside, read_json, regular
from irleed.data.formats.lerobot_cameras import CAMERAS, camera, seen
from irleed.data.formats.parquet import Files
from irleed.data.formats.tables import from_table
from irleed.data.lazy import LazyRows, SideBySide
from irleed.data.limits import Budget
from irleed.data.validation import listed, starts
from irleed.errors import DataError

WHO = ("demonstrator", "operator")
NO_VECTORS = (*CAMERAS, "string")
RENAMED = {"episode_index": "episode", "next.reward": "reward", "next.done": "terminated"}


def recognises(path: Path) -> bool:
    """A folder whose meta/info.json has a version and features."""
    try:
        place = path / "meta" / "info.json"
        info = read_json(path, place) if place.is_file() else {}
        return isinstance(info["codebase_version"], str) and isinstance(info["features"], dict)
    except DataError:
        return True  # reading says what is wrong
    except CORRUPT:
        return False


def read(path: Path, reading: ReadOptions) -> Demonstrations:
    """The episodes of a folder."""
    info = _info(path)
    kinds = {name: feature.get("dtype") for name, feature in info["features"].items()}
    budget = reading.budget()
    files, about = _files(path, "data", budget), _about(path, budget)
    names, action, filmed = files.names, reading.action or "action", camera(info["features"], reading.obs, path)
    vectors = [name for name in sorted(names) if name.startswith("observation.") and kinds.get(name) not in NO_VECTORS]
    obs = reading.obs or tuple(vectors)
    missing = [name for name in ("episode_index", action, *(() if filmed else obs)) if name not in names]
    if missing or not obs:
        got = f"no {missing[0]!r}" if missing else "no vector 'observation...'"
        there = [*names, *(name for name, kind in kinds.items() if kind in CAMERAS)]
        refuse(path, got, f"some of {listed(there, 20)}", "choose observations and actions from these")
    wanted = {*RENAMED, action, "frame_index", *WHO, reading.named}
    frames = files.read([name for name in names if name in wanted])
    _check_whole(frames, info, path)
    if filmed:
        rows, blank = seen(filmed, info, frames, files, about, path), np.zeros(len(frames), bool)
    else:
        rows, blank = files.observations(obs)
    columns = {new: frames.column(old) for old, new in RENAMED.items() if old in frames.column_names}
    columns |= {"action": _vector(frames.column(action)), "demonstrator": _owners(frames, files, about, reading, path)}
    table = library("pyarrow", "formats").table(columns)
    return from_table(table, _vectors(rows), blank, ["action"], "demonstrator", path, budget)


def episode_names(path: Path, reading: ReadOptions) -> tuple[str, ...]:
    """The `episode_index` of each episode, in the order in which they are read."""
    _, _, labels = _numbered_frames(path, reading, [])
    return tuple(labels)


def write_weights(
    out: Path, episode: Sequence[int] | np.ndarray, weight: Sequence[float] | np.ndarray, **columns: ArrayLike
) -> None:
    """Write a Parquet table with `episode_index`, `weight` and other columns, one row an episode."""
    if "episode_index" in columns:
        refuse(out, "episode_index twice", "every name once", "give the episodes by position alone")
    _write(out, {"episode_index": np.asarray(episode, np.int64), "weight": np.asarray(weight, np.float64), **columns})


def write_frame_weights(out: Path, source: Path, weight: Sequence[float] | np.ndarray, reading: ReadOptions) -> None:
    """Write a Parquet table with `index` and `weight`, one row a frame: the weight of the frame's episode.

    **Arguments:**

    - `source`: the folder.
    - `weight`: of each episode, in the order in which they are read.
    """
    frames, number, labels = _numbered_frames(source, reading, ["index"])
    if len(labels) != len(weight):
        refuse(source, f"{len(labels)} episodes", f"{len(weight)}, as many as weights", "give the data of the weights")
    index, _ = numbers(frames, "index", source)
    _write(out, {"index": np.asarray(index, np.int64), "weight": np.asarray(weight, np.float64)[number]})


def _numbered_frames(path: Path, reading: ReadOptions, columns: list[str]) -> tuple[Any, np.ndarray, list[str]]:
    """Columns of all frames, the place of each one's episode, and the `episode_index` of each place."""
    files = _files(path, "data", reading.budget())
    missing = [name for name in ("episode_index", *columns) if name not in files.names]
    if missing:
        refuse(path, f"no {missing[0]!r}", f"some of {listed(files.names, 20)}", "copy the folder again")
    frames = files.read(["episode_index", *columns])
    code, labels = labelled(frames, "episode_index", path)
    start = starts(code)
    number = np.repeat(np.arange(len(start)), np.diff(start, append=len(code)))
    return frames, number, [str(labels[code[first]]) for first in start]


def _write(out: Path, columns: Mapping[str, ArrayLike]) -> None:
    """One Parquet table with a column `weight`, whole or not at all."""
    arrow, parquet = library("pyarrow", "formats"), library("pyarrow.parquet", "formats")
    entries = {name: np.asarray(values) for name, values in columns.items()}
    lengths = ", ".join(f"{name} {values.shape}" for name, values in entries.items())
    if any(values.shape != (len(entries["weight"]),) for values in entries.values()):
        refuse(out, lengths, "one value for each weight in each column", "give columns of equal lengths")
    if not np.all(np.isfinite(entries["weight"])):
        refuse(out, "weights that are not finite", "finite numbers", "leave these episodes out")
    if out.exists() or not out.parent.is_dir():
        got = "an existing file" if out.exists() else "a folder that does not exist"
        refuse(out, got, "a new file in an existing folder", "name another one")
    try:
        with beside(out) as file:
            parquet.write_table(arrow.table({name: arrow.array(values) for name, values in entries.items()}), file)
    except (OSError, ValueError, TypeError, arrow.ArrowException) as error:
        got = one_line(error)
        refuse(out, f"a table that cannot be written ({got})", "numbers or text, and a place for them", "check both")


def _info(path: Path) -> dict[str, Any]:
    """What meta/info.json says of a folder of version 3."""
    place = path / "meta" / "info.json"
    try:
        info = read_json(path, place)
        version, features = str(info["codebase_version"]), dict(info["features"])
    except CORRUPT as error:
        got = one_line(error)
        refuse(place, f"something else ({got})", "JSON with codebase_version and features", "copy the folder again")
    if not version.startswith("v3.") or not all(isinstance(feature, dict) for feature in features.values()):
        got = f"version {printable(version)} with {len(features)} features"
        refuse(place, got, "v3.0, each feature with its dtype", "convert it with the script that comes with LeRobot")
    return info | {"features": features}


def _files(path: Path, kind: str, budget: Budget) -> Files:
    """The Parquet files of a folder, in order."""
    chunks = [inside(path, chunk) for chunk in inside(path, path / kind).glob("chunk-*")]
    found = (regular(path, file) for chunk in chunks for file in chunk.glob("file-*.parquet"))
    files = sorted(found, key=_numbered)
    if not files:
        refuse(path / kind, "no files", "chunk-000/file-000.parquet and so on", "copy the folder again")
    return Files(files, path, budget)


def _about(path: Path, budget: Budget) -> Files | None:
    """What the folder says of its episodes."""
    return _files(path, "meta/episodes", budget) if (path / "meta" / "episodes").is_dir() else None


def _numbered(file: Path) -> list[int]:
    """The numbers of chunk and file."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", f"{file.parent.name} {file.stem}")]


def _check_whole(frames: Any, info: Mapping[str, Any], path: Path) -> None:
    """No frame and no episode is missing, as far as the folder says how many there are."""
    code, labels = labelled(frames, "episode_index", path)
    for name, got in (("total_frames", len(code)), ("total_episodes", len(labels))):
        if info.get(name, got) != got:
            expected = f"{info[name]!r}, as in meta/info.json"
            refuse(f"{printable(path)}, {name}", got, expected, "copy the folder again")
    if "frame_index" in frames.column_names and len(code):
        start = starts(code)
        count = np.arange(len(code)) - np.repeat(start, np.diff(start, append=len(code)))
        frame, _ = numbers(frames, "frame_index", path)
        odd = frame.reshape(len(code), -1)[:, 0] != count
        refuse_row(odd, path, "another frame_index", "0, 1, 2, ... in each episode", "copy the folder again")


def _vector(column: Any) -> Any:
    """Fractions as vectors of length one: a column of them is how a feature of shape (1,) is stored."""
    arrow = library("pyarrow", "formats")
    if not arrow.types.is_floating(column.type):
        return column
    return arrow.FixedSizeListArray.from_arrays(column.combine_chunks(), 1)


def _vectors(rows: np.ndarray | LazyRows) -> np.ndarray | LazyRows:
    """The same for observations."""
    if rows.ndim > 1 or rows.dtype.kind != "f":
        return rows
    return LazyRows.of(SideBySide([rows])) if isinstance(rows, LazyRows) else rows[:, None]


def _owners(frames: Any, files: Files, about: Files | None, reading: ReadOptions, path: Path) -> Any:
    """Who acted, one entry a frame: by a column of the frames, or one of the episodes."""
    arrow, alone = library("pyarrow", "formats"), [path.resolve().name] * len(frames)
    if reading.demonstrator == "episode":
        return arrow.array(alone)
    wanted = [reading.named] if reading.named else WHO
    for name in wanted:
        if name in frames.column_names:
            return frames.column(name)
    known = [] if about is None else about.names
    found = [name for name in wanted if name in known]
    if reading.named and not found:
        told = [*files.names, *(name for name in known if not name.startswith("stats/"))]
        refuse(f"{printable(path)}, demonstrator", f"no {reading.named!r}", f"one of {listed(told, 20)}", "name one")
    return _looked_up(frames, about, found[0], path) if about and found else arrow.array(alone)


def _looked_up(frames: Any, about: Files, name: str, path: Path) -> Any:
    """A column of the episodes, one entry a frame."""
    if "episode_index" not in about.names:
        refuse(path / "meta" / "episodes", "no 'episode_index'", "it and who acted", "copy the folder again")
    table = about.read(["episode_index", name])
    episode, numbers_of = labelled(table, "episode_index", path / "meta" / "episodes")
    who, names = labelled(table, name, path / "meta" / "episodes")
    owner = {numbers_of[e]: names[w] for e, w in zip(episode, who, strict=True)}
    code, labels = labelled(frames, "episode_index", path)
    missing = [label for label in labels if label not in owner]
    if missing or len(owner) < len(episode):
        got = f"no episode {missing[0]}" if missing else "an episode twice"
        refuse(path / "meta" / "episodes", got, "every episode once", "copy the folder again")
    return library("pyarrow", "formats").array([owner[labels[i]] for i in code])


FORMAT = Format("LeRobot v3 folders", recognises, read)
