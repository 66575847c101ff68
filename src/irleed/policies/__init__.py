"""Policies: what a fit returns, and how it acts, is saved and is read back.

- `Policy` is the interface; `TabularPolicy` and `EnsemblePolicy` are the two kinds, `load_policy` reads either.
- `Actor` and `EnsembleActor` are policies inside traced functions, see `irleed.policies.actor`.
"""

from irleed.policies.actor import AbstractActor, Actor, EnsembleActor
from irleed.policies.base import Policy
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.files import load_policy
from irleed.policies.tabular import TabularPolicy, boltzmann_probabilities

__all__ = [
    "AbstractActor",
    "Actor",
    "EnsembleActor",
    "EnsemblePolicy",
    "Policy",
    "TabularPolicy",
    "boltzmann_probabilities",
    "load_policy",
]
