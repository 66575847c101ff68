"""Policies that come with the package, or from files; `weights/policies/README.md` says how they were made."""

import importlib.resources
import math
from pathlib import Path

from irleed.envs.step import Actions
from irleed.errors import DataError, SpaceError
from irleed.policies.ensemble import EnsemblePolicy

SHIPPED = tuple(f"hopper_{name}" for name in ("a", "b", "c", "iq_a", "iq_b", "iq_c"))


def teacher(name: str | Path) -> EnsemblePolicy:
    """A policy that comes with the package, by its name; or one from a file."""
    if name in SHIPPED:
        folder = importlib.resources.files("irleed.simulation") / "weights" / "policies"
        with importlib.resources.as_file(folder / f"{name}.safetensors") as path:
            return EnsemblePolicy.load(path)
    if not Path(name).is_file():
        expected = f"a saved policy, or one of {', '.join(SHIPPED)}"
        raise DataError(f"policy {name}", got="no such file", expected=expected, remedy="make one with irleed expert")
    return EnsemblePolicy.load(name)


def check_fit(policy: EnsemblePolicy, name: str, shape: tuple[int, ...], actions: Actions, env_id: str) -> None:
    """Refuse a policy that was made for other observations or actions than an environment's."""
    has = _described(math.prod(policy.observation_shape), policy.actions)
    needs = _described(math.prod(shape), actions)
    if has != needs:
        raise SpaceError(f"policy {name}", got=has, expected=needs, remedy=f"name one for {env_id}")


def _described(inputs: int, actions: Actions) -> str:
    kind = f"{actions} discrete actions" if isinstance(actions, int) else f"{actions.size} numbers an action"
    return f"{inputs} inputs and {kind}"
