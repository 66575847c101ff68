"""Atomic and locked files and folders, checksums, and errors of the file system in one line.

Everything is written under a temporary name beside its place (`.irleed-<8 hex digits>-<name>.part`) and renamed. A
killed process leaves such a name behind; `sweep` removes those and nothing else.

A lock is the operating system's (`flock`), which is released when its process ends. On a file system without `flock`,
the existence of the lock file is the lock, and a dead process's file is reused. The file names the process that holds
it."""

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from safetensors import SafetensorError

from irleed.errors import ConfigError

CHUNK = 1 << 25  # bytes of an array that are read and hashed together
TEMPORARY = re.compile(r"\.irleed-[0-9a-f]{8}-.*\.part", re.DOTALL)
LONGEST = 40  # characters of a name that its temporary name keeps: file systems allow 255 bytes
CHECKSUM = "checksum"  # the key of a JSON object's own
RESUME = "fix this, then continue with --resume: only the last interval is lost"


def temporary(path: Path) -> Path:
    """A new name beside `path`, which `sweep` recognises."""
    return path.parent / f".irleed-{secrets.token_hex(4)}-{path.name[:LONGEST]}.part"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write a file or a folder under; it becomes `path` at the end, or is removed on any error.

    A device or pipe, such as /dev/null, is not replaced.
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
    """A temporary folder whose files become those of `folder`, which is new or empty; on any error it is restored.

    Temporary files of a killed process are removed.
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
    """Remove the temporary files that a killed process left in a folder, which must be locked."""
    for left in folder.iterdir():
        if TEMPORARY.fullmatch(left.name):
            _remove(left)


@contextlib.contextmanager
def writing(where: str | Path, remedy: str = RESUME) -> Iterator[None]:
    """Turn an error of the file system into a one-line `ConfigError`."""
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
    """Whether the content of a JSON file does not match its checksum; False where it has none."""
    content = dict(value)
    checksum = content.pop(CHECKSUM, None)
    return checksum is not None and checksum != _json_digest(content)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(head: object, arrays: Mapping[str, Any]) -> str:
    """SHA-256 of plain values and of arrays (or `LazyRows`) with their names, types and shapes."""
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
    """Remove a file or a folder, if it exists."""
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


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".irleed-lock"
LOCK_BYTES = 1000  # bytes of a lock file
# A link could lead to any file of the user, and reading a pipe might never end.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def locked(path: Path, where: str) -> Iterator[bool]:
    """Hold the lock file `path`, and remove it at the end; yields whether it was left by a dead process.

    `where` is the place that the error names if another process holds the lock.
    """
    handle, left = _acquire(path, where)
    try:
        yield left
    finally:
        _release(handle, path)


def _acquire(path: Path, where: str) -> tuple[int, bool]:
    """The open and locked file, and whether it was left by a dead process."""
    left = False
    while True:
        try:
            handle, new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            try:
                handle, new = os.open(path, os.O_RDWR | NO_LINK), False
            except FileNotFoundError:  # its process has just ended
                continue
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, f"a pipe or device in place of the lock file {path.name}")
            free, holder = _flock(handle), {} if new else _read_holder(handle)
            taken = new if free is None else free
            if taken and _is_same_file(handle, path):
                _write_holder(handle)
                return handle, left or not new
        except BaseException:
            os.close(handle)
            if new:
                path.unlink(missing_ok=True)
            raise
        os.close(handle)
        if taken:  # its process removed it after we opened it and before we locked it
            continue
        if free is not None or not _abandoned(path, holder):
            _refuse_held(path, where, holder, system=free is not None)
        path.unlink(missing_ok=True)
        left = True


def _release(handle: int, path: Path) -> None:
    if os.name == "nt":  # a file that is open cannot be removed there
        os.close(handle)
        path.unlink(missing_ok=True)
        return
    if _is_same_file(handle, path):  # removed while locked: later the name may be another process's file
        path.unlink(missing_ok=True)
    os.close(handle)


def _flock(handle: int) -> bool | None:
    """Lock an open file; False: another process holds the lock; None: the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _abandoned(path: Path, holder: Mapping[str, Any]) -> bool:
    """Whether the process that made a lock file is dead, on a file system without locks."""
    if os.name == "nt":  # os.kill would end the process; but what it has open cannot be removed
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            return False
        return True
    pid = holder.get("pid")
    if not isinstance(pid, int) or holder.get("host") != platform.node():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _write_holder(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())


def _read_holder(handle: int) -> dict[str, Any]:
    """The process that a lock file names; empty if the file is incomplete."""
    try:
        found = json.loads(os.read(handle, LOCK_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_same_file(handle: int, path: Path) -> bool:
    """Whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _refuse_held(path: Path, where: str, holder: Mapping[str, Any], *, system: bool) -> NoReturn:
    pid, host = holder.get("pid"), str(holder.get("host"))[:100]
    who = f"process {pid} on {host}" if isinstance(pid, int) else "another process"
    remedy = "wait until it has ended, or choose another --out"
    if not system:
        remedy += f"; if there is no such process, remove {path}"
    raise ConfigError(where, got=f"{who} writing to it", expected="no other process", remedy=remedy)
