"""Checkpoints of the whole training state, at intervals, with metrics for every interval.

A checkpoint is a safetensors file: every array of the state by its path, and a line of JSON with the step, the
fingerprint of the run and a checksum. It is written atomically, and the previous one is kept.
"""

import contextlib
import json
import math
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from irleed._compute import is_key
from irleed._io.files import beside, digest, sweep, writing
from irleed.errors import ConfigError

FORMAT, VERSION = "irleed-checkpoint", 1
FOLDER, SUFFIX = "checkpoints", ".safetensors"
MOST_STEPS = 1 << 53
EVERY = 10.0  # seconds between checkpoints, at least
SHARE = 0.01  # of the time that checkpoints may take


class Stopped(KeyboardInterrupt):
    """A run was stopped at a checkpoint, on request."""


@runtime_checkable
class Log(Protocol):
    """A destination of the metrics of a run; see `irleed.runs.logging`."""

    def begin(self, done: int) -> None:
        """Start, or resume after `done` steps: drop the metrics of later ones."""
        ...

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        ...

    def flush(self) -> None:
        """Write buffered metrics to disk."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class Checkpointer:
    """Saves the checkpoints of a run in a folder, and restores the newest.

    **Arguments:**

    - `fingerprint`: of everything that the run depends on. Checkpoints with another are refused.
    - `every`: seconds between checkpoints; ten by default, and more where writing one takes long. The interval does not
      change the results.
    - `logs`: where metrics are written.
    - `warn`: called with warnings for the user.

    Setting `stop` ends the run by `Stopped`, after a checkpoint at the end of the current interval.
    """

    def __init__(
        self,
        folder: str | Path,
        fingerprint: str,
        *,
        every: float | None = None,
        logs: Sequence[Log] = (),
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        self.folder, self.stop = Path(folder) / FOLDER, False
        self.earlier = 0.0  # seconds of the run before this process resumed it
        self._fingerprint, self._every, self._logs, self._warn = fingerprint, every, logs, warn
        self._began = self._logged = self._saved = time.monotonic()
        self._cost, self._done = 0.0, 0
        self._steps: list[int] = []  # of the last two valid checkpoints

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs:
            log.close()

    def clear(self) -> None:
        """Remove the checkpoints, and the folder of the run if it is empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def restore(self, template: Any) -> tuple[Any, int] | None:
        """The newest valid state and its step, or None; to be called once, at the start.

        Of the template only structure, shapes and types matter. Damaged checkpoints are skipped with a warning.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder)
        found = self._newest(template)
        if found is not None:
            self._done, self.earlier = found[1]["step"], found[1]["seconds"]
            self._steps = [self._done]
        self._began = self._logged = self._saved = time.monotonic()
        with writing(self.folder):
            for log in self._logs:
                log.begin(self._done)
        return None if found is None else (found[0], self._done)

    def save(self, state: Any, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Log metrics, and write a checkpoint if one is due, at the end of the run, and before a stop."""
        now = time.monotonic()
        rate = (done - self._done) / max(now - self._logged, 1e-9)
        metrics = {**figures, "seconds": self.earlier + now - self._began, "rate": rate}
        self._done, self._logged = done, now
        with writing(self.folder):
            for log in self._logs:
                log.add(done, metrics)
            stop = self.stop  # read once: a stop that is requested later takes effect after the next interval
            if done == total or stop or now - self._saved >= self._interval:
                for log in self._logs:
                    log.flush()
                self._write(state, done)
        if stop and done < total:
            raise Stopped(f"stopped after step {done} of {total}")

    @property
    def _interval(self) -> float:
        return max(EVERY, self._cost / SHARE) if self._every is None else self._every

    def _write(self, state: Any, step: int) -> None:
        began = time.monotonic()
        header = {"format": FORMAT, "version": VERSION, "fingerprint": self._fingerprint, "step": step}
        write(self._path(step), state, header | {"seconds": self.earlier + began - self._began})
        self._steps = [*self._steps[-1:], step]
        for path in self._files():
            if path not in map(self._path, self._steps):
                path.unlink(missing_ok=True)
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def _newest(self, template: Any) -> tuple[Any, dict[str, Any]] | None:
        damaged: list[str] = []
        for path in self._files():
            try:
                found = read(path, template, self._fingerprint)
            except ValueError as error:
                damaged.append(f"{path}: {error}")
                continue
            for line in damaged:
                self._warn(f"{line}; continuing from the previous checkpoint, after step {found[1]['step']}")
            return found
        if damaged:
            got, remedy = "; ".join(damaged), "copy the run again, or start over with another --out"
            raise ConfigError("run", got=got, expected="a sound checkpoint", remedy=remedy)
        return None

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:09d}{SUFFIX}"

    def _files(self) -> list[Path]:
        """The checkpoints, the newest first."""
        return sorted(self.folder.glob(f"[0-9]*{SUFFIX}"), reverse=True)


@contextlib.contextmanager
def stoppable(checkpointer: Checkpointer, warn: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, Ctrl-C, SIGTERM and SIGHUP stop the run at its next checkpoint, and a second one at once."""

    def asked(number: int, frame: FrameType | None) -> None:
        if checkpointer.stop:
            raise KeyboardInterrupt
        checkpointer.stop = True
        warn("stopping at the next checkpoint; repeat to stop at once")

    with handled(asked):
        yield


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install a signal handler for requests to stop, and restore the old ones; signals that are ignored stay ignored.

    Only the main thread can have handlers: in another, this does nothing.
    """
    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        asked = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
        found = {number: signal.getsignal(number) for number in asked}
        old = {number: before for number, before in found.items() if before not in (signal.SIG_IGN, None)}
    try:
        for number in old:
            signal.signal(number, handler)
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


def write(path: Path, state: Any, header: Mapping[str, object]) -> None:
    """Write every array of a state and a header, atomically."""
    arrays = {name: _plain(leaf) for name, leaf in _leaves(state)}
    signed = {**header, "checksum": digest(header, arrays)}
    with beside(path) as file:
        file.write(save(arrays, metadata={"irleed": json.dumps(signed)}))


def read(path: Path, template: Any, fingerprint: str) -> tuple[Any, dict[str, Any]]:
    """State and header of a checkpoint; a `ValueError` if it is damaged, a `ConfigError` if it is of another run."""
    if path.is_symlink() or not path.is_file():  # a pipe would be waited for
        raise ValueError("a link, folder, device or pipe")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = dict(json.loads((file.metadata() or {})["irleed"]))
            arrays: dict[str, np.ndarray] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read ({' '.join(str(error).split())})") from error
    if header.get("format") == FORMAT and isinstance(header.get("version"), int) and header["version"] > VERSION:
        got, remedy = f"version {header['version']}", "install a newer irleed to continue this run"
        raise ConfigError(str(path), got=got, expected=f"at most {VERSION}", remedy=remedy)
    checksum = header.pop("checksum", None)
    if header.get("format") != FORMAT or checksum != digest(header, arrays):
        raise ValueError("its checksum is wrong")
    if not _is_sound(header):
        raise ValueError("its header is not that of a checkpoint")
    wanted = dict(_leaves(template))
    differ = [] if header["fingerprint"] == fingerprint else ["fingerprint"]
    differ += [name for name in {*wanted, *arrays} if _kind(wanted.get(name)) != _kind(arrays.get(name))]
    if differ:
        remedy = "choose another --out, or resume with the settings, data and version that the run was started with"
        got = f"another {', '.join(sorted(differ)[:3])}"
        raise ConfigError(str(path), got=got, expected="a checkpoint of this run", remedy=remedy)
    leaves = [_restored(arrays[name], leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), header


def _is_sound(header: Mapping[str, Any]) -> bool:
    """Whether the header has a fingerprint, a step and seconds."""
    step, seconds = header.get("step"), header.get("seconds")
    counted = type(step) is int and 0 <= step <= MOST_STEPS
    timed = isinstance(seconds, int | float) and 0 <= seconds < math.inf
    return counted and timed and "fingerprint" in header


def _leaves(state: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)]


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf, order="C")


def _kind(leaf: Any) -> tuple[tuple[int, ...], str] | None:
    """Shape and type, as they are in the file."""
    if leaf is not None and is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return None if leaf is None else (tuple(leaf.shape), np.dtype(leaf.dtype).str)


def _restored(array: np.ndarray, leaf: Any) -> Any:
    """A leaf as in the template: a NumPy array, a random key, or a copy on the device."""
    if isinstance(leaf, np.ndarray):
        return array.copy()
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(jnp.empty(0, leaf.dtype)))
    return jnp.array(array)
