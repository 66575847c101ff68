"""Environments that run on the host, many lanes at a time: Gymnasium's, envpool's and ALE's.

After an episode has ended, an engine either resets at once and hands over the last observation beside (*same step*),
or shows it and spends the lane's next step on resetting, whatever the action (*next step*). Both are made the one
canonical `Transition` here.
"""

import importlib
import warnings
from typing import Any

import numpy as np

from irleed._typing import Array, Shaped
from irleed.envs.step import Transition
from irleed.errors import ConfigError, SpaceError, problem

ENGINES = ("gymnasium", "envpool", "ale")
MODES = {"same_step": "SameStep", "next_step": "NextStep"}  # what Gymnasium and ALE call them


class HostEnv:
    """L lanes of one environment, stepped together; made by `make_host`.

    Arrays are NumPy's, with the lanes as leading axis. Images stay uint8, all other observations are float32.
    """

    def __init__(self, engine: Any, env_id: str, lanes: int, same_step: bool, seed: int | None) -> None:
        self.observation_shape, self.actions, self._first_action, self._dtype = _spaces(env_id, engine)
        self.env_id, self.lanes = env_id, lanes
        self._engine, self._same_step, self._seed = engine, same_step, seed
        self._obs: np.ndarray | None = None
        self._over = np.zeros(lanes, bool)  # lanes whose next step does nothing but reset

    @property
    def obs(self) -> Shaped[np.ndarray, "L *obs"]:
        """What to act on next. A lane that is about to spend a step on resetting still shows its last observation."""
        return self.reset() if self._obs is None else self._obs

    def reset(self) -> Shaped[np.ndarray, "L *obs"]:
        """Begin an episode in every lane; the first time with the seed, then going on from there."""
        obs, _ = self._engine.reset() if self._seed is None else self._engine.reset(seed=self._seed)
        self._seed = None
        self._obs, self._over = self._seen(obs), np.zeros(self.lanes, bool)
        return self._obs

    def step(self, actions: Shaped[Array, "..."]) -> Transition:
        """Take an action in every lane: L whole numbers from 0."""
        obs, chosen = self.obs, self._checked(actions)
        returned, reward, terminated, truncated, info = self._engine.step(chosen + self._first_action)
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

    def _checked(self, actions: Any) -> np.ndarray:
        """An engine in C++ does not say no to an action that it does not have."""
        chosen = np.asarray(actions)
        if chosen.shape != (self.lanes,) or not np.issubdtype(chosen.dtype, np.integer):
            got = f"{chosen.dtype} of shape {chosen.shape}"
        elif chosen.min() < 0 or chosen.max() >= self.actions:
            got = f"{chosen.min()} to {chosen.max()}"
        else:
            return chosen.astype(np.int32)
        raise SpaceError(
            problem(
                f"environment {self.env_id}, actions",
                got=got,
                expected=f"{self.lanes} whole numbers from 0 to {self.actions - 1}",
                remedy="choose one action for each lane",
            )
        )


def make_host(
    env_id: str,
    lanes: int,
    engine: str = "gymnasium",
    *,
    seed: int = 0,
    autoreset: str | None = None,
    **options: Any,
) -> HostEnv:
    """Make `lanes` copies of an environment with discrete actions.

    **Arguments:**

    - `env_id`: the engine's name for it; for ALE that of the game (`pong`) or Gymnasium's (`ALE/Pong-v5`).
    - `engine`: `gymnasium`, which is always there; `envpool` and `ale`, which are extras.
    - `seed`: of the first lane. The same seed gives the same episodes; engines draw different ones.
    - `autoreset`: how the engine goes about resetting. By default the way that wastes no steps, which envpool lacks.
    - `options`: go to the engine as they are, such as `max_episode_steps` (Gymnasium, envpool).

    ALE's frames are prepared as it does by default (grey, 84 x 84, four stacked, each action repeated four times);
    rewards are left as the game gives them. envpool calls a task that ends in the last step that the clock allows
    truncated, not terminated; nothing in its answer tells the two apart.
    """
    _check(engine, lanes, seed, autoreset)
    same_step = autoreset != "next_step" and engine != "envpool"
    makers = {"gymnasium": _gymnasium, "envpool": _envpool, "ale": _ale}
    made = makers[engine](env_id, lanes, seed, MODES["same_step" if same_step else "next_step"], options)
    # envpool has its seed from the start, and its reset takes none.
    return HostEnv(made, env_id, lanes, same_step, None if engine == "envpool" else seed)


def _gymnasium(env_id: str, lanes: int, seed: int, mode: str, options: dict[str, Any]) -> Any:
    import gymnasium
    from gymnasium.error import DependencyNotInstalled

    if env_id.startswith("ALE/"):
        _imported("ale_py", env_id, "envs")  # its import is what makes the names known
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is out of date")  # what is too old to work is refused with an error
            return gymnasium.make_vec(
                env_id, lanes, "sync", {"autoreset_mode": mode}, **{"disable_env_checker": True, **options}
            )
    except DependencyNotInstalled as error:
        raise _missing(env_id, error, "envs") from error
    except Exception as error:  # an environment's own code runs here: it may raise anything
        raise _unmade(env_id, error, "check name and options; gymnasium.pprint_registry() lists the names") from error


def _envpool(env_id: str, lanes: int, seed: int, mode: str, options: dict[str, Any]) -> Any:
    envpool = _imported("envpool", env_id, "envpool")
    if env_id not in envpool.list_all_envs():
        raise _unmade(env_id, "a name that envpool does not know", "envpool.list_all_envs() lists those that it does")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # bounds of a space that single precision rounds
            made = envpool.make(env_id, env_type="gymnasium", num_envs=lanes, seed=seed, **options)
            made.single_observation_space  # noqa: B018  made, and kept, on first sight
        return made
    except Exception as error:
        raise _unmade(env_id, error, "check the options") from error


def _ale(env_id: str, lanes: int, seed: int, mode: str, options: dict[str, Any]) -> Any:
    import gymnasium

    ale_py = _imported("ale_py", env_id, "envs")
    named = gymnasium.registry.get(env_id)
    game = env_id if named is None else named.kwargs.get("game")
    if game not in ale_py.roms.get_all_rom_ids():
        raise _unmade(env_id, "a game that ALE does not have", "write it as pong, ms_pacman or ALE/MsPacman-v5")
    try:
        return ale_py.AtariVectorEnv(game, lanes, autoreset_mode=mode, **{"reward_clipping": False, **options})
    except Exception as error:
        raise _unmade(env_id, error, "check the options") from error


def _imported(module: str, env_id: str, extra: str) -> Any:
    """A library that not every user needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(env_id, error, extra) from error


def _spaces(env_id: str, engine: Any) -> tuple[tuple[int, ...], int, int, np.dtype]:
    """Shape of an observation, number of actions, what the engine calls the first, type of the observations."""
    from gymnasium.spaces import Box, Discrete

    seen, done = engine.single_observation_space, engine.single_action_space
    if not isinstance(done, Discrete):
        engine.close()
        raise _unsuited(
            f"environment {env_id}, actions", done, "Discrete", "choose an environment with discrete actions"
        )
    if not isinstance(seen, Box):
        engine.close()
        remedy = "wrap it in gymnasium.wrappers.FlattenObservation and register that; tables go by from_gymnasium"
        raise _unsuited(f"environment {env_id}, observations", seen, "a Box of numbers", remedy)
    dtype = np.dtype(np.uint8 if seen.dtype == np.uint8 else np.float32)
    return seen.shape, int(done.n), int(done.start), dtype


def _check(engine: str, lanes: int, seed: int, autoreset: str | None) -> None:
    if engine not in ENGINES:
        raise ConfigError(problem("engine", got=engine, expected=" or ".join(ENGINES), remedy="choose one of them"))
    if lanes < 1:
        raise ConfigError(problem("lanes", got=lanes, expected="1 or more", remedy="choose, say, 8"))
    if seed < 0:
        raise ConfigError(problem("seed", got=seed, expected="0 or more", remedy="choose, say, 0"))
    if autoreset not in (None, *MODES) or (engine, autoreset) == ("envpool", "same_step"):
        possible = "next_step" if engine == "envpool" else " or ".join(MODES)
        raise ConfigError(problem(f"autoreset of {engine}", got=autoreset, expected=possible, remedy="leave it out"))


def _missing(env_id: str, error: Exception, extra: str) -> ConfigError:
    return ConfigError(
        problem(
            f"environment {env_id}",
            got=_one_line(error),
            expected="what it needs to be installed",
            remedy=f"pip install 'irleed[{extra}]'",
        )
    )


def _unmade(env_id: str, reason: Exception | str, remedy: str) -> ConfigError:
    got = reason if isinstance(reason, str) else _one_line(reason)
    return ConfigError(
        problem(f"environment {env_id}", got=got, expected="one that the engine can make", remedy=remedy)
    )


def _unsuited(where: str, space: Any, expected: str, remedy: str) -> SpaceError:
    return SpaceError(problem(where, got=" ".join(str(space).split()), expected=expected, remedy=remedy))


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
