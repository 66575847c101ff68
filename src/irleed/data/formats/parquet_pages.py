"""What the pages of a Parquet file take in memory, counted before Arrow decompresses any of them.

A page of a few bytes may hold millions of values: repetitions are stored once, and references to a dictionary in no
space at all. How many values there are, and how many bytes when decompressed, stands in a header before every page, in
the compact protocol of Thrift. Arrow asks for all pages of a column in a row group at once; so these headers can be
looked at on the way.
"""

from pathlib import Path
from typing import Any

from irleed.data.limits import Budget

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12  # types of Thrift
BITS = {I16: 16, I32: 32, I64: 64}
UNCOMPRESSED, COMPRESSED, DATA, DATA_2 = (2, I32), (3, I32), (5, STRUCT), (8, STRUCT)  # numbers and types of fields
COUNT, ENCODING, ENCODING_2 = (1, I32), (2, I32), (4, I32)
DELTA_BYTE_ARRAY = 7  # each text as what it shares with the one before: any size out of nothing
LEVELS = 4  # bytes for each value, which say whether it is missing and where its list ends
DEEPEST = 8  # structures in a header


class Watched:
    """A Parquet file for Arrow, whose pages count against a budget, once each.

    **Arguments:**

    - `path`: of the file.
    - `budget`, `width`: what counts them, and the most bytes that a value takes. None of them until they are set: what
        Arrow reads first are no pages.
    """

    closed = True

    def __init__(self, path: Path):
        self.path, self._file, self._seen = path, path.open("rb", buffering=0), set()
        self.closed = False
        self.budget: Budget | None = None
        self.width = 8

    def count(self, budget: Budget, width: int) -> None:
        """Count what is read from now on."""
        self.budget, self.width, self._seen = budget, width, set()

    def seek(self, *place: int) -> int:
        """Go to a place."""
        return self._file.seek(*place)

    def tell(self) -> int:
        """Where it is."""
        return self._file.tell()

    def close(self) -> None:
        """Arrow reads no more."""
        self.closed = True
        self._file.close()

    def __del__(self) -> None:
        if not self.closed:
            self.close()

    def read(self, size: int) -> bytes:
        """So many bytes, or those that are left."""
        place, content = self._file.tell(), self._file.read(size) or b""
        while len(content) < size and (more := self._file.read(size - len(content))):
            content += more
        if self.budget is not None and place not in self._seen:
            self.budget.take(self.path, size_of_pages(content, self.width))
            self._seen.add(place)
        return content


def size_of_pages(content: bytes, width: int) -> int:
    """Bytes that pages take when they are read, of values of so many bytes; a `ValueError` if they cannot be known."""
    at = size = 0
    while at < len(content):
        try:
            header, at = _struct(content, at)
            stored, uncompressed = header[COMPRESSED], header[UNCOMPRESSED]
        except (IndexError, KeyError) as error:
            raise ValueError("pages without headers") from error
        about = [header.get(kind, {}) for kind in (DATA, DATA_2)]
        counts = [each.get(COUNT, 0) for each in about]
        if min(stored, uncompressed, *counts) < 0:
            raise ValueError("pages of negative sizes")
        if DELTA_BYTE_ARRAY in (about[0].get(ENCODING), about[1].get(ENCODING_2)):
            raise ValueError("texts encoded as DELTA_BYTE_ARRAY")
        size, at = size + max(uncompressed, max(counts) * (width + LEVELS)), at + stored
    return size


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[dict[tuple[int, int], Any], int]:
    """The fields of a structure by number and type, as far as they are whole numbers or structures; and its end."""
    fields: dict[tuple[int, int], Any] = {}
    number = 0
    while head := content[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(content, at, 16)
        if kind in (TRUE, FALSE):
            continue
        if kind == BYTE:
            at += 1
        elif kind in BITS:
            fields[number, kind], at = _whole(content, at, BITS[kind])
        elif kind == DOUBLE:
            at += 8
        elif kind == BINARY:
            length, at = _varint(content, at)
            at += length
        elif kind == STRUCT and depth < DEEPEST:
            fields[number, kind], at = _struct(content, at, depth + 1)
        else:  # lists and maps, of which there are none in these headers
            raise KeyError(kind)
    return fields, at + 1


def _whole(content: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number with a sign, and where it ends."""
    value, at = _varint(content, at)
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise KeyError("a number of more than ten bytes")
