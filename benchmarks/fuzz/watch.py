"""What a process does besides reading what it was given: programs, network, files elsewhere."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from fuzz.case import SECRET

STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "pty.spawn",
    "os.spawn",
          "os.startfile")  # fmt: skip
REACHES = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.bind",
    "urllib.Request",
    "http.client.connect",
    "ftplib.connect",
)
SYSTEM = ("/usr", "/lib", "/lib64", "/proc", "/sys", "/dev/null", "/dev/urandom", "/dev/shm")
OPENED, READ = 0x20, 0x1  # inotify's IN_OPEN and IN_ACCESS


class StoppedError(RuntimeError):
    """A program or a connection that was not let start."""


class Watch:
    """Records, from when it is made to the end of the process, what should not happen."""

    def __init__(self, allowed: Iterable[Path], outside: Path):
        self.seen: list[str] = []
        roots = [*SYSTEM, sys.prefix, sys.base_prefix, *map(str, allowed)]
        self._allowed = tuple({form for root in roots for form in (root, os.path.realpath(root))})
        self._outside, self._busy = outside, False
        self._notes = _notified([outside, *(path for path in outside.rglob("*") if path.is_dir())])
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._busy:
            return
        if event in STARTS or event in REACHES:
            self.seen.append(f"{'program started' if event in STARTS else 'network'}: {event} {arguments!r}"[:200])
            raise StoppedError(event)
        if event in (
            "open",
            "os.listdir",
            "os.scandir",
            "os.remove",
            "os.rename",
            "os.rmdir",
            "os.mkdir",
            "os.truncate",
        ):
            self._busy = True  # what is looked at meanwhile is of our own doing
            try:
                self._look(event, arguments[0])
            finally:
                self._busy = False

    def _look(self, event: str, path: object) -> None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):
            return
        full = os.path.realpath(os.fspath(path))
        if not full.startswith(self._allowed):
            self.seen.append(f"file outside: {event} {full}"[:200])

    def finish(self) -> list[str]:
        """What was recorded; the files outside that were opened by whatever means, too."""
        self._busy = True
        names = _read(self._notes)
        return self.seen + [f"file outside was opened: {name}" for name in sorted(names)]


def _notified(folders: list[Path]) -> int:
    """A descriptor that says which files in these folders are opened, by Python or by C."""
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    for folder in folders:
        if descriptor < 0 or library.inotify_add_watch(descriptor, os.fsencode(folder), OPENED | READ) < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot watch", str(folder))
    return descriptor


def _read(descriptor: int) -> set[str]:
    """The names of the files; of folders that are only listed, none."""
    names: set[str] = set()
    while True:
        try:
            events = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return names
        while events:
            _, mask, _, length = struct.unpack_from("iIII", events)
            name, events = events[16 : 16 + length].rstrip(b"\0"), events[16 + length :]
            if name and not mask & 0x40000000:  # IN_ISDIR
                names.add(os.fsdecode(name))


def secret_in(text: bytes) -> bool:
    """Whether what only files outside have is in there."""
    return SECRET.encode() in text
