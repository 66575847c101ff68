"""What is kept of a run, so that it survives: the whole state now and then, and a line of history for every part.

A checkpoint is a safetensors file: every array of the state by its place in it, and a line of JSON with the step, the
run it belongs to and a checksum. It is written beside and renamed, and the one before it is kept: a process may be
killed at any moment.
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

from irleed._io.files import beside, digest, sweep, writing
from irleed.errors import ConfigError

FORMAT, VERSION = "irleed-checkpoint", 1
FOLDER, SUFFIX = "checkpoints", ".safetensors"
MOST_STEPS = 1 << 53
EVERY = 10.0  # seconds between checkpoints, at least
SHARE = 0.01  # of the time that they may take: where one takes longer, there are fewer


class Stopped(KeyboardInterrupt):
    """A run that was asked to stop did so, at a checkpoint."""


@runtime_checkable
class Log(Protocol):
    """Where the figures of a run go; see `irleed.runs.logging`."""

    def begin(self, done: int) -> None:
        """The run begins, or goes on after so many steps: forget what was told of later ones."""
        ...

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """How things stand after this step."""
        ...

    def flush(self) -> None:
        """Let what was added be safe."""
        ...

    def close(self) -> None:
        """The end."""
        ...


class Checkpointer:
    """Keeps a run in a folder, and finds it again there.

    **Arguments:**

    - `fingerprint`: of all that the run depends on. Checkpoints of another are refused.
    - `every`: seconds between checkpoints. Ten by default, and more where writing one takes long; when they are
      written makes no difference to the run.
    - `logs`: what is told of each part.
    - `warn`: called with a line that the user should see.

    Setting `stop` ends the run by `Stopped`, right after a checkpoint, when its present part is done.
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
        self.earlier = 0.0  # seconds that the run had taken before this process went on with it
        self._fingerprint, self._every, self._logs, self._warn = fingerprint, every, logs, warn
        self._began = self._told = self._saved = time.monotonic()
        self._cost, self._done = 0.0, 0
        self._steps: list[int] = []  # of the last two checkpoints that are sound

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for log in self._logs:
            log.close()

    def clear(self) -> None:
        """Remove the checkpoints of a run whose result is written elsewhere; and the folder, if it had nothing else."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def restore(self, template: Any) -> tuple[Any, int] | None:
        """The newest state that is sound, and its step; None if there is none yet. To be called once, at the start.

        Of the template only structure, shapes and types matter. What is damaged is passed over with a warning.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            sweep(self.folder)
        found = self._newest(template)
        if found is not None:
            self._done, self.earlier = found[1]["step"], found[1]["seconds"]
            self._steps = [self._done]
        self._began = self._told = self._saved = time.monotonic()
        with writing(self.folder):
            for log in self._logs:
                log.begin(self._done)
        return None if found is None else (found[0], self._done)

    def save(self, state: Any, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Tell the logs, and write a checkpoint if it is time for one, the end, or time to stop."""
        now = time.monotonic()
        told = {**figures, "seconds": self.earlier + now - self._began}
        told["rate"] = (done - self._done) / max(now - self._told, 1e-9)
        self._done, self._told = done, now
        with writing(self.folder):
            for log in self._logs:
                log.add(done, told)
            stop = self.stop  # asked once: who asks for a stop later than this stops at the next part
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
            for told in damaged:
                self._warn(f"{told}; going on from the checkpoint before it, after step {found[1]['step']}")
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
    """Inside, Ctrl-C, SIGTERM and SIGHUP stop the run at its next checkpoint, and a second one at once."""

    def asked(number: int, frame: FrameType | None) -> None:
        if checkpointer.stop:
            raise KeyboardInterrupt
        checkpointer.stop = True
        warn("stopping at the next checkpoint; once more to stop at once")

    with handled(asked):
        yield


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """With a handler for requests to stop, the old ones being put back; one that is ignored, as by nohup, stays so.

    Only the main thread can have handlers: in another, nothing changes.
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
    """Every array of a state, with a header; whole or not at all."""
    arrays = {name: _plain(leaf) for name, leaf in _leaves(state)}
    signed = {**header, "checksum": digest(header, arrays)}
    with beside(path) as file:
        file.write(save(arrays, metadata={"irleed": json.dumps(signed)}))


def read(path: Path, template: Any, fingerprint: str) -> tuple[Any, dict[str, Any]]:
    """State and header of what `write` wrote. A `ValueError`: it is damaged. Another run's is a `ConfigError`."""
    if path.is_symlink() or not path.is_file():  # a pipe would be waited for
        raise ValueError("a link, folder, device or pipe")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = dict(json.loads((file.metadata() or {})["irleed"]))
            arrays: dict[str, np.ndarray] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be read ({' '.join(str(error).split())})") from error
    if header.get("format") == FORMAT and isinstance(header.get("version"), int) and header["version"] > VERSION:
        got, remedy = f"version {header['version']}", "install a newer irleed to go on with this run"
        raise ConfigError(str(path), got=got, expected=f"at most {VERSION}", remedy=remedy)
    checksum = header.pop("checksum", None)
    if header.get("format") != FORMAT or checksum != digest(header, arrays):
        raise ValueError("its checksum is wrong")
    if not _is_sound(header):
        raise ValueError("its header is none of a checkpoint")
    wanted = dict(_leaves(template))
    differ = [] if header["fingerprint"] == fingerprint else ["fingerprint"]
    differ += [name for name in {*wanted, *arrays} if _kind(wanted.get(name)) != _kind(arrays.get(name))]
    if differ:
        remedy = "choose another --out, or go on with the settings, data and version that it was begun with"
        got = f"another {', '.join(sorted(differ)[:3])}"
        raise ConfigError(str(path), got=got, expected="a checkpoint of this run", remedy=remedy)
    leaves = [_restored(arrays[name], leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves), header


def _is_sound(header: Mapping[str, Any]) -> bool:
    """Whether the header says of which run it is, and how far that had come."""
    step, seconds = header.get("step"), header.get("seconds")
    counted = type(step) is int and 0 <= step <= MOST_STEPS
    timed = isinstance(seconds, int | float) and 0 <= seconds < math.inf
    return counted and timed and "fingerprint" in header


def _leaves(state: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _kind(leaf: Any) -> tuple[tuple[int, ...], str] | None:
    """Shape and type, as they are in the file."""
    if leaf is not None and _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return None if leaf is None else (tuple(leaf.shape), np.dtype(leaf.dtype).str)


def _restored(array: np.ndarray, leaf: Any) -> Any:
    """As it was: an array of NumPy's own where it was one, else one on the device that nothing else looks at."""
    if isinstance(leaf, np.ndarray):
        return array.copy()
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.array(array), impl=jax.random.key_impl(jnp.empty(0, leaf.dtype)))
    return jnp.array(array)
