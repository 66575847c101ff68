"""Algorithms: IRLEED, its special cases and baselines.

- `tabular`: IRLEED in a finite MDP; maximum-entropy IRL is its special case.
- `iq`: IRLEED with networks on inverse soft Q-learning; IQ-Learn is its special case.
- `baselines`: behaviour cloning, ILEED and SQIL. `experts`: agents trained on the true reward.
- `base` and `agent` have the interfaces of algorithms on networks, `training` the loops.
"""

from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractAlgorithm, AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed, Sqil
from irleed.algorithms.iq import OfflineIrleed, OnlineIrleed, SacIrleed
from irleed.algorithms.tabular.irleed import Irleed

__all__ = [
    "AbstractAgent",
    "AbstractAlgorithm",
    "AbstractOffline",
    "BehaviourCloning",
    "Ileed",
    "Irleed",
    "OfflineIrleed",
    "OnlineIrleed",
    "SacIrleed",
    "Sqil",
]
