"""Lanes of environments on the host that step together: of Gymnasium, envpool, ALE and MuJoCo; and their actions."""

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from irleed._io import text as _text
from irleed._typing import Bool, Float
from irleed.envs.step import Bounds
from irleed.errors import ConfigError, SpaceError

LONGEST = 1_000  # characters of what an error of an environment says


def gymnasium_lanes(env_id: str, lanes: int, mode: str, options: dict[str, Any]) -> Any:
    """Lanes of Gymnasium's, one after another in this process; observations that are not a Box become a vector."""
    import gymnasium
    from gymnasium.error import DependencyNotInstalled

    if env_id.startswith("ALE/"):
        imported("ale_py", env_id, "envs")  # its import is what makes the names known
    try:
        known = {
            "disable_env_checker": True,
            **options,
            "wrappers": [*(options.get("wrappers") or ()), _flat, _able_to_rest],
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is out of date")  # what is too old to work is refused with an error
            return gymnasium.make_vec(env_id, lanes, "sync", {"autoreset_mode": mode}, **known)
    except DependencyNotInstalled as error:
        raise _missing(env_id, error, "envs") from error
    except Exception as error:  # an environment's own code runs here: it may raise anything
        raise unmade(env_id, error, "check name and options; gymnasium.pprint_registry() lists the names") from error


def rest(engine: Any, resting: Bool[np.ndarray, " L"]) -> None:
    """Spare `gymnasium_lanes` the steps of lanes that nobody looks at any more, until they are reset."""
    for env, one in zip(engine.envs, resting, strict=True):
        env.resting = bool(one)


def envpool_lanes(env_id: str, lanes: int, seed: int, options: dict[str, Any]) -> Any:
    """Lanes of envpool's."""
    envpool = imported("envpool", env_id, "envpool")
    if env_id not in envpool.list_all_envs():
        raise unmade(env_id, "a name that envpool does not know", "envpool.list_all_envs() lists those that it does")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # bounds of a space that single precision rounds
            made = envpool.make(env_id, env_type="gymnasium", num_envs=lanes, seed=seed, **options)
            made.single_observation_space  # noqa: B018  made, and kept, on first sight
        return made
    except Exception as error:
        raise unmade(env_id, error, "check the options") from error


def ale_lanes(env_id: str, lanes: int, mode: str, options: dict[str, Any]) -> Any:
    """Lanes of ALE's own vector environment."""
    import gymnasium

    ale_py = imported("ale_py", env_id, "envs")
    named = gymnasium.registry.get(env_id)
    game = env_id if named is None else named.kwargs.get("game")
    if game not in ale_py.roms.get_all_rom_ids():
        raise unmade(env_id, "a game that ALE does not have", "write it as pong, ms_pacman or ALE/MsPacman-v5")
    try:
        return ale_py.AtariVectorEnv(game, lanes, autoreset_mode=mode, **{"reward_clipping": False, **options})
    except Exception as error:
        raise unmade(env_id, error, "check the options") from error


def observation_dtype(space: Any) -> np.dtype:
    """Images stay as small as they are; all other observations are in single precision."""
    return np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)


def one_line(error: BaseException) -> str:
    """The kind of an error and what it says, whatever its own message looks like."""
    return _text.one_line(f"{type(error).__name__}: {error}", LONGEST)


def _flat(env: Any) -> Any:
    """The environment with its observations as one vector, where they are something else than a Box and can be."""
    from gymnasium.spaces import Box, flatdim, flatten
    from gymnasium.wrappers import TransformObservation

    space = env.observation_space
    if isinstance(space, Box) or not _can_be_flat(space):
        return env
    vector = Box(-np.inf, np.inf, (flatdim(space),), np.float32)
    return TransformObservation(env, lambda obs: np.asarray(flatten(space, obs), np.float32), vector)


def _able_to_rest(env: Any) -> Any:
    """The environment, which can be told to rest."""
    return _rests()(env)


@functools.cache
def _rests() -> Any:
    from gymnasium import Wrapper

    class Rests(Wrapper):
        """While it rests, a step does nothing, and shows what the last one showed; a reset wakes it."""

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

    return Rests


def _can_be_flat(space: Any) -> bool:
    """Whether there is a vector of fixed length that a network could read: a text has one, but of letters' numbers."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        return all(_can_be_flat(part) for part in parts)
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete)


def imported(module: str, env_id: str, extra: str) -> Any:
    """A library that not every user needs, or an error that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(env_id, error, extra) from error


def _missing(env_id: str, error: Exception, extra: str) -> ConfigError:
    return ConfigError(
        f"environment {env_id}",
        got=one_line(error),
        expected="what it needs to be installed",
        remedy=f"pip install 'irleed[{extra}]'",
    )


def unmade(env_id: str, reason: Exception | str, remedy: str) -> ConfigError:
    """What is said of an environment that an engine cannot make."""
    got = reason if isinstance(reason, str) else one_line(reason)
    return ConfigError(f"environment {env_id}", got=got, expected="one that the engine can make", remedy=remedy)


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


Positions = Float[np.ndarray, "L nq"]
Velocities = Float[np.ndarray, "L nv"]
Observations = Float[np.ndarray, "l O"]  # of all lanes, or of some
Rewards = Float[np.ndarray, " L"]
Flags = Bool[np.ndarray, " L"]
TIME_LIMIT = 1000
CONTACT_COST, STRONGEST = 5e-4, 1.0  # of forces and torques from outside, which are cut off at the second


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
    """What Gymnasium makes of a model. The reward is speed + 1 while it stands, less costs."""

    model: str  # the file
    frames: int  # steps of the physics in one of the environment
    control_cost: float  # of the square of an action
    noise: float  # of the beginning of an episode
    normal_velocities: bool  # its distribution, which is uniform for positions
    stands: Callable[[Positions, Velocities], Flags] | None  # the task ends when it does not
    hidden: int = 1  # positions that are not seen: how far it has come
    fastest: float = np.inf  # velocities are seen up to this
    touch: bool = False  # Ant: forces from outside are seen and cost; speed is that of its body's frame


TASKS = {
    "Hopper-v5": Task("hopper.xml", 4, 1e-3, 5e-3, False, _hopper_stands, fastest=10.0),
    "Walker2d-v5": Task("walker2d_v5.xml", 4, 1e-3, 5e-3, False, _walker_stands, fastest=10.0),
    "HalfCheetah-v5": Task("half_cheetah.xml", 5, 0.1, 0.1, True, None),
    "Ant-v5": Task("ant.xml", 5, 0.5, 0.1, True, _ant_stands, hidden=2, touch=True),
}


class MujocoLanes:
    """L lanes of a task, with the few things that `HostEnv` asks of an engine that resets in the same step.

    Lane k begins as Gymnasium's environment does after ``reset(seed=seed + k)``, and draws on from there as it would.
    """

    def __init__(self, env_id: str, lanes: int, threads: int, limit: int) -> None:
        from gymnasium.spaces import Box

        mujoco, batch = (imported(name, env_id, "envs") for name in ("mujoco", "mujoco.batch"))
        self._task, self._limit, self._mujoco = TASKS[env_id], limit, mujoco
        self._model = _loaded(mujoco, self._task.model)
        task, model = self._task, self._model
        # One MjData for each lane, not for each thread, is what leaves contacts to be looked at after a step.
        self._batch: Any = batch.Batch(model, lanes, threads, persistent=task.touch)
        self._data = mujoco.MjData(model)  # to look at one lane
        self._everything = np.arange(lanes)
        self._elapsed = np.zeros(lanes, int)
        self._forces = np.zeros((lanes, model.nbody, 6))  # and torques, from outside on every body
        self._randoms: list[np.random.Generator] = []
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        size = model.nq - task.hidden + model.nv + task.touch * self._forces[0, 1:].size
        self.single_action_space = Box(low, high, dtype=np.float32)
        self.single_observation_space = Box(-np.inf, np.inf, (size,), np.float64)

    def reset(self, seed: int | None = None) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in every lane; a seed starts the random numbers over."""
        from gymnasium.utils.seeding import np_random

        if seed is not None or not self._randoms:
            self._randoms = [np_random(None if seed is None else seed + int(lane))[0] for lane in self._everything]
        self._begin(self._everything)
        return self._observe(self._everything), {}

    def step(self, actions: Float[np.ndarray, "L A"]) -> tuple[Observations, Rewards, Flags, Flags, dict[str, Any]]:
        """Take an action in every lane: what Gymnasium's lanes answer; `final_obs` has the last ones of all lanes."""
        task, batch = self._task, self._batch
        before = self._place().copy()
        batch.ctrl = actions
        batch.step(nstep=task.frames)
        speed = (self._place() - before) / (self._model.opt.timestep * task.frames)
        cost = task.control_cost * np.square(actions).sum(1)  # in the precision of the actions, as Gymnasium's
        if task.touch:
            self._look_at_forces()
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
        self._forces[lanes] = 0  # Gymnasium shows none at the beginning
        self._elapsed[lanes] = 0

    def _place(self) -> Float[np.ndarray, " L"]:
        """How far it has come. A frame is where the physics last looked at it, a little behind the position."""
        return self._batch.xpos[:, 1, 0] if self._task.touch else self._batch.qpos[:, 0]

    def _observe(self, lanes: np.ndarray) -> Observations:
        task, batch = self._task, self._batch
        seen = [batch.qpos[lanes, task.hidden :], np.clip(batch.qvel[lanes], -task.fastest, task.fastest)]
        if task.touch:
            seen.append(self._forces[lanes, 1:].reshape(len(lanes), -1))  # all but those on the world
        return np.concatenate(seen, 1)

    def _look_at_forces(self) -> None:
        """As they were when the physics last looked at the contacts, a little behind the position too."""
        for lane in self._everything:
            self._batch.get_data(lane, self._data)
            self._mujoco.mj_rnePostConstraint(self._model, self._data)
            self._forces[lane] = self._data.cfrc_ext
        np.clip(self._forces, -STRONGEST, STRONGEST, out=self._forces)


def mujoco_lanes(env_id: str, lanes: int, threads: int, options: dict[str, Any]) -> MujocoLanes:
    """Lanes of a robot of MuJoCo's; 0 threads are as many as there are cores."""
    if env_id not in TASKS:
        raise unmade(env_id, "a name that this engine does not know", f"write {', '.join(TASKS)}, or take gymnasium")
    limit = options.get("max_episode_steps", TIME_LIMIT)
    if options.keys() - {"max_episode_steps"} or not isinstance(limit, int) or limit < 1:
        raise unmade(env_id, f"options {options}", "leave all but max_episode_steps, 1 or more, to engine gymnasium")
    return MujocoLanes(env_id, lanes, min(threads, lanes), limit)


def _loaded(mujoco: Any, name: str) -> Any:
    """A model that Gymnasium ships. What MuJoCo has to say about its style would go to a file where one works."""
    path = files("gymnasium").joinpath("envs", "mujoco", "assets", name)
    heard = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    finally:
        mujoco.set_mju_user_warning(heard)
