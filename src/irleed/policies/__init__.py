"""Policies: what a fit returns, and how it acts, is saved and is read back.

- `Policy` is the interface; `TabularPolicy` and `EnsemblePolicy` are the two kinds, `load_policy` reads either.
- `Actor` and `EnsembleActor` are policies inside traced functions, see `irleed.policies.actor`.
"""

from pathlib import Path

from irleed.policies import ensemble, tabular
from irleed.policies.actor import AbstractActor, Actor, EnsembleActor
from irleed.policies.base import Policy, read_format
from irleed.policies.ensemble import EnsemblePolicy
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

KINDS: dict[str, type[Policy]] = {
    tabular.FORMAT: TabularPolicy,
    **dict.fromkeys(ensemble.FORMATS, EnsemblePolicy),
}


def load_policy(path: str | Path) -> Policy:
    """Read what the `save` of any policy wrote; no code is run."""
    return KINDS[read_format(path, tuple(KINDS))].load(path)
