"""Columns of Arrow tables as arrays, streams that are not compressed, and what cannot be read as one line."""

import contextlib
import csv
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import CORRUPT
from irleed._io.text import one_line, printable
from irleed._typing import Bool, Int, Shaped
from irleed.data.formats.base import joined, library, refuse
from irleed.data.validation import listed


@contextlib.contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turn what is raised on a file that cannot be read into one line."""
    try:
        yield
    except (*CORRUPT, csv.Error, library("pyarrow", "formats").ArrowException) as error:
        got = one_line(error)
        refuse(path, f"an unreadable table ({got})", "a whole CSV or Parquet file", "copy or write it again")


def coded(table: Any, name: str, path: Path) -> tuple[Int[np.ndarray, " R"], Any]:
    """A column of names as numbers, and the names as an Arrow array of text, in the order in which they occur."""
    arrow, compute = library("pyarrow", "formats"), library("pyarrow.compute", "formats")
    with arrow_errors(path):
        column = table.column(name)
        # Each text of a dictionary is looked at once, however often it occurs.
        column = column if arrow.types.is_dictionary(column.type) else column.cast(arrow.string()).dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        text = compute.utf8_trim_whitespace(column.dictionary.cast(arrow.string())).dictionary_encode()
        code = text.indices.take(column.indices)
        empty = code.is_null().to_numpy(zero_copy_only=False)
        refuse_row(empty, path, f"no {name}", "one in every row", "fill it in")
        code = code.dictionary_encode()
        return code.indices.to_numpy(zero_copy_only=False), text.dictionary.take(code.dictionary)


def labelled(table: Any, name: str, path: Path) -> tuple[Int[np.ndarray, " R"], list[str]]:
    """A column of names as numbers, and the names as text."""
    code, names = coded(table, name, path)
    return code, names.to_pylist()


def numbers(table: Any, name: str, path: Path) -> tuple[Shaped[np.ndarray, "R *v"], Bool[np.ndarray, " R"]]:
    """A column of numbers or of vectors, and which of its rows are empty; these are filled with zeros."""
    arrow, place = library("pyarrow", "formats"), f"{printable(path)}, column {name!r}"
    array = table.column(name).combine_chunks()
    if arrow.types.is_dictionary(array.type) and is_number(array.type.value_type):
        array = array.dictionary_decode()
    inner, shape = array.drop_null(), ()
    if _is_list(arrow, array.type):
        width = np.unique(inner.value_lengths().to_numpy(zero_copy_only=False))
        if len(width) != 1 or width[0] == 0:
            got = "lists of no numbers" if len(width) == 1 else f"lists of {len(width)} lengths"
            refuse(place, got, "numbers, as many in each row", "make all rows alike")
        inner, shape = inner.flatten(), (int(width[0]),)
    if inner.null_count or not is_number(inner.type):
        got = "empty entries in lists" if inner.null_count else f"values of type {inner.type}"
        refuse(place, got, "numbers", "mend the column, or choose others")
    flat, empty = inner.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)
    if not empty.any():
        return flat.reshape(-1, *shape).copy(), empty
    values = np.zeros((len(array), *shape), flat.dtype)
    values[~empty] = flat.reshape(-1, *shape)
    return values, empty


def side_by_side(
    table: Any, names: Sequence[str], path: Path
) -> tuple[Shaped[np.ndarray, "R *v"], Bool[np.ndarray, " R"]]:
    """Columns as one array, and the rows that are empty in all of them."""
    parts = {name: numbers(table, name, path) for name in names}
    empty = np.stack([gaps for _, gaps in parts.values()])
    partly = np.any(empty != empty[:1], axis=0)
    refuse_row(partly, path, f"gaps in {listed(names)}", "all or none of them", "fill them in")
    return joined({name: values for name, (values, _) in parts.items()}, tuple(names), path), empty[0]


def refuse_row(bad: Bool[np.ndarray, " R"], path: Path, got: str, expected: str, remedy: str, first: int = 0) -> None:
    """Refuse the first row that is marked, of rows that are numbered from `first` on."""
    if bad.any():
        refuse(f"{printable(path)}, row {first + np.argmax(bad)}", got, expected, remedy)


def is_flat(kind: Any) -> bool:
    """Is a column of this type one of numbers, text, times, or lists of numbers? Images and tensors are not."""
    arrow = library("pyarrow", "formats")
    if _is_list(arrow, kind):
        return is_number(kind.value_type)
    odd = arrow.types.is_nested(kind) or arrow.types.is_binary(kind) or isinstance(kind, arrow.BaseExtensionType)
    return not odd


def is_number(kind: Any) -> bool:
    """Is a column of this type one of numbers, or of yes and no?"""
    arrow = library("pyarrow", "formats")
    return arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)


def _is_list(arrow: Any, kind: Any) -> bool:
    return arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind)


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
