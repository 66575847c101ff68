"""The policy that a fit of networks hands out: an ensemble, and its file."""

import abc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from irleed._typing import Array, Float, Shaped
from irleed.data.conditioning import Conditioning
from irleed.errors import DataError, SpaceError, problem
from irleed.model.networks import Mlp
from irleed.policies.base import SoftmaxPolicy
from irleed.policies.layers import read_network, write_network

FORMAT = "irleed-network-policy"


class AbstractEnsemble(eqx.Module):
    """Members that act together."""

    @abc.abstractmethod
    def together(self, observation: Shaped[Array, "..."]) -> Float[Array, " out"]:
        """What the members make of a conditioned observation, to be traced."""


class NetworkPolicy(AbstractEnsemble):
    """K members that act together: the mean of their log probabilities decides."""

    members: SoftmaxPolicy  # of perceptrons; leading axis K
    conditioning: Conditioning | None = None  # of observations, before the members see them

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, " A"]:
        """Unnormalised log probabilities in one situation, to be traced."""
        return self.together(conditioned(self.conditioning, observation))

    def together(self, observation: Shaped[Array, "..."]) -> Float[Array, " A"]:
        """See `AbstractEnsemble.together`."""
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
        return outputs(self, self.conditioning, observation, self.observation_shape)

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """Of each action of a batch."""
        scores, chosen = self.scores(observation), np.asarray(action, np.int64)
        return log_softmax(scores, axis=-1)[np.arange(len(chosen)), chosen].astype(float)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        write_network(path, FORMAT, self._network, {"sharpness": self.members.sharpness}, self.conditioning)

    @classmethod
    def load(cls, path: str | Path) -> "NetworkPolicy":
        """Read what `save` wrote."""
        network, (sharpness,), conditioning = read_network(path, FORMAT, {"sharpness": 0})
        return cls(SoftmaxPolicy(network, sharpness), conditioning)

    @property
    def _network(self) -> Mlp:
        return perceptron(self.members.network)


def perceptron(network: object) -> Mlp:
    """The network itself, which is known to be one of ours."""
    if not isinstance(network, Mlp):
        raise TypeError(f"members of perceptrons, not of {type(network).__name__}")
    return network


def conditioned(conditioning: Conditioning | None, observation: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """What the members of a policy see of an observation in single precision, to be traced."""
    return observation if conditioning is None else conditioning(observation)


def outputs(
    policy: AbstractEnsemble, conditioning: Conditioning | None, observation: ArrayLike, shape: tuple[int, ...]
) -> Float[np.ndarray, "*batch out"]:
    """What a policy makes of one observation of this shape, or of a batch; anything else is refused.

    Observations are conditioned in double precision, if they are at all.
    """
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
    batch = obs.reshape(-1, *shape)
    seen = batch.astype(np.float32) if conditioning is None else conditioning.exact(batch)
    found = np.asarray(_outputs(policy, seen))
    if not np.isfinite(found).all():  # of weights or observations so large that their products overflow
        got, remedy = "NaN or infinity", "use another policy, and look at the size of the observations"
        raise DataError(problem("the policy's outputs", got=got, expected="finite numbers", remedy=remedy))
    return found.reshape(*obs.shape[: obs.ndim - len(shape)], -1)


@jax.jit
def _outputs(policy, obs: Float[Array, "B ..."]) -> Float[Array, "B out"]:
    return jax.vmap(policy.together)(obs)
