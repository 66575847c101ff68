"""Lazy rows of compressed pictures and videos; the index of an MP4 is checked before it is opened."""

import contextlib
import io
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from irleed._io.arrays import CORRUPT
from irleed._io.text import one_line, printable
from irleed._typing import Float, Int
from irleed.data.formats import refuse
from irleed.data.lazy import Source
from irleed.errors import library

COUNTS = re.compile(rb"stsz|stz2|trun|elst|cmov")
FIELD = {b"stsz": 12, b"stz2": 12, b"trun": 8, b"elst": 8}  # offset of the count in each box, from its name
MOST = 1 << 28  # bytes of all boxes but those of frames; a million frames take some 20 MB


def check_counts(path: Path) -> None:
    """Raise a `ValueError` if a file claims more frames than it has bytes: each would take memory in an index.

    Boxes are searched by name, however they are nested, as FFmpeg finds them in many places.
    """
    size, frames, edits = path.stat().st_size, 0, 1
    for content in _headers(path, size):
        for box in COUNTS.finditer(content):
            if box[0] == b"cmov":
                raise ValueError("a compressed header")
            field = content[box.start() + FIELD[box[0]] :][:4]
            count = int.from_bytes(field, "big") if len(field) == 4 else 0
            frames, edits = (frames, edits + count) if box[0] == b"elst" else (frames + count, edits)
    if frames * edits > size:  # each edit may repeat all frames
        raise ValueError(f"{frames:,} frames in {edits - 1:,} edits, in a file of {size:,} bytes")


def _headers(path: Path, size: int) -> Iterator[bytes]:
    """The boxes at the top of a file, without those of encoded frames."""
    left = MOST
    with path.open("rb") as file:
        start = 0
        while start + 8 <= size:
            file.seek(start)
            length, name = struct.unpack(">I4s", file.read(8))
            if length == 1:
                length = int.from_bytes(file.read(8), "big")
            length = size - start if length == 0 else length
            if length < 8:
                return
            if name != b"mdat":
                file.seek(start)
                content = file.read(min(length, left + 1))
                left -= len(content)
                if left < 0:
                    raise ValueError(f"headers of more than {MOST:,} bytes")
                yield content
            start += length


FORMATS = ("PNG", "JPEG")  # all that may be decoded: Pillow runs other programs for some formats
MOST_PIXELS = 1 << 25  # of a picture; a frame of 8K video has 33 million

# What Pillow raises on damaged pictures, and on those that claim to be enormous.
DAMAGED = (*CORRUPT, Image.DecompressionBombError, Image.DecompressionBombWarning)


class Pictures(Source):
    """Rows of compressed pictures.

    **Arguments:**

    - `encoded`: their source, each row the bytes of a picture.
    - `shape`: of each decoded picture.
    - `where`: their name in messages.
    """

    def __init__(self, encoded: Source, shape: tuple[int, ...], where: str):
        self.encoded, self.where = encoded, where
        self.shape, self.dtype = (encoded.shape[0], *shape), np.dtype(np.uint8)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These pictures, decoded."""
        values = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for place, (row, data) in enumerate(zip(rows, self.encoded.read(rows), strict=True)):
            values[place] = decoded(data, self.shape[1:], f"{self.where}, row {row}")
        return values


def decoded(data: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """A picture from its bytes; pictures of another size are refused before they are decoded."""
    expected = f"uint8 of shape {shape}"
    try:
        with Image.open(io.BytesIO(bytes(data)), formats=FORMATS) as picture:
            if (picture.height, picture.width) != shape[:2]:
                refuse(where, f"{picture.height} x {picture.width} pixels", expected, "make all pictures alike")
            if picture.height * picture.width > MOST_PIXELS:
                got = f"{picture.height} x {picture.width} pixels"
                refuse(where, got, f"at most {MOST_PIXELS:,}", "make the pictures smaller")
            values = np.asarray(picture)
    except DAMAGED as error:
        refuse(where, f"no picture ({one_line(error)})", "a whole JPEG or PNG", "copy or write it again")
    if values.shape != shape or values.dtype != np.uint8:
        refuse(where, f"{values.dtype} of shape {values.shape}", expected, "make all pictures alike")
    return values


OPEN = 4  # files that each thread keeps open
NEAR = 2  # frames ahead that are decoded without a seek
# FFmpeg may open no playlists, other files or addresses, and may use only the decoders that LeRobot needs.
ALLOWED = {"protocol_whitelist": "file", "codec_whitelist": "h264,hevc,av1,libdav1d,vp9"}
CONTAINER = "mov"  # MP4
ROUNDED = 128  # pixels that codecs may add to height and width
SAME = 0.1  # of a frame: times that differ by less are equal up to rounding


class Clip:
    """An open video file; frames are found fastest in order of time.

    It is decoded in one thread: a process with decoding threads cannot be forked.
    """

    def __init__(self, path: Path, fps: float, size: tuple[int, int]):
        check_counts(path)
        options = ALLOWED | {"max_pixels": str((size[0] + ROUNDED) * (size[1] + ROUNDED))}
        self._container = library("av", "video").open(str(path), format=CONTAINER, options=options)
        self._stream = self._container.streams.video[0]
        if self._stream.codec_context is None:
            raise ValueError("a video of unknown codec")
        self._stream.codec_context.options = options
        self._stream.codec_context.thread_count = 1
        self._fps = fps
        self._frames: Iterator[Any] = iter(())
        self._held = self._following = None  # the latest frame found, and the next if it has been decoded
        self._stride = 0.0  # largest distance so far from a key frame to a wanted frame, in seconds

    def at(self, time: float) -> Any:
        """The frame shown at a time, or None if there is none within half a frame of it."""
        ahead = -1.0 if self._held is None else time - self._held.time
        if not -SAME / self._fps <= ahead <= max(self._stride, NEAR / self._fps):
            self._jump(time)
        while self._held is not None and abs(self._held.time - time) > SAME / self._fps:
            if self._following is None:
                self._following = self._next()
            if self._following is None or abs(self._following.time - time) >= abs(self._held.time - time):
                break
            self._held, self._following = self._following, None
        found = self._held is not None and abs(self._held.time - time) <= 0.5 / self._fps
        return self._held if found else None

    def _jump(self, time: float) -> None:
        """Seek to a key frame at or before a time; the times in the index may be later than those of frames."""
        for back in (0.0, 1.0, 10.0, time):
            place = int((time - back + SAME / self._fps) / self._stream.time_base)
            self._container.seek(place, stream=self._stream)
            self._frames = self._container.decode(self._stream)
            self._held, self._following = self._next(), None
            if self._held is not None and self._held.time <= time + 0.5 / self._fps:
                self._stride = max(self._stride, time - self._held.time)
                return

    def _next(self) -> Any:
        """The next frame, or None after the last."""
        return next((frame for frame in self._frames if frame.time is not None), None)


class Frames(Source):
    """Frames of episodes, RGB: frame i of an episode is shown i / fps seconds after it begins.

    **Arguments:**

    - `files`: videos.
    - `file`, `begin`, `length`: of each episode: its file, first second, and number of frames.
    - `fps`: frames per second.
    - `size`: height and width.
    """

    def __init__(
        self,
        files: Sequence[Path],
        file: Int[np.ndarray, " E"],
        begin: Float[np.ndarray, " E"],
        length: Int[np.ndarray, " E"],
        fps: float,
        size: tuple[int, int],
    ):
        self.files, self.fps = tuple(path.absolute() for path in files), fps
        self._file, self._begin, self._length = file, begin, length
        self._start = np.cumsum(length) - length
        self.shape, self.dtype = (int(length.sum()), *size, 3), np.dtype(np.uint8)
        self._mine = threading.local()  # per thread: a lock could stay closed after a fork

    def __reduce__(self) -> tuple[Any, ...]:
        size = (self.shape[1], self.shape[2])
        return Frames, (self.files, self._file, self._begin, self._length, self.fps, size)

    def ends(self) -> Int[np.ndarray, " K"]:
        """The first frame, and the last frame in each file, to detect wrong or short files."""
        last = self._start + self._length - 1
        time = self._begin + self._length / self.fps
        order = np.lexsort((time, self._file))
        final = order[np.flatnonzero(np.diff(self._file[order], append=-1))]
        return np.unique(np.append(last[final], 0))

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """These frames, decoded file by file in order of time."""
        episode = np.searchsorted(self._start, rows, side="right") - 1
        time = self._begin[episode] + (rows - self._start[episode]) / self.fps
        values = np.empty((len(rows), *self.shape[1:]), np.uint8)
        reformat = library("av", "video").video.reformatter.VideoReformatter().reformat
        for place in np.lexsort((time, self._file[episode])).tolist():
            file, second = self.files[self._file[episode[place]]], float(time[place])
            with self._errors(file, second):
                values[place] = reformat(self._frame(file, second), format="rgb24").to_ndarray()
        return values

    def _frame(self, file: Path, second: float) -> Any:
        """The frame of a file at a time; refused if it is missing, damaged, or of another size."""
        frame = self._clip(file).at(second)
        if frame is None or frame.is_corrupt:
            got = "no frame" if frame is None else "a damaged frame"
            refuse(f"{printable(file)}, second {second:.3f}", got, "one", "copy the folder again")
        if (frame.height, frame.width) != self.shape[1:3]:
            got, expected = f"frames of {frame.height} x {frame.width}", f"{self.shape[1]} x {self.shape[2]}"
            refuse(file, got, f"{expected}, as meta/info.json says", "copy the folder again")
        return frame

    @contextlib.contextmanager
    def _errors(self, file: Path, second: float) -> Iterator[None]:
        """Turn errors of decoding into one line."""
        try:
            yield
        except (library("av", "video").error.FFmpegError, *CORRUPT) as error:
            self._mine.__dict__.clear()  # open files may be in any state
            got = f"content that cannot be read ({one_line(error)})"
            expected = "a whole MP4 file with a video in H.264, HEVC, AV1 or VP9"
            refuse(f"{printable(file)}, second {second:.3f}", got, expected, "copy the folder again")

    def _clip(self, file: Path) -> Clip:
        """An open file; each thread keeps the latest ones open."""
        mine = self._mine.__dict__
        if mine.get("process") != os.getpid():
            mine.update(process=os.getpid(), clips={})
        clips: dict[Path, Clip] = mine["clips"]
        clip = clips.pop(file, None) or Clip(file, self.fps, (self.shape[1], self.shape[2]))
        while len(clips) >= OPEN:
            del clips[next(iter(clips))]
        clips[file] = clip
        return clip
