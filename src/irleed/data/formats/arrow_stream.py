"""Streams of Arrow record batches that are not compressed: nothing in them grows when it is read."""

import struct
from collections.abc import Iterator
from typing import Any

from irleed.data.formats.base import library

HEADER, COMPRESSION = 2, 3  # fields of a message, and of a record batch
CONTINUED = b"\xff\xff\xff\xff"  # before the length of a message, but in files of old versions
LONGEST = 1 << 24  # bytes of what a message says of its buffers, which Arrow copies before it looks at them


def read_table(source: Any) -> Any:
    """The rows of a stream of bytes, in its memory where it has all of them; a `ValueError` if they are compressed.

    Buffers that are compressed only say how large they will be; and values may refer to a dictionary any number of
    times.
    """
    arrow = library("pyarrow", "formats")
    messages = _messages(source)
    schema, batches = arrow.ipc.read_schema(next(messages)), []
    for message in messages:
        if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("record batches that are compressed, or encoded by dictionaries")
        batches.append(arrow.ipc.read_record_batch(message, schema))
    return arrow.Table.from_batches(batches, schema)


def _messages(source: Any) -> Iterator[Any]:
    """The messages of a stream, none of which says more of its buffers than any data set needs."""
    ipc = library("pyarrow", "formats").ipc
    while True:
        place, head = source.tell(), source.read(8)
        length = int.from_bytes(head[4:] if head[:4] == CONTINUED else head[:4], "little")
        if not length:  # the end
            return
        if length > LONGEST:
            raise ValueError(f"a message with a header of {length:,} bytes")
        source.seek(place)
        yield ipc.read_message(source)


def _is_compressed(message: bytes) -> bool:
    """Does a message, a flatbuffer, say how its record batch is compressed?"""
    return bool(_field(message, _follow(message, _field(message, _follow(message, 0), HEADER)), COMPRESSION))


def _field(message: bytes, table: int, number: int) -> int:
    """Where a field of a table begins; 0 if it is left out."""
    fields = table - struct.unpack_from("<i", message, table)[0]
    size = struct.unpack_from("<H", message, fields)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", message, fields + at)[0] if at < size else 0
    return table + offset if offset else 0


def _follow(message: bytes, place: int) -> int:
    """Where a reference leads."""
    return place + struct.unpack_from("<I", message, place)[0]
