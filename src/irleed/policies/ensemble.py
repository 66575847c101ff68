"""The policy that a fit of networks returns: an ensemble, of discrete actions or of vectors, and its file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from irleed._io.arrays import refusing
from irleed._typing import Array, Bool, Float, Shaped
from irleed.data.conditioning import Conditioning
from irleed.envs.step import Actions, Bounds
from irleed.errors import DataError, SpaceError
from irleed.model.actions import ActionDistribution, Categorical, Softmax, Squashing
from irleed.model.mixed import Mixing, outputs_of
from irleed.model.networks import Mlp
from irleed.policies.actor import Actor, EnsembleActor
from irleed.policies.base import Policy, checked_actions
from irleed.policies.layers import read_network, write_network

DISCRETE, CONTINUOUS, MIXED = "irleed-network-policy", "irleed-gaussian-policy", "irleed-mixed-policy"
# By format, the arrays beside the layers, and how many axes each has after that of the members.
FORMATS = {
    DISCRETE: {"sharpness": 0},
    CONTINUOUS: {"middle": 1, "half": 1},
    MIXED: {"least": 1, "most": 1, "values": 2, "count": 1, "free": 1},
}


class EnsemblePolicy(Policy):
    """K perceptrons that act together, see `irleed.policies.actor.EnsembleActor`."""

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
        write_network(path, form, self.network, others, self.conditioning)

    @classmethod
    def load(cls, path: str | Path) -> "EnsemblePolicy":
        """Read what `save` wrote."""
        form, network, others, conditioning = read_network(path, FORMATS)
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
    """The distributions in a batch of states, and whether all numbers that they are made of are finite."""
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
    found = {
        "least": bounds.low,
        "most": bounds.high,
        "values": values,
        "count": np.array(list(map(len, bounds.values)), np.float32),
        "free": np.array(bounds.free, np.float32),
    }
    return {name: np.repeat(each[None], members, 0).astype(np.float32) for name, each in found.items()}


def _checked_bounds(**parts: np.ndarray) -> Bounds:
    """Bounds of the arrays of a file; a ValueError unless they are finite and those of an action space."""
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
