"""What an MP4 file claims about its frames, checked before FFmpeg sets memory aside for them."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

COUNTS = re.compile(rb"stsz|stz2|trun|elst|cmov")
FIELD = {b"stsz": 12, b"stz2": 12, b"trun": 8, b"elst": 8}  # where each box has its count, from its name on
MOST = 1 << 28  # bytes of all boxes but those of frames: a million frames take some twenty million


def check_counts(path: Path) -> None:
    """Raise a `ValueError` if a file claims more frames than it has bytes: each would take a place in an index.

    Boxes are found by their names, however they are nested, as FFmpeg looks for them in many places.
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
