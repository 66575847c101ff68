"""Policies of any kind, from their files."""

from pathlib import Path

from irleed import policy as tabular
from irleed.iq import ensemble, gaussian_ensemble
from irleed.iq.ensemble import NetworkPolicy
from irleed.iq.gaussian_ensemble import GaussianEnsemble
from irleed.policy import TabularPolicy, read_format

Policy = TabularPolicy | NetworkPolicy | GaussianEnsemble
KINDS: dict[str, type[TabularPolicy] | type[NetworkPolicy] | type[GaussianEnsemble]] = {
    tabular.FORMAT: TabularPolicy,
    ensemble.FORMAT: NetworkPolicy,
    gaussian_ensemble.FORMAT: GaussianEnsemble,
}


def load_policy(path: str | Path) -> Policy:
    """Read what the `save` of any policy wrote; no code is run."""
    return KINDS[read_format(path, tuple(KINDS))].load(path)
