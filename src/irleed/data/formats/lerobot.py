"""LeRobot v3 folders: observations and actions of robots in Parquet files and videos; and weights for them."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from irleed._io.arrays import CORRUPT, Budget
from irleed._io.files import beside
from irleed._io.text import one_line, printable
from irleed._typing import Float, Int
from irleed.data.demonstrations import Demonstrations
from irleed.data.formats import Format, ReadOptions, inside, read_json, refuse, regular
from irleed.data.formats.arrow import labelled, numbers, refuse_row
from irleed.data.formats.media import MOST_PIXELS, Frames, Pictures
from irleed.data.formats.tables import Files, RowGroups, from_table
from irleed.data.lazy import LazyRows, SideBySide, Source
from irleed.data.validation import listed, starts
from irleed.errors import DataError, library

CAMERAS = ("image", "video")
SLOWEST, FASTEST = 1e-6, 1e6  # frames a second
LARGEST = 1 << 14  # pixels, of height and width
VIDEO = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")  # of each video in meta/episodes


class Encoded(Source):
    """Lazy rows of images as bytes of PNG or JPEG files."""

    def __init__(self, groups: RowGroups):
        self.groups, self.shape, self.dtype = groups, (int(groups.start[-1]),), np.dtype(object)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These images, each a buffer."""
        values = np.empty(len(rows), object)
        for here, group, within in self.groups.of(rows):
            values[here] = [group[int(row)].value.as_buffer() for row in within]
        return values


def camera(features: Mapping[str, Mapping[str, Any]], obs: tuple[str, ...], path: Path) -> str | None:
    """The camera, if it is the chosen observation; refused together with others."""
    found = [name for name in obs if features.get(name, {}).get("dtype") in CAMERAS]
    if found and len(obs) > 1:
        got, expected = f"{listed(obs)} together", f"{found[0]!r} alone"
        refuse(f"{printable(path)}, observations", got, expected, "choose one camera, or vectors")
    return found[0] if found else None


def seen(name: str, info: Mapping[str, Any], frames: Any, files: Files, about: Files | None, path: Path) -> LazyRows:
    """The lazy frames of a camera. `frames` has the column `episode_index`, `about` is meta/episodes."""
    feature = info["features"][name]
    shape = _shape(feature, f"{printable(path / 'meta' / 'info.json')}, {name}")
    if feature["dtype"] == "image":
        rows = LazyRows.of(_images(name, shape, files, path))
        rows[:1]
        return rows
    source = _video(name, info, shape, frames, about, path)
    rows = LazyRows.of(source)
    for row in source.ends():  # one at a time: there may be many
        rows[row : row + 1]
    return rows


def _shape(feature: Mapping[str, Any], where: str) -> tuple[int, int, int]:
    """Height, width and channels, whatever their order in the folder."""
    shape, names = feature.get("shape"), feature.get("names")
    sizes = shape if isinstance(shape, list) and all(type(n) is int and 0 < n <= LARGEST for n in shape) else []
    if len(sizes) != 3 or 3 not in (sizes[0], sizes[-1]):
        got = f"shape {printable(str(shape)[:100])}"
        refuse(where, got, "height, width and 3 channels", "choose another camera")
    axes = [str(name)[:1].lower() for name in names] if isinstance(names, list) else []
    if sorted(axes) != ["c", "h", "w"]:
        axes = ["h", "w", "c"] if sizes[-1] == 3 else ["c", "h", "w"]
    height, width, channels = (sizes[axes.index(axis)] for axis in "hwc")
    if height * width > MOST_PIXELS:
        refuse(where, f"{height} x {width} pixels", f"at most {MOST_PIXELS:,}", "make them smaller")
    if channels != 3:
        refuse(where, f"{channels} channels", "3", "choose another camera")
    return height, width, channels


def _images(name: str, shape: tuple[int, ...], files: Files, path: Path) -> Source:
    """Images in a column of the frames."""
    types, kind = library("pyarrow", "formats").types, files.kinds.get(name)
    struct = kind is not None and types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    inner = kind.field("bytes").type if kind is not None and struct else None
    if inner is None or not (types.is_binary(inner) or types.is_large_binary(inner)):
        got = f"no {name!r}" if kind is None else f"{name!r} of type {printable(str(kind)[:100])}"
        refuse(path, got, "a column of images", "copy the folder again")
    return Pictures(Encoded(files.groups([name], partial(_bytes, name=name, path=path))), shape, f"{path}, {name}")


def _bytes(table: Any, first: int, name: str, path: Path) -> Any:
    """The bytes of the images of a row group; refused if any are missing."""
    column = library("pyarrow.compute", "formats").struct_field(table.column(name), "bytes")
    missing = column.is_null().to_numpy()
    refuse_row(missing, path, f"no {name}", "an image in every row, in the table itself", "fix the folder", first)
    return column


def _video(
    name: str, info: Mapping[str, Any], shape: tuple[int, int, int], frames: Any, about: Files | None, path: Path
) -> Frames:
    """Frames of the videos that meta/episodes lists."""
    library("av", "video")
    fps = info.get("fps")
    if not isinstance(fps, int | float) or not SLOWEST <= fps <= FASTEST:
        refuse(path / "meta" / "info.json", f"fps {printable(str(fps)[:100])}", "frames a second", "fix it")
    code, labels = labelled(frames, "episode_index", path)
    start = starts(code)
    length = np.diff(start, append=len(code))
    chunk, number, begin, end = _video_places(name, [labels[i] for i in code[start]], about, path)
    bad = ~((begin >= 0) & ((end - begin) * fps > length - 0.5))
    if bad.any():
        e = int(np.argmax(bad))
        got, expected = f"seconds {begin[e]:.3f} to {end[e]:.3f}", f"{length[e]} frames, {length[e] / fps:.3f} seconds"
        place = f"{printable(path / 'meta' / 'episodes')}, {name}, episode {labels[code[start[e]]]}"
        refuse(place, got, expected, "copy the folder again")
    places, file = np.unique(np.stack([chunk, number], 1), axis=0, return_inverse=True)
    files = [path / "videos" / name / f"chunk-{c:03d}" / f"file-{f:03d}.mp4" for c, f in places.tolist()]
    for video in files:
        regular(path, video)
    return Frames(files, file.reshape(-1), begin, length, float(fps), (shape[0], shape[1]))


def _video_places(
    name: str, episodes: list[str], about: Files | None, path: Path
) -> tuple[Int[np.ndarray, " E"], Int[np.ndarray, " E"], Float[np.ndarray, " E"], Float[np.ndarray, " E"]]:
    """Chunk, file, and first and last second of the video of each episode."""
    place, columns = path / "meta" / "episodes", [f"videos/{name}/{part}" for part in VIDEO]
    missing = [column for column in ("episode_index", *columns) if about is None or column not in about.names]
    if about is None or missing:
        refuse(place, f"no column {missing[0]!r}", "where each video is", "copy the folder again")
    table = about.read(["episode_index", *columns])
    code, labels = labelled(table, "episode_index", place)
    row = {labels[c]: i for i, c in enumerate(code)}
    lost = [episode for episode in episodes if episode not in row]
    if lost or len(row) < len(code):
        got = f"no episode {lost[0]}" if lost else "an episode twice"
        refuse(place, got, "every episode once", "copy the folder again")
    chosen = np.array([row[episode] for episode in episodes])
    chunk, number, begin, end = (_one_each(table, column, place)[chosen] for column in columns)
    if chunk.dtype.kind not in "iu" or number.dtype.kind not in "iu" or min(chunk.min(), number.min()) < 0:
        refuse(place, f"other values in {columns[0]} or {columns[1]}", "whole numbers from 0", "copy the folder again")
    return chunk.astype(np.int64), number.astype(np.int64), begin.astype(np.float64), end.astype(np.float64)


def _one_each(table: Any, column: str, place: Path) -> np.ndarray:
    """A column with one number for each episode."""
    values, empty = numbers(table, column, place)
    refuse_row(empty, place, f"no {column}", "one an episode", "copy the folder again")
    if values.ndim != 1:
        refuse(f"{printable(place)}, column {column!r}", "vectors", "numbers", "copy the folder again")
    return values


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
    """Read the episodes of a folder."""
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
    """Write a Parquet table with `episode_index`, `weight` and other columns, one row for each episode."""
    if "episode_index" in columns:
        refuse(out, "episode_index twice", "every name once", "give the episodes by position alone")
    _write(out, {"episode_index": np.asarray(episode, np.int64), "weight": np.asarray(weight, np.float64), **columns})


def write_frame_weights(out: Path, source: Path, weight: Sequence[float] | np.ndarray, reading: ReadOptions) -> None:
    """Write a Parquet table with `index` and `weight`, one row for each frame: the weight of its episode.

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
    """Columns of all frames, the number of the episode of each, and the `episode_index` of each number."""
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
    """Write a Parquet table with a column `weight`, atomically."""
    arrow, parquet = library("pyarrow", "formats"), library("pyarrow.parquet", "formats")
    entries = {name: np.asarray(values) for name, values in columns.items()}
    lengths = ", ".join(f"{name} {values.shape}" for name, values in entries.items())
    if any(values.shape != (len(entries["weight"]),) for values in entries.values()):
        refuse(out, lengths, "one value for each weight in each column", "give columns of equal lengths")
    if not np.all(np.isfinite(entries["weight"])):
        refuse(out, "weights that are not finite", "finite numbers", "leave these episodes out")
    if os.path.lexists(out) or not os.path.isdir(out.parent):
        got = "an existing file" if os.path.lexists(out) else "a folder that does not exist"
        refuse(out, got, "a new file in an existing folder", "name another one")
    try:
        with beside(out) as file:
            parquet.write_table(arrow.table({name: arrow.array(values) for name, values in entries.items()}), file)
    except (OSError, ValueError, TypeError, arrow.ArrowException) as error:
        got = one_line(error)
        refuse(out, f"a table that cannot be written ({got})", "numbers or text, and a place for them", "check both")


def _info(path: Path) -> dict[str, Any]:
    """meta/info.json of a folder of version 3."""
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
    """The tables in meta/episodes, if there are any."""
    return _files(path, "meta/episodes", budget) if (path / "meta" / "episodes").is_dir() else None


def _numbered(file: Path) -> list[int]:
    """The numbers of chunk and file."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", f"{file.parent.name} {file.stem}")]


def _check_whole(frames: Any, info: Mapping[str, Any], path: Path) -> None:
    """Compare the numbers of frames and episodes with meta/info.json."""
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
    """A column of floats as vectors of length one: so features of shape (1,) are stored."""
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
    """The demonstrator of each frame, from a column of the frames or of the episodes."""
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
        there = [*files.names, *(name for name in known if not name.startswith("stats/"))]
        refuse(f"{printable(path)}, demonstrator", f"no {reading.named!r}", f"one of {listed(there, 20)}", "name one")
    return _looked_up(frames, about, found[0], path) if about and found else arrow.array(alone)


def _looked_up(frames: Any, about: Files, name: str, path: Path) -> Any:
    """A column of the episodes, with an entry for each frame."""
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
