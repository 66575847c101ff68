"""Critics of continuous actions, and the soft value of a state."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.data.transitions import Inputs
from irleed.model.actions import SquashedGaussian
from irleed.model.networks import Activation, Mlp


class Critics(eqx.Module):
    """One or several Q(s, a), of which policies follow the least."""

    networks: Mlp  # leading axis: critics

    @classmethod
    def init(
        cls, key: Key, count: int, inputs: Inputs, actions: int, hidden: Sequence[int], activation: Activation
    ) -> "Critics":
        """So many critics with weights of their own; actions are given scaled to bounds from -1 to 1."""
        centre, spread = jnp.ravel(inputs.centre), jnp.ravel(inputs.spread)
        both = Inputs(jnp.pad(centre, (0, actions)), jnp.pad(spread, (0, actions), constant_values=1.0))
        keys = jax.random.split(key, count)
        return cls(jax.vmap(lambda each: Mlp.init(each, both, (*hidden, 1), activation))(keys))

    def __call__(self, obs: Float[Array, "B ..."], unit: Float[Array, "B A"]) -> Float[Array, "C B"]:
        """The values of a batch by each critic."""
        both = jnp.concatenate([obs.reshape(len(obs), -1), unit], -1)
        return jax.vmap(lambda network: jax.vmap(network)(both)[:, 0])(self.networks)


def soft_value(
    key: Key,
    critics: Critics,
    policy: SquashedGaussian,
    obs: Float[Array, "B ..."],
    temperature: Scalar | Float[Array, " B"],
) -> Float[Array, " B"]:
    r"""$V(s) = E_{a \sim \pi}[\min Q(s, a) - T \log\pi(a|s)]$ by one sample in each state; differentiable in both."""
    unit, log_prob = policy.sample_unit(key)
    return jnp.min(critics(obs, unit), 0) - temperature * log_prob
