"""Lanes of environments on the host that step together: of Gymnasium, envpool, ALE and MuJoCo; and their actions."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from irleed._io.text import one_line
from irleed._typing import Bool, Float
from irleed.envs.step import Bounds
from irleed.errors import ConfigError, SpaceError, library

LONGEST = 1_000  # characters of what an error of an environment says


def gymnasium_lanes(env_id: str, lanes: int, mode: str, options: dict[str, Any]) -> Any:
    """Lanes of Gymnasium, stepped one after another; observations that are not a Box become a vector."""
    import gymnasium
    from gymnasium.error import DependencyNotInstalled

    if env_id.startswith("ALE/"):
        library("ale_py", "envs", f"environment {env_id}")  # its import registers the names
    try:
        known = {
            "disable_env_checker": True,
            **options,
            "wrappers": [*(options.get("wrappers") or ()), _flat, _skippable],
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is out of date")  # versions that are too old raise an error
            return gymnasium.make_vec(env_id, lanes, "sync", {"autoreset_mode": mode}, **known)
    except DependencyNotInstalled as error:
        expected, remedy = "what it needs to be installed", "pip install 'irleed[envs]'"
        raise ConfigError(f"environment {env_id}", error_line(error), expected, remedy) from error
    except Exception as error:  # an environment's own code runs here: it may raise anything
        raise cannot_make(
            env_id, error, "check name and options; gymnasium.pprint_registry() lists the names"
        ) from error


def rest(engine: Any, resting: Bool[np.ndarray, " L"]) -> None:
    """Skip the steps of lanes of `gymnasium_lanes` whose results are not needed, until they are reset."""
    for env, one in zip(engine.envs, resting, strict=True):
        env.resting = bool(one)


def envpool_lanes(env_id: str, lanes: int, seed: int, options: dict[str, Any]) -> Any:
    """Lanes of envpool."""
    envpool = library("envpool", "envpool", f"environment {env_id}")
    if env_id not in envpool.list_all_envs():
        raise cannot_make(
            env_id, "a name that envpool does not know", "envpool.list_all_envs() lists those that it does"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # bounds of a space that single precision rounds
            made = envpool.make(env_id, env_type="gymnasium", num_envs=lanes, seed=seed, **options)
            made.single_observation_space  # noqa: B018  computed and cached on first access
        return made
    except Exception as error:
        raise cannot_make(env_id, error, "check the options") from error


def ale_lanes(env_id: str, lanes: int, mode: str, options: dict[str, Any]) -> Any:
    """Lanes of the vector environment of ALE."""
    import gymnasium

    ale_py = library("ale_py", "envs", f"environment {env_id}")
    named = gymnasium.registry.get(env_id)
    game = env_id if named is None else named.kwargs.get("game")
    if game not in ale_py.roms.get_all_rom_ids():
        raise cannot_make(env_id, "a game that ALE does not have", "write it as pong, ms_pacman or ALE/MsPacman-v5")
    try:
        return ale_py.AtariVectorEnv(game, lanes, autoreset_mode=mode, **{"reward_clipping": False, **options})
    except Exception as error:
        raise cannot_make(env_id, error, "check the options") from error


def observation_dtype(space: Any) -> np.dtype:
    """Images stay uint8; all other observations are in single precision."""
    return np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)


def error_line(error: BaseException) -> str:
    """Type and message of an error on one line."""
    return one_line(f"{type(error).__name__}: {error}", LONGEST)


def _flat(env: Any) -> Any:
    """The environment with its observations flattened to a vector, if they are not a Box and can be."""
    from gymnasium.spaces import Box, flatdim, flatten
    from gymnasium.wrappers import TransformObservation

    space = env.observation_space
    if isinstance(space, Box) or not _can_be_flat(space):
        return env
    vector = Box(-np.inf, np.inf, (flatdim(space),), np.float32)
    return TransformObservation(env, lambda obs: np.asarray(flatten(space, obs), np.float32), vector)


def _skippable(env: Any) -> Any:
    """The environment with an attribute `resting`: while it is set, a step returns the last observation."""
    return _resting_wrapper()(env)


@functools.cache
def _resting_wrapper() -> Any:
    from gymnasium import Wrapper

    class RestingWrapper(Wrapper):
        """Steps that do nothing while `resting` is set, for lanes whose episodes are done."""

        resting, _last = False, None

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            self.resting = False
            self._last, info = self.env.reset(**options)
            return self._last, info

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            if self.resting:
                return self._last, 0.0, False, False, {}
            self._last, reward, terminated, truncated, info = self.env.step(action)
            return self._last, reward, terminated, truncated, info

    return RestingWrapper


def _can_be_flat(space: Any) -> bool:
    """Whether a space flattens to a vector of fixed length that a network can use; a text, for one, does not."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return all(_can_be_flat(part) for part in parts)
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete)


def cannot_make(env_id: str, reason: Exception | str, remedy: str) -> ConfigError:
    """The error for an environment that an engine cannot make."""
    got = reason if isinstance(reason, str) else error_line(reason)
    return ConfigError(f"environment {env_id}", got=got, expected="one that the engine can make", remedy=remedy)


ROUNDING = 1e-6  # actions beyond a bound by less than this, relative to it, are clipped


@dataclass(frozen=True)
class HostActions:
    """The action space of an environment, and its form in the engine; made by `actions_of`."""

    where: str
    known: int | Bounds
    first: int  # the number of the first discrete action in the engine; here it is 0
    dtype: np.dtype  # in the engine

    def checked(self, actions: Any, lanes: int) -> np.ndarray:
        """An action for every lane, int32 or float32: engines in C++ do not refuse invalid ones."""
        given = np.asarray(actions)
        if isinstance(self.known, Bounds):
            return self._vectors(given, lanes, self.known)
        return self._choices(given, lanes, self.known)

    def to_engine(self, chosen: np.ndarray) -> np.ndarray:
        """The same actions in the numbering and precision of the engine."""
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
            raise self._refused(got, "a finite number", "look at the policy that chose it: has its training diverged?")
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
    """The actions of a space of Gymnasium, which is Discrete or a bounded Box with one axis."""
    from gymnasium.spaces import Box, Discrete

    where = f"environment {env_id}, actions"
    if isinstance(space, Discrete):
        return HostActions(where, int(space.n), int(space.start), np.dtype(np.int32))
    if not isinstance(space, Box) or len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        expected = "Discrete, or a Box that is one list of real numbers"
        raise unsupported(where, space, expected, "choose another environment, or register one with an ActionWrapper")
    bounds = Bounds(low=space.low.astype(np.float32), high=space.high.astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        width = bounds.high - bounds.low
    if not (np.isfinite(width) & (width > 0)).all():
        remedy = "register it with an ActionWrapper that has bounds"
        raise unsupported(where, space, "finite bounds, the upper above the lower", remedy)
    return HostActions(where, bounds, 0, np.dtype(space.dtype))


def unsupported(where: str, space: Any, expected: str, remedy: str) -> SpaceError:
    """The error for a space that is not supported."""
    return SpaceError(where, got=" ".join(str(space).split()), expected=expected, remedy=remedy)


Positions = Float[np.ndarray, "L nq"]
Velocities = Float[np.ndarray, "L nv"]
Observations = Float[np.ndarray, "l O"]  # of all lanes, or of some
Rewards = Float[np.ndarray, " L"]
Flags = Bool[np.ndarray, " L"]
TIME_LIMIT = 1000
CONTACT_COST, MOST_FORCE = 5e-4, 1.0  # of external forces and torques, which are clipped


def _hopper_stands(qpos: Positions, qvel: Velocities) -> Flags:
    others = np.concatenate([qpos[:, 2:], qvel], 1)
    bounded = ((others > -100) & (others < 100)).all(1)
    return bounded & (qpos[:, 1] > 0.7) & (qpos[:, 1] < np.inf) & (qpos[:, 2] > -0.2) & (qpos[:, 2] < 0.2)


def _walker_stands(qpos: Positions, qvel: Velocities) -> Flags:
    height, angle = qpos[:, 1], qpos[:, 2]
    return (height > 0.8) & (height < 2) & (angle > -1) & (angle < 1)


def _ant_stands(qpos: Positions, qvel: Velocities) -> Flags:
    finite = np.isfinite(qpos).all(1) & np.isfinite(qvel).all(1)
    return finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1)


@dataclass(frozen=True)
class Task:
    """A MuJoCo task of Gymnasium. The reward is forward speed + 1 while the robot is healthy, less costs."""

    model: str  # the file
    frames: int  # physics steps in a step of the environment
    control_cost: float  # of the squared action
    noise: float  # of the initial state
    normal_velocities: bool  # initial velocities are normal instead of uniform
    stands: Callable[[Positions, Velocities], Flags] | None  # the episode terminates when it does not
    hidden: int = 1  # coordinates of the position that are not observed
    fastest: float = np.inf  # observed velocities are clipped to this
    touch: bool = False  # Ant: external forces are observed and cost; speed is that of the frame of its body


TASKS = {
    "Hopper-v5": Task("hopper.xml", 4, 1e-3, 5e-3, False, _hopper_stands, fastest=10.0),
    "Walker2d-v5": Task("walker2d_v5.xml", 4, 1e-3, 5e-3, False, _walker_stands, fastest=10.0),
    "HalfCheetah-v5": Task("half_cheetah.xml", 5, 0.1, 0.1, True, None),
    "Ant-v5": Task("ant.xml", 5, 0.5, 0.1, True, _ant_stands, hidden=2, touch=True),
}


class MujocoLanes:
    """L lanes of a MuJoCo task of Gymnasium in C++ threads, equal to the last bit; they reset in the same step.

    MuJoCo steps all lanes in one call, and keeps for each the state that the next step depends on, the last solution of
    the solver included; all else is NumPy over lanes. Lane k is seeded as by ``reset(seed=seed + k)``.
    """

    def __init__(self, env_id: str, lanes: int, threads: int, limit: int) -> None:
        from gymnasium.spaces import Box

        mujoco, batch = (library(each, "envs", f"environment {env_id}") for each in ("mujoco", "mujoco.batch"))
        self._task, self._limit, self._mujoco = TASKS[env_id], limit, mujoco
        self._model = _loaded(mujoco, self._task.model)
        task, model = self._task, self._model
        # One MjData for each lane, not for each thread, so that contacts can be read after a step.
        self._batch: Any = batch.Batch(model, lanes, threads, persistent=task.touch)
        self._data = mujoco.MjData(model)  # to read one lane
        self._everything = np.arange(lanes)
        self._elapsed = np.zeros(lanes, int)
        self._forces = np.zeros((lanes, model.nbody, 6))  # external forces and torques on every body
        self._randoms: list[np.random.Generator] = []
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        size = model.nq - task.hidden + model.nv + task.touch * self._forces[0, 1:].size
        self.single_action_space = Box(low, high, dtype=np.float32)
        self.single_observation_space = Box(-np.inf, np.inf, (size,), np.float64)

    def reset(self, seed: int | None = None) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every lane; a seed resets the random numbers."""
        from gymnasium.utils.seeding import np_random

        if seed is not None or not self._randoms:
            self._randoms = [np_random(None if seed is None else seed + int(lane))[0] for lane in self._everything]
        self._begin(self._everything)
        return self._observe(self._everything), {}

    def step(self, actions: Float[np.ndarray, "L A"]) -> tuple[Observations, Rewards, Flags, Flags, dict[str, Any]]:
        """Take an action in every lane; returns what Gymnasium's lanes do, with `final_obs` for all lanes."""
        task, batch = self._task, self._batch
        before = self._place().copy()
        batch.ctrl = actions
        batch.step(nstep=task.frames)
        speed = (self._place() - before) / (self._model.opt.timestep * task.frames)
        cost = task.control_cost * np.square(actions).sum(1)  # in the precision of the actions, as in Gymnasium
        if task.touch:
            self._read_forces()
            cost = cost + CONTACT_COST * np.square(self._forces).reshape(len(cost), -1).sum(1)
        if task.stands is None:
            reward, terminated = speed - cost, np.zeros(len(cost), bool)
        else:
            stands = task.stands(batch.qpos, batch.qvel)
            reward, terminated = speed + stands - cost, ~stands
        self._elapsed += 1
        truncated = self._elapsed >= self._limit
        final = self._observe(self._everything)
        obs, over = final.copy(), np.flatnonzero(terminated | truncated)
        if over.size:
            self._begin(over)
            obs[over] = self._observe(over)
        return obs, reward, terminated, truncated, {"final_obs": final}

    def close(self) -> None:
        """End the threads."""
        self._batch = None

    def _begin(self, lanes: np.ndarray) -> None:
        task, model, batch = self._task, self._model, self._batch
        batch.reset(lanes, stage=self._mujoco.mjtStage.mjSTAGE_NONE)
        qpos, qvel = batch.qpos, batch.qvel
        for lane in lanes:
            random = self._randoms[lane]
            qpos[lane] = model.qpos0 + random.uniform(-task.noise, task.noise, model.nq)
            if task.normal_velocities:
                qvel[lane] = task.noise * random.standard_normal(model.nv)
            else:
                qvel[lane] = random.uniform(-task.noise, task.noise, model.nv)
        batch.forward(lanes)
        self._forces[lanes] = 0  # as in Gymnasium
        self._elapsed[lanes] = 0

    def _place(self) -> Float[np.ndarray, " L"]:
        """The forward coordinate. That of a frame is from the last physics step, a little behind the position."""
        return self._batch.xpos[:, 1, 0] if self._task.touch else self._batch.qpos[:, 0]

    def _observe(self, lanes: np.ndarray) -> Observations:
        task, batch = self._task, self._batch
        seen = [batch.qpos[lanes, task.hidden :], np.clip(batch.qvel[lanes], -task.fastest, task.fastest)]
        if task.touch:
            seen.append(self._forces[lanes, 1:].reshape(len(lanes), -1))  # without those on the world
        return np.concatenate(seen, 1)

    def _read_forces(self) -> None:
        """Read the external forces, which MuJoCo computes one lane at a time."""
        for lane in self._everything:
            self._batch.get_data(lane, self._data)
            self._mujoco.mj_rnePostConstraint(self._model, self._data)
            self._forces[lane] = self._data.cfrc_ext
        np.clip(self._forces, -MOST_FORCE, MOST_FORCE, out=self._forces)


def mujoco_lanes(env_id: str, lanes: int, threads: int, options: dict[str, Any]) -> MujocoLanes:
    """Lanes of a MuJoCo robot; 0 threads are one for each core."""
    if env_id not in TASKS:
        raise cannot_make(
            env_id, "a name that this engine does not know", f"write {', '.join(TASKS)}, or take gymnasium"
        )
    limit = options.get("max_episode_steps", TIME_LIMIT)
    if options.keys() - {"max_episode_steps"} or not isinstance(limit, int) or limit < 1:
        raise cannot_make(
            env_id, f"options {options}", "leave all but max_episode_steps, 1 or more, to engine gymnasium"
        )
    return MujocoLanes(env_id, lanes, min(threads, lanes), limit)


def _loaded(mujoco: Any, name: str) -> Any:
    """A model that Gymnasium ships. MuJoCo's warnings would be written to a file in the working directory."""
    path = files("gymnasium").joinpath("envs", "mujoco", "assets", name)
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    finally:
        mujoco.set_mju_user_warning(handler)
