"""Environments on the host: many copies of one that step together, and what actions they take."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from irleed._typing import Array, Bool, Shaped
from irleed.envs.host.engines import ale_lanes, envpool_lanes, gymnasium_lanes, observation_dtype, rest
from irleed.envs.host.mujoco import mujoco_lanes
from irleed.envs.host.workers import WorkerPool
from irleed.envs.step import Bounds, Transition
from irleed.errors import ConfigError, SpaceError

ROUNDING = 1e-6  # how far beyond a bound an action may be, relative to it, to be taken for the bound


@dataclass(frozen=True)
class HostActions:
    """The actions of an environment, ours and as its engine wants them; made by `actions_of`."""

    where: str
    known: int | Bounds
    first: int  # what the engine calls the first choice; ours are numbered from 0
    dtype: np.dtype  # the engine's

    def checked(self, actions: Any, lanes: int) -> np.ndarray:
        """An action for every lane, int32 or float32: an engine in C++ does not say no to one that it does not have."""
        given = np.asarray(actions)
        if isinstance(self.known, Bounds):
            return self._vectors(given, lanes, self.known)
        return self._choices(given, lanes, self.known)

    def to_engine(self, chosen: np.ndarray) -> np.ndarray:
        """The same actions under the engine's names, and in its precision."""
        return (chosen + self.first).astype(self.dtype, copy=False)

    def _choices(self, given: np.ndarray, lanes: int, choices: int) -> np.ndarray:
        expected = f"{lanes} whole numbers from 0 to {choices - 1}"
        if given.shape != (lanes,) or not np.issubdtype(given.dtype, np.integer):
            raise self._refused(f"{given.dtype} of shape {given.shape}", expected)
        if given.min() < 0 or given.max() >= choices:
            raise self._refused(f"{given.min()} to {given.max()}", expected)
        return given.astype(np.int32)

    def _vectors(self, given: np.ndarray, lanes: int, bounds: Bounds) -> np.ndarray:
        expected = f"{lanes} vectors of {bounds.size} numbers"
        if given.shape != (lanes, bounds.size) or not np.issubdtype(given.dtype, np.floating):
            raise self._refused(f"{given.dtype} of shape {given.shape}", expected)
        if not np.isfinite(given).all():
            lane, number = np.argwhere(~np.isfinite(given))[0]
            got = f"{given[lane, number]} as number {number} of lane {lane}"
            raise self._refused(got, "a finite number", "look at what chose it: has its training diverged?")
        low, high = bounds.low.astype(float), bounds.high.astype(float)
        beyond = np.maximum(low - given, given - high)
        excess = beyond - ROUNDING * np.maximum(np.abs(low), np.abs(high))
        if excess.max() > 0:
            lane, number = np.unravel_index(excess.argmax(), excess.shape)
            got = (
                f"{given[lane, number]} as number {number} of lane {lane}, out of bounds by {beyond[lane, number]:.3g}"
            )
            raise self._refused(got, f"{bounds.low[number]} to {bounds.high[number]}", "keep to the bounds, or clip")
        return np.clip(given.astype(np.float32), bounds.low, bounds.high)

    def _refused(self, got: str, expected: str, remedy: str = "choose one action for each lane") -> SpaceError:
        return SpaceError(self.where, got=got, expected=expected, remedy=remedy)


def actions_of(env_id: str, space: Any) -> HostActions:
    """What a space of Gymnasium's offers: a Discrete one its choices, a Box that is one list of numbers its bounds."""
    from gymnasium.spaces import Box, Discrete

    where = f"environment {env_id}, actions"
    if isinstance(space, Discrete):
        return HostActions(where, int(space.n), int(space.start), np.dtype(np.int32))
    if not isinstance(space, Box) or len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        expected = "Discrete, or a Box that is one list of real numbers"
        raise unsuited(where, space, expected, "choose another environment, or register one with an ActionWrapper")
    bounds = Bounds(low=space.low.astype(np.float32), high=space.high.astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        width = bounds.high - bounds.low
    if not (np.isfinite(width) & (width > 0)).all():
        remedy = "register it with an ActionWrapper that has bounds"
        raise unsuited(where, space, "finite bounds, the upper above the lower", remedy)
    return HostActions(where, bounds, 0, np.dtype(space.dtype))


def unsuited(where: str, space: Any, expected: str, remedy: str) -> SpaceError:
    """What is said of a space that does not fit."""
    return SpaceError(where, got=" ".join(str(space).split()), expected=expected, remedy=remedy)


ENGINES = ("gymnasium", "envpool", "ale", "mujoco")
MODES = {"same_step": "SameStep", "next_step": "NextStep"}  # what Gymnasium and ALE call them
ONLY = {"envpool": "next_step", "mujoco": "same_step"}  # engines that have no choice


class HostEnv:
    """L lanes of one environment, stepped together; made by `make_host`.

    `actions` is their number or, where they are vectors, the bounds. Arrays are NumPy's, with the lanes as leading
    axis. Images stay uint8, all other observations are float32.
    Gymnasium's observations that are no Box (Discrete, MultiBinary, MultiDiscrete, Tuple, Dict) are one vector, a
    choice among n a one in n places.
    """

    def __init__(self, engine: Any, env_id: str, lanes: int, same_step: bool, seed: int | None) -> None:
        self.observation_shape, self._dtype, self._actions = _spaces(env_id, engine)
        self.actions = self._actions.known
        self.env_id, self.lanes = env_id, lanes
        self._engine, self._same_step, self._seed = engine, same_step, seed
        self._seeded_once = seed is None  # an engine that had its seed when it was made
        self._obs: np.ndarray | None = None
        self._over = np.zeros(lanes, bool)  # lanes whose next step does nothing but reset

    @property
    def obs(self) -> Shaped[np.ndarray, "L *obs"]:
        """What to act on next. A lane that is about to spend a step on resetting still shows its last observation."""
        return self.reset() if self._obs is None else self._obs

    def reset(self, seed: int | None = None) -> Shaped[np.ndarray, "L *obs"]:
        """Begin an episode in every lane; the first time with the seed it was made with, then going on from there.

        A seed given here starts the random numbers over; envpool cannot do that, and goes on.
        """
        seed = self._seed if seed is None or self._seeded_once else seed
        obs, _ = self._engine.reset() if seed is None else self._engine.reset(seed=seed)
        self._seed = None
        self._obs, self._over = self._seen(obs), np.zeros(self.lanes, bool)
        return self._obs

    def rest(self, resting: Bool[np.ndarray, " L"]) -> None:
        """Steps of these lanes may be spared, until all are reset: what they show from now on means nothing.

        Gymnasium's lanes, one after another in their process, are; those of other engines go on.
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
        # A step that only resets leads nowhere: what comes after it belongs to another episode.
        next_obs[~valid] = obs[~valid]
        if self._same_step:
            for lane in np.flatnonzero(over):  # ALE leaves rubbish in the other lanes' entries, Gymnasium None
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
        """Let go of what the engine holds."""
        self._engine.close()

    def _seen(self, obs: Any) -> np.ndarray:
        """A copy of our own: engines may write the next observations into the same memory."""
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

    - `env_id`: the engine's name for it; for ALE that of the game (`pong`) or Gymnasium's (`ALE/Pong-v5`).
    - `engine`: `gymnasium`, which is always there; `envpool`, `ale` and `mujoco`, which are extras.
    - `seed`: of the first lane. The same seed gives the same episodes; engines draw different ones, except that those
        of `mujoco` are Gymnasium's.
    - `autoreset`: how the engine goes about resetting. By default the way that wastes no steps, which envpool lacks
        and which is `mujoco`'s only one.
    - `workers`: processes to spread the lanes of `gymnasium` over, one for each core, say; 0 is this process alone.
        The results are the same, and it pays from some dozens of lanes on. A name that was registered by this process
        only is not known to them: write it as `module:id`, with the module that registers it. A script starts them
        under `if __name__ == "__main__":`. A step that fails in one of them ends them all. For `mujoco`, threads; 0 is
        one for each core.
    - `options`: go to the engine as they are, such as `max_episode_steps` (Gymnasium, envpool, MuJoCo).

    ALE's frames are prepared as it does by default (grey, 84 x 84, four stacked, each action repeated four times);
    rewards are left as the game gives them. envpool calls a task that ends in the last step that the clock allows
    truncated, not terminated; nothing in its answer tells the two apart.
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
    # envpool has its seed from the start, and its reset takes none.
    return HostEnv(made, env_id, lanes, same_step, None if engine == "envpool" else seed)


def _in_workers(env_id: str, lanes: int, workers: int, mode: str, options: dict[str, Any]) -> WorkerPool:
    one = gymnasium_lanes(env_id, 1, mode, options)
    _spaces(env_id, one)  # what is not suited is refused before a worker is started
    one.close()
    spaces = (one.single_observation_space, one.single_action_space)
    return WorkerPool(env_id, lanes, min(workers, lanes), mode, options, spaces)


def _spaces(env_id: str, engine: Any) -> tuple[tuple[int, ...], np.dtype, HostActions]:
    """Shape and type of the observations, and what one can do; the engine is closed if they are of no use."""
    from gymnasium.spaces import Box

    seen = engine.single_observation_space
    try:
        actions = actions_of(env_id, engine.single_action_space)
        if not isinstance(seen, Box):
            remedy = "choose the engine gymnasium, or wrap it in a gymnasium.ObservationWrapper and register that"
            raise unsuited(f"environment {env_id}, observations", seen, "numbers, as many in every step", remedy)
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
