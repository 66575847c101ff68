"""Policies of any kind, from their files."""

from pathlib import Path

from irleed.policies import ensemble, tabular
from irleed.policies.base import Policy, read_format

KINDS: dict[str, type[Policy]] = {
    tabular.FORMAT: tabular.TabularPolicy,
    **dict.fromkeys(ensemble.FORMATS, ensemble.EnsemblePolicy),
}


def load_policy(path: str | Path) -> Policy:
    """Read what the `save` of any policy wrote; no code is run."""
    return KINDS[read_format(path, tuple(KINDS))].load(path)
