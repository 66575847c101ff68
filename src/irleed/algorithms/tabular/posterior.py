"""The posterior of a tabular fit: learnt widths of the priors, credible intervals of the precisions."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.algorithms.tabular.dense import eigenvalues_and_vectors

# A width is learnt as if this many more parameters had been seen, of the smallest variance allowed.
PRIOR_PARAMETERS = 1.0
LARGEST_INVERSE = 1e4
# A step on the log scale is this long at most.
LONGEST_STEP = 1.5
# MacKay's iteration creeps; this much longer steps still do not swing.
LENGTHENED = 1.5


class Width(eqx.Module):
    """An inverse variance on its way to MacKay's fixed point, on a log scale."""

    inverse: Float[Array, ""]
    step: Float[Array, ""]  # the last one

    @classmethod
    def starting(cls, inverse: Scalar) -> "Width":
        """Not yet learnt."""
        return cls(jnp.asarray(inverse, float), jnp.asarray(jnp.inf, float))

    def learn(self, values: Float[Array, "..."], determined: Float[Array, ""]) -> "Width":
        """One step, given the current values and how many of them the data determine."""
        proposal = (determined + PRIOR_PARAMETERS) / (jnp.sum(values**2) + PRIOR_PARAMETERS / LARGEST_INVERSE)
        step = jnp.clip(LENGTHENED * jnp.log(proposal / self.inverse), -LONGEST_STEP, LONGEST_STEP)
        return Width(self.inverse * jnp.exp(step), step)

    def limited(self, largest: Float[Array, ""]) -> "Width":
        """The same, or the largest inverse variance there may be, and the step to that."""
        inverse = jnp.minimum(self.inverse, largest)
        return Width(inverse, self.step + jnp.log(inverse / self.inverse))

    def to_gain(self, determined: Float[Array, ""]) -> Float[Array, ""]:
        """Log evidence that the last step gained, to second order."""
        return 0.5 * determined * self.step**2


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
