r"""The posterior of a tabular fit: Laplace approximation, widths of the priors, credible intervals of precisions.

Newton steps, effective parameters and intervals all come from the same small inverses. Write
$u_i = \beta_i(\theta + \epsilon_i)$, $g_i$ and $H_i$ for the gradient and Hessian of demonstrator $i$'s negative
log-likelihood in $u_i$. The Hessian of the penalised objective in $(\theta, \epsilon, \log\beta)$ is an arrow: only
$\theta$ couples the demonstrators. Eliminating $\epsilon_i$ by $X_i = (\beta_i^2 H_i + \alpha)^{-1}$ and then
$\log\beta_i$, a scalar each, leaves one system in $\theta$; the gauge $\sum_i \log\beta_i = 0$ is a constraint on the
step.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.algorithms.tabular.planning import eigenvalues_and_vectors, inverse


class Laplace(eqx.Module):
    """The factorised Hessian at a point. Held-fixed biases have ``spread = 0``, held-fixed precisions ``give = 0``."""

    spread: Float[Array, "D F F"]  # X: covariance of a bias given all other parameters
    response: Float[Array, "D F F"]  # W = X beta^2 H: response of a bias to the weights
    tilt: Float[Array, "D F"]  # v = X c: response of a bias to its precision
    lever: Float[Array, "D F"]  # s: coupling of weights and log precision after eliminating biases
    give: Float[Array, " D"]  # 1 / k: variance of a log precision, weights given and biases eliminated
    weights_covariance: Float[Array, "F F"]

    def solve(
        self, weights: Float[Array, " F"], bias: Float[Array, "D F"], log_precision: Float[Array, " D"]
    ) -> tuple[Float[Array, " F"], Float[Array, "D F"], Float[Array, " D"]]:
        """Solve Hessian x = right-hand side, without the gauge."""
        reduced = log_precision - jnp.sum(self.tilt * bias, -1)
        top = weights - jnp.einsum("dfg,df->g", self.response, bias) - (self.give * reduced) @ self.lever
        step = self.weights_covariance @ top
        turn = self.give * (reduced - self.lever @ step)
        shift = jnp.einsum("dfg,dg->df", self.spread, bias) - self.response @ step - self.tilt * turn[:, None]
        return step, shift, turn

    def gauged_solve(
        self, weights: Float[Array, " F"], bias: Float[Array, "D F"], log_precision: Float[Array, " D"]
    ) -> tuple[Float[Array, " F"], Float[Array, "D F"], Float[Array, " D"]]:
        """Solve under the constraint that the log precisions of the solution sum to zero."""
        free = self.solve(weights, bias, log_precision)
        along = self.solve(jnp.zeros_like(weights), jnp.zeros_like(bias), jnp.ones_like(log_precision))
        total = jnp.sum(along[2])
        excess = jnp.where(total > 0, jnp.sum(free[2]) / jnp.where(total > 0, total, 1.0), 0.0)
        return jax.tree.map(lambda x, y: x - excess * y, free, along)

    def bias_norm_variance(self, bias: Float[Array, "D F"]) -> Float[Array, " D"]:
        """Posterior variance of each bias along its own direction: that of its norm, to first order."""
        norm = jnp.linalg.norm(bias, axis=-1, keepdims=True)
        direction = bias / jnp.where(norm > 0, norm, 1.0)
        zero_weights, zero_turn = jnp.zeros(bias.shape[1]), jnp.zeros(len(bias))

        def along(i: Any):
            only = jnp.zeros_like(bias).at[i].set(direction[i])
            return jnp.vdot(direction[i], self.gauged_solve(zero_weights, only, zero_turn)[1][i])

        return jax.vmap(along)(jnp.arange(len(bias)))


class Evidence(eqx.Module):
    r"""The terms from integrating $\theta$ and $\epsilon$ out at fixed precisions.

    `parameters` is $\gamma_i = \mathrm{tr}(\beta_i^2 H_i\, \mathrm{Cov}(\theta + \epsilon_i))$, how many parameters
    demonstrator $i$'s data determine. It is the derivative of half the log determinant of the Hessian with respect
    to $\log\beta_i$; `parameters_slope` is the larger part of its own derivative.
    """

    parameters: Float[Array, " D"]
    parameters_slope: Float[Array, " D"]
    bias_determined: Float[Array, ""]  # the number of bias entries that the data, not the prior, determine
    weights_determined: Float[Array, ""]  # and of weights
    information: Float[Array, " D"]  # each demonstrator's share of the information about the weights


def factorise(
    precision: Float[Array, " D"],
    perceived: Float[Array, "D F"],
    hessian: Float[Array, "D F F"],
    *,
    weight_prior: Scalar,
    bias_prior: Scalar,
    precision_prior: Float[Array, " D"],
    learn_bias: bool,
    learn_precision: bool,
) -> tuple[Laplace, Evidence]:
    """Factorise the Gauss-Newton Hessian, which is positive definite wherever the likelihood's is."""
    identity = jnp.eye(hessian.shape[-1])
    scaled = precision[:, None, None] ** 2 * hessian
    by_turn = jnp.einsum("dfg,dg->df", hessian, perceived)
    cross = precision[:, None] * by_turn
    spread = jax.vmap(inverse)(scaled + bias_prior * identity[None]) if learn_bias else jnp.zeros_like(scaled)
    response = spread @ scaled
    kept = scaled - scaled @ response  # information about the weights after eliminating the bias
    corner = weight_prior * identity + jnp.sum(kept, 0)
    tilt = jnp.einsum("dfg,dg->df", spread, cross)
    lever = cross - jnp.einsum("dfg,dg->df", scaled, tilt)
    stiffness = jnp.sum(perceived * by_turn, -1) + precision_prior - jnp.sum(cross * tilt, -1)
    give = 1 / stiffness if learn_precision else jnp.zeros_like(stiffness)
    turned = corner - jnp.einsum("df,d,dg->fg", lever, give, lever)
    found = Laplace(spread, response, tilt, lever, give, inverse(turned))
    return found, _evidence(spread, response, kept, inverse(corner), weight_prior, bias_prior)


def _evidence(
    spread: Array,
    response: Array,
    kept: Array,
    weights_covariance: Array,
    weight_prior: Scalar,
    bias_prior: Scalar,
) -> Evidence:
    identity = jnp.eye(response.shape[-1])
    own = jnp.einsum("dff->d", response)
    remainder = identity[None] - response  # response of theta + eps_i to theta
    shares = jnp.sum(kept * weights_covariance[None], (1, 2))
    bias_variance = jnp.einsum("dff->", spread) + jnp.sum((response @ weights_covariance) * response)
    return Evidence(
        parameters=own + jnp.sum((kept @ weights_covariance) * remainder, (1, 2)),
        parameters_slope=2 * (own - jnp.sum(response * response.mT, (1, 2))),
        bias_determined=jnp.maximum(own.size * len(identity) - bias_prior * bias_variance, 0.0),
        information=shares / jnp.maximum(jnp.sum(shares), 1e-300),
        weights_determined=jnp.maximum(len(identity) - weight_prior * jnp.trace(weights_covariance), 0.0),
    )


# Pseudo-observations of the smallest allowed variance, which keep a width finite.
PRIOR_PARAMETERS = 1.0
LARGEST_INVERSE = 1e4
# Largest step on the log scale.
LONGEST_STEP = 1.5
# Over-relaxation of MacKay's iteration, which converges slowly; this factor does not oscillate.
LENGTHENED = 1.5


class Width(eqx.Module):
    """An inverse variance under MacKay's fixed-point iteration, on a log scale."""

    inverse: Float[Array, ""]
    step: Float[Array, ""]  # the last one

    @classmethod
    def starting(cls, inverse: Scalar) -> "Width":
        """The initial value."""
        return cls(jnp.asarray(inverse, float), jnp.asarray(jnp.inf, float))

    def learn(self, values: Float[Array, "..."], determined: Float[Array, ""]) -> "Width":
        """One step, given the current values and how many of them the data determine."""
        proposal = (determined + PRIOR_PARAMETERS) / (jnp.sum(values**2) + PRIOR_PARAMETERS / LARGEST_INVERSE)
        step = jnp.clip(LENGTHENED * jnp.log(proposal / self.inverse), -LONGEST_STEP, LONGEST_STEP)
        return Width(self.inverse * jnp.exp(step), step)

    def limited(self, largest: Float[Array, ""]) -> "Width":
        """The same with the inverse variance clipped to `largest`."""
        inverse = jnp.minimum(self.inverse, largest)
        return Width(inverse, self.step + jnp.log(inverse / self.inverse))

    def to_gain(self, determined: Float[Array, ""]) -> Float[Array, ""]:
        """The gain in log evidence of the last step, to second order."""
        return 0.5 * determined * self.step**2


# The grid of log precision around the estimate, and the number of samples.
GRID_BELOW, GRID_ABOVE, GRID_POINTS = 8.0, 4.0, 193
DRAWS = 512


class Judgement(eqx.Module):
    """The estimates for D demonstrators after convergence."""

    log_precision_draws: Float[Array, "M D"]  # posterior samples, in the gauge; a single one where there is no interval
    bias: Float[Array, "D F"]
    bias_norm: Float[Array, " D"]
    bias_norm_deviation: Float[Array, " D"]  # posterior standard deviation
    log_likelihood: Float[Array, " D"]  # of each demonstrator's actions under their own policy
    information: Float[Array, " D"]  # share of the information about the weights


def precision_draws(
    key: Key,
    log_precision: Float[Array, " D"],
    mean: Float[Array, "D F"],
    natural: Float[Array, "D F"],
    curvature: Float[Array, "D F"],
    precision_prior: Scalar,
) -> Float[Array, "M D"]:
    r"""Posterior samples of the log precisions, in the gauge; stratified for each demonstrator.

    In the coordinates of `diagonalise`, `mean` is $\theta$, `curvature` the diagonal of $H$, and `natural` the
    likelihood's mean times its curvature, $b = H u - g$.
    """
    offset = jnp.linspace(-GRID_BELOW, GRID_ABOVE, GRID_POINTS)

    def log_density(at: Array, mean: Array, natural: Array, curvature: Array):
        beta = jnp.exp(at)
        shrink = 1 + beta**2 * curvature
        # The integral over u of the Gaussian likelihood times N(u; beta theta, beta^2), coordinate by coordinate.
        misfit = curvature * (beta * mean) ** 2 - 2 * natural * beta * mean - beta**2 * natural**2
        return -0.5 * jnp.sum(misfit / shrink + jnp.log(shrink)) - 0.5 * precision_prior * at**2

    def one(key: Key, at: Array, *rest: Array):
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

    def one(u: Array, slope: Array, curvature: Array):
        value, vector = eigenvalues_and_vectors(widen @ curvature @ widen)
        return (narrow @ weights) @ vector, (widen @ (curvature @ u - slope)) @ vector, jnp.maximum(value, 0.0)

    return jax.vmap(one)(perceived, gradient, hessian)
