"""Inverse reinforcement learning by estimating the expertise of demonstrators."""

from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.analysis.curation import Curation, curate
from irleed.analysis.validation import validate
from irleed.data import Demonstrations, Episode, load, save, summarise
from irleed.envs.mdp import FiniteMDP, Gridworld, from_gymnasium, gridworld, load_mdp, paper_gridworld, save_mdp
from irleed.errors import ConfigError, DataError, DivergedError, IrleedError, SpaceError
from irleed.export import export
from irleed.fit.door import fit
from irleed.fit.evaluate import evaluate
from irleed.fit.result import Fit
from irleed.model.demonstrators import Demonstrators, Prior
from irleed.model.expertise import Expertise
from irleed.policies import EnsemblePolicy, Policy, TabularPolicy, load_policy
from irleed.report.page import report
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.results import Agreement, Validation
from irleed.simulation.mdp import Truth, simulate

__version__ = "0.1.0"

__all__ = [
    "Agreement",
    "Averaged",
    "ConfigError",
    "Curation",
    "DataError",
    "Demonstrations",
    "Demonstrators",
    "DivergedError",
    "EnsemblePolicy",
    "Episode",
    "Expertise",
    "FiniteMDP",
    "Fit",
    "Gridworld",
    "Irleed",
    "IrleedError",
    "Policy",
    "Prior",
    "ReturnEstimate",
    "Soft",
    "SpaceError",
    "TabularPolicy",
    "Truth",
    "Validation",
    "curate",
    "evaluate",
    "export",
    "fit",
    "from_gymnasium",
    "gridworld",
    "load",
    "load_mdp",
    "load_policy",
    "paper_gridworld",
    "report",
    "save",
    "save_mdp",
    "simulate",
    "summarise",
    "validate",
]
