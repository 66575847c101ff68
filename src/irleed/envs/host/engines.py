"""What makes many lanes of an environment: Gymnasium, envpool or ALE; and what is said when one of them cannot."""

import functools
import importlib
import warnings
from typing import Any

import numpy as np

from irleed._io import text as _text
from irleed._typing import Bool
from irleed.errors import ConfigError

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
