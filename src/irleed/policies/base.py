"""Policies as values: what a fit hands out, and what is saved."""

import abc
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from irleed._io import beside
from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.errors import DataError, SpaceError, problem

FORMAT = "irleed-tabular-policy"


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
        write_tensors(path, {"format": FORMAT, "version": "1"}, {"probabilities": np.asarray(self.probabilities)})

    @classmethod
    def load(cls, path: str | Path) -> "TabularPolicy":
        """Read what `save` wrote."""
        _, arrays = read_tensors(path, (FORMAT,), ("probabilities",))
        return cls(probabilities=arrays["probabilities"])


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
