"""Critics of continuous actions, and the soft value of a situation."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.data.transitions import Inputs
from irleed.model.actions import Gaussian
from irleed.model.networks import Activation, Mlp


class Critics(eqx.Module):
    """One or several Q(s, a), of which the least counts where actions are chosen by them."""

    networks: Mlp  # leading axis: critics

    @classmethod
    def init(
        cls, key: Key, count: int, inputs: Inputs, actions: int, hidden: Sequence[int], activation: Activation
    ) -> "Critics":
        """So many critics, each started on its own; actions reach them in bounds from -1 to 1."""
        centre, spread = jnp.ravel(inputs.centre), jnp.ravel(inputs.spread)
        both = Inputs(jnp.pad(centre, (0, actions)), jnp.pad(spread, (0, actions), constant_values=1.0))
        keys = jax.random.split(key, count)
        return cls(jax.vmap(lambda each: Mlp.init(each, both, (*hidden, 1), activation))(keys))

    def __call__(self, obs: Float[Array, "B ..."], unit: Float[Array, "B A"]) -> Float[Array, "C B"]:
        """What each critic says of a batch."""
        both = jnp.concatenate([obs.reshape(len(obs), -1), unit], -1)
        return jax.vmap(lambda network: jax.vmap(network)(both)[:, 0])(self.networks)


def soft_value(
    key: Key, critics: Critics, acting: Gaussian, obs: Float[Array, "B ..."], temperature: Scalar | Float[Array, " B"]
) -> Float[Array, " B"]:
    r"""$V(s) = E_{a \sim \pi}[\min Q(s, a) - T \log\pi(a|s)]$ by one draw in each situation; differentiable in both."""
    z, log_density = acting.draw(key)
    return jnp.min(critics(obs, jnp.tanh(z)), 0) - temperature * log_density
