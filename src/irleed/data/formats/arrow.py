"""Arrow tables of unknown origin: columns as arrays, uncompressed streams, Parquet files counted while they are read.

A page of a Parquet file of a few bytes may hold millions of values: repetitions are stored once, and references to a
dictionary in no space at all. The number of values and of bytes when decompressed stands in a header before every page,
in the compact protocol of Thrift. Arrow asks for all pages of a column in a row group at once; so `Watched` looks at
these headers on the way, before Arrow decompresses any of them.
"""

import contextlib
import csv
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import CORRUPT, Budget
from irleed._io.text import one_line, printable
from irleed._typing import Bool, Int, Shaped
from irleed.data.formats import joined, refuse
from irleed.data.validation import listed
from irleed.errors import library


@contextlib.contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a table into one line."""
    try:
        yield
    except (*CORRUPT, csv.Error, library("pyarrow", "formats").ArrowException) as error:
        got = one_line(error)
        refuse(path, f"an unreadable table ({got})", "a whole CSV or Parquet file", "copy or write it again")


def coded(table: Any, name: str, path: Path) -> tuple[Int[np.ndarray, " R"], Any]:
    """A column of names as numbers, and the names as an Arrow array of text, in order of occurrence."""
    arrow, compute = library("pyarrow", "formats"), library("pyarrow.compute", "formats")
    with arrow_errors(path):
        column = table.column(name)
        # Each text of a dictionary is processed once, however often it occurs.
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
    """A column of numbers or vectors, and its empty rows, which are filled with zeros."""
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
        refuse(place, got, "numbers", "fix the column, or choose others")
    flat, empty = inner.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False)
    if not empty.any():
        return flat.reshape(-1, *shape).copy(), empty
    values = np.zeros((len(array), *shape), flat.dtype)
    values[~empty] = flat.reshape(-1, *shape)
    return values, empty


def side_by_side(
    table: Any, names: Sequence[str], path: Path
) -> tuple[Shaped[np.ndarray, "R *v"], Bool[np.ndarray, " R"]]:
    """Columns concatenated to one array, and the rows that are empty in all of them."""
    parts = {name: numbers(table, name, path) for name in names}
    empty = np.stack([gaps for _, gaps in parts.values()])
    partly = np.any(empty != empty[:1], axis=0)
    refuse_row(partly, path, f"gaps in {listed(names)}", "all or none of them", "fill them in")
    return joined({name: values for name, (values, _) in parts.items()}, tuple(names), path), empty[0]


def refuse_row(bad: Bool[np.ndarray, " R"], path: Path, got: str, expected: str, remedy: str, first: int = 0) -> None:
    """Refuse the first marked row; rows are numbered from `first` on."""
    if bad.any():
        refuse(f"{printable(path)}, row {first + np.argmax(bad)}", got, expected, remedy)


def is_flat(kind: Any) -> bool:
    """Whether a type is numbers, text, times, or lists of numbers; not images or tensors."""
    arrow = library("pyarrow", "formats")
    if _is_list(arrow, kind):
        return is_number(kind.value_type)
    odd = arrow.types.is_nested(kind) or arrow.types.is_binary(kind) or isinstance(kind, arrow.BaseExtensionType)
    return not odd


def is_number(kind: Any) -> bool:
    """Whether a type is numbers or booleans."""
    arrow = library("pyarrow", "formats")
    return arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)


def _is_list(arrow: Any, kind: Any) -> bool:
    return arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind)


HEADER, COMPRESSION = 2, 3  # fields of a message, and of a record batch
CONTINUED = b"\xff\xff\xff\xff"  # before the length of a message, except in old versions
LONGEST = 1 << 24  # bytes of the header of a message, which Arrow copies before it checks it


def read_table(source: Any) -> Any:
    """The rows of a stream, without a copy if it is in memory; a `ValueError` if they are compressed.

    Compressed buffers and dictionaries could expand to any size.
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
    """The messages of a stream, whose headers have at most `LONGEST` bytes."""
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
    """Whether a message, a flatbuffer, has a field for the compression of its record batch."""
    return bool(_field(message, _follow(message, _field(message, _follow(message, 0), HEADER)), COMPRESSION))


def _field(message: bytes, table: int, number: int) -> int:
    """The offset of a field of a table; 0 if it is missing."""
    fields = table - struct.unpack_from("<i", message, table)[0]
    size = struct.unpack_from("<H", message, fields)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", message, fields + at)[0] if at < size else 0
    return table + offset if offset else 0


def _follow(message: bytes, place: int) -> int:
    """The target of a reference."""
    return place + struct.unpack_from("<I", message, place)[0]


FOOTER = 300  # bytes in memory for each byte of the footer
MOST_ENTRIES = 100_000  # of a list in the footer, for which memory is allocated before entries are read

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12  # types of Thrift
BITS = {I16: 16, I32: 32, I64: 64}
UNCOMPRESSED, COMPRESSED, DATA, DATA_2 = (2, I32), (3, I32), (5, STRUCT), (8, STRUCT)  # numbers and types of fields
COUNT, ENCODING, ENCODING_2 = (1, I32), (2, I32), (4, I32)
DELTA_BYTE_ARRAY = 7  # each text refers to the one before: a few bytes may be any size
LEVELS = 4  # bytes for each value, of definition and repetition levels
DEEPEST = 8  # structures in a header


class Watched:
    """A Parquet file for Arrow, whose pages are counted against a budget, once each.

    Counting starts with `count`: what Arrow reads before are no pages.
    """

    closed = True

    def __init__(self, path: Path):
        self.path, self._file, self._seen = path, path.open("rb", buffering=0), set()
        self.closed = False
        self.budget: Budget | None = None
        self.width = 8

    def count(self, budget: Budget, width: int) -> None:
        """Count pages that are read from now on, with values of `width` bytes at most."""
        self.budget, self.width, self._seen = budget, width, set()

    def seek(self, *place: int) -> int:
        return self._file.seek(*place)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def __del__(self) -> None:
        if not self.closed:
            self.close()

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or those that are left."""
        place, content = self._file.tell(), self._file.read(size) or b""
        while len(content) < size and (more := self._file.read(size - len(content))):
            content += more
        if self.budget is not None and place not in self._seen:
            self.budget.take(self.path, size_of_pages(content, self.width))
            self._seen.add(place)
        return content


def size_of_pages(content: bytes, width: int) -> int:
    """Bytes that pages with values of `width` bytes take in memory; a `ValueError` if they cannot be known."""
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
    """The fields of a structure that are whole numbers or structures, by number and type; and its end."""
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
        else:  # lists and maps, which these headers do not have
            raise KeyError(kind)
    return fields, at + 1


def _whole(content: bytes, at: int, bits: int) -> tuple[int, int]:
    """A signed number, and where it ends."""
    value, at = _varint(content, at)
    value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits (varint), and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise KeyError("a number of more than ten bytes")


class Opened:
    """An open Parquet file. Text stays dictionary-encoded, as each may occur many times."""

    def __init__(self, file: Path):
        arrow, parquet = library("pyarrow", "formats"), library("pyarrow.parquet", "formats")
        self._watched = Watched(file)
        try:
            source = arrow.PythonFile(self._watched, mode="r")
            plain = parquet.ParquetFile(source, pre_buffer=False, thrift_container_size_limit=MOST_ENTRIES)
            self.schema = plain.schema_arrow
            self._leaves = [plain.schema.column(number) for number in range(len(plain.schema))]
            self.parquet = parquet.ParquetFile(
                source,
                metadata=plain.metadata,
                read_dictionary=[leaf.path for leaf in self._leaves if leaf.physical_type == "BYTE_ARRAY"],
                pre_buffer=False,  # columns one by one, so that their pages can be counted
                page_checksum_verification=True,
            )
        except BaseException:
            self._watched.close()
            raise

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self._watched.close()

    def count(self, names: Sequence[str], budget: Budget) -> None:
        """Count pages of these columns from now on."""
        beginnings = tuple(f"{name}." for name in names)
        sizes = [leaf.length for leaf in self._leaves if leaf.path in names or leaf.path.startswith(beginnings)]
        self._watched.count(budget, max([8, *sizes]))


def size_of_footer(file: Path) -> int:
    """The most bytes that the footer of a file takes in memory; an `OSError` if the file is too short."""
    with file.open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        return FOOTER * int.from_bytes(stream.read(4), "little")
