"""Inverse reinforcement learning by estimating the expertise of demonstrators."""

from irleed.data import Demonstrations, Episode, load, save, summarise
from irleed.demonstrator import Demonstrators, Prior
from irleed.door import fit
from irleed.envs.gridworld import Gridworld, gridworld, paper_gridworld
from irleed.envs.mdp import FiniteMDP
from irleed.envs.mdp_files import load_mdp, save_mdp
from irleed.envs.toy_text import from_gymnasium
from irleed.errors import ConfigError, DataError, DivergedError, IrleedError, SpaceError
from irleed.expertise import Expertise
from irleed.fit import Fit
from irleed.fit_networks import NetworkFit, fit_networks
from irleed.iq.ensemble import NetworkPolicy
from irleed.iq.saved import load_policy
from irleed.policy import TabularPolicy
from irleed.simulate import Truth, simulate
from irleed.tabular.irleed import Irleed
from irleed.tabular.planning import Averaged, Soft

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
