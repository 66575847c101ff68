"""Policies of any kind, from their files."""

from pathlib import Path

from irleed.policies import base as tabular
from irleed.policies import ensemble
from irleed.policies import gaussian as gaussian_ensemble
from irleed.policies.base import TabularPolicy, read_format
from irleed.policies.ensemble import NetworkPolicy
from irleed.policies.gaussian import GaussianEnsemble

Policy = TabularPolicy | NetworkPolicy | GaussianEnsemble
KINDS: dict[str, type[TabularPolicy] | type[NetworkPolicy] | type[GaussianEnsemble]] = {
    tabular.FORMAT: TabularPolicy,
    ensemble.FORMAT: NetworkPolicy,
    gaussian_ensemble.FORMAT: GaussianEnsemble,
}


def load_policy(path: str | Path) -> Policy:
    """Read what the `save` of any policy wrote; no code is run."""
    return KINDS[read_format(path, tuple(KINDS))].load(path)
