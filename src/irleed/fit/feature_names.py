"""Names of the numbers in an observation, and of regions of situations by them."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.text import name
from irleed._typing import Float
from irleed.errors import ConfigError
from irleed.fit.regions import Region
from irleed.runs.directory import content

MOST_BYTES = 1 << 24  # of a file of names
FINEST = 1e-3  # of a feature's standard deviation, to which its thresholds are said
FLAG = "--feature-names"
LANDER = "x", "y", "x velocity", "y velocity", "angle", "angular velocity", "left leg touches", "right leg touches"
KNOWN = {  # by the beginning of a Gymnasium id, as its documentation calls them
    "CartPole-": ("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    "MountainCar": ("position", "velocity"),
    "Acrobot-": (
        "cosine of angle 1", "sine of angle 1", "cosine of angle 2", "sine of angle 2", "angular velocity 1",
        "angular velocity 2",
    ),
    "Pendulum-": ("x", "y", "angular velocity"),
    "LunarLander": LANDER,
}  # fmt: skip


def feature_names(given: Sequence[str] | str | Path | None, env: Any, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names as they are given, in a list or in a file, or those of a known environment; none where nobody knows."""
    count = math.prod(shape)
    if given is None:
        known = next((names for start, names in KNOWN.items() if isinstance(env, str) and env.startswith(start)), ())
        return known if len(known) == count else ()
    where = f"{FLAG} {given}" if isinstance(given, str | Path) else FLAG
    names = _read(Path(given), where) if isinstance(given, str | Path) else list(given)
    if not all(isinstance(each, str) and each.strip() for each in names):
        raise ConfigError(where, got="an empty name, or none", expected="texts", remedy="name every number")
    if len(names) != count:
        expected = f"{count}, one for each number in an observation"
        raise ConfigError(where, got=f"{len(names)} names", expected=expected, remedy="name them in their order")
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise ConfigError(where, got=f"{name(twice)!r} twice", expected="different names", remedy="rename one")
    return tuple(name(each.strip()) for each in names)


def _read(path: Path, where: str) -> list[Any]:
    """A JSON list, or the lines of a file."""
    remedy = "name a file with a JSON list of names, or one name a line"
    try:
        text = content(path, MOST_BYTES, remedy).decode("utf-8").strip()
        found = json.loads(text) if text.startswith(("[", "{")) else text.splitlines()
    except (ValueError, RecursionError) as error:
        raise ConfigError(where, got=str(error), expected="names as UTF-8 text", remedy=remedy) from error
    if not isinstance(found, list):
        raise ConfigError(where, got="a JSON object", expected="a JSON list", remedy=remedy)
    return found


def named(region: Region, features: Sequence[str], values: Float[np.ndarray, "N F"], shape: tuple[int, ...]) -> str:
    """The thresholds of a region in words; features without names are entries of ``obs``."""
    said = []
    for number, (low, high) in region.bounds.items():
        place = ", ".join(map(str, np.unravel_index(number, shape))) if len(shape) else ""
        feature = features[number] if features else f"obs[{place}]" if place else "obs"
        inside, finest = np.unique(values[region.contains(values), number]), FINEST * float(values[:, number].std())
        if len(inside) == 1:
            said.append(f"{feature} = {_short(inside[0], finest)}")
        elif math.isinf(low):
            said.append(f"{feature} below {_short(high, finest)}")
        elif math.isinf(high):
            said.append(f"{feature} at least {_short(low, finest)}")
        else:
            said.append(f"{feature} from {_short(low, finest)} to {_short(high, finest)}")
    return ", ".join(said) or "all situations"


def _short(value: float, finest: float) -> str:
    """A number with as many digits as it takes to be exact to `finest`."""
    words = (f"{value:.{digits}g}" for digits in range(3, 16))
    return next((each for each in words if abs(float(each) - value) <= finest), f"{value:.15g}")
