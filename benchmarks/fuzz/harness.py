"""Run a case in processes of its own: one that makes the file, one that reads it, with a watchdog over both."""

import contextlib
import dataclasses
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import irleed
from fuzz.case import SECRET, Case
from fuzz.watch import Watch, secret_in
from irleed.data import lazy
from irleed.errors import IrleedError

PATIENCE, MAKING = 10, 120  # seconds: to read, and to make
BUSY = 3  # times as long by the clock, where other programs take the processor: the limit is one of its time
MOST = 1500  # MB that a reader's process may take in all
ROOM = 6 << 30  # bytes that it may ask for besides: more would be a danger for the machine
LONGEST = 4000  # characters of a message
MOST_PRINTED = 1 << 20


@dataclasses.dataclass
class Outcome:
    """What came of a case."""

    format: str
    number: int
    kind: str  # loaded, refused, failed, or unmade: the generator's own failure
    seconds: float = 0.0
    megabytes: float = 0.0
    applied: tuple[str, ...] = ()
    message: str = ""
    failures: tuple[str, ...] = ()
    where: str = ""  # of an exception: the innermost line that is ours

    @property
    def signature(self) -> str:
        """What failures of the same cause have in common."""
        return "; ".join(sorted({failure.split(":")[0] for failure in self.failures})) + f" | {self.where}"


@dataclasses.dataclass(frozen=True)
class Format:
    """How hostile files of a format are made, and how they are read.

    `make` returns the path to be read; `read` takes the case and the path, and returns bytes that were loaded and text
    that was printed or written, to be searched.
    """

    name: str
    make: Callable[[Case], Path]
    read: Callable[[Case, Path], list[bytes]]


def case_of(name: str, seed: int, number: int, home: Path, store: Path, small: bool = False) -> Case:
    """The case with this number, with fresh files outside."""
    random = np.random.default_rng([zlib.crc32(name.encode()), seed, number])
    (home / "case").mkdir(parents=True)
    (home / "outside").mkdir()
    for ending in ("txt", "bin"):
        (home / "outside" / f"secret.{ending}").write_text(f"{SECRET}\n" * 400)
    return Case(random, home / "case", home / "outside", store, small=small)


def run(form: Format, seed: int, number: int, store: Path, *, small: bool = False, keep: Path | None = None) -> Outcome:
    """Make a case, read it, and say what came of it. With `keep`, its files stay there, and the error is printed."""
    home = Path(tempfile.mkdtemp(prefix=f"{form.name}-{number}-", dir=store)) if keep is None else keep
    try:
        case = case_of(form.name, seed, number, home, store, small)
        made, status, _, _ = _forked(lambda: _make(form, case), MAKING, home / "making.txt")
        if "path" not in made:
            said = made.get("message", f"status {status}") or status
            return Outcome(form.name, number, "unmade", applied=tuple(made.get("applied", ())), message=str(said))
        case.applied, case.reading, case.large = made["applied"], made["reading"], made["large"]
        path = Path(os.fsdecode(bytes.fromhex(made["path"])))
        printed = home / "printed.txt"
        found, status, seconds, megabytes = _forked(lambda: _read(form, case, path), BUSY * PATIENCE, printed)
        text = printed.read_bytes()[: 2 * MOST_PRINTED]
        if keep is not None:
            sys.stderr.write(f"{path}, read with {case.reading}, large: {case.large}\n{found.get('trace', '')}\n")
            sys.stderr.buffer.write(text)
        failures = [*found.get("failures", []), *_ended(status, seconds, megabytes), *_shown(text)]
        kind = "failed" if failures else found["kind"]
        message = found.get("message", "")
        return Outcome(
            form.name, number, kind, seconds, megabytes, tuple(case.applied), message, tuple(failures),
            found.get("where", "")
        )  # fmt: skip
    finally:
        if keep is None:
            shutil.rmtree(home, ignore_errors=True)


def _bounded() -> None:
    """Let this process ask for no more memory than a machine has to spare."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))


def _make(form: Format, case: Case) -> dict[str, Any]:
    _bounded()
    try:
        path = form.make(case)
    except Exception:
        return {"message": traceback.format_exc(), "applied": case.applied}
    return {
        "path": os.fsencode(path).hex(), "applied": case.applied, "reading": case.reading, "large": case.large
    }  # fmt: skip


def _read(form: Format, case: Case, path: Path) -> dict[str, Any]:
    """Read and watch."""
    _bounded()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE + 1))
    if case.large:
        lazy.LARGE = 1
    os.chdir(case.home)
    watch = Watch((case.home, case.store / "scratch", Path(irleed.__file__).parents[1]), case.outside)
    found: dict[str, Any] = {"kind": "loaded", "failures": []}
    try:
        held = form.read(case, path)
        if any(map(secret_in, held)):
            found["failures"].append("secret: in what was loaded or written")
    except IrleedError as error:
        found |= {"kind": "refused", "message": str(error)[:300], "failures": watch.finish() + _refusal(error)}
    except BaseException as error:
        found["failures"] = watch.finish()
        said = ascii(f"{error}"[:120])
        found["failures"].append(f"{type(error).__name__}: {said}")
        found["where"] = _ours(error)
        found["trace"] = traceback.format_exc()[-6000:]
    else:
        found["failures"] += watch.finish()
    return found


def _refusal(error: IrleedError) -> list[str]:
    """What is wrong with the line that says what is wrong."""
    text, failures = str(error), []
    if len(text) > LONGEST:
        failures.append(f"message: of {len(text)} characters")
    if not text.isprintable():
        failures.append(f"message: with control characters, {ascii(text)[:120]}")
    if secret_in(text.encode("utf-8", "replace")):
        failures.append("secret: in the message")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            failures.append(f"memory: only the lack of it ended the reading, {ascii(str(cause))[:80]}")
        cause = cause.__cause__ or cause.__context__
    return failures


def _ours(error: BaseException) -> str:
    """The innermost line of this library, or of the harness, that raised an exception."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/irleed/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/irleed/')[2]}:{frames[-1].lineno}" if frames else "no line of ours"


def _ended(status: int | None, seconds: float, megabytes: float) -> list[str]:
    """What is wrong with how a process ended."""
    failures = []
    if status is None or status == -signal.SIGXCPU:
        failures.append(f"timeout: no answer in {PATIENCE} s")
    elif status != 0:
        failures.append(f"died: status {status}")
    if megabytes > MOST:
        failures.append(f"memory: {megabytes:.0f} MB")
    return failures


def _shown(text: bytes) -> list[str]:
    """What is wrong with what was printed."""
    failures = []
    if secret_in(text):
        failures.append("secret: printed")
    if len(text) > MOST_PRINTED:
        failures.append("printed: more than 1 MB")
    odd = {c for c in text.decode("utf-8", "replace") if not (c.isprintable() or c == "\n")}
    if odd:
        failures.append(f"printed: control characters, {ascii(sorted(odd)[:5])}")
    if b"Traceback (most recent" in text:
        failures.append("printed: a traceback")
    for line in text.splitlines():
        if b"Warning:" in line:
            failures.append(f"printed: {ascii(line.decode('utf-8', 'replace').rpartition('/')[2])[:150]}")
    return failures[:4]


def _forked(
    work: Callable[[], dict[str, Any]], patience: float, printed: Path
) -> tuple[dict[str, Any], int | None, float, float]:
    """What `work` returns in a process of its own, its status (None: it was ended), seconds and megabytes at most."""
    ours, theirs = os.pipe()
    began, child = time.monotonic(), os.fork()
    if not child:
        _child(work, ours, theirs, printed)
    os.close(theirs)
    content, timed_out = b"", False
    with contextlib.closing(os.fdopen(ours, "rb", buffering=0)) as stream:
        while True:
            left = began + patience - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                timed_out = True
                os.killpg(child, signal.SIGKILL)
                break
            part = stream.read(1 << 20)
            if not part:
                break
            content += part
    _, raw, usage = os.wait4(child, 0)
    seconds = time.monotonic() - began
    try:
        found = json.loads(content)
    except ValueError:
        found = {"kind": "failed"}
    return found, None if timed_out else os.waitstatus_to_exitcode(raw), seconds, usage.ru_maxrss / 1024


def _child(work: Callable[[], dict[str, Any]], ours: int, theirs: int, printed: Path) -> None:
    """Work, tell, and end without what a process does at its end."""
    status = 70
    try:
        os.setsid()
        os.close(ours)
        said = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(said, stream)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        found = json.dumps(work()).encode()
        sys.stdout.flush()
        sys.stderr.flush()
        while found:
            found = found[os.write(theirs, found) :]
        status = 0
    finally:
        os._exit(status)
