"""What the cameras of a LeRobot folder saw: videos, and images in its Parquet files."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed._typing import Float, Int
from irleed.data.formats.arrow import labelled, numbers, refuse_row
from irleed.data.formats.base import library, refuse
from irleed.data.formats.folders import regular
from irleed.data.formats.media import MOST_PIXELS, Frames, Pictures
from irleed.data.formats.parquet import Files, RowGroups
from irleed.data.lazy import LazyRows, Source
from irleed.data.validation import listed, starts

CAMERAS = ("image", "video")
LARGEST = 1 << 14  # pixels, of height and width
SAID = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")  # of each video in meta/episodes


class Encoded(Source):
    """Rows of images as they are stored: the bytes of PNG or JPEG files."""

    def __init__(self, groups: RowGroups):
        self.groups, self.shape, self.dtype = groups, (int(groups.start[-1]),), np.dtype(object)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These, each a buffer."""
        values = np.empty(len(rows), object)
        for here, group, within in self.groups.of(rows):
            values[here] = [group[int(row)].value.as_buffer() for row in within]
        return values


def camera(features: Mapping[str, Mapping[str, Any]], obs: tuple[str, ...], path: Path) -> str | None:
    """The camera among the chosen observations, if there is one: it is then the only one."""
    found = [name for name in obs if features.get(name, {}).get("dtype") in CAMERAS]
    if found and len(obs) > 1:
        got, expected = f"{listed(obs)} together", f"{found[0]!r} alone"
        refuse(f"{printable(path)}, observations", got, expected, "choose one camera, or vectors")
    return found[0] if found else None


def seen(name: str, info: Mapping[str, Any], frames: Any, files: Files, about: Files | None, path: Path) -> LazyRows:
    """What a camera saw, frame by frame. `frames` has the column `episode_index`, `about` is meta/episodes."""
    feature = info["features"][name]
    shape = _shape(feature, f"{printable(path / 'meta' / 'info.json')}, {name}")
    if feature["dtype"] == "image":
        rows = LazyRows.of(_images(name, shape, files, path))
        rows[:1]
        return rows
    source = _video(name, info, shape, frames, about, path)
    rows = LazyRows.of(source)
    for row in source.ends():  # a file at a time: of all together, there may be many
        rows[row : row + 1]
    return rows


def _shape(feature: Mapping[str, Any], where: str) -> tuple[int, int, int]:
    """Height, width and channels, whatever their order in the folder."""
    shape, names = feature.get("shape"), feature.get("names")
    sizes = shape if isinstance(shape, list) and all(isinstance(n, int) and 0 < n <= LARGEST for n in shape) else []
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
    refuse_row(missing, path, f"no {name}", "an image in every row, in the table itself", "mend the folder", first)
    return column


def _video(
    name: str, info: Mapping[str, Any], shape: tuple[int, int, int], frames: Any, about: Files | None, path: Path
) -> Frames:
    """Frames of the videos that meta/episodes says the episodes are in."""
    library("av", "video")
    fps = info.get("fps")
    if not isinstance(fps, int | float) or not 0 < fps < math.inf:
        refuse(path / "meta" / "info.json", f"fps {printable(str(fps)[:100])}", "frames a second", "mend it")
    code, labels = labelled(frames, "episode_index", path)
    start = starts(code)
    length = np.diff(start, append=len(code))
    chunk, number, begin, end = _said(name, [labels[i] for i in code[start]], about, path)
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


def _said(
    name: str, episodes: list[str], about: Files | None, path: Path
) -> tuple[Int[np.ndarray, " E"], Int[np.ndarray, " E"], Float[np.ndarray, " E"], Float[np.ndarray, " E"]]:
    """Chunk, file, and first and last second of the video of each episode."""
    place, columns = path / "meta" / "episodes", [f"videos/{name}/{part}" for part in SAID]
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
    """A column of one number an episode."""
    values, empty = numbers(table, column, place)
    refuse_row(empty, place, f"no {column}", "one an episode", "copy the folder again")
    if values.ndim != 1:
        refuse(f"{printable(place)}, column {column!r}", "vectors", "numbers", "copy the folder again")
    return values
