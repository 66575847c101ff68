"""Policies as values: what a fit hands out, and what is saved."""

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from irleed._io.files import CHECKSUM, beside, digest
from irleed._io.safetensors import Tensor, read_arrays, read_header, refusing
from irleed._io.text import one_line, printable
from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.errors import DataError, SpaceError, problem

FORMAT, VERSION = "irleed-tabular-policy", "1"  # the version is that of all kinds of policies
ROUNDING = 1e-4  # how far probabilities in single precision may be from a sum of 1


class TabularPolicy(eqx.Module):
    """Action probabilities in every state of a finite MDP."""

    probabilities: Float[Array, "S A"]

    def predict(
        self, observation: Shaped[Array, "..."] | int, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.integer, None]:
        """Actions for one state or an array of states; the second value is there for callers of Stable-Baselines3."""
        state = np.asarray(observation)
        table = np.asarray(self.probabilities)
        whole = np.issubdtype(state.dtype, np.integer)
        bad = state[(state < 0) | (state >= len(table))] if whole else state.ravel()
        if not whole or bad.size:
            got = bad[0] if whole else f"numbers of type {state.dtype}"
            raise SpaceError(
                problem("observation", got=got, expected=f"states 0 to {len(table) - 1}", remedy="index states")
            )
        if deterministic:
            return table.argmax(-1)[state], None
        draw = np.random.default_rng(seed).random((*state.shape, 1))
        action = (np.cumsum(table, -1)[state] < draw).sum(-1)
        return np.minimum(action, table.shape[1] - 1), None

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        write_tensors(path, {"format": FORMAT, "version": VERSION}, {"probabilities": np.asarray(self.probabilities)})

    @classmethod
    def load(cls, path: str | Path) -> "TabularPolicy":
        """Read what `save` wrote."""
        _, arrays = read_tensors(path, (FORMAT,), _check_table, _check_probabilities)
        return cls(probabilities=arrays["probabilities"])


def write_tensors(path: str | Path, header: dict[str, str], arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file with a line of JSON, whole or not at all; the line has the checksum of the rest."""
    signed = {**header, CHECKSUM: digest(header, arrays)}
    with beside(Path(path)) as file:
        file.write(save(arrays, metadata={"irleed": json.dumps(signed)}))


def read_tensors(
    path: str | Path,
    forms: Sequence[str],
    check_shapes: Callable[[Mapping[str, Any], Mapping[str, Tensor]], None],
    check_numbers: Callable[[Mapping[str, np.ndarray]], None],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of what `write_tensors` wrote in one of these formats.

    Both checks raise a ValueError that says what is wrong; the first one comes before any array is read.
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
    """Which of these formats a file has."""
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
            raise DataError(problem(f"{printable(path)}, {key}", got=got, expected=expected, remedy=remedy))
    return header, tensors


def _check_table(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if list(found) != ["probabilities"] or len(found["probabilities"]) != 2:
        raise ValueError(f"tensors {one_line(found)}, and not the probabilities of states and actions alone")


def _check_probabilities(arrays: Mapping[str, np.ndarray]) -> None:
    table = arrays["probabilities"]
    total = table.sum(-1, dtype=float)
    wrong = ~((table >= 0).all(-1) & (np.abs(total - 1) <= ROUNDING))
    if wrong.any():
        state = int(np.argmax(wrong))
        raise ValueError(f"probabilities of state {state} from {table[state].min():g} on that sum to {total[state]:g}")


class AbstractActor(eqx.Module):
    """What acts in one situation, to be traced; of arrays alone, so that many are a leading axis."""

    @abc.abstractmethod
    def act(self, key: Key, observation: Shaped[Array, "..."], greedy: bool = False) -> Shaped[Array, "..."]:
        """An action: drawn, or the one that it deems best."""

    @abc.abstractmethod
    def stray(self, key: Key, observation: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """Any action, drawn uniformly."""


class SoftmaxPolicy(AbstractActor):
    """Acts by the softmax of a network's outputs times `sharpness`."""

    network: Callable[[Float[Array, "..."]], Float[Array, " A"]]  # a module, of arrays alone
    sharpness: Float[Array, "*lanes"]

    def logits(self, observation: Float[Array, "..."]) -> Float[Array, " A"]:
        """Unnormalised log probabilities in one situation."""
        return self.sharpness * self.network(observation)

    def act(self, key: Key, observation: Float[Array, "..."], greedy: bool = False) -> Int[Array, ""]:
        """See `AbstractActor.act`."""
        logits = self.logits(observation)
        return (jnp.argmax(logits) if greedy else jax.random.categorical(key, logits)).astype(jnp.int32)

    def stray(self, key: Key, observation: Float[Array, "..."]) -> Int[Array, ""]:
        """See `AbstractActor.stray`."""
        return jax.random.randint(key, (), 0, self.logits(observation).shape[-1], jnp.int32)


def boltzmann_probabilities(q: Float[Array, "S A"], sharpness: Scalar) -> Float[Array, "S A"]:
    r"""$\pi \propto \exp(\kappa A / \mathrm{sd}(A))$ with advantages $A = Q - \mathrm{mean}_a Q$: sharp, never stuck.

    The greedy policy of a noisy reward can walk in circles for ever; this one leaves them. Its sharpness is relative to
    the spread of the advantages, so that one number serves every reward scale.
    """
    advantage = q - jnp.mean(q, -1, keepdims=True)
    spread = jnp.std(advantage)
    return jax.nn.softmax(sharpness * advantage / jnp.where(spread > 0, spread, 1.0))
