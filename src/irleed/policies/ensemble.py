"""The policy that a fit of networks returns, an ensemble, and its file, of which every shape and number is checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from irleed._io.arrays import Tensor, refusing
from irleed._typing import Array, Bool, Float, Shaped
from irleed.data.conditioning import FIELDS, Conditioning
from irleed.data.transitions import Inputs
from irleed.envs import Actions, Bounds
from irleed.errors import DataError, SpaceError
from irleed.model.actions import ActionDistribution, Categorical, Softmax, Squashing
from irleed.model.mixed import Mixing, outputs_of
from irleed.model.networks import ACTIVATIONS, Activation, Mlp
from irleed.policies.base import VERSION, Actor, EnsembleActor, Policy, checked_actions, read_tensors, write_tensors

DISCRETE, CONTINUOUS, MIXED = "irleed-network-policy", "irleed-gaussian-policy", "irleed-mixed-policy"
# By format, the arrays beside the layers, and how many axes each has after that of the members.
FORMATS = {
    DISCRETE: {"sharpness": 0},
    CONTINUOUS: {"middle": 1, "half": 1},
    MIXED: {"least": 1, "most": 1, "values": 2, "count": 1, "free": 1},
}
MOST_LAYERS = 32  # each is compiled: 300 would take half a minute
POSITIVE = ("spread", "sharpness", "half", "unit")  # divisors and factors
LEAST = float(np.finfo(np.float32).tiny)  # smaller numbers are flushed to zero on most devices


class EnsemblePolicy(Policy):
    """An ensemble of K perceptrons, see `irleed.policies.base.EnsembleActor`."""

    members: Actor  # of perceptrons; leading axis K
    conditioning: Conditioning | None = None  # of observations, before the members see them

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return self.network.inputs.centre.shape[1:]

    @property
    def actions(self) -> Actions:
        """The number of discrete actions, or the bounds of vectors."""
        if isinstance(self.members.head, Mixing):
            return self.members.head.bounds
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
        return EnsembleActor(self.members, self.conditioning)

    def predict(
        self, observation: ArrayLike | int, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.generic, None]:
        """Greedy or sampled actions for one observation or a batch, and None."""
        found, count, shape = self._distributions(observation)
        key = jax.random.key(int(np.random.default_rng(seed).integers(2**31)))  # without a seed, another each time
        action = np.asarray(_acted(found, jax.random.split(key, count), deterministic))
        return action.reshape((*shape, *action.shape[1:]))[()], None

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """The log probability, or log density, of each action of a batch."""
        taken = checked_actions(action, self.actions)
        return np.asarray(_log_likelihoods(self._distributions(observation)[0], taken), float)

    def log_probabilities(self, observation: ArrayLike) -> Float[np.ndarray, "*batch A"]:
        """The log probability of every discrete action, for one observation or a batch."""
        found, _, shape = self._distributions(observation)
        if not isinstance(found, Categorical):
            raise TypeError("log probabilities of every action, of a policy of vectors")
        return np.asarray(jax.nn.log_softmax(found.logits), float).reshape((*shape, -1))

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        head = self.members.head
        if isinstance(head, Mixing):
            form, others = MIXED, _table(head.bounds, self.size)
        else:
            form = CONTINUOUS if isinstance(head, Squashing) else DISCRETE
            others = {name: getattr(head, name) for name in FORMATS[form]}
        network, conditioning = self.network, self.conditioning
        arrays = {"centre": network.inputs.centre, "spread": network.inputs.spread, **others}
        arrays |= {} if conditioning is None else {name: getattr(conditioning, name) for name in FIELDS}
        arrays |= {} if network.direct is None else {"direct": network.direct}
        for layer, (weight, offset) in enumerate(zip(network.weights, network.offsets, strict=True)):
            arrays |= {f"weights.{layer}": weight, f"offsets.{layer}": offset}
        header = {"format": form, "version": VERSION, "activation": network.activation}
        write_tensors(path, header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})

    @classmethod
    def load(cls, path: str | Path) -> "EnsemblePolicy":
        """Load a policy that `save` wrote."""
        header, arrays = read_tensors(path, tuple(FORMATS), _check_members, check_numbers)
        form, network = header["format"], assembled(arrays, cast(Activation, header["activation"]))
        others = {name: arrays[name] for name in FORMATS[form]}
        conditioning = Conditioning(*(arrays[name] for name in FIELDS)) if FIELDS[0] in arrays else None
        if form == DISCRETE:
            return cls(Actor(network, Softmax(**others)), conditioning)
        with refusing(path, "a saved policy"):
            bounds = _checked_bounds(**others)
            if network.offsets[-1].shape[-1] != outputs_of(bounds):
                raise ValueError(
                    f"bounds of {bounds.size} numbers and layers with {network.offsets[-1].shape[-1]} outputs"
                )
        if form == CONTINUOUS:
            return cls(Actor(network, Squashing(**others)), conditioning)
        inside = Squashing.into(bounds.inside)
        middle, half = (
            np.repeat(np.asarray(each)[None], len(network.offsets[-1]), 0) for each in (inside.middle, inside.half)
        )
        return cls(Actor(network, Mixing(Squashing(middle, half), bounds)), conditioning)

    def _distributions(self, observation: ArrayLike) -> tuple[ActionDistribution, int, tuple[int, ...]]:
        """The distributions for a batch of observations, their number, and the batch's own shape.

        Observations are conditioned in double precision. Observations and outputs that are not finite are refused.
        """
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
            raise SpaceError("observation", got=got, expected=expected, remedy=remedy)
        batch = obs.reshape(-1, *shape)
        seen = batch.astype(np.float32) if self.conditioning is None else self.conditioning.exact(batch)
        found, finite = _distributions(EnsembleActor(self.members), seen)
        if not finite:  # of weights or observations so large that their products overflow
            got, remedy = "NaN or infinity", "use another policy, and look at the size of the observations"
            raise DataError("the policy's outputs", got=got, expected="finite numbers", remedy=remedy)
        return found, len(batch), obs.shape[: obs.ndim - len(shape)]


@jax.jit
def _distributions(actor: EnsembleActor, obs: Float[Array, "B ..."]) -> tuple[ActionDistribution, Bool[Array, ""]]:
    """The distributions in a batch of states, and whether all their parameters are finite."""
    outputs = jax.vmap(actor.outputs)(obs)
    found = jax.vmap(actor.members.head.averaged)(outputs)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in (outputs, *jax.tree.leaves(found))]
    return found, jnp.all(jnp.stack(finite))


@jax.jit(static_argnames="greedy")
def _acted(found: ActionDistribution, keys: Shaped[Array, " B"], greedy: bool) -> Array:
    return jax.vmap(lambda each, key: each.mode() if greedy else each.sample(key))(found, keys)


@jax.jit
def _log_likelihoods(found: ActionDistribution, action: Array) -> Float[Array, " B"]:
    return jax.vmap(lambda each, taken: each.log_prob(taken))(found, action)


def _table(bounds: Bounds, members: int) -> dict[str, np.ndarray]:
    """Bounds as arrays, the same for all members; `values` has zeros where an entry has fewer than others."""
    values = np.zeros((bounds.size, max(map(len, bounds.values))), np.float32)
    for row, own in zip(values, bounds.values, strict=True):
        row[: len(own)] = own
    count, free = np.array(list(map(len, bounds.values)), np.float32), np.array(bounds.free, np.float32)
    found = {"least": bounds.low, "most": bounds.high, "values": values, "count": count, "free": free}
    return {name: np.repeat(each[None], members, 0).astype(np.float32) for name, each in found.items()}


def _checked_bounds(**parts: np.ndarray) -> Bounds:
    """Bounds from the arrays of a file; a ValueError unless they are finite and those of an action space."""
    shape = next(iter(parts.values())).shape
    if any(each.shape[:2] != shape for each in parts.values()):
        raise ValueError(f"bounds of {shape[-1]} numbers beside those of others")
    if any(np.ptp(each, 0).any() for each in parts.values()):
        raise ValueError("bounds that differ between the members")
    own = {name: each[0] for name, each in parts.items()}
    with np.errstate(over="ignore"):
        low = own["least"] if "least" in own else own["middle"] - own["half"]
        high = own["most"] if "most" in own else own["middle"] + own["half"]
        if not np.isfinite([low, high, high - low]).all():
            raise ValueError("bounds that are not finite")
    if "values" not in own:
        return Bounds(low, high)
    if not (low < high).all():
        raise ValueError("bounds whose lowest number is not the lowest")
    count, free = own["count"], own["free"]
    whole = np.isin(count, np.arange(own["values"].shape[-1] + 1)) & np.isin(free, (0, 1))
    if not whole.all() or ((count == 0) & (free == 0)).any():
        raise ValueError("entries of actions that are neither choices nor numbers")
    values = [row[: int(number)].tolist() for row, number in zip(own["values"], count, strict=True)]
    return Bounds(low, high, values, free.astype(bool).tolist())


def _check_members(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError unless the tensors are those of an ensemble."""
    if header.get("activation") not in list(ACTIVATIONS):  # a list, as the value may be of any type
        raise ValueError(f"activation {header.get('activation')}")
    check_shapes(tensors, FORMATS[header["format"]], members=True)


def assembled(arrays: Mapping[str, np.ndarray], activation: Activation = "elu") -> Mlp:
    """A perceptron, or several along a leading axis, from checked arrays."""
    layers = range(sum(name.startswith("weights.") for name in arrays))
    return Mlp(
        inputs=Inputs(arrays["centre"], arrays["spread"]),
        weights=tuple(arrays[f"weights.{layer}"] for layer in layers),
        offsets=tuple(arrays[f"offsets.{layer}"] for layer in layers),
        activation=activation,
        direct=arrays.get("direct"),
    )


def check_shapes(tensors: Mapping[str, Tensor], others: Mapping[str, int], *, members: bool) -> None:
    """Raise a ValueError unless the tensors are consecutive layers, of one perceptron or of several members."""
    count = sum(name.startswith("weights.") for name in tensors)
    if not 1 <= count <= MOST_LAYERS:
        raise ValueError(f"{count} layers, where 1 to {MOST_LAYERS} are supported")
    conditioned = FIELDS if any(name in tensors for name in FIELDS) else ()
    layers = [f"{kind}.{layer}" for layer in range(count) for kind in ("weights", "offsets")]
    needed = ("centre", "spread", *others, *conditioned, *layers)
    for name in needed:
        if name not in tensors:
            raise ValueError(f"no tensor {name}")
    for name in tensors:
        if name not in (*needed, "direct"):
            raise ValueError(f"an unknown tensor {name}")
    other = next((name for name, tensor in tensors.items() if tensor.dtype != np.float32), None)
    if other is not None:
        raise ValueError(f"{other} of type {tensors[other].dtype}, which should be float32")
    axes = int(members)
    leading, observation = tensors["centre"].shape[:axes], tensors["centre"].shape[axes:]
    width = entries = int(np.prod(observation))
    expected: dict[str, tuple[int, ...] | None] = {"spread": tensors["centre"].shape}
    expected |= dict.fromkeys(conditioned, observation)
    for layer in range(count):
        after = tensors[f"offsets.{layer}"].shape[-1:]
        expected |= {f"weights.{layer}": (*leading, width, *after), f"offsets.{layer}": (*leading, *after)}
        width = int(np.prod(after))
    if "direct" in tensors:
        expected["direct"] = (*leading, entries, width)
    for name, more in others.items():
        own = tensors[name].shape
        expected[name] = (*leading, *own[axes:]) if len(own) == axes + more else None
    for name, shape in expected.items():
        if tensors[name].shape != shape or len(leading) != axes:
            raise ValueError(f"layers that do not fit each other: {name} has the shape {tensors[name].shape}")


def check_numbers(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError if outputs would not be finite, or not depend on observations."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} with NaN or infinity")
        if name in POSITIVE and not (array >= LEAST).all():
            raise ValueError(f"{name} {array.min():g}, which should be positive")
        if name.startswith("weights.") and not array.any((-2, -1)).all():
            raise ValueError(f"{name} of zeros alone")
