r"""Credible intervals of the precisions.

Near the estimate, demonstrator $i$'s likelihood is a Gaussian in $u_i$ with curvature $H_i$, and before it is seen
$u_i \sim N(\beta_i\theta, \beta_i^2 (1/\alpha + C))$ with $C$ the covariance of the weights. So the posterior of
$\log\beta_i$, weights and bias integrated out, is known in closed form along a grid: one-sided for a demonstrator who
might as well act at random, where a Gaussian in $\log\beta_i$ would be wrong. The gauge mixes the demonstrators: draws
from all of them are centred together.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.tabular.dense import eigenvalues_and_vectors

# The grid of log precision around the estimate, and the number of draws.
GRID_BELOW, GRID_ABOVE, GRID_POINTS = 8.0, 4.0, 193
DRAWS = 512


class Judgement(eqx.Module):
    """What is known about D demonstrators once the estimate has converged."""

    log_precision_draws: Float[Array, "M D"]  # posterior draws, in the gauge; a single one where there is no interval
    bias: Float[Array, "D F"]
    bias_norm: Float[Array, " D"]
    bias_norm_deviation: Float[Array, " D"]  # posterior standard deviation
    log_likelihood: Float[Array, " D"]  # of each demonstrator's actions under their own policy
    information: Float[Array, " D"]  # share in what is known about the weights


def precision_draws(
    key: Key,
    log_precision: Float[Array, " D"],
    mean: Float[Array, "D F"],
    natural: Float[Array, "D F"],
    curvature: Float[Array, "D F"],
    precision_prior: Scalar,
) -> Float[Array, "M D"]:
    r"""Draws of the log precisions, in the gauge; each demonstrator's are spread evenly over their posterior.

    In the coordinates of `diagonalise`, `mean` is $\theta$, `curvature` the diagonal of $H$, and `natural` the
    likelihood's mean times its curvature, $b = H u - g$.
    """
    offset = jnp.linspace(-GRID_BELOW, GRID_ABOVE, GRID_POINTS)

    def log_density(at, mean, natural, curvature):
        beta = jnp.exp(at)
        shrink = 1 + beta**2 * curvature
        # The integral over u of the Gaussian likelihood times N(u; beta theta, beta^2), coordinate by coordinate.
        misfit = curvature * (beta * mean) ** 2 - 2 * natural * beta * mean - beta**2 * natural**2
        return -0.5 * jnp.sum(misfit / shrink + jnp.log(shrink)) - 0.5 * precision_prior * at**2

    def one(key, at, *rest):
        grid = at + offset
        density = jax.lax.map(lambda point: log_density(point, *rest), grid)
        cumulative = jnp.cumsum(jnp.exp(density - jnp.max(density)))
        levels = (jax.random.permutation(key, DRAWS).astype(float) + 0.5) / DRAWS
        return jnp.interp(levels, cumulative / cumulative[-1], grid)

    keys = jax.random.split(key, len(log_precision))
    draws = jax.vmap(one)(keys, log_precision, mean, natural, curvature).T
    return draws - jnp.mean(draws, -1, keepdims=True)


def diagonalise(
    weights: Float[Array, " F"],
    covariance: Float[Array, "F F"],
    perceived: Float[Array, "D F"],
    gradient: Float[Array, "D F"],
    hessian: Float[Array, "D F F"],
) -> tuple[Float[Array, "D F"], Float[Array, "D F"], Float[Array, "D F"]]:
    r"""The mean, natural parameter and curvature that `precision_draws` takes.

    `covariance` is that of $\theta + \epsilon_i$ before demonstrator $i$ is seen. In coordinates where it is the
    identity, each curvature has its own eigenvectors.
    """
    value, vector = eigenvalues_and_vectors(covariance)
    root = jnp.sqrt(jnp.maximum(value, 1e-300))
    widen, narrow = (vector * root[None]) @ vector.T, (vector / root[None]) @ vector.T

    def one(u, slope, curvature):
        value, vector = eigenvalues_and_vectors(widen @ curvature @ widen)
        return (narrow @ weights) @ vector, (widen @ (curvature @ u - slope)) @ vector, jnp.maximum(value, 0.0)

    return jax.vmap(one)(perceived, gradient, hessian)
