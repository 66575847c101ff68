"""The policy that a fit hands out where actions are continuous: an ensemble of squashed Gaussians, and its file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from irleed._io.safetensors import refusing
from irleed._typing import Array, Float, Shaped
from irleed.data.conditioning import Conditioning
from irleed.model.actions import Gaussian, GaussianPolicy, GaussianView, Squashing
from irleed.model.networks import Mlp
from irleed.policies.ensemble import AbstractEnsemble, conditioned, outputs, perceptron
from irleed.policies.layers import read_network, write_network

FORMAT = "irleed-gaussian-policy"


class GaussianEnsemble(AbstractEnsemble):
    """K members that act together: the mean of their outputs decides."""

    members: GaussianPolicy  # of perceptrons; leading axis K
    conditioning: Conditioning | None = None  # of observations, before the members see them

    def __call__(self, observation: Shaped[Array, "..."]) -> Float[Array, " AA"]:
        """What `irleed.model.actions.Gaussian.of` makes a Gaussian of, in one situation; to be traced."""
        return self.together(conditioned(self.conditioning, observation))

    def together(self, observation: Shaped[Array, "..."]) -> Float[Array, " AA"]:
        """See `AbstractEnsemble.together`."""
        return jnp.mean(jax.vmap(lambda member: member.network(observation))(self.members), 0)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self._network.inputs.centre.shape[1:]

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members.squashing.middle)

    @property
    def actor(self) -> GaussianPolicy:
        """What plays."""
        return GaussianPolicy(self, jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], self.members.squashing))

    def predict(
        self, observation: ArrayLike, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Float[np.ndarray, "*batch A"], None]:
        """Actions for one observation or a batch; the second value is there for callers of Stable-Baselines3."""
        found = self._gaussian(observation)
        z = np.asarray(found.mean)
        if not deterministic:
            noise = np.random.default_rng(seed).normal(size=z.shape).astype(np.float32)
            z = z + np.exp(np.asarray(found.log_spread)) * noise
        return np.asarray(self.actor.squashing.action(jnp.asarray(z))), None

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """Log density of each action of a batch."""
        squashing, found = self.actor.squashing, self._gaussian(observation)

        def one(gaussian, taken):
            return GaussianView(gaussian, jnp.zeros_like(taken), squashing).log_likelihood(taken)

        taken = jnp.asarray(np.asarray(action, np.float32).reshape(found.mean.shape))
        return np.asarray(jax.vmap(one)(found, taken), float)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        squashing = self.members.squashing
        others = {"middle": squashing.middle, "half": squashing.half}
        write_network(path, FORMAT, self._network, others, self.conditioning)

    @classmethod
    def load(cls, path: str | Path) -> "GaussianEnsemble":
        """Read what `save` wrote."""
        network, (middle, half), conditioning = read_network(path, FORMAT, {"middle": 1, "half": 1})
        with refusing(path, "a saved policy"):
            _check_bounds(middle, half, network.offsets[-1].shape[-1])
        return cls(GaussianPolicy(network, Squashing(middle, half)), conditioning)

    @property
    def _network(self) -> Mlp:
        return perceptron(self.members.network)

    def _gaussian(self, observation: ArrayLike) -> Gaussian:
        return Gaussian.of(jnp.asarray(outputs(self, self.conditioning, observation, self.observation_shape)))


def _check_bounds(middle: np.ndarray, half: np.ndarray, outputs: int) -> None:
    """Raise a ValueError unless these are the finite bounds of an action space, with two outputs for each number."""
    if middle.shape != half.shape or outputs != 2 * middle.shape[-1]:
        raise ValueError(f"bounds of {middle.shape[-1]} numbers and layers with {outputs} outputs")
    if np.ptp(middle, 0).any() or np.ptp(half, 0).any():
        raise ValueError("bounds that differ between the members")
    with np.errstate(over="ignore"):
        if not np.isfinite([middle + half, middle - half]).all():
            raise ValueError("bounds that are not finite")
