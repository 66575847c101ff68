"""The policy that a fit of networks hands out: an ensemble, and its file."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from irleed._typing import Array, Float, Shaped
from irleed.data.transitions import Inputs
from irleed.errors import DataError, SpaceError, problem
from irleed.model.networks import ACTIVATIONS, Activation, Mlp
from irleed.policies.base import SoftmaxPolicy, read_tensors, write_tensors

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

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members.sharpness)

    @property
    def actor(self) -> SoftmaxPolicy:
        """What plays."""
        return SoftmaxPolicy(self, jnp.asarray(1.0, jnp.float32))

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
        return outputs(self, observation, self.observation_shape)

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """Of each action of a batch."""
        scores, chosen = self.scores(observation), np.asarray(action, np.int64)
        return log_softmax(scores, axis=-1)[np.arange(len(chosen)), chosen].astype(float)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        write_network(path, FORMAT, self._network, {"sharpness": self.members.sharpness})

    @classmethod
    def load(cls, path: str | Path) -> "NetworkPolicy":
        """Read what `save` wrote."""
        network, (sharpness,) = read_network(path, FORMAT, {"sharpness": 0})
        return cls(SoftmaxPolicy(network, sharpness))

    @property
    def _network(self) -> Mlp:
        return perceptron(self.members.network)


def perceptron(network: object) -> Mlp:
    """The network itself, which is known to be one of ours."""
    if not isinstance(network, Mlp):
        raise TypeError(f"members of perceptrons, not of {type(network).__name__}")
    return network


def outputs(
    policy: Callable[[Array], Array], observation: ArrayLike, shape: tuple[int, ...]
) -> Float[np.ndarray, "*batch out"]:
    """What a policy makes of one observation of this shape, or of a batch; anything else is refused."""
    obs, got = np.asarray(observation), None
    expected = f"finite numbers of shape {shape}, or a batch of it"
    if obs.shape[-len(shape) or obs.ndim :] != shape or obs.ndim > len(shape) + 1:
        got = f"shape {obs.shape}"
    elif obs.dtype.kind not in "biuf":
        got = f"type {obs.dtype}"
    elif not np.isfinite(obs).all():
        got = "what is not a number"
    if got is not None:
        raise SpaceError(problem("observation", got=got, expected=expected, remedy="give what it was trained on"))
    found = np.asarray(_outputs(policy, obs.reshape(-1, *shape).astype(np.float32)))
    return found.reshape(*obs.shape[: obs.ndim - len(shape)], -1)


@jax.jit
def _outputs(policy, obs: Float[Array, "B ..."]) -> Float[Array, "B out"]:
    return jax.vmap(policy)(obs)


def write_network(path: str | Path, form: str, network: Mlp, others: dict[str, Array]) -> None:
    """Write perceptrons, and arrays that belong to them, as a safetensors file."""
    arrays = {"centre": network.inputs.centre, "spread": network.inputs.spread, **others}
    if network.direct is not None:
        arrays["direct"] = network.direct
    for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
        arrays |= {f"weights.{layer}": weight, f"offsets.{layer}": offset}
    header = {"format": form, "version": "1", "activation": network.activation}
    write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_network(path: str | Path, form: str, others: dict[str, int]) -> tuple[Mlp, list[np.ndarray]]:
    """What `write_network` wrote, K perceptrons; `others` says how many axes each array has beside that of members."""
    header, arrays = read_tensors(path, (form,), ("centre", "spread", *others, "weights.0", "offsets.0"))
    layers = range((len(arrays) - 2 - len(others) - ("direct" in arrays)) // 2)
    wrong = _wrong(header, arrays, others, layers)
    if wrong is not None:
        raise DataError(problem(str(path), got=wrong, expected="a saved policy", remedy="name another file"))
    network = Mlp(
        inputs=Inputs(arrays["centre"], arrays["spread"]),
        weights=tuple(arrays[f"weights.{layer}"] for layer in layers),
        offsets=tuple(arrays[f"offsets.{layer}"] for layer in layers),
        activation=cast(Activation, header["activation"]),
        direct=arrays.get("direct"),
    )
    return network, [arrays[name] for name in others]


def _wrong(header: dict[str, str], arrays: dict[str, np.ndarray], others: dict[str, int], layers: range) -> str | None:
    """What does not fit together in a file, if anything."""
    if header.get("activation") not in list(ACTIVATIONS):  # a list, as what is in the file may be anything
        return f"activation {header.get('activation')}"
    if any(array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()):
        return "entries that are no finite numbers in single precision"
    members = arrays["centre"].shape[:1]
    shapes = {"centre": arrays["centre"].shape, "spread": arrays["centre"].shape}
    shapes |= {name: arrays[name].shape for name in others}
    before = entries = int(np.prod(arrays["centre"].shape[1:]))
    for layer in layers:
        after = arrays.get(f"offsets.{layer}", np.zeros(1)).shape[-1:]
        shapes |= {f"weights.{layer}": (*members, before, *after), f"offsets.{layer}": (*members, *after)}
        before = after[0] if after else 0
    if "direct" in arrays:
        shapes["direct"] = (*members, entries, before)
    fits = len(members) == 1 and all(
        arrays[name].ndim == 1 + axes and arrays[name].shape[:1] == members for name, axes in others.items()
    )
    if not fits or shapes != {name: array.shape for name, array in arrays.items()}:
        return "layers that do not fit each other"
    return None
