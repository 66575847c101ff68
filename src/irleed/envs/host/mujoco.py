"""Robots of MuJoCo, many lanes at a time in C++ threads: what Gymnasium's environments do, to the last bit.

The models are those that Gymnasium ships. MuJoCo steps all lanes in one call, and keeps for each what the next step
depends on, the solver's last solution included; all else is NumPy over lanes. Only the lanes whose episode has ended
are gone through one by one, and Ant's for the forces on its body, which MuJoCo hands out in no other way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from irleed._typing import Bool, Float
from irleed.envs.host.engines import imported, unmade

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
