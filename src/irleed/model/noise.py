r"""Demonstrators of continuous actions as noise around the shared policy's greedy action.

Scaled to bounds from -1 to 1, the action of demonstrator $i$ is $N(\tanh(\mu(s) + \delta_i(s)), \sigma^2/\beta_i)$: the
bias $\delta_i$ moves the shared policy's mean, and the noise around it has a standard deviation $\sigma$ at precision 1
that is the same in every state. If it depended on the state, it would explain away differences in precision wherever
demonstrators seldom visit the same states.
"""

import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int
from irleed.data.transitions import Row
from irleed.model.actions import SquashedGaussian
from irleed.model.demonstrators import Description, log_precision_of
from irleed.model.mixed import Mixed

Vectors = SquashedGaussian | Mixed


def noisy(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    demonstrator: Int[Array, "*B"],
    bias: Float[Array, "*B N"],
) -> Vectors:
    """The demonstrator of each row, for the `noise_...` methods: their mean of z, and the noise of their actions."""
    return shared.with_noise(log_std).as_demonstrator(log_precision_of(log_precision, demonstrator), bias)


def misfit(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    rows: Row,
    bias: Float[Array, "B N"],
) -> Float[Array, ""]:
    """The mean negative log likelihood, but for a constant, of demonstrated actions; the shared policy is held."""
    own = noisy(jax.lax.stop_gradient(shared), log_std, log_precision, rows.demonstrator, bias)
    return jnp.mean(own.noise_misfit(rows.action))


def described(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    demonstrator: Int[Array, ""],
    bias: Float[Array, " N"] | None,
    action: Float[Array, " A"],
) -> Description:
    """How one action is described; the size of a bias is how far it moves the greedy action, in noise at precision 1.

    No bias means that biases are not learnt.
    """
    own = noisy(shared, log_std, log_precision, demonstrator, shared.no_bias() if bias is None else bias)
    if bias is None:
        return Description.without_bias(own.noise_log_prob(action))
    moved = (own.unit_mean() - shared.unit_mean()) * jnp.exp(-shared.entry_log_std(log_std))
    return Description(own.noise_log_prob(action), jnp.mean(moved**2), jnp.ones((), jnp.float32))
