"""Baselines: behaviour cloning and ILEED (the paper's Remark on ILEED) from data alone, SQIL with an environment."""

from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.baselines.ileed import Ileed
from irleed.algorithms.baselines.sqil import Sqil

__all__ = ["BehaviourCloning", "Ileed", "Sqil"]
