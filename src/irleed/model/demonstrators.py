r"""The paper's model of a demonstrator, shared by tables and networks.

Demonstrator $i$ acts by $\pi_i(a|s) \propto \exp(\beta_i (Q(s,a) + \epsilon_i(s,a)))$: the *precision* $\beta_i \ge 0$
says how consistently they choose, the *bias* $\epsilon_i$ how their idea of the reward (or of Q) is off.

Only the product $\beta_i(\theta + \epsilon_i)$ meets the data, so a convention, the *gauge*, fixes what is free: the
mean of $\log \beta_i$ is zero, and the prior on $\epsilon_i$ moves what all biases share into $\theta$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Scalar


class Demonstrators(eqx.Module):
    """Precision and bias of D demonstrators. The bias is a table here and a tree of networks elsewhere."""

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
        r"""$u_i = \beta_i(\theta + \epsilon_i)$: what each demonstrator pursues, in units of their own noise."""
        return self.precision[:, None] * (weights[None] + self.bias)


class Prior(eqx.Module):
    """Independent Gaussians around bias 0, log precision 0 and weight 0; each field is an inverse variance."""

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


def gauge(log_precision: Float[Array, " D"]) -> Float[Array, " D"]:
    """Fix the common scale: subtract the mean."""
    return log_precision - jnp.mean(log_precision)


def boltzmann(q: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    r"""Log probabilities of $\pi(a) \propto \exp q(a)$."""
    return jax.nn.log_softmax(q)
