"""Files that appear whole or not at all: written beside, then renamed; and what was in them, as one number."""

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

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
