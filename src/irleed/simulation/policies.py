"""Policies with continuous actions from files; `policies/README.md` says how those of the package were made."""

import importlib.resources
import math
from pathlib import Path

from irleed.algorithms.base import Actions
from irleed.errors import DataError, SpaceError, problem
from irleed.policies.gaussian import GaussianEnsemble

SHIPPED = tuple(f"hopper_{name}" for name in ("a", "b", "c", "iq_a", "iq_b", "iq_c"))


def load_policy(name: str | Path) -> GaussianEnsemble:
    """A policy that comes with the package, by its name; or one from a file."""
    if name in SHIPPED:
        folder = importlib.resources.files("irleed.simulation") / "weights" / "policies"
        with importlib.resources.as_file(folder / f"{name}.safetensors") as path:
            return GaussianEnsemble.load(path)
    if not Path(name).is_file():
        expected = f"a saved policy, or one of {', '.join(SHIPPED)}"
        raise DataError(
            problem(f"policy {name}", got="no such file", expected=expected, remedy="make one with irleed expert")
        )
    return GaussianEnsemble.load(name)


def check_fit(policy: GaussianEnsemble, name: str, shape: tuple[int, ...], actions: Actions, env_id: str) -> None:
    """Refuse a policy that was made for other observations or actions than an environment's."""
    size = policy.actor.squashing.middle.shape[-1]
    needs = (math.prod(shape), actions if isinstance(actions, int) else actions.size)
    if (math.prod(policy.observation_shape), size) != needs:
        got = f"{math.prod(policy.observation_shape)} inputs and {size} numbers an action"
        expected = f"{needs[0]} inputs and {needs[1]} numbers an action"
        raise SpaceError(problem(f"policy {name}", got=got, expected=expected, remedy=f"name one for {env_id}"))
