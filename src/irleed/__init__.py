"""Inverse reinforcement learning by estimating the expertise of demonstrators."""

from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.data import Demonstrations, Episode, load, save, summarise
from irleed.envs.gridworld import Gridworld, gridworld, paper_gridworld
from irleed.envs.mdp import FiniteMDP
from irleed.envs.mdp_files import load_mdp, save_mdp
from irleed.envs.toy_text import from_gymnasium
from irleed.errors import ConfigError, DataError, DivergedError, IrleedError, SpaceError
from irleed.fit.door import fit
from irleed.fit.networks import NetworkFit, fit_networks
from irleed.fit.tabular import Fit
from irleed.model.demonstrators import Demonstrators, Prior
from irleed.model.expertise import Expertise
from irleed.policies.base import TabularPolicy
from irleed.policies.ensemble import NetworkPolicy
from irleed.policies.files import load_policy
from irleed.simulation.mdp import Truth, simulate

__version__ = "0.1.0"

__all__ = [
    "Averaged",
    "ConfigError",
    "DataError",
    "Demonstrations",
    "Demonstrators",
    "DivergedError",
    "Episode",
    "Expertise",
    "FiniteMDP",
    "Fit",
    "Gridworld",
    "Irleed",
    "IrleedError",
    "NetworkFit",
    "NetworkPolicy",
    "Prior",
    "Soft",
    "SpaceError",
    "TabularPolicy",
    "Truth",
    "fit",
    "fit_networks",
    "from_gymnasium",
    "gridworld",
    "load",
    "load_mdp",
    "load_policy",
    "paper_gridworld",
    "save",
    "save_mdp",
    "simulate",
    "summarise",
]
