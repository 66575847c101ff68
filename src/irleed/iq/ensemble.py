"""The policy that a fit of networks hands out: an ensemble, and its file."""

from pathlib import Path
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from irleed._typing import Array, Float, Shaped
from irleed.data.transitions import Inputs
from irleed.errors import DataError, SpaceError, problem
from irleed.iq.networks import ACTIVATIONS, Activation, Mlp
from irleed.policy import SoftmaxPolicy, read_tensors, write_tensors

FORMAT = "irleed-network-policy"


class NetworkPolicy(eqx.Module):
    """K members that act together: the mean of their log probabilities decides."""

    members: SoftmaxPolicy  # of perceptrons; leading axis K

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, " A"]:
        """Unnormalised log probabilities in one situation, to be traced."""
        return jnp.mean(jax.vmap(lambda member: jax.nn.log_softmax(member.logits(observation)))(self.members), 0)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self._network.inputs.centre.shape[1:]

    def predict(
        self, observation: ArrayLike, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.integer, None]:
        """Actions for one observation or a batch; the second value is there for callers of Stable-Baselines3."""
        scores = self.scores(observation)
        if not deterministic:  # by Gumbel's trick: the largest of log probability plus noise
            scores = scores + np.random.default_rng(seed).gumbel(size=scores.shape)
        return scores.argmax(-1), None

    def scores(self, observation: ArrayLike) -> Float[np.ndarray, "*batch A"]:
        """Log probabilities, but for a constant in each situation, for one observation or a batch."""
        obs = np.asarray(observation)
        shape = self.observation_shape
        if obs.shape[-len(shape) or obs.ndim :] != shape or obs.ndim > len(shape) + 1:
            self._refuse(f"shape {obs.shape}", f"{shape}, or a batch of it")
        if obs.dtype.kind not in "biuf" or not np.isfinite(obs).all():
            self._refuse("what is not a number" if obs.dtype.kind == "f" else f"type {obs.dtype}", "finite numbers")
        found = np.asarray(_scores(self, obs.reshape(-1, *shape).astype(np.float32)))
        return found.reshape(*obs.shape[: obs.ndim - len(shape)], -1)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        network = self._network
        arrays = {"centre": network.inputs.centre, "spread": network.inputs.spread, "sharpness": self.members.sharpness}
        for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
            arrays |= {f"weights.{layer}": weight, f"offsets.{layer}": offset}
        header = {"format": FORMAT, "version": "1", "activation": network.activation}
        write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def load(cls, path: str | Path) -> "NetworkPolicy":
        """Read what `save` wrote."""
        header, arrays = read_tensors(path, FORMAT, ("centre", "spread", "sharpness", "weights.0", "offsets.0"))
        wrong = _wrong(header, arrays)
        if wrong is not None:
            raise DataError(problem(str(path), got=wrong, expected="a saved policy", remedy="name another file"))
        layers = range((len(arrays) - 3) // 2)
        network = Mlp(
            inputs=Inputs(arrays["centre"], arrays["spread"]),
            weights=tuple(arrays[f"weights.{layer}"] for layer in layers),
            offsets=tuple(arrays[f"offsets.{layer}"] for layer in layers),
            activation=cast(Activation, header["activation"]),
        )
        return cls(SoftmaxPolicy(network, arrays["sharpness"]))

    @property
    def _network(self) -> Mlp:
        network = self.members.network
        if not isinstance(network, Mlp):
            raise TypeError(f"members of perceptrons, not of {type(network).__name__}")
        return network

    def _refuse(self, got: str, expected: str) -> None:
        raise SpaceError(problem("observation", got=got, expected=expected, remedy="give what it was trained on"))


@jax.jit
def _scores(policy: NetworkPolicy, obs: Float[Array, "B ..."]) -> Float[Array, "B A"]:
    return jax.vmap(policy)(obs)


def _wrong(header: dict[str, str], arrays: dict[str, np.ndarray]) -> str | None:
    """What does not fit together in a file, if anything."""
    if header.get("activation") not in list(ACTIVATIONS):  # a list, as what is in the file may be anything
        return f"activation {header.get('activation')}"
    if any(array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()):
        return "entries that are no finite numbers in single precision"
    members, layers = arrays["sharpness"].shape, (len(arrays) - 3) // 2
    shapes = {"centre": arrays["centre"].shape, "spread": arrays["centre"].shape, "sharpness": members}
    before = int(np.prod(arrays["centre"].shape[1:]))
    for layer in range(layers):
        after = arrays.get(f"offsets.{layer}", np.zeros(1)).shape[-1:]
        shapes |= {f"weights.{layer}": (*members, before, *after), f"offsets.{layer}": (*members, *after)}
        before = after[0] if after else 0
    fits = len(members) == 1 and arrays["centre"].shape[:1] == members
    if not fits or shapes != {name: array.shape for name, array in arrays.items()}:
        return "layers that do not fit each other"
    return None
