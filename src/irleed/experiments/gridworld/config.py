"""Settings of the gridworld experiment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from irleed.envs.mdp import Gridworld, paper_gridworld
from irleed.errors import ConfigError

MAX_PRECISION = (0.4, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
ACCURACY = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 10.0, float("inf"))
DEMONSTRATORS, EPISODES, HORIZON = 5, 40, 100
QUICK = ((1.0, 2.0), (1.0, 4.0), (3.0, 2.0), (3.0, 4.0), (5.0, 2.0), (5.0, 4.0))


@dataclass(frozen=True)
class GridworldConfig:
    """The gridworld experiment: 121 settings of precision and accuracy, IRLEED beside maximum-entropy IRL."""

    out: Path
    """Folder for results.json and the figures."""
    estimator: Literal["map", "published", "both"] = "both"
    """The converged estimate, the paper's protocol step by step, or both on the same data."""
    seeds: int = 100
    """Data sets for each setting."""
    settings: tuple[str, ...] = ()
    """A few settings as precision:accuracy, such as 3:2.5 or 5:inf; all 121 if none is given."""
    planner: Literal["averaged", "soft"] = "averaged"
    """How demonstrators plan: as the released program has it, or by the paper's equations."""
    size: int = 7
    """Rows and columns of the grid."""
    slip: float = 0.0
    """Probability of moving at right angles to where one wanted to go."""
    demonstrator: Literal["known", "episode"] = "known"
    """Whether it is known who demonstrated, or every episode counts as a demonstrator of its own."""
    seed: int = 0
    """Where the random numbers start."""
    lanes: int | None = None
    """Lanes computed at a time; by default what suits the platform."""
    quick: bool = False
    """Six settings and ten seeds of the converged estimate, for a first look."""

    def cells(self) -> list[tuple[float, float]]:
        """The settings to run."""
        if self.settings:
            return [_cell(text) for text in self.settings]
        return list(QUICK) if self.quick else [(p, a) for p in MAX_PRECISION for a in ACCURACY]

    @property
    def runs(self) -> int:
        """Data sets for each setting, as they will be."""
        return 10 if self.quick else self.seeds


def check(config: GridworldConfig) -> Gridworld:
    """The world to run in; refuses settings that cannot be run, before any work or any file depends on them."""
    config.cells()
    lanes = 1 if config.lanes is None else config.lanes
    for name, value, least in (("--seeds", config.runs, 1), ("--size", config.size, 2), ("--lanes", lanes, 1)):
        if value < least:
            raise ConfigError(name, got=value, expected=f"{least} or more", remedy="choose a larger number")
    return paper_gridworld(config.size, config.slip)


def _cell(text: str) -> tuple[float, float]:
    try:
        precision, accuracy = (float(part) for part in text.split(":"))
        if precision > 0 and accuracy > 0 and np.isfinite(precision):
            return precision, accuracy
    except ValueError:
        pass
    raise ConfigError("--settings", got=repr(text), expected="precision:accuracy", remedy="write, say, 3:2.5 or 5:inf")
