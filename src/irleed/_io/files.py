"""Files and folders that appear whole or not at all, what the file system refuses in one line, and checksums.

Everything is written under a temporary name beside its place (`.irleed-<8 hex digits>-<name>.part`) and renamed. What a
killed process leaves has such a name, and `sweep` removes nothing else.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError

from irleed.errors import ConfigError

CHUNK = 1 << 25  # bytes of an array that are hashed together: what lies in a file need not be in memory at once
TEMPORARY = re.compile(r"\.irleed-[0-9a-f]{8}-.*\.part", re.DOTALL)
LONGEST = 40  # characters of a name that its temporary name keeps: file systems allow 255 bytes
CHECKSUM = "checksum"  # the key of a JSON object's own
RESUME = "see to that, then go on with --resume: nothing is lost but the last interval"


def temporary(path: Path) -> Path:
    """A new name beside `path`, by which `sweep` knows that it is ours."""
    return path.parent / f".irleed-{secrets.token_hex(4)}-{path.name[:LONGEST]}.part"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write a file or a folder under; it becomes `path` at the end, or is removed on any error.

    A device or pipe is not replaced: those of a system, such as /dev/null, are everyone's.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "a device or pipe", os.fspath(path))
    part = temporary(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException:  # an interrupt too must not leave half a file behind
        _remove(part)
        raise
    _sync(path.parent)


@contextlib.contextmanager
def beside(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that becomes `path` at the end: a reader sees the old file or the new one, never half."""
    with replacing(path) as part:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files become those of `folder`, which is new or empty; on any error it is as before.

    What a killed process left in it is removed.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]  # the innermost first
    moved: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        part = temporary(folder / "folder")  # inside: the folder may be a file system of its own
        part.mkdir()
        try:
            yield part
            for each in sorted(part.iterdir()):
                os.rename(each, folder / each.name)
                moved.append(folder / each.name)
        finally:
            _remove(part)
        _sync(folder)
    except BaseException:
        for each in moved:
            each.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()
        raise


def sweep(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder, which must be ours and locked."""
    for left in folder.iterdir():
        if TEMPORARY.fullmatch(left.name):
            _remove(left)


@contextlib.contextmanager
def writing(where: str | Path, remedy: str = RESUME) -> Iterator[None]:
    """Turn what the file system refuses into one line."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        got = (error.strerror if isinstance(error, OSError) else None) or str(error)
        expected = "a folder with room that can be written to"
        raise ConfigError(str(where), got=got, expected=expected, remedy=remedy) from error


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file, whole or not at all."""
    with beside(path) as file:
        file.write(json.dumps(value, indent=1, allow_nan=False).encode())


def write_signed(path: Path, value: Mapping[str, object]) -> None:
    """Write a JSON file with the checksum of its content, which `is_damaged` compares."""
    content = json.loads(json.dumps(value, allow_nan=False))
    write_json(path, {**content, CHECKSUM: _json_digest(content)})


def is_damaged(value: Mapping[str, object]) -> bool:
    """Whether the content of a JSON file has another checksum than it says; False where it says none."""
    content = dict(value)
    checksum = content.pop(CHECKSUM, None)
    return checksum is not None and checksum != _json_digest(content)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def _json_digest(content: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _remove(path: Path) -> None:
    """A file or a folder, if it is there; the folder around it may be gone, and that is what is to be told."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def _sync(folder: Path) -> None:
    """Make a rename durable, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
