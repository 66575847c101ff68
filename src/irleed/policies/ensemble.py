"""The policy that a fit of networks returns: an ensemble, of discrete actions or of vectors, and its file."""

from pathlib import Path
from typing import cast

import jax
import numpy as np
from numpy.typing import ArrayLike

from irleed._typing import Array, Float, Shaped
from irleed.data.transitions import Inputs
from irleed.envs.step import Actions, Bounds
from irleed.errors import DataError, SpaceError, problem
from irleed.model.actions import Categorical, Softmax, Squashing
from irleed.model.networks import ACTIVATIONS, Activation, Mlp
from irleed.policies.actor import AbstractActor, Actor, EnsembleActor
from irleed.policies.base import Policy, checked_actions, read_tensors, write_tensors

DISCRETE, CONTINUOUS = "irleed-network-policy", "irleed-gaussian-policy"
# By format, the arrays beside the layers, and how many axes each has after that of the members.
FORMATS = {DISCRETE: {"sharpness": 0}, CONTINUOUS: {"middle": 1, "half": 1}}


class EnsemblePolicy(Policy):
    """K perceptrons that act together, see `irleed.policies.actor.EnsembleActor`."""

    members: Actor  # of perceptrons; leading axis K

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.network.inputs.centre.shape[1:]

    @property
    def actions(self) -> Actions:
        """The number of discrete actions, or the bounds of vectors."""
        if isinstance(self.members.head, Squashing):
            middle, half = (np.asarray(part)[0] for part in (self.members.head.middle, self.members.head.half))
            return Bounds(middle - half, middle + half)
        return self.network.offsets[-1].shape[-1]

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.network.offsets[-1])

    @property
    def network(self) -> Mlp:
        """The members' perceptrons; leading axis K."""
        if not isinstance(self.members.network, Mlp):
            raise TypeError(f"members of perceptrons, not of {type(self.members.network).__name__}")
        return self.members.network

    @property
    def actor(self) -> EnsembleActor:
        """The same policy for traced functions."""
        return EnsembleActor(self.members)

    def predict(
        self, observation: ArrayLike | int, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.generic, None]:
        """Greedy or sampled actions for one observation or a batch, and None."""
        batch, shape = self._batch(observation)
        key = jax.random.key(int(np.random.default_rng(seed).integers(2**31)))  # without a seed, another each time
        found = np.asarray(_acted(self.actor, jax.random.split(key, len(batch)), batch, deterministic))
        return found.reshape((*shape, *found.shape[1:]))[()], None

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """The log probability, or log density, of each action of a batch."""
        taken = checked_actions(action, self.actions)
        return np.asarray(_log_likelihoods(self.actor, self._batch(observation)[0], taken), float)

    def log_probabilities(self, observation: ArrayLike) -> Float[np.ndarray, "*batch A"]:
        """The log probability of every discrete action, for one observation or a batch."""
        batch, shape = self._batch(observation)
        return np.asarray(_log_probabilities(self.actor, batch), float).reshape((*shape, -1))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        form = CONTINUOUS if isinstance(self.members.head, Squashing) else DISCRETE
        write_network(path, form, self.network, {name: getattr(self.members.head, name) for name in FORMATS[form]})

    @classmethod
    def load(cls, path: str | Path) -> "EnsemblePolicy":
        """Read what `save` wrote."""
        form, network, others = read_network(path)
        if form == DISCRETE:
            return cls(Actor(network, Softmax(**others)))
        size = others["half"].shape[-1]
        if others["middle"].shape != others["half"].shape or network.offsets[-1].shape[-1] != 2 * size:
            got = "bounds that do not fit the layers"
            raise DataError(problem(str(path), got=got, expected="a saved policy", remedy="name another file"))
        return cls(Actor(network, Squashing(**others)))

    def _batch(self, observation: ArrayLike) -> tuple[Float[np.ndarray, "B ..."], tuple[int, ...]]:
        """Observations as a batch, and the shape of actions for them but for their own; others are refused."""
        obs, shape, got = np.asarray(observation), self.observation_shape, None
        if obs.shape[-len(shape) or obs.ndim :] != shape or obs.ndim > len(shape) + 1:
            got = f"shape {obs.shape}"
        elif obs.dtype.kind not in "biuf":
            got = f"type {obs.dtype}"
        elif not np.isfinite(obs).all():
            got = "NaN or infinity"
        if got is not None:
            expected = f"finite numbers of shape {shape}, or a batch of it"
            remedy = "give observations such as the policy was trained on"
            raise SpaceError(problem("observation", got=got, expected=expected, remedy=remedy))
        return obs.reshape(-1, *shape).astype(np.float32), obs.shape[: obs.ndim - len(shape)]


@jax.jit(static_argnames="greedy")
def _acted(actor: AbstractActor, keys: Shaped[Array, " B"], obs: Float[Array, "B ..."], greedy: bool) -> Array:
    return jax.vmap(lambda key, each: actor.act(key, each, greedy))(keys, obs)


@jax.jit
def _log_likelihoods(actor: AbstractActor, obs: Float[Array, "B ..."], action: Array) -> Float[Array, " B"]:
    return jax.vmap(lambda each, taken: actor(each).log_prob(taken))(obs, action)


@jax.jit
def _log_probabilities(actor: AbstractActor, obs: Float[Array, "B ..."]) -> Float[Array, "B A"]:
    def one(each):
        return jax.nn.log_softmax(cast(Categorical, actor(each)).logits)

    return jax.vmap(one)(obs)


def write_network(path: str | Path, form: str, network: Mlp, others: dict[str, Array]) -> None:
    """Write perceptrons, and arrays that belong to them, as a safetensors file."""
    arrays = {"centre": network.inputs.centre, "spread": network.inputs.spread, **others}
    if network.direct is not None:
        arrays["direct"] = network.direct
    for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
        arrays |= {f"weights.{layer}": weight, f"offsets.{layer}": offset}
    header = {"format": form, "version": "1", "activation": network.activation}
    write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})


def read_network(path: str | Path) -> tuple[str, Mlp, dict[str, np.ndarray]]:
    """What `write_network` wrote: the format, K perceptrons, and the arrays that belong to them, see `FORMATS`."""
    header, arrays = read_tensors(path, tuple(FORMATS), ("centre", "spread", "weights.0", "offsets.0"))
    others = FORMATS[header["format"]]
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
    return header["format"], network, {name: arrays[name] for name in others}


def _wrong(header: dict[str, str], arrays: dict[str, np.ndarray], others: dict[str, int], layers: range) -> str | None:
    """What does not fit together in a file, if anything."""
    if header.get("activation") not in list(ACTIVATIONS):  # a list, as what is in the file may be anything
        return f"activation {header.get('activation')}"
    if missing := [name for name in others if name not in arrays]:
        return f"no {missing[0]}"
    if any(array.dtype != np.float32 or not np.isfinite(array).all() for array in arrays.values()):
        return "entries that are not finite numbers in single precision"
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
