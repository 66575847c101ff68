"""Environments on the host: many lanes that step together, the same for every engine, in one process or several.

Worker processes share memory for observations and actions; a step is one short message to each worker and one back. A
worker ends when its pipe is closed, also if the parent was killed.
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

from irleed._typing import Array, Bool, Shaped
from irleed.envs.engines import (
    HostActions,
    actions_of,
    ale_lanes,
    envpool_lanes,
    error_line,
    gymnasium_lanes,
    mujoco_lanes,
    observation_dtype,
    rest,
    unsupported,
)
from irleed.envs.step import Transition
from irleed.errors import ConfigError, IrleedError, SpaceError

ENGINES = ("gymnasium", "envpool", "ale", "mujoco")
MODES = {"same_step": "SameStep", "next_step": "NextStep"}  # what Gymnasium and ALE call them
ONLY = {"envpool": "next_step", "mujoco": "same_step"}  # engines that have no choice


class HostEnv:
    """L lanes of one environment, stepped together; made by `make_host`.

    `actions` is the number of discrete actions or the bounds of vectors. Arrays are NumPy's, with the lanes as leading
    axis. Images stay uint8, all other observations are float32. Gymnasium's observations that are not a Box (Discrete,
    MultiBinary, MultiDiscrete, Tuple, Dict) are flattened to a vector, discrete ones one-hot.
    """

    def __init__(self, engine: Any, env_id: str, lanes: int, same_step: bool, seed: int | None) -> None:
        self.observation_shape, self._dtype, self._actions = _spaces(env_id, engine)
        self.actions = self._actions.known
        self.env_id, self.lanes = env_id, lanes
        self._engine, self._same_step, self._seed = engine, same_step, seed
        self._seeded_once = seed is None  # the engine was given its seed when it was made
        self._obs: np.ndarray | None = None
        self._over = np.zeros(lanes, bool)  # lanes whose next step only resets

    @property
    def obs(self) -> Shaped[np.ndarray, "L *obs"]:
        """The current observations. A lane whose next step only resets has its last observation."""
        return self.reset() if self._obs is None else self._obs

    def reset(self, seed: int | None = None) -> Shaped[np.ndarray, "L *obs"]:
        """Start an episode in every lane, the first time with the seed of `make_host`.

        A seed given here resets the random numbers; envpool ignores it.
        """
        seed = self._seed if seed is None or self._seeded_once else seed
        obs, _ = self._engine.reset() if seed is None else self._engine.reset(seed=seed)
        self._seed = None
        self._obs, self._over = self._seen(obs), np.zeros(self.lanes, bool)
        return self._obs

    def rest(self, resting: Bool[np.ndarray, " L"]) -> None:
        """Skip the steps of these lanes until all are reset; their results are undefined.

        Only Gymnasium's lanes are skipped; those of other engines are stepped.
        """
        from gymnasium.vector import SyncVectorEnv

        if isinstance(self._engine, WorkerPool):
            self._engine.rest(resting)
        elif isinstance(self._engine, SyncVectorEnv):
            rest(self._engine, resting)

    def step(self, actions: Shaped[Array, "..."]) -> Transition:
        """Take an action in every lane: L whole numbers from 0, or L vectors of real numbers within the bounds."""
        obs, chosen = self.obs, self._actions.checked(actions, self.lanes)
        returned, reward, terminated, truncated, info = self._engine.step(self._actions.to_engine(chosen))
        following, valid = self._seen(returned), ~self._over
        terminated = np.asarray(terminated, bool) & valid
        truncated = np.asarray(truncated, bool) & valid & ~terminated
        over = terminated | truncated
        next_obs = following.copy()
        # After a step that only resets, the observation belongs to another episode.
        next_obs[~valid] = obs[~valid]
        if self._same_step:
            for lane in np.flatnonzero(over):  # the other lanes' entries are undefined
                next_obs[lane] = info["final_obs"][lane]
        else:
            self._over = over
        self._obs = following
        return Transition(
            obs=obs,
            action=chosen,
            reward=np.where(valid, reward, 0).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            valid=valid,
        )

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()

    def _seen(self, obs: Any) -> np.ndarray:
        """A copy: engines may write the next observations into the same memory."""
        return np.array(obs, self._dtype)


def make_host(
    env_id: str,
    lanes: int,
    engine: str = "gymnasium",
    *,
    seed: int = 0,
    autoreset: str | None = None,
    workers: int = 0,
    **options: Any,
) -> HostEnv:
    """Make `lanes` copies of an environment with discrete actions, or with vectors of bounded numbers for actions.

    **Arguments:**

    - `env_id`: its name in the engine; for ALE that of the game (`pong`) or Gymnasium's (`ALE/Pong-v5`).
    - `engine`: `gymnasium`, which is always installed; `envpool`, `ale` and `mujoco`, which are extras.
    - `seed`: of the first lane. The same seed gives the same episodes; they differ between engines, except that those
        of `mujoco` are Gymnasium's.
    - `autoreset`: `same_step` or `next_step`. By default `same_step`, which wastes no steps, except for envpool, which
        has `next_step` only; `mujoco` has `same_step` only.
    - `workers`: processes for the lanes of `gymnasium`, such as one for each core; 0 is this process alone. The results
        are the same, and it is faster from some dozens of lanes on. A name that was registered in this process has to
        be written as `module:id`, with the module that registers it. A script starts workers under
        `if __name__ == "__main__":`. A step that fails in one of them ends them all. For `mujoco`, threads; 0 is one
        for each core.
    - `options`: passed to the engine, such as `max_episode_steps` (Gymnasium, envpool, MuJoCo).

    ALE's frames are preprocessed by its defaults (grey, 84 x 84, four stacked, each action repeated four times), and
    rewards are not clipped. In envpool, a terminal state at the time limit counts as truncated.
    """
    _check(engine, lanes, seed, autoreset, workers)
    same_step = autoreset != "next_step" and engine != "envpool"
    mode = MODES["same_step" if same_step else "next_step"]
    if engine == "envpool":
        made = envpool_lanes(env_id, lanes, seed, options)
    elif engine == "ale":
        made = ale_lanes(env_id, lanes, mode, options)
    elif engine == "mujoco":
        made = mujoco_lanes(env_id, lanes, workers, options)
    elif workers:
        made = _in_workers(env_id, lanes, workers, mode, options)
    else:
        made = gymnasium_lanes(env_id, lanes, mode, options)
    # envpool is given its seed when it is made, and its reset takes none.
    return HostEnv(made, env_id, lanes, same_step, None if engine == "envpool" else seed)


def _in_workers(env_id: str, lanes: int, workers: int, mode: str, options: dict[str, Any]) -> "WorkerPool":
    one = gymnasium_lanes(env_id, 1, mode, options)
    _spaces(env_id, one)  # refuse unsupported spaces before a worker is started
    one.close()
    spaces = (one.single_observation_space, one.single_action_space)
    return WorkerPool(env_id, lanes, min(workers, lanes), mode, options, spaces)


def _spaces(env_id: str, engine: Any) -> tuple[tuple[int, ...], np.dtype, HostActions]:
    """Shape and type of the observations, and the actions; the engine is closed if they are not supported."""
    from gymnasium.spaces import Box

    seen = engine.single_observation_space
    try:
        actions = actions_of(env_id, engine.single_action_space)
        if not isinstance(seen, Box):
            remedy = "choose the engine gymnasium, or wrap it in a gymnasium.ObservationWrapper and register that"
            raise unsupported(f"environment {env_id}, observations", seen, "numbers, as many in every step", remedy)
    except SpaceError:
        engine.close()
        raise
    return seen.shape, observation_dtype(seen), actions


def _check(engine: str, lanes: int, seed: int, autoreset: str | None, workers: int) -> None:
    if engine not in ENGINES:
        raise ConfigError("engine", got=engine, expected=" or ".join(ENGINES), remedy="choose one of them")
    if lanes < 1:
        raise ConfigError("lanes", got=lanes, expected="1 or more", remedy="choose, say, 8")
    if seed < 0:
        raise ConfigError("seed", got=seed, expected="0 or more", remedy="choose, say, 0")
    possible = (ONLY[engine],) if engine in ONLY else tuple(MODES)
    if autoreset is not None and autoreset not in possible:
        expected = " or ".join(possible)
        raise ConfigError(f"autoreset of {engine}", got=autoreset, expected=expected, remedy="leave it out")
    if workers < 0:
        raise ConfigError("workers", got=workers, expected="0 or more", remedy="choose, say, 8")
    if workers and engine not in ("gymnasium", "mujoco"):
        remedy = "leave it out: this engine uses several cores by itself"
        raise ConfigError(f"workers of {engine}", got=workers, expected=0, remedy=remedy)


STEP, RESET, DONE = b"step", b"reset", b""  # any answer but DONE is an error message
TIMEOUT = 5.0  # seconds for a worker to close its environments


class Lanes(NamedTuple):
    """Shared memory of parent and workers; a worker has views of its own lanes only."""

    obs: Any
    final_obs: Any  # the last observation of an episode, where one has just ended
    reward: Any
    terminated: Any
    truncated: Any
    action: Any
    resting: Any  # lanes whose steps are skipped


class WorkerPool:
    """Lanes of Gymnasium in worker processes: an engine for `HostEnv`.

    Lane k is seeded as in one process, so that results are equal. Workers are spawned, as JAX must not be forked: a
    script makes them under ``if __name__ == "__main__":``.
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
        # Also without a call of close: at the end of the program, or of the last reference.
        self._end = weakref.finalize(self, _end, self._pipes, self._processes)
        try:
            for first, last in zip(self._bounds, self._bounds[1:], strict=False):
                self._start(context, memory, env_id, slice(first, last), mode, options)
            self._wait("an environment in every worker", ConfigError)
        except BaseException:
            self.close()
            raise

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in every lane."""
        lanes = self._open_lanes()
        self._order([RESET if seed is None else b"%s %d" % (RESET, seed + k) for k in self._bounds[:-1]])
        return lanes.obs, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action in every lane. The arrays returned are overwritten by the next step."""
        lanes = self._open_lanes()
        lanes.action[:] = actions
        self._order([STEP] * len(self._pipes))
        return lanes.obs, lanes.reward, lanes.terminated, lanes.truncated, {"final_obs": lanes.final_obs}

    def rest(self, resting: Bool[np.ndarray, " L"]) -> None:
        """Skip the steps of these lanes until they are reset; see `irleed.envs.engines.rest`."""
        self._open_lanes().resting[:] = resting

    def close(self) -> None:
        """End the workers and free the memory."""
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
                got=error_line(error),
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
        """Send every worker its order and wait for all answers."""
        try:
            for pipe, order in zip(self._pipes, orders, strict=True):
                with contextlib.suppress(OSError):  # a worker that has died is found below
                    pipe.send_bytes(order)
            self._wait("every lane to do its step, or its reset", IrleedError)
        except BaseException:  # an interrupt too: unread answers would be read as those of a later step
            self.close()
            raise

    def _wait(self, expected: str, kind: type[IrleedError]) -> None:
        for k, pipe in enumerate(self._pipes):
            try:
                answer = pipe.recv_bytes()
            except (EOFError, OSError):
                self._processes[k].join(TIMEOUT)
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
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def _allocate(context: Any, lanes: int, seen: Any, done: Any) -> list[tuple[Any, str, tuple[int, ...]]]:
    """Anonymous shared memory: it is freed with the last process that uses it, also if that was killed."""
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
    """A worker: executes orders for its share of the lanes until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the parent, which ends the workers
    jax.config.update("jax_platforms", "cpu")  # an environment that uses JAX must not take the parent's accelerator
    lanes = _views(memory, share)
    try:
        engine = gymnasium_lanes(env_id, share.stop - share.start, mode, options)
        _answer(pipe, DONE)
        for order in _orders(pipe):
            _execute(engine, order, lanes)
            _answer(pipe, DONE)
        engine.close()
    except Exception as error:  # an environment's own code runs here: it may raise anything
        cause = error.__cause__ if isinstance(error, ConfigError) and error.__cause__ else error
        at = traceback.extract_tb(cause.__traceback__)[-1]
        _answer(pipe, f"{error_line(cause)} ({at.filename}, line {at.lineno})".encode())


def _orders(pipe: Connection) -> Iterator[bytes]:
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield pipe.recv_bytes()


def _answer(pipe: Connection, text: bytes) -> None:
    with contextlib.suppress(OSError):  # the parent has closed the pipe
        pipe.send_bytes(text)


def _execute(engine: Any, order: bytes, lanes: Lanes) -> None:
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
