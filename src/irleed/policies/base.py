"""The interface of policies and of actors, which are policies inside traced functions; the files of policies."""

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from safetensors.numpy import save

from irleed._io.arrays import Tensor, read_arrays, read_header, refusing
from irleed._io.files import CHECKSUM, beside, digest
from irleed._io.text import one_line, printable
from irleed._typing import Array, Float, Key, Scalar, Shaped
from irleed.data.conditioning import Conditioning
from irleed.data.transitions import Inputs
from irleed.envs import Actions
from irleed.errors import DataError, SpaceError
from irleed.model.actions import AbstractHead, ActionDistribution, Categorical
from irleed.model.mixed import head_of, outputs_of
from irleed.model.networks import Activation, Mlp


class AbstractActor(eqx.Module):
    """A policy for one observation, as a pytree: a leading axis stacks several actors."""

    @abc.abstractmethod
    def __call__(self, observation: Shaped[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""

    def act(self, key: Key, observation: Shaped[Array, "..."], greedy: bool = False) -> Shaped[Array, "..."]:
        """A sampled or a greedy action in one state."""
        distribution = self(observation)
        return distribution.mode() if greedy else distribution.sample(key)


class Actor(AbstractActor):
    """A network, and the head that maps its outputs to a distribution."""

    network: Callable[[Float[Array, "..."]], Float[Array, " out"]]  # a module of arrays, such as `Mlp`
    head: AbstractHead

    @classmethod
    def init(
        cls,
        key: Key,
        inputs: Inputs,
        actions: Actions,
        hidden: Sequence[int],
        activation: Activation,
        sharpness: Scalar = 1.0,
    ) -> "Actor":
        """A perceptron for these actions; `sharpness` is that of the softmax over discrete actions."""
        return cls(Mlp.init(key, inputs, (*hidden, outputs_of(actions)), activation), head_of(actions, sharpness))

    def __call__(self, observation: Float[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""
        return self.head(self.network(observation))

    def outputs(self, observations: Float[Array, "B ..."]) -> Float[Array, "B out"]:
        """The network's outputs in each state of a batch, for `head`."""
        return jax.vmap(self.network)(observations)

    def batch(self, observations: Float[Array, "B ..."]) -> ActionDistribution:
        """The distributions of actions in each state of a batch."""
        return self.head(self.outputs(observations))


class TableActor(AbstractActor):
    """A table of probabilities; observations are one-hot vectors of states, as host environments give them."""

    probabilities: Float[Array, "S A"]

    def __call__(self, observation: Float[Array, " S"]) -> ActionDistribution:
        """The distribution of actions in one state."""
        return Categorical(jnp.log(self.probabilities[jnp.argmax(observation)]))


class EnsembleActor(AbstractActor):
    """An ensemble of K actors: the mean of log probabilities for discrete actions, of outputs for vectors."""

    members: Actor  # leading axis K
    conditioning: Conditioning | None = None  # of observations, before the members see them

    def __call__(self, observation: Shaped[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""
        seen = observation if self.conditioning is None else self.conditioning(observation)
        return self.members.head.averaged(self.outputs(seen))

    def outputs(self, observation: Shaped[Array, "..."]) -> Float[Array, "K out"]:
        """Each member's outputs for a conditioned observation."""
        return jax.vmap(lambda member: member.network(observation))(self.members)


VERSION = "1"  # of the files of all kinds of policies


class Policy(eqx.Module):
    """A fitted policy: acts, gives likelihoods of actions, and is saved to a file; see `irleed.load_policy`."""

    @property
    @abc.abstractmethod
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation; of states of an MDP, which are their numbers, ``()``."""

    @property
    @abc.abstractmethod
    def actions(self) -> Actions:
        """The number of discrete actions, or the bounds of vectors."""

    @property
    @abc.abstractmethod
    def actor(self) -> AbstractActor:
        """The same policy for traced functions."""

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
        """Load a policy that `save` wrote."""


def checked_actions(action: ArrayLike, actions: Actions) -> np.ndarray:
    """A batch of actions as int64 numbers or float32 vectors; others than the policy's are refused."""
    found, remedy = np.asarray(action), "use the data that the policy was fitted to"
    if not isinstance(actions, int):
        vectors = found.reshape(len(found), -1)
        if vectors.shape[1] != actions.size:
            got, expected = f"shape {found.shape[1:]}", f"{actions.size} numbers, the policy's"
            raise SpaceError("actions", got=got, expected=expected, remedy=remedy)
        return vectors.astype(np.float32)
    if found.ndim != 1 or not np.all(found == np.floor(found)):
        got = f"shape {found.shape[1:]}, {found.dtype}"
        raise SpaceError("actions", got=got, expected="one whole number each", remedy=remedy)
    bad = found[(found < 0) | (found >= actions)]
    if bad.size:
        expected = f"0 to {actions - 1}, the policy's"
        raise SpaceError("actions", got=bad[0], expected=expected, remedy=remedy)
    return found.astype(np.int64)


def write_tensors(path: str | Path, header: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file atomically, with a JSON header that has a checksum of the rest."""
    signed = {**header, CHECKSUM: digest(header, arrays)}
    with beside(Path(path)) as file:
        file.write(save(arrays, metadata={"irleed": json.dumps(signed)}))


def read_tensors(
    path: str | Path,
    forms: Sequence[str],
    check_shapes: Callable[[Mapping[str, Any], Mapping[str, Tensor]], None],
    check_numbers: Callable[[Mapping[str, np.ndarray]], None],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file that `write_tensors` wrote in one of these formats.

    Both checks raise a ValueError; the first is made before any array is read.
    """
    with refusing(path, "a saved policy"):
        header, tensors = _read_header(path, forms)
        check_shapes(header, tensors)
        arrays = read_arrays(path, tensors)
        checksum = header.pop(CHECKSUM, None)  # files of older versions have none
        if checksum is not None and checksum != digest(header, arrays):
            raise ValueError("content that does not match its checksum")
        check_numbers(arrays)
        return header, arrays


def read_format(path: str | Path, forms: Sequence[str]) -> str:
    """The format of a file, one of these."""
    with refusing(path, "a saved policy"):
        return _read_header(path, forms)[0]["format"]


def _read_header(path: str | Path, forms: Sequence[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    header, tensors = read_header(path)
    for key, known, remedy in (
        ("format", forms, "name a saved policy"),
        ("version", (VERSION,), "install a newer irleed to read it, or name another file"),
    ):
        if header.get(key) not in known:
            expected = " or ".join(known)
            got = one_line(header.get(key))
            raise DataError(f"{printable(path)}, {key}", got=got, expected=expected, remedy=remedy)
    return header, tensors
