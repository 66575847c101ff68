"""Lanes of a Gymnasium environment in several processes, stepped at the same time.

Everything that is many numbers lies in memory that all processes see; a step is one short message to each worker and
one back. A worker ends when its pipe does, however the parent came to let go of it.
"""

import contextlib
import math
import multiprocessing
import signal
import traceback
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import jax
import numpy as np

from irleed._typing import Bool
from irleed.envs.host.engines import gymnasium_lanes, observation_dtype, one_line, rest
from irleed.errors import ConfigError, IrleedError

STEP, RESET, DONE = b"step", b"reset", b""  # an answer that is not DONE says what went wrong
PATIENCE = 5.0  # seconds that a worker has for closing its environments


class Lanes(NamedTuple):
    """What parent and workers tell each other about every lane; a worker has views of its own lanes only."""

    obs: Any
    final_obs: Any  # the last observation of an episode, where one has just ended
    reward: Any
    terminated: Any
    truncated: Any
    action: Any
    resting: Any  # lanes that are to do nothing in a step


class WorkerPool:
    """Lanes spread over worker processes, with the few things that `HostEnv` asks of an engine.

    Lane k is seeded as it would be in one process, so the results are the same to the last bit. The workers are
    started afresh (JAX must not be forked): a script that makes them does so under ``if __name__ == "__main__":``.
    """

    def __init__(self, env_id: str, lanes: int, workers: int, mode: str, options: dict[str, Any], spaces: Any) -> None:
        self.single_observation_space, self.single_action_space = spaces
        self._env_id = env_id
        self._bounds = [lanes * k // workers for k in range(workers + 1)]
        context = multiprocessing.get_context("spawn")
        memory = _allocate(context, lanes, *spaces)
        self._lanes: Lanes | None = _views(memory, slice(None))
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # Also when nobody calls close: at the end of the program, or of the last reference to this.
        self._end = weakref.finalize(self, _end, self._pipes, self._processes)
        try:
            for first, last in zip(self._bounds, self._bounds[1:], strict=False):
                self._start(context, memory, env_id, slice(first, last), mode, options)
            self._wait("an environment in every worker", ConfigError)
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every lane."""
        lanes = self._open_lanes()
        self._order([RESET if seed is None else b"%s %d" % (RESET, seed + k) for k in self._bounds[:-1]])
        return lanes.obs, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action in every lane. What comes back is overwritten by the next step."""
        lanes = self._open_lanes()
        lanes.action[:] = actions
        self._order([STEP] * len(self._pipes))
        return lanes.obs, lanes.reward, lanes.terminated, lanes.truncated, {"final_obs": lanes.final_obs}

    def rest(self, resting: Bool[np.ndarray, " L"]) -> None:
        """Lanes whose steps may be spared until they are reset; see `irleed.envs.host.engines.rest`."""
        self._open_lanes().resting[:] = resting

    def close(self) -> None:
        """End the workers and let go of the memory."""
        self._end()
        self._lanes = None

    def _start(self, context: Any, memory: Any, env_id: str, share: slice, mode: str, options: dict[str, Any]) -> None:
        ours, theirs = context.Pipe()
        self._pipes.append(ours)
        process = context.Process(target=_work, args=(theirs, memory, env_id, share, mode, options), daemon=True)
        try:
            process.start()
        except Exception as error:
            raise ConfigError(
                f"environment {env_id}, workers",
                got=one_line(error),
                expected="processes that can be started",
                remedy='give options that can be pickled, and start under if __name__ == "__main__":',
            ) from error
        finally:
            theirs.close()  # so that the pipe ends when the worker does
        self._processes.append(process)

    def _open_lanes(self) -> Lanes:
        if self._lanes is None:
            where = f"environment {self._env_id}"
            raise IrleedError(where, got="closed", expected="open lanes", remedy="make it again")
        return self._lanes

    def _order(self, orders: list[bytes]) -> None:
        """Every worker does what it is told."""
        try:
            for pipe, order in zip(self._pipes, orders, strict=True):
                with contextlib.suppress(OSError):  # a worker that is gone is found out below
                    pipe.send_bytes(order)
            self._wait("every lane to do its step, or its reset", IrleedError)
        except BaseException:  # an interrupt too: answers that nobody has read would be taken for those of a later step
            self.close()
            raise

    def _wait(self, expected: str, kind: type[IrleedError]) -> None:
        for k, pipe in enumerate(self._pipes):
            try:
                answer = pipe.recv_bytes()
            except (EOFError, OSError):
                self._processes[k].join(PATIENCE)
                got = f"a worker that ended by itself (exit code {self._processes[k].exitcode})"
            else:
                if answer == DONE:
                    continue
                got = answer.decode()
            where = f"environment {self._env_id}, lanes {self._bounds[k]} to {self._bounds[k + 1] - 1}"
            raise kind(where, got=got, expected=expected, remedy=_remedy(kind))


def _remedy(kind: type[IrleedError]) -> str:
    if kind is ConfigError:
        return 'write a name that only this process knows as module:id, and start under if __name__ == "__main__":'
    return "run it with workers=0 to see where it fails"


def _end(pipes: list[Connection], processes: list[Any]) -> None:
    for pipe in pipes:
        pipe.close()
    for process in processes:
        process.join(PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def _allocate(context: Any, lanes: int, seen: Any, done: Any) -> list[tuple[Any, str, tuple[int, ...]]]:
    """Memory without a name: it is gone when the last process that sees it is, also if that was killed."""
    obs = (observation_dtype(seen).str, (lanes, *seen.shape))
    action = (np.dtype(done.dtype).str, (lanes, *done.shape))
    flags = ("?", (lanes,))
    kinds = Lanes(obs, obs, ("f8", (lanes,)), flags, flags, action, flags)
    return [
        (context.RawArray("B", math.prod(shape) * np.dtype(dtype).itemsize), dtype, shape) for dtype, shape in kinds
    ]


def _views(memory: list[tuple[Any, str, tuple[int, ...]]], share: slice) -> Lanes:
    return Lanes(*(np.frombuffer(raw, dtype).reshape(shape)[share] for raw, dtype, shape in memory))


def _work(pipe: Connection, memory: Any, env_id: str, share: slice, mode: str, options: dict[str, Any]) -> None:
    """A worker: steps its share of the lanes whenever it is told to, until the parent lets go of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends the workers
    jax.config.update("jax_platforms", "cpu")  # an environment that uses JAX must not take the parent's accelerator
    lanes = _views(memory, share)
    try:
        engine = gymnasium_lanes(env_id, share.stop - share.start, mode, options)
        _answer(pipe, DONE)
        for order in _orders(pipe):
            _obey(engine, order, lanes)
            _answer(pipe, DONE)
        engine.close()
    except Exception as error:  # an environment's own code runs here: it may raise anything
        cause = error.__cause__ if isinstance(error, ConfigError) and error.__cause__ else error
        at = traceback.extract_tb(cause.__traceback__)[-1]
        _answer(pipe, f"{one_line(cause)} ({at.filename}, line {at.lineno})".encode())


def _orders(pipe: Connection) -> Iterator[bytes]:
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield pipe.recv_bytes()


def _answer(pipe: Connection, text: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody is there to hear it
        pipe.send_bytes(text)


def _obey(engine: Any, order: bytes, lanes: Lanes) -> None:
    if order != STEP:
        _, _, seed = order.partition(b" ")
        lanes.resting[:] = False
        lanes.obs[:] = engine.reset(seed=int(seed) if seed else None)[0]
        return
    rest(engine, lanes.resting)
    lanes.obs[:], lanes.reward[:], lanes.terminated[:], lanes.truncated[:], info = engine.step(lanes.action)
    if "final_obs" in info:
        for lane in np.flatnonzero(info["_final_obs"]):
            lanes.final_obs[lane] = info["final_obs"][lane]
