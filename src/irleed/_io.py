"""Files: written whole or not at all, read with suspicion; checksums; ``.npz`` files with a format and a version."""

import contextlib
import dataclasses
import hashlib
import io
import json
import lzma
import math
import os
import secrets
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from irleed.errors import ConfigError, DataError, problem

CHUNK = 1 << 25  # bytes of an array that are hashed together: what lies in a file need not be in memory at once


@contextlib.contextmanager
def beside(path: Path) -> Iterator[BinaryIO]:
    """Write beside, then rename: a reader sees the old file or the new one, never half of one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):  # the folder may be gone, and that is what is to be told
            os.unlink(temporary)
        raise
    _sync(path.parent)


def sweep(folder: Path, names: str) -> None:
    """Remove what `beside` left half written of such files where a process was killed; `names` is a pattern."""
    for left in folder.glob(f".{names}.????????"):
        left.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    with beside(path) as file:
        file.write(json.dumps(value, indent=1, allow_nan=False).encode())


def digest(head: object, arrays: Mapping[str, Any]) -> str:
    """SHA-256 of plain values and of arrays, or rows that lie on disk, with their names, types and shapes."""
    found = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        rows = array if array.ndim else array[None]
        step = max(1, CHUNK // max(1, rows.dtype.itemsize * math.prod(rows.shape[1:])))
        for start in range(0, len(rows), step):
            found.update(np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _sync(folder: Path) -> None:
    """Make a rename durable, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


HEAD = ("format", "version")

# What zipfile, its decompressors and NumPy raise on bytes that are not what they should be.
CORRUPT = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, KeyError, IndexError,
    TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a kind of file holds. Nothing but the arrays named here may be in one."""

    format: str
    version: int  # the newest; older ones are read too
    holds: str  # in words, for messages
    required: tuple[str, ...]
    optional: tuple[str, ...]
    writer: str  # the function that writes such files, for messages


def read_npz(path: str | os.PathLike[str], layout: Layout, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The arrays of a file, without its `format` and `version`. Any failure is a `DataError` that names the file.

    Those `without` are neither read nor verified: they are for others to look at where they lie.
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
        with path.open("rb") as stream:
            return _read(stream, layout, where, without)
    except (OSError, ValueError) as error:  # no permission, a name too long, a zero byte in it
        got = f"an unreadable file ({_one_line(error)})"
        _refuse(where, got, "a file that can be read", "check path and permissions")


def write_npz(
    path: str | os.PathLike[str], layout: Layout, arrays: Mapping[str, object], *, compress: bool = True
) -> None:
    """Write `arrays`, leaving out those that are None, so that no reader ever sees half a file.

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
        _write_beside(target, columns, compress)
    except (OSError, ValueError) as error:
        _unwritable(where, f"an unwritable place ({_one_line(error)})", "a place that can be written")


def printable(path: str | os.PathLike[str]) -> str:
    """The path as messages show it: on one line, whatever is in it."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)


def _read(stream: io.BufferedReader, layout: Layout, where: str, without: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of an archive, its checksums verified before anything in it is believed."""
    try:
        archive = zipfile.ZipFile(stream)
        found = [name.removesuffix(".npy") for name in archive.namelist()]
        if not set(HEAD) <= set(found):
            _foreign(found, layout, where)
        damaged = _damaged(archive, without) or _lost(archive, stream)
    except CORRUPT as error:
        stream.seek(0)
        start = stream.read(4)
        if start != b"PK\x03\x04":
            _refuse(where, f"a file that starts with {start!r}", "a .npz archive", "convert it, or name another file")
        got = f"a cut or damaged archive ({_one_line(error)})"
        _refuse(where, got, "a whole .npz archive", "copy or write it again")
    if damaged is not None:
        _refuse(where, f"an archive damaged in {damaged!r}", "a whole .npz archive", "copy or write it again")
    _check_head(archive, layout, where)
    known = HEAD + layout.required + layout.optional
    if not set(layout.required) <= set(found) <= set(known) or len(set(found)) < len(found):
        _foreign(found, layout, where)
    wanted = [name for name in known if name in found and name not in (*HEAD, *without)]
    return {name: _array(archive, name, layout, where) for name in wanted}


def _damaged(archive: zipfile.ZipFile, without: tuple[str, ...]) -> str | None:
    """The first entry whose checksum is wrong."""
    for name in archive.namelist():
        try:
            with archive.open(name) as stream:
                while name.removesuffix(".npy") not in without and stream.read(1 << 20):
                    pass
        except zipfile.BadZipFile:
            return name
    return None


def _lost(archive: zipfile.ZipFile, stream: io.BufferedReader) -> str | None:
    """Has the directory as many entries as the archive's end record says? One wrong bit can hide the last ones."""
    stream.seek(-(22 + len(archive.comment)), os.SEEK_END)  # the end record is 22 bytes and a comment
    count = int.from_bytes(stream.read(12)[10:], "little")
    return None if count == len(archive.infolist()) else "directory"


def _check_head(archive: zipfile.ZipFile, layout: Layout, where: str) -> None:
    """Is it ours, and of a version known here?"""
    kind, version = (_array(archive, name, layout, where) for name in HEAD)
    if kind.shape != () or kind.item() != layout.format:
        _refuse(f"{where}, format", _short(kind), repr(layout.format), "check that this is the right file")
    if version.shape != () or version.dtype.kind not in "iu" or version.item() < 1:
        expected, remedy = f"a whole number from 1 to {layout.version}", f"write it again with `{layout.writer}`"
        _refuse(f"{where}, version", _short(version), expected, remedy)
    if version.item() > layout.version:
        remedy = "install a newer irleed to read this file"
        _refuse(f"{where}, version", version.item(), f"at most {layout.version}", remedy)


def _array(archive: zipfile.ZipFile, name: str, layout: Layout, where: str) -> np.ndarray:
    try:
        with archive.open(name + ".npy") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except CORRUPT as error:
        got, expected = f"no readable array ({_one_line(error)})", "an array of numbers or text, no objects"
        _refuse(f"{where}, {name}", got, expected, f"write it again with `{layout.writer}`")


def _write_beside(target: Path, columns: dict[str, np.ndarray], compress: bool) -> None:
    """Write to a new file in the same folder, then rename it over the target."""
    part = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as stream:
            write = np.savez_compressed if compress else np.savez
            write(stream, **columns)  # pyright: ignore[reportArgumentType]
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, target)
    except BaseException:  # an interrupt too must not leave half a file behind
        part.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # makes the rename itself durable, where folders can be synced
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _refuse(where: str, got: object, expected: object, remedy: str) -> NoReturn:
    raise DataError(problem(where, got=got, expected=expected, remedy=remedy)) from None


def _unwritable(where: str, got: str, expected: str) -> NoReturn:
    remedy = "choose another path, or make room and folder for it"
    raise ConfigError(problem(where, got=got, expected=expected, remedy=remedy)) from None


def _foreign(found: list[str], layout: Layout, where: str) -> NoReturn:
    """Names what is there, what should be, and the difference."""
    known = HEAD + layout.required + layout.optional
    missing = [name for name in HEAD + layout.required if name not in found]
    unknown = [name for name in dict.fromkeys(found) if name not in known or found.count(name) > 1]
    also = f" and perhaps {', '.join(layout.optional)}" if layout.optional else ""
    remedy = f"add {_listed(missing)}" if missing else f"remove {_listed(unknown)}"
    _refuse(
        where,
        f"entries {_short(', '.join(found) or 'none')}",
        ", ".join(HEAD + layout.required) + also,
        f"{remedy}, or write it with `{layout.writer}`",
    )


def _listed(names: Iterable[str]) -> str:
    return _short(", ".join(repr(name) for name in names), most=100)


def _one_line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _short(" ".join(text.split()) or type(error).__name__)


def _short(value: object, most: int = 200) -> str:
    """One printable line of at most so many characters."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(str(value).split()))
    return text if len(text) <= most else text[:most] + "..."
