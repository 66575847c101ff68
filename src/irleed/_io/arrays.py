"""Arrays in `.npz` and safetensors files of unknown origin, and the memory that reading one may take.

An `.npz` file is a zip archive of ``.npy`` arrays, here with the name and version of its format. Its checksums are
verified before anything is returned, and nothing is unpickled. A safetensors file is the length of the header in eight
bytes, the header as JSON (type, shape and place of every tensor, texts under ``__metadata__``), and the numbers. All
that a header claims is checked before an array is read.
"""

import contextlib
import dataclasses
import io
import json
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple, NoReturn

import numpy as np

from irleed._io.files import beside
from irleed._io.text import name as shown_name
from irleed._io.text import one_line, printable
from irleed.errors import ConfigError, DataError

EXPANSION = 100.0  # memory that a file may take, relative to its size; real recordings stay below 50
ALWAYS = 1 << 28  # bytes of memory that any file may take
EPISODE = 1000  # bytes of overhead per episode while a data set is read


class Budget:
    """Bytes that the arrays of one file, or of the files of one folder, may take in memory.

    A reader calls `admit` for every file it opens, and `take` with the size that an array claims before it allocates
    or decompresses it.
    """

    def __init__(self, expansion: float = EXPANSION) -> None:
        self.expansion, self._size, self._taken = expansion, 0, 0

    def admit(self, path: str | os.PathLike[str]) -> None:
        """Add the size of one more file; a missing file is refused by its reader."""
        with contextlib.suppress(OSError, ValueError):
            self._size += Path(path).stat().st_size

    @property
    def left(self) -> int:
        """Bytes that may still be taken."""
        return max(ALWAYS, int(self.expansion * self._size)) - self._taken

    def take(self, where: str | os.PathLike[str], size: int) -> None:
        """Count `size` bytes; refuse them if fewer are left."""
        if size > self.left:
            got = f"{size + self._taken:,} bytes in memory from {self._size:,} on disk"
            expected = f"at most {self.left + self._taken:,}"
            remedy = "do not trust this file; if you do, raise the limit with --expansion"
            raise DataError(printable(where), got=got, expected=expected, remedy=remedy)
        self._taken += size


HEAD = ("format", "version")

# What zipfile, its decompressors and NumPy raise on damaged files.
CORRUPT = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, KeyError, IndexError,
    TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError, TokenError,
)  # fmt: skip

METHODS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}  # as NumPy writes entries
LOCAL = struct.Struct("<6x2H4x3I4x")  # a local header: flags, method, checksum, both sizes
MOST_CHARACTER = 0x10FFFF  # the largest code point of Unicode
SMALL = 1 << 12  # bytes of `format` and `version`, which are read before anything else
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays in files of one format; others are refused, or not read in a file of another program."""

    format: str | None  # None: of another program, without `format` and `version`
    version: int  # the newest; older ones are read too
    holds: str  # for messages
    required: tuple[str, ...]
    optional: tuple[str, ...]
    writer: str  # the function that writes such files, for messages
    counted: str = ""  # an entry with one byte for each item ...
    per_item: Mapping[str, int] = dataclasses.field(default_factory=dict)  # ... and the most bytes per item of others

    @property
    def known(self) -> tuple[str, ...]:
        """All arrays that are looked at."""
        return (() if self.format is None else HEAD) + self.required + self.optional


def read_npz(
    path: str | os.PathLike[str], layout: Layout, budget: Budget, without: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """The arrays of a file, without its `format` and `version`. Any failure is a `DataError` that names the file.

    **Arguments:**

    - `budget`: of memory; arrays are counted before they are decompressed.
    - `without`: arrays that are neither read nor verified, as the caller reads them lazily.
    """
    where = printable(path)
    expected = f"a .npz file of {layout.holds}"
    try:
        path = Path(path)
        if path.is_dir():
            _refuse(where, "a folder", "a file", "name a file in it")
        if not path.exists():
            _refuse(where, "no such file", expected, "check the path")
        if not path.is_file():
            _refuse(where, "a device or pipe", "a file", "write it to a file first")
        if path.stat().st_size == 0:
            _refuse(where, "an empty file", expected, "write it again")
        budget.admit(path)
        with path.open("rb") as stream:
            return _read(stream, layout, where, budget, without)
    except (OSError, ValueError) as error:  # no permission, a name too long, a zero byte in it
        got = f"an unreadable file ({one_line(error)})"
        _refuse(where, got, "a file that can be read", "check path and permissions")


def write_npz(
    path: str | os.PathLike[str], layout: Layout, arrays: Mapping[str, object], *, compress: bool = True
) -> None:
    """Write those `arrays` that are not None, atomically.

    Without `compress` the file is larger, and written many times faster.
    """
    where = printable(path)
    columns = {name: np.asarray(values) for name, values in arrays.items() if values is not None}
    for name, array in columns.items():
        if array.dtype.hasobject:
            _refuse(f"{where}, {name}", "Python objects", "numbers or text", "convert them")
    columns = {"format": np.array(layout.format), "version": np.array(layout.version)} | columns
    try:
        target = Path(os.path.realpath(path))  # through a link, not over it
        if target.exists() and not target.is_file():
            _unwritable(where, "a folder or device", "a file's name")
        if not target.parent.is_dir():
            _unwritable(where, "a folder that does not exist", "an existing one")
        with beside(target) as stream:
            write = np.savez_compressed if compress else np.savez
            write(stream, **columns)  # pyright: ignore[reportArgumentType]
    except (OSError, ValueError) as error:
        _unwritable(where, f"an unwritable place ({one_line(error)})", "a place that can be written")


def npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it lies column by column, and dtype of the ``.npy`` array that begins here."""
    return HEADERS[np.lib.format.read_magic(stream)](stream)


def _read(
    stream: io.BufferedReader, layout: Layout, where: str, budget: Budget, without: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The arrays of an archive.

    Names and sizes are checked before anything is decompressed, and checksums before anything is handed out.
    """
    with _damage(stream, where):
        archive = zipfile.ZipFile(stream)
        found = [name.removesuffix(".npy") for name in archive.namelist()]
        if layout.format is not None and not set(HEAD) <= set(found):
            _foreign(found, layout, where)
        _check_entries(archive, stream, where)
        size = {name: entry.file_size for name, entry in zip(found, archive.infolist(), strict=True)}
        if layout.format is not None:
            _check_head(archive, layout, where, size)
    known = layout.known
    others = set() if layout.format is None else set(found) - set(known)
    if not set(layout.required) <= set(found) or others or len(set(found)) < len(found):
        _foreign(found, layout, where)
    for name, most in layout.per_item.items():  # else a large file could have a bomb in a column
        if size.get(name, 0) > most * size[layout.counted] + SMALL:
            got, expected = f"{size[name]:,} bytes", f"at most {most:,} for each in {layout.counted}"
            _refuse(f"{where}, {name}", got, expected, f"write it again with `{layout.writer}`")
    wanted = [name for name in known if name in found and name not in (*HEAD, *without)]
    for name in wanted:
        budget.take(f"{where}, {name}", size[name])
    arrays = {name: _array(archive, name, layout, where) for name in wanted}
    if _lost(archive, stream):
        _damaged("directory", where)
    return arrays


@contextlib.contextmanager
def _damage(stream: io.BufferedReader, where: str) -> Iterator[None]:
    """Turn an error of zipfile into one line."""
    try:
        yield
    except CORRUPT as error:
        stream.seek(0)
        start = stream.read(4)
        if start != b"PK\x03\x04":
            _refuse(where, f"a file that starts with {start!r}", "a .npz archive", "convert it, or name another file")
        got = f"a cut or damaged archive ({one_line(error)})"
        _refuse(where, got, "a whole .npz archive", "copy or write it again")


def _check_entries(archive: zipfile.ZipFile, stream: io.BufferedReader, where: str) -> None:
    """Every entry is stored or deflated, has the same description in both headers, and overlaps no other."""
    end = 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        if entry.compress_type not in METHODS or entry.flag_bits & 1:
            got = "an encrypted entry" if entry.flag_bits & 1 else f"an entry of compression type {entry.compress_type}"
            _refuse(where, got, f"entries that are {' or '.join(METHODS.values())}", "write it again with numpy.savez")
        stream.seek(entry.header_offset)
        flags, method, checksum, _, size = LOCAL.unpack(stream.read(LOCAL.size))
        later = flags & 8  # checksum and sizes follow the data, as when NumPy writes to a pipe
        if (
            method != entry.compress_type
            or not later
            and (checksum != entry.CRC or size not in (entry.file_size, 0xFFFFFFFF))
        ):
            _damaged(entry.filename, where)
        if entry.header_offset < end or method == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
            _damaged(entry.filename, where)
        end = entry.header_offset + LOCAL.size + entry.compress_size


def _lost(archive: zipfile.ZipFile, stream: io.BufferedReader) -> bool:
    """Whether the directory has fewer entries than the end record says: one wrong bit can hide the last ones."""
    stream.seek(-(22 + len(archive.comment)), os.SEEK_END)  # the end record is 22 bytes and a comment
    return int.from_bytes(stream.read(12)[10:], "little") != len(archive.infolist())


def _damaged(name: str, where: str) -> NoReturn:
    _refuse(where, f"an archive damaged in {name[:80]!r}", "a whole .npz archive", "copy or write it again")


def _check_head(archive: zipfile.ZipFile, layout: Layout, where: str, size: Mapping[str, int]) -> None:
    """Refuse other formats and newer versions."""
    for name in HEAD:
        if size[name] > SMALL:
            got = f"{size[name]:,} bytes"
            _refuse(f"{where}, {name}", got, f"at most {SMALL:,}", f"write it again with `{layout.writer}`")
    kind, version = (_array(archive, name, layout, where) for name in HEAD)
    if kind.shape != () or kind.item() != layout.format:
        _refuse(f"{where}, format", one_line(kind), repr(layout.format), "check that this is the right file")
    if version.shape != () or version.dtype.kind not in "iu" or version.item() < 1:
        expected, remedy = f"a whole number from 1 to {layout.version}", f"write it again with `{layout.writer}`"
        _refuse(f"{where}, version", one_line(version), expected, remedy)
    if version.item() > layout.version:
        remedy = "install a newer irleed to read this file"
        _refuse(f"{where}, version", version.item(), f"at most {layout.version}", remedy)


def _array(archive: zipfile.ZipFile, name: str, layout: Layout, where: str) -> np.ndarray:
    """An array, its checksum verified. zipfile reads no more bytes of an entry than it claims."""
    try:
        with archive.open(f"{name}.npy") as stream:
            try:
                return _values(stream, archive.getinfo(f"{name}.npy").file_size)
            finally:  # the checksum is compared at its end
                while stream.read(1 << 20):
                    pass
    except (zipfile.BadZipFile, zlib.error):
        _damaged(f"{name}.npy", where)
    except CORRUPT as error:
        got, expected = f"no readable array ({one_line(error)})", "an array of numbers or text, no objects"
        _refuse(f"{where}, {name}", got, expected, f"write it again with `{layout.writer}`")


def _values(stream: Any, size: int) -> np.ndarray:
    """The array of an entry of `size` bytes; no memory is allocated for more."""
    shape, by_column, dtype = npy_header(stream)
    if dtype.hasobject:
        raise ValueError("Python objects")
    left = size - stream.tell()
    if math.prod(shape) * max(dtype.itemsize, 1) != left:  # of entries of no size there could be any number
        raise ValueError(f"{left} bytes for {dtype} of shape {shape}")
    values = np.empty(math.prod(shape), dtype)
    room = values.view(np.uint8).data
    while room:
        content = stream.read(min(len(room), 1 << 20))
        if not content:
            raise EOFError(f"{len(room)} bytes are missing")
        room[: len(content)] = content
        room = room[len(content) :]
    if dtype.kind == "U" and values.size and np.any(values.view(np.uint32) > MOST_CHARACTER):
        raise ValueError("invalid characters")  # of which Python can make no text
    return values.reshape(shape, order="F" if by_column else "C")


def _refuse(where: str, got: object, expected: object, remedy: str) -> NoReturn:
    raise DataError(where, got=got, expected=expected, remedy=remedy) from None


def _unwritable(where: str, got: str, expected: str) -> NoReturn:
    remedy = "choose another path, or make room and folder for it"
    raise ConfigError(where, got=got, expected=expected, remedy=remedy) from None


def _foreign(found: list[str], layout: Layout, where: str) -> NoReturn:
    """Refuse entries that do not match the layout, and name the difference."""
    missing = [name for name in layout.known if name not in found and name not in layout.optional]
    unknown = [name for name in dict.fromkeys(found) if name not in layout.known or found.count(name) > 1]
    also = f" and perhaps {', '.join(layout.optional)}" if layout.optional else ""
    remedy = f"add {_listed(missing)}" if missing else f"remove {_listed(unknown)}"
    _refuse(
        where,
        f"entries {one_line(', '.join(found) or 'none')}",
        ", ".join(name for name in layout.known if name not in layout.optional) + also,
        f"{remedy}, or write it with `{layout.writer}`",
    )


def _listed(names: Iterable[str]) -> str:
    return one_line(", ".join(repr(name) for name in names), most=100)


METADATA, OURS = "__metadata__", "irleed"
MOST_HEADER = 1 << 20  # bytes; a policy's header has a few thousand
MOST_AXES = 8
TYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


class Tensor(NamedTuple):
    """A tensor as its header describes it."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int  # byte in the file

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str], expected: str) -> Iterator[None]:
    """Turn a ValueError or an error of the file system into one line that names the file."""
    try:
        yield
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        remedy = "name another file, or copy it again"
        got = one_line(error)
        raise DataError(printable(path), got=got, expected=expected, remedy=remedy) from error


def read_header(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The metadata of irleed, empty if there is none, and the tensors by name; a `ValueError` if the header is wrong.

    No tensor lies outside of the file, overlaps another, or has an axis of length 0.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # reading a pipe might never end
        raise ValueError("a folder, device or pipe")
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(MOST_HEADER, size - 8):
            raise ValueError("a file without a safetensors header, or with half of one")
        entries = _json(stream.read(length))
    texts = entries.pop(METADATA, {})
    if not isinstance(texts, dict) or not isinstance(texts.get(OURS, ""), str):
        raise ValueError(f"a header with other things than texts in {METADATA}")
    found = {name: _tensor(name, entry, 8 + length) for name, entry in entries.items()}
    end = 8 + length
    for tensor in sorted(found.values(), key=lambda tensor: tensor.start):
        if tensor.start != end:
            raise ValueError("tensors that overlap or leave gaps")
        end += tensor.size
    if end != size:
        raise ValueError(f"{size} bytes, and a header that says {end}")
    return _json(texts.get(OURS, "{}").encode()), found


def read_arrays(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The numbers of tensors that `read_header` found."""
    with Path(path).open("rb") as stream:
        return {name: _tensor_array(stream, tensor) for name, tensor in tensors.items()}


def _tensor_array(stream: Any, tensor: Tensor) -> np.ndarray:
    stream.seek(tensor.start)
    return np.fromfile(stream, tensor.dtype, math.prod(tensor.shape)).reshape(tensor.shape)


def _json(text: bytes) -> dict[str, Any]:
    """A JSON object without repeated names, which readers would resolve differently."""
    found = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError("a header that is no JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a header in which a name comes twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"a header with the number {name}")


def _tensor(name: str, entry: Any, start: int) -> Tensor:
    """One entry of the header; its offsets are relative to the end of the header, byte `start`."""
    where = f"tensor {shown_name(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where} without dtype, shape and data_offsets")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise ValueError(f"{where} of type {one_line(dtype, 20)}, which is not one of {', '.join(TYPES)}")
    if not _whole(shape) or len(shape) > MOST_AXES or not all(shape):
        raise ValueError(f"{where} of shape {one_line(shape, 60)}")
    found = Tensor(TYPES[dtype], tuple(shape), start + place[0] if _whole(place) and len(place) == 2 else -1)
    if found.start < start or place[1] - place[0] != found.size:
        raise ValueError(f"{where} of shape {one_line(shape, 60)} in bytes {one_line(place, 60)}")
    return found


def _whole(values: Any) -> bool:
    """Whether it is a list of whole numbers from 0."""
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
