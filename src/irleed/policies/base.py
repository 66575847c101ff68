"""The interface of policies, and the files that they are saved in."""

import abc
import json
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from irleed._io import beside
from irleed._typing import Array, Float
from irleed.envs.step import Actions
from irleed.errors import DataError, SpaceError, problem


class Policy(eqx.Module):
    """What a fit returns: it acts, says how likely actions are, and is saved to a file; see `irleed.load_policy`."""

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation; of states of an MDP, which are their numbers, ``()``."""

    @property
    @abc.abstractmethod
    def actions(self) -> Actions:
        """The number of discrete actions, or the bounds of vectors."""

    @abc.abstractmethod
    def predict(
        self, observation: ArrayLike | int, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.generic, None]:
        """Greedy (`deterministic`) or sampled actions for one observation or a batch, and None as a recurrent state.

        The signature is that of Stable-Baselines3.
        """

    @abc.abstractmethod
    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """The log probability, or log density, of each action of a batch."""

    @abc.abstractmethod
    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""

    @classmethod
    @abc.abstractmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read what `save` wrote."""


def checked_actions(action: ArrayLike, actions: Actions) -> np.ndarray:
    """A batch of actions: int64 numbers, or float32 vectors along the last axis; others than these are refused."""
    found, remedy = np.asarray(action), "use the data that the policy was fitted to"
    if not isinstance(actions, int):
        vectors = found.reshape(len(found), -1)
        if vectors.shape[1] != actions.size:
            got, expected = f"shape {found.shape[1:]}", f"{actions.size} numbers, the policy's"
            raise SpaceError(problem("actions", got=got, expected=expected, remedy=remedy))
        return vectors.astype(np.float32)
    if found.ndim != 1 or not np.all(found == np.floor(found)):
        got = f"shape {found.shape[1:]}, {found.dtype}"
        raise SpaceError(problem("actions", got=got, expected="one whole number each", remedy=remedy))
    bad = found[(found < 0) | (found >= actions)]
    if bad.size:
        expected = f"0 to {actions - 1}, the policy's"
        raise SpaceError(problem("actions", got=bad[0], expected=expected, remedy=remedy))
    return found.astype(np.int64)


def write_tensors(path: str | Path, header: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file with a line of JSON, whole or not at all."""
    with beside(Path(path)) as file:
        file.write(save(arrays, metadata={"irleed": json.dumps(header)}))


def read_tensors(
    path: str | Path, forms: Sequence[str], names: Sequence[str] = ()
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Header and arrays of what `write_tensors` wrote; other formats, or one without these names, are refused."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("irleed", "{}"))
            found = header.get("format") if isinstance(header, dict) else None
            if found not in forms:
                expected = " or ".join(forms)
                raise DataError(problem(str(path), got=found, expected=expected, remedy="name a saved policy"))
            return header, {name: file.get_tensor(name) for name in {*names, *file.keys()}}
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise DataError(
            problem(str(path), got=str(error), expected="a saved policy", remedy="name another file")
        ) from error
