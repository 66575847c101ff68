r"""The paper's model of a demonstrator: precision, bias, their gauge and their priors.

Demonstrator $i$ acts by $\pi_i(a|s) \propto \exp(\beta_i (Q(s,a) + \epsilon_i(s,a)))$ (Eq. 6): the *precision*
$\beta_i \ge 0$ is how consistently they choose, the *bias* $\epsilon_i$ is how their reward (or their Q) differs from
the shared one. Tabular algorithms and networks use the same functions, see `perceived` and `irleed.model.actions`.

The likelihood depends on the product $\beta_i(\theta + \epsilon_i)$ alone, so a convention, the *gauge*, fixes the
rest: the mean of $\log \beta_i$ is zero, and the prior on $\epsilon_i$ moves what all biases share into $\theta$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Scalar


class Demonstrators(eqx.Module):
    """Precision and bias of D demonstrators whose biases are vectors of reward weights."""

    log_precision: Float[Array, " D"]
    bias: Float[Array, "D F"]

    @classmethod
    def unbiased(cls, demonstrators: int, features: int) -> "Demonstrators":
        """Precision 1 and bias 0: the demonstrators of maximum-entropy IRL."""
        return cls(log_precision=jnp.zeros(demonstrators), bias=jnp.zeros((demonstrators, features)))

    @property
    def precision(self) -> Float[Array, " D"]:
        r"""$\beta_i$ in the gauge where the mean of $\log \beta_i$ is zero."""
        return jnp.exp(gauge(self.log_precision))

    def perceived(self, weights: Float[Array, " F"]) -> Float[Array, "D F"]:
        r"""$\beta_i(\theta + \epsilon_i)$: the reward weights that demonstrators act by, in units of their noise."""
        return perceived(self.precision, weights[None], self.bias)


class Prior(eqx.Module):
    """Independent Gaussians around bias 0, log precision 0 and weight 0.

    **Fields:**

    - `bias`: inverse variance of the biases.
    - `log_precision`: inverse variance of the log precisions.
    - `weights`: inverse variance of the weights of the shared reward.
    """

    bias: Scalar = 4.0
    log_precision: Scalar = 0.1
    weights: Scalar = 0.1

    def penalty(self, weights: Float[Array, " F"], demonstrators: Demonstrators) -> Float[Array, ""]:
        """Negative log density, up to a constant."""
        return 0.5 * (
            self.weights * jnp.sum(weights**2)
            + self.log_precision * jnp.sum(gauge(demonstrators.log_precision) ** 2)
            + self.bias * jnp.sum(demonstrators.bias**2)
        )


class Description(eqx.Module):
    """Likelihood and bias of one action of a demonstrator under an algorithm's model of them."""

    log_prob: Float[Array, ""]  # of the action, or its log density, under the demonstrator's own policy
    bias: Float[Array, ""]  # mean square of their bias in this state; NaN: the algorithm has no bias
    shared: Float[Array, ""]  # mean square of the shared values in the same units, which the bias is relative to

    @classmethod
    def without_bias(cls, log_prob: Float[Array, ""]) -> "Description":
        """For an algorithm without biases."""
        return cls(log_prob, jnp.full((), jnp.nan, jnp.float32), jnp.ones((), jnp.float32))


def perceived(
    precision: Float[Array, "*#B"], shared: Float[Array, "*#B A"], bias: Float[Array, "*#B A"]
) -> Float[Array, "*B A"]:
    r"""$\beta(Q + \epsilon)$, of values, rewards or weights along the last axis, as a demonstrator perceives them."""
    return precision[..., None] * (shared + bias)


def gauge(log_precision: Float[Array, " D"]) -> Float[Array, " D"]:
    """Fix the common scale: subtract the mean."""
    return log_precision - jnp.mean(log_precision)


def log_precision_of(log_precision: Float[Array, " D"], demonstrator: Int[Array, "*B"]) -> Float[Array, "*B"]:
    """The log precision, in the gauge, of the demonstrator of each row."""
    own = jax.nn.one_hot(demonstrator, len(log_precision))
    return own @ gauge(log_precision)  # a matrix product: the gradient of indexing is a scatter, which is slow


def precision_weights(
    log_precision: Float[Array, " D"], demonstrator: Int[Array, " B"], exponent: Scalar, counted: Float[Array, " B"]
) -> Float[Array, " B"]:
    r"""The weight of each row, proportional to $\beta_i^k$ with mean 1 over the rows `counted`; it has no gradient."""
    weight = jnp.exp(exponent * jax.lax.stop_gradient(gauge(log_precision)))[demonstrator]
    return weight * jnp.sum(counted) / jnp.sum(counted * weight)


def boltzmann(q: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    r"""Log probabilities of $\pi(a) \propto \exp q(a)$."""
    return jax.nn.log_softmax(q)
