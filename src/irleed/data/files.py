"""Demonstrations on disk: one ``.npz`` file, which NumPy alone can read and write.

The file is a zip archive of ``.npy`` arrays, without pickled objects. N transitions in E episodes by D demonstrators:

================  =====================  ==========================================================================
entry             dtype and shape        meaning
================  =====================  ==========================================================================
``format``        text, ()               ``"irleed-demonstrations"``
``version``       integer, ()            1
``obs``           numbers, (N + E, ...)  every episode's T + 1 observations, episode after episode
``row``           int32 or int64, (N,)   ``obs[row]`` is where an action was taken, ``obs[row + 1]`` where it led
``action``        numbers, (N, ...)      what was done; whole numbers from 0 if actions are discrete
``terminated``    bool, (N,)             the task ended here; only at the last step of an episode
``truncated``     bool, (N,)             the clock ran out here; the last step has this flag or ``terminated``
``demonstrator``  int32 or int64, (N,)   who acted, 0 to D - 1
``episode``       int32 or int64, (N,)   0 to E - 1, in order
``names``         text, (D,)             what the demonstrators are called, each name once
``reward``        float32/float64, (N,)  optional; used to check and to report, never to learn
================  =====================  ==========================================================================

"Numbers" are booleans, integers or floats of at most 64 bits, all finite.
"""

import contextlib
import io
import lzma
import os
import secrets
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NoReturn

import numpy as np

from irleed.data.demonstrations import Demonstrations
from irleed.errors import ConfigError, DataError, problem

FORMAT = "irleed-demonstrations"
VERSION = 1
OPTIONAL = ("reward",)
REQUIRED = ("obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "names")
HEAD = ("format", "version")

# What zipfile, its decompressors and NumPy raise on bytes that are not what they should be.
CORRUPT = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, KeyError, IndexError,
    TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError,
)  # fmt: skip


def load(path: str | os.PathLike[str]) -> Demonstrations:
    """Read and check a file of demonstrations. Whatever is wrong with it is a one-line `DataError`."""
    where = _printable(path)
    try:
        path = Path(path)
        if path.is_dir():
            _refuse(where, "a folder", "a file", "name a file in it")
        if not path.exists():
            _refuse(where, "no such file", "a .npz file of demonstrations", "check the path")
        if not path.is_file():
            _refuse(where, "a device or pipe", "a file", "write it to a file first")
        if path.stat().st_size == 0:
            _refuse(where, "an empty file", "a .npz file of demonstrations", "write it again")
        with path.open("rb") as stream:
            columns = _read(stream, where)
    except (OSError, ValueError) as error:  # no permission, a name too long, a zero byte in it
        got = f"an unreadable file ({_one_line(error)})"
        _refuse(where, got, "a file that can be read", "check path and permissions")
    return Demonstrations.from_arrays(**columns, where=where)


def save(demonstrations: Demonstrations, path: str | os.PathLike[str], *, compress: bool = True) -> None:
    """Write a file that `load` reads back equal: complete, or not at all.

    Without `compress` the file is larger, and written many times faster.
    """
    where = _printable(path)
    demonstrations.validate(where)
    columns = {key: getattr(demonstrations, key) for key in REQUIRED + OPTIONAL}
    columns = {key: np.asarray(value) for key, value in columns.items() if value is not None}
    columns = {"format": np.array(FORMAT), "version": np.array(VERSION)} | columns
    try:
        target = Path(os.path.realpath(path))  # through a link, not over it
        if target.exists() and not target.is_file():
            _unwritable(where, "a folder or device", "a file's name")
        if not target.parent.is_dir():
            _unwritable(where, "a folder that does not exist", "an existing one")
        _write_beside(target, columns, compress)
    except (OSError, ValueError) as error:
        _unwritable(where, f"an unwritable place ({_one_line(error)})", "a place that can be written")


def _read(stream: io.BufferedReader, where: str) -> dict:
    """The columns of an archive, its checksums verified before anything in it is believed."""
    try:
        archive = zipfile.ZipFile(stream)
        found = [name.removesuffix(".npy") for name in archive.namelist()]
        if not set(HEAD) <= set(found):
            _foreign(found, where)
        damaged = archive.testzip() or _lost(archive, stream)
    except CORRUPT as error:
        stream.seek(0)
        start = stream.read(4)
        if start != b"PK\x03\x04":
            _refuse(where, f"a file that starts with {start!r}", "a .npz archive", "convert it, or name another file")
        got = f"a cut or damaged archive ({_one_line(error)})"
        _refuse(where, got, "a whole .npz archive", "copy or write it again")
    if damaged is not None:
        _refuse(where, f"an archive damaged in {damaged!r}", "a whole .npz archive", "copy or write it again")
    _check_head(archive, where)
    wrong = [key for key in REQUIRED if key not in found]
    wrong += [key for key in found if key not in HEAD + REQUIRED + OPTIONAL or found.count(key) > 1]
    if wrong:
        _foreign(found, where)
    columns = {key: _array(archive, key, where) for key in REQUIRED + OPTIONAL if key in found}
    names = columns["names"]
    if names.dtype.kind != "U" or names.ndim != 1:
        got = f"{names.dtype} of shape {names.shape}"
        _refuse(f"{where}, names", got, "text of shape (D,)", "store names as a NumPy array of text")
    return columns | {"names": tuple(names.tolist())}


def _lost(archive: zipfile.ZipFile, stream: io.BufferedReader) -> str | None:
    """Has the directory as many entries as the archive's end record says? One wrong bit can hide the last ones."""
    stream.seek(-(22 + len(archive.comment)), os.SEEK_END)  # the end record is 22 bytes and a comment
    count = int.from_bytes(stream.read(12)[10:], "little")
    return None if count == len(archive.infolist()) else "directory"


def _check_head(archive: zipfile.ZipFile, where: str) -> None:
    """Is it ours, and of a version known here?"""
    kind, version = (_array(archive, key, where) for key in HEAD)
    if kind.shape != () or kind.item() != FORMAT:
        _refuse(f"{where}, format", _short(kind), repr(FORMAT), "convert the file with `save`")
    if version.shape != () or version.dtype.kind not in "iu" or version.item() < 1:
        _refuse(
            f"{where}, version", _short(version), f"a whole number from 1 to {VERSION}", "write it again with `save`"
        )
    if version.item() > VERSION:
        _refuse(f"{where}, version", version.item(), f"at most {VERSION}", "install a newer irleed to read this file")


def _array(archive: zipfile.ZipFile, key: str, where: str) -> np.ndarray:
    try:
        with archive.open(key + ".npy") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except CORRUPT as error:
        got = f"no readable array ({_one_line(error)})"
        _refuse(f"{where}, {key}", got, "an array of numbers or text, no objects", "write it again with `save`")


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


def _foreign(found: list[str], where: str) -> NoReturn:
    got = f"entries {_short(found)}"
    expected = f"{', '.join(HEAD + REQUIRED)} and perhaps {', '.join(OPTIONAL)}"
    _refuse(where, got, expected, "build it with `Demonstrations.from_episodes` and `save`")


def _one_line(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _short(" ".join(text.split()) or type(error).__name__)


def _short(value: object, most: int = 200) -> str:
    """One printable line of at most so many characters."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(str(value).split()))
    return text if len(text) <= most else text[:most] + "..."


def _printable(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)
