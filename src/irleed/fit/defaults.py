"""The algorithm that suits a method's name, the data and the purpose."""

import dataclasses
from typing import Literal

from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed, Sqil
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed, SacIrleed
from irleed.algorithms.tabular.curvature import Probed, Written
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import AbstractPlanner
from irleed.envs.mdp import FiniteMDP

Algorithm = AbstractOffline | AbstractAgent
Method = Literal["irleed", "iq", "ileed", "bc", "sqil"]
Ends = Literal["neutral", "failure"]  # whether early termination counts as failure
# Up to this many features Hessians are computed; beyond, only their products with vectors are.
DENSE_FEATURES = 512
# There, traces are estimated, and a fit stops when a step would gain less than this in log posterior.
LARGE_TOLERANCE = 1.0


def network_algorithm(
    method: Method = "irleed",
    *,
    continuous: bool = False,
    online: bool = False,
    ends: Ends = "neutral",
    steps: int | None = None,
) -> Algorithm:
    """The algorithm of a method for networks, with its default settings.

    **Arguments:**

    - `continuous`: whether actions are vectors of numbers, see `irleed.data.transitions.are_choices`.
    - `online`: whether IRLEED and IQ-Learn act in an environment.
    - `ends`: whether early termination counts as failure, for IRLEED and IQ-Learn.
    - `steps`: instead of the algorithm's own.
    """
    held = IQ_LEARN if method == "iq" else {}
    if method == "sqil":
        found: Algorithm = Sqil()
    elif method in ("ileed", "bc"):
        kind = Ileed if method == "ileed" else BehaviourCloning
        found = kind.continuous() if continuous else kind()
    elif continuous and online:
        found = SacIrleed(ends=ends, **held)
    elif continuous:
        found = OfflineIrleed.continuous(**held)
    elif online:
        found = OnlineIrleed.failure() if ends == "failure" else OnlineIrleed()
        found = dataclasses.replace(found, learner=dataclasses.replace(found.learner, **held))
    else:
        found = OfflineIrleed.failure(**held) if ends == "failure" else OfflineIrleed(**held)
    return found if steps is None else dataclasses.replace(found, steps=steps)


def tabular_algorithm(
    mdp: FiniteMDP, planner: AbstractPlanner, *, maxent: bool = False, anonymous: bool = False
) -> Irleed:
    """IRLEED, or maximum-entropy IRL, for an MDP; `anonymous` if each episode has a demonstrator of its own."""
    make = Irleed.maxent if maxent else Irleed.anonymous if anonymous else Irleed
    if mdp.feature_count <= DENSE_FEATURES:
        return make(planner=planner, curvature=Written())
    return make(planner=planner, curvature=Probed(), tolerance=LARGE_TOLERANCE)
