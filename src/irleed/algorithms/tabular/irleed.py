r"""IRLEED in a finite MDP, exactly: maximum a posteriori by Newton's method. Maximum-entropy IRL is its special case.

The likelihood of the observed actions is Eq. (7) of the paper; precision, bias and the gauge are those of
`irleed.model.demonstrators`. Weights and precisions maximise the posterior with $\theta$ and $\epsilon$ integrated out
to second order at fixed precisions (`posterior.Laplace`). The joint maximum, `evidence=False`, prefers the scale at
which the penalty on biases is smallest, and confuses large biases with high precision.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Int, Key, Scalar
from irleed.algorithms.tabular.curvature import AbstractCurvature, Point, Vector, Written
from irleed.algorithms.tabular.planning import AbstractPlanner, Soft
from irleed.algorithms.tabular.posterior import Evidence, Judgement, Width
from irleed.algorithms.tabular.visitation import Statistics
from irleed.envs.mdp import FiniteMDP
from irleed.model.demonstrators import Demonstrators, Prior, boltzmann, gauge

# The inverse variance of the weights is at most this many times that of the biases.
SMALLEST_SHARE = 10.0
# Newton steps before the evidence is used: weights and biases first have to be near the maximum.
WARM_STEPS = 3
# Largest step in log precision.
LARGEST_TURN = 1.0


class State(eqx.Module):
    """The estimate after some Newton steps."""

    weights: Float[Array, " F"]
    demonstrators: Demonstrators
    weight_prior: Width
    bias_prior: Width
    volume: Float[Array, " D"]  # parameters that each demonstrator's data determine
    volume_slope: Float[Array, " D"]
    to_gain: Float[Array, ""]  # expected gain in log posterior, to second order
    step: Int[Array, ""]


class Info(eqx.Module):
    """Metrics of one Newton step."""

    loss: Float[Array, ""]
    to_gain: Float[Array, ""]
    step_size: Float[Array, ""]


class Irleed(eqx.Module):
    """Estimate shared weights and each demonstrator's precision and bias from action counts.

    **Fields:**

    - `planner`: how demonstrators plan.
    - `prior`: inverse variances; with `evidence`, `prior.bias` is the initial value of an estimated one.
    - `curvature`: `Written` Hessians, or `Probed` ones where features are many.
    - `evidence`: integrate weights and biases out when estimating precisions and the width of the biases' prior.
    - `learn_precision`: whether precisions are estimated, or held at 1.
    - `learn_bias`: whether biases are estimated, or held at 0. With neither this is maximum-entropy IRL, see `maxent`.
    - `tolerance`: stop when a further step would gain less than this in log posterior.
    - `max_steps`: Newton steps at most.
    """

    planner: AbstractPlanner = Soft()
    prior: Prior = Prior()
    curvature: AbstractCurvature = Written()
    evidence: bool = eqx.field(static=True, default=True)
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)
    tolerance: Scalar = 0.05
    max_steps: int = eqx.field(static=True, default=50)

    @classmethod
    def maxent(cls, **settings: Any) -> "Irleed":
        """Maximum-entropy IRL: precision 1 and bias 0 held fixed, and a very weak prior on the weights."""
        settings = {"prior": Prior(weights=1e-3), **settings}
        return cls(learn_precision=False, learn_bias=False, evidence=False, **settings)

    @classmethod
    def anonymous(cls, **settings: Any) -> "Irleed":
        """For many demonstrators with about one episode each: the widths of priors are fixed, as data are too few."""
        settings = {"prior": Prior(bias=4.0, log_precision=1.0, weights=1e-3), **settings}
        return cls(evidence=False, **settings)

    def init(self, mdp: FiniteMDP, statistics: Statistics) -> State:
        """Start from no reward and unbiased, equal demonstrators."""
        demonstrators = statistics.action_counts.shape[0]
        return State(
            weights=jnp.zeros(mdp.feature_count),
            demonstrators=Demonstrators.unbiased(demonstrators, mdp.feature_count),
            weight_prior=Width.starting(self.prior.weights),
            bias_prior=Width.starting(self.prior.bias),
            volume=jnp.zeros(demonstrators),
            volume_slope=jnp.zeros(demonstrators),
            to_gain=jnp.asarray(jnp.inf, float),
            step=jnp.asarray(0, jnp.int32),
        )

    def finished(self, state: State) -> Bool[Array, ""]:
        """Converged, or out of steps."""
        return self.converged(state) | (state.step >= self.max_steps)

    def converged(self, state: State) -> Bool[Array, ""]:
        """The expected gain of a further step is below `tolerance`."""
        return state.to_gain <= self.tolerance

    def update(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> tuple[State, Info]:
        """One damped Newton step on the objective; then the terms of the evidence, for the next step."""
        del key  # nothing here is random
        counts = statistics.action_counts
        losses, slope = self._likelihood(state, mdp, counts)
        gradient = self._gradient(state, slope)
        learning = self._learning(state)
        direction, evidence = self.curvature.newton(self._point(state, mdp, counts), gradient, learning)
        promised = sum((jnp.vdot(g, d) for g, d in zip(gradient, direction, strict=True)), jnp.asarray(0.0))
        prior = Prior(state.bias_prior.inverse, self.prior.log_precision, state.weight_prior.inverse)

        def moved(size: Array):
            weights, bias, turn = (size * d for d in direction)
            log_precision = state.demonstrators.log_precision + turn
            return state.weights + weights, Demonstrators(log_precision, state.demonstrators.bias + bias)

        def penalty(weights: Array, demonstrators: Demonstrators):
            volume = jnp.vdot(state.volume, gauge(demonstrators.log_precision))
            return prior.penalty(weights, demonstrators) + volume

        def objective(size: Array):
            weights, demonstrators = moved(size)
            loss = negative_log_likelihood(self.planner, mdp, counts, demonstrators.perceived(weights))
            return loss + penalty(weights, demonstrators)

        here = jnp.sum(losses) + penalty(state.weights, state.demonstrators)
        size = _backtrack(objective, here, promised, _cut(direction[2]))
        weights, demonstrators = moved(size)
        terms = self._evidence_terms(state, weights, demonstrators, evidence)
        weight_prior, bias_prior, volume, volume_slope = terms
        to_gain = -promised
        if self.evidence:
            more = weight_prior.to_gain(evidence.weights_determined) + bias_prior.to_gain(evidence.bias_determined)
            to_gain = jnp.where(state.step <= WARM_STEPS, jnp.inf, to_gain + jnp.where(learning, more, 0.0))
        new = State(
            weights=weights,
            demonstrators=demonstrators,
            weight_prior=weight_prior,
            bias_prior=bias_prior,
            volume=volume,
            volume_slope=volume_slope,
            to_gain=to_gain,
            step=state.step + 1,
        )
        return new, Info(jnp.sum(losses), to_gain, size)

    def judge(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> Judgement:
        """The estimates for the demonstrators, with their uncertainty."""
        losses, slope = self._likelihood(state, mdp, statistics.action_counts)
        point = self._point(state, mdp, statistics.action_counts)
        unknown = self.curvature.uncertainty(key, point, slope, self.prior.log_precision)
        return Judgement(
            log_precision_draws=unknown.log_precision_draws,
            bias=state.demonstrators.bias,
            bias_norm=jnp.linalg.norm(state.demonstrators.bias, axis=-1),
            bias_norm_deviation=unknown.bias_norm_deviation,
            log_likelihood=-losses,
            information=unknown.information,
        )

    def _likelihood(
        self, state: State, mdp: FiniteMDP, counts: Float[Array, "D S A"]
    ) -> tuple[Float[Array, " D"], Float[Array, "D F"]]:
        r"""Every demonstrator's negative log-likelihood, and its gradient in $u_i$."""

        def one(u: Array, count: Array):
            return negative_log_likelihood(self.planner, mdp, count[None], u[None])

        return jax.vmap(jax.value_and_grad(one))(state.demonstrators.perceived(state.weights), counts)

    def _gradient(self, state: State, slope: Float[Array, "D F"]) -> Vector:
        """The gradient of the objective with the evidence, in weights, biases and log precisions."""
        demonstrators = state.demonstrators
        precision, perceived = demonstrators.precision, demonstrators.perceived(state.weights)
        bias = precision[:, None] * slope + state.bias_prior.inverse * demonstrators.bias
        turn = jnp.sum(perceived * slope, -1) + state.volume
        turn = turn + self.prior.log_precision * gauge(demonstrators.log_precision)
        return (
            precision @ slope + state.weight_prior.inverse * state.weights,
            bias if self.learn_bias else jnp.zeros_like(bias),
            turn if self.learn_precision else jnp.zeros_like(turn),
        )

    def _point(self, state: State, mdp: FiniteMDP, counts: Float[Array, "D S A"]) -> Point:
        demonstrators = state.demonstrators
        return Point(
            planner=self.planner,
            mdp=mdp,
            counts=counts,
            weights=state.weights,
            bias=demonstrators.bias,
            log_precision=gauge(demonstrators.log_precision),
            perceived=demonstrators.perceived(state.weights),
            weight_prior=state.weight_prior.inverse,
            bias_prior=state.bias_prior.inverse,
            precision_prior=self.prior.log_precision + state.volume_slope,
            learn_bias=self.learn_bias,
            learn_precision=self.learn_precision,
        )

    def _learning(self, state: State) -> Bool[Array, ""] | bool:
        """Whether the terms of the evidence change in this step."""
        return self.evidence and (state.step >= WARM_STEPS)

    def _evidence_terms(self, state: State, weights: Float[Array, " F"], demonstrators: Demonstrators, gain: Evidence):
        """The inverse variances of weights and biases, and the volume terms, for the next step."""
        if not self.evidence:
            return state.weight_prior, state.bias_prior, state.volume, state.volume_slope
        weight_prior = state.weight_prior.learn(weights, gain.weights_determined)
        bias_prior = state.bias_prior.learn(demonstrators.bias, gain.bias_determined)
        if not self.learn_bias:
            bias_prior = state.bias_prior
        # Where biases dominate, the shared weights must not vanish altogether.
        weight_prior = weight_prior.limited(SMALLEST_SHARE * bias_prior.inverse)
        learnt = weight_prior, bias_prior, gain.parameters, gain.parameters_slope
        before = state.weight_prior, state.bias_prior, state.volume, state.volume_slope
        return jax.tree.map(lambda new, old: jnp.where(self._learning(state), new, old), learnt, before)


def negative_log_likelihood(
    planner: AbstractPlanner, mdp: FiniteMDP, counts: Float[Array, "D S A"], perceived: Float[Array, "D F"]
) -> Float[Array, ""]:
    r"""$-\sum_i \sum_{s,a} n_i(s,a) \log \pi_i(a|s)$: the paper's Eq. (7), without constant terms."""

    def one(u: Array, count: Array):
        return -jnp.sum(count * boltzmann(planner.q_values(mdp, mdp.rewards(u))))

    return jnp.sum(jax.vmap(one)(perceived, counts))


def _cut(turn: Float[Array, " D"]) -> Float[Array, ""]:
    return jnp.minimum(1.0, LARGEST_TURN / jnp.maximum(jnp.max(jnp.abs(turn)), 1e-12))


def _backtrack(
    objective: Callable[[Array], Array], here: Float[Array, ""], promised: Float[Array, ""], start: Float[Array, ""]
) -> Float[Array, ""]:
    """Backtracking line search: halve the step until the objective decreases sufficiently (Armijo)."""

    def too_long(size: Array):
        return ~(objective(size) <= here + 1e-4 * size * promised) & (size > 1e-4)

    return jax.lax.while_loop(too_long, lambda size: size / 2, start)
