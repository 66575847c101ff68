r"""The curvature of the posterior by explicit Hessians, or by Hessian-vector products alone.

Both use the Fisher information of the observed states as the Hessian of the likelihood in $u_i$ (Gauss-Newton): it is
positive semidefinite, and exact where values are linear in the reward. `Written` is exact and fast up to some hundred
features; `Probed` needs memory for a few vectors only: Newton's equations are solved by conjugate gradients, and the
traces of inverses in the evidence are estimated from a few random vectors (Hutchinson's method), which are fixed so
that the estimate converges.
"""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Key, Scalar
from irleed.algorithms.tabular import posterior
from irleed.algorithms.tabular.planning import AbstractPlanner, sum_over_actions
from irleed.algorithms.tabular.posterior import Evidence
from irleed.envs.mdp import FiniteMDP
from irleed.model.demonstrators import boltzmann, gauge

# A vector in the space of weights, biases and log precisions.
Vector = tuple[Float[Array, " F"], Float[Array, "D F"], Float[Array, " D"]]


class Point(eqx.Module):
    """The point at which the curvature is computed."""

    planner: AbstractPlanner
    mdp: FiniteMDP
    counts: Float[Array, "D S A"]
    weights: Float[Array, " F"]
    bias: Float[Array, "D F"]
    log_precision: Float[Array, " D"]  # in the gauge
    perceived: Float[Array, "D F"]
    weight_prior: Scalar
    bias_prior: Scalar
    precision_prior: Float[Array, " D"]
    learn_bias: bool = eqx.field(static=True)
    learn_precision: bool = eqx.field(static=True)

    @property
    def precision(self) -> Float[Array, " D"]:
        r"""$\beta_i$."""
        return jnp.exp(self.log_precision)

    def free(self, weights: Float[Array, " F"], bias: Float[Array, "D F"], turn: Float[Array, " D"]) -> Vector:
        """The projection of a vector onto the free parameters, within the gauge."""
        return (
            weights,
            bias if self.learn_bias else jnp.zeros_like(bias),
            gauge(turn) if self.learn_precision else jnp.zeros_like(turn),
        )

    def at_fixed_precision(self) -> "Point":
        """The same with precisions held fixed."""
        return dataclasses.replace(self, learn_precision=False)


class Uncertainty(eqx.Module):
    """Posterior uncertainty about the demonstrators."""

    log_precision_draws: Float[Array, "M D"]  # a single sample, the estimate, where there is no interval
    bias_norm_deviation: Float[Array, " D"]
    information: Float[Array, " D"]


class AbstractCurvature(eqx.Module):
    """The interface of the curvature."""

    @abc.abstractmethod
    def newton(self, point: Point, gradient: Vector, evidence: bool | Bool[Array, ""]) -> tuple[Vector, Evidence]:
        """The Newton step within the gauge and, with `evidence`, the terms of the evidence."""

    @abc.abstractmethod
    def uncertainty(self, key: Key, point: Point, slope: Float[Array, "D F"], precision_prior: Scalar) -> Uncertainty:
        """Posterior samples of the precisions; `slope` is the likelihood's gradient in u."""


class Written(AbstractCurvature):
    """Explicit Hessians."""

    def newton(self, point: Point, gradient: Vector, evidence: bool | Bool[Array, ""]) -> tuple[Vector, Evidence]:
        """See `AbstractCurvature.newton`; the evidence comes with it."""
        found, terms = self._factorise(point, self._hessian(point))
        return found.gauged_solve(*(-g for g in gradient)), terms

    def uncertainty(self, key: Key, point: Point, slope: Float[Array, "D F"], precision_prior: Scalar) -> Uncertainty:
        """See `AbstractCurvature.uncertainty`: the posterior of each log precision along a grid."""
        hessian = self._hessian(point)
        found, evidence = self._factorise(point, hessian)
        covariance = found.weights_covariance + jnp.eye(len(point.weights)) / point.bias_prior
        spectrum = posterior.diagonalise(point.weights, covariance, point.perceived, slope, hessian)
        draws = posterior.precision_draws(key, point.log_precision, *spectrum, precision_prior)
        return Uncertainty(
            log_precision_draws=draws if point.learn_precision else jnp.zeros_like(draws),
            bias_norm_deviation=jnp.sqrt(found.bias_norm_variance(point.bias)),
            information=evidence.information,
        )

    def _hessian(self, point: Point) -> Float[Array, "D F F"]:
        return jax.vmap(lambda u, count: fisher_information(point.planner, point.mdp, count, u))(
            point.perceived, point.counts
        )

    def _factorise(self, point: Point, hessian: Float[Array, "D F F"]) -> tuple[posterior.Laplace, Evidence]:
        return posterior.factorise(
            point.precision,
            point.perceived,
            hessian,
            weight_prior=point.weight_prior,
            bias_prior=point.bias_prior,
            precision_prior=point.precision_prior,
            learn_bias=point.learn_bias,
            learn_precision=point.learn_precision,
        )


class Probed(AbstractCurvature):
    """Hessians by Hessian-vector products.

    - `probes`: random vectors for the traces.
    - `step_accuracy`, `trace_accuracy`: residual of the conjugate gradients, as a share of the right-hand side.
    - `iterations`: of the conjugate gradients, at most.
    - `planner_tolerance`: accuracy of a product with the Hessian.
    """

    probes: int = eqx.field(static=True, default=1)
    step_accuracy: float = eqx.field(static=True, default=0.1)
    trace_accuracy: float = eqx.field(static=True, default=0.02)
    iterations: int = eqx.field(static=True, default=50)
    planner_tolerance: float = eqx.field(static=True, default=1e-3)

    def newton(self, point: Point, gradient: Vector, evidence: bool | Bool[Array, ""]) -> tuple[Vector, Evidence]:
        """See `AbstractCurvature.newton`."""
        product = self._products(point)
        none = jnp.zeros(len(point.bias))
        nothing = Evidence(none, none, jnp.asarray(0.0), jnp.asarray(0.0), none)
        terms = jax.lax.cond(evidence, lambda: self._evidence(point, product), lambda: nothing)
        downhill = point.free(*(-g for g in gradient))
        return self._solve(point, product, downhill, self.step_accuracy), terms

    def uncertainty(self, key: Key, point: Point, slope: Float[Array, "D F"], precision_prior: Scalar) -> Uncertainty:
        """The information of each demonstrator's data; without posterior samples and the deviation of biases."""
        evidence = self._evidence(point, self._products(point))
        return Uncertainty(point.log_precision[None], jnp.full(len(point.bias), jnp.nan), evidence.information)

    def _products(self, point: Point):
        """Every demonstrator's `fisher_information` times a vector of theirs."""
        planner, mdp = type(point.planner)(tolerance=self.planner_tolerance), point.mdp
        q = jax.vmap(lambda u: planner.q_values(mdp, mdp.rewards(u)))(point.perceived)

        def one(q: Array, count: Array, vector: Array) -> Array:
            size = jnp.maximum(jnp.max(jnp.abs(vector)), 1e-300)  # tolerances are absolute
            derivative, transpose = jax.vjp(lambda v: planner.q_derivative(mdp, q, mdp.rewards(v)), vector / size)
            policy = jax.nn.softmax(q)
            centred = derivative - sum_over_actions(policy * derivative)[:, None]
            return size * transpose(jnp.sum(count, -1, keepdims=True) * policy * centred)[0]

        # Called in many places: traced once.
        return jax.jit(lambda vectors: jax.vmap(one)(q, point.counts, vectors))

    def _solve(self, point: Point, product: Callable[[Array], Array], source: Vector, accuracy: float) -> Vector:
        """Solve Hessian x = source for the free parameters."""
        scale = point.precision[:, None]
        stiffness = point.precision_prior + jnp.sum(point.perceived * product(point.perceived), -1)

        def hessian(vector: Vector):
            weights, bias, turn = point.free(*vector)
            pull = product(scale * (weights[None] + bias) + point.perceived * turn[:, None])
            return point.free(
                jnp.sum(scale * pull, 0) + point.weight_prior * weights,
                scale * pull + point.bias_prior * bias,
                jnp.sum(point.perceived * pull, -1) + point.precision_prior * turn,
            )

        def precondition(vector: Vector):
            weights, bias, turn = vector
            return point.free(weights / point.weight_prior, bias / point.bias_prior, turn / stiffness)

        return jax.scipy.sparse.linalg.cg(hessian, source, tol=accuracy, maxiter=self.iterations, M=precondition)[0]

    def _evidence(self, point: Point, product: Callable[[Array], Array]) -> Evidence:
        """The traces of the evidence at fixed precisions, from (H + prior)^-1 z with random signs z."""
        point = point.at_fixed_precision()
        scale = point.precision[:, None]

        def probe(key: Key):
            weights_key, bias_key = jax.random.split(key)
            sign = point.free(
                jax.random.rademacher(weights_key, point.weights.shape, point.weights.dtype),
                jax.random.rademacher(bias_key, point.bias.shape, point.bias.dtype),
                jnp.zeros(len(point.bias)),
            )
            solution = self._solve(point, product, sign, self.trace_accuracy)
            own, found = (scale * (weights[None] + bias) for weights, bias, _ in (sign, solution))
            parameters = jnp.sum(product(own) * found, -1)
            return Evidence(
                parameters=parameters,
                parameters_slope=parameters,  # an approximation: it is between 0 and twice this
                bias_determined=jnp.sum(sign[1] ** 2) - point.bias_prior * jnp.vdot(sign[1], solution[1]),
                weights_determined=sign[0].size - point.weight_prior * jnp.vdot(sign[0], solution[0]),
                information=jnp.sum(scale * product(found) * sign[0][None], -1),
            )

        each = jax.lax.map(probe, jax.random.split(jax.random.key(0), self.probes))
        mean: Evidence = jax.tree.map(lambda x: jnp.maximum(jnp.mean(x, 0), 0.0), each)
        total = jnp.maximum(jnp.sum(mean.information), 1e-300)
        return eqx.tree_at(lambda e: e.information, mean, mean.information / total)


def fisher_information(
    planner: AbstractPlanner, mdp: FiniteMDP, count: Float[Array, "S A"], perceived: Float[Array, " F"]
) -> Float[Array, "F F"]:
    r"""Expected curvature of a demonstrator's negative log-likelihood in $u$, given the states they visited.

    $\sum_s n(s)\, \mathrm{Cov}_{a \sim \pi}(\partial Q(s, a)/\partial u)$.
    """
    q = planner.q_values(mdp, mdp.rewards(perceived))
    policy = jnp.exp(boltzmann(q))
    directions = jax.vmap(mdp.rewards)(jnp.eye(mdp.feature_count))
    slope = jax.vmap(lambda direction: planner.q_derivative(mdp, q, direction), out_axes=-1)(directions)
    centred = slope - jnp.sum(policy[..., None] * slope, 1, keepdims=True)
    weighted = (policy * jnp.sum(count, -1, keepdims=True))[..., None] * centred
    return weighted.reshape(-1, slope.shape[-1]).T @ centred.reshape(-1, slope.shape[-1])
