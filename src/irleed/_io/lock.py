"""One process at a time: a lock file for as long as a process writes to a folder or a file.

The lock is the operating system's (`flock`), which ends with its process however that ends. On a file system without
it, the existence of the file is the lock, and that of a process that has died is taken over. The file says which
process holds it.
"""

import contextlib
import errno
import json
import os
import platform
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from irleed.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".irleed-lock"
MOST = 1000  # bytes of a lock file
# A link in somebody else's folder could lead to any file of the user's, and reading a pipe might never end.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def locked(path: Path, where: str) -> Iterator[bool]:
    """Hold the lock file `path`, and remove it at the end; yields whether a process that died had left it.

    `where` names the place in the error that says which other process holds the lock.
    """
    handle, left = _taken(path, where)
    try:
        yield left
    finally:
        _release(handle, path)


def _taken(path: Path, where: str) -> tuple[int, bool]:
    """The lock file, open and ours, and whether a process that died had left it."""
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
            free, holder = _flock(handle), {} if new else _read(handle)
            taken = new if free is None else free
            if taken and _is(handle, path):
                _write(handle)
                return handle, left or not new
        except BaseException:
            os.close(handle)
            if new:
                path.unlink(missing_ok=True)
            raise
        os.close(handle)
        if taken:  # its process removed it between our opening and locking it
            continue
        if free is not None or not _abandoned(path, holder):
            _refuse(path, where, holder, system=free is not None)
        path.unlink(missing_ok=True)
        left = True


def _release(handle: int, path: Path) -> None:
    if os.name == "nt":  # a file that is open cannot be removed there
        os.close(handle)
        path.unlink(missing_ok=True)
        return
    if _is(handle, path):  # removed while it is locked: afterwards it may be another's
        path.unlink(missing_ok=True)
    os.close(handle)


def _flock(handle: int) -> bool | None:
    """Lock an open file; False: another has it; None: there are no such locks here."""
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
    """Whether the process that made a lock file has died, where the system does not know of the lock."""
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


def _write(handle: int) -> None:
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    os.write(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())


def _read(handle: int) -> dict[str, Any]:
    """What a lock file says of its process; nothing if it was cut off."""
    try:
        found = json.loads(os.read(handle, MOST))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is(handle: int, path: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _refuse(path: Path, where: str, holder: Mapping[str, Any], *, system: bool) -> NoReturn:
    pid, host = holder.get("pid"), str(holder.get("host"))[:100]
    who = f"process {pid} on {host}" if isinstance(pid, int) else "another process"
    remedy = "wait until it has ended, or choose another --out"
    if not system:
        remedy += f"; if there is no such process, remove {path}"
    raise ConfigError(where, got=f"{who} writing to it", expected="no other process", remedy=remedy)
