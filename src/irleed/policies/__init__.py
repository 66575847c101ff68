"""Policies: how a fitted policy acts, is saved and is loaded.

- `Policy` is the interface; `TabularPolicy` and `EnsemblePolicy` are the two kinds, `load_policy` reads either.
- `Actor` and `EnsembleActor` are policies inside traced functions, see `irleed.policies.base`.
"""

from pathlib import Path

from irleed.policies import ensemble, tabular
from irleed.policies.base import AbstractActor, Actor, EnsembleActor, Policy, read_format
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy, boltzmann_probabilities

__all__ = [
    "AbstractActor", "Actor", "EnsembleActor", "EnsemblePolicy", "Policy", "TabularPolicy", "boltzmann_probabilities",
    "load_policy",
]  # fmt: skip

KINDS: dict[str, type[Policy]] = {
    tabular.FORMAT: TabularPolicy,
    **dict.fromkeys(ensemble.FORMATS, EnsemblePolicy),
}


def load_policy(path: str | Path) -> Policy:
    """Load a policy that `Policy.save` wrote; no code is run."""
    return KINDS[read_format(path, tuple(KINDS))].load(path)
