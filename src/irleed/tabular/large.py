r"""The estimate of `irleed.tabular.irleed` where features are too many for their Hessians: L-BFGS, diagonals only.

The objective is the same. The curvatures $H_i$ enter through their diagonals alone, estimated by Hutchinson's method
($\mathrm{diag}\,H \approx \mathrm{mean}_z\, z \odot H z$ over random signs $z$) and refreshed now and then; with
indicator features a diagonal entry is one state's information about its own reward.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Bool, Float, Int, Key, Scalar
from irleed.demonstrator import Demonstrators, Prior, gauge
from irleed.envs.mdp import FiniteMDP
from irleed.tabular.intervals import Judgement
from irleed.tabular.irleed import Info, negative_log_likelihood
from irleed.tabular.planning import AbstractPlanner, Soft
from irleed.tabular.statistics import Statistics
from irleed.tabular.width import Width


class State(eqx.Module):
    """The estimate after some steps, and what L-BFGS remembers."""

    weights: Float[Array, " F"]
    demonstrators: Demonstrators
    weight_prior: Width
    bias_prior: Width
    volume: Float[Array, " D"]
    memory: optax.OptState
    loss: Float[Array, ""]
    to_gain: Float[Array, ""]  # what the last step gained
    step: Int[Array, ""]


class LargeIrleed(eqx.Module):
    """`Irleed` for tens of thousands of features; the fields are the same.

    - `refresh`: steps between two looks at the curvature.
    - `probes`: random directions in each.
    - `tolerance`: stop when a step gains less than this in log posterior.
    """

    planner: AbstractPlanner = Soft()
    prior: Prior = Prior()
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)
    refresh: int = eqx.field(static=True, default=20)
    probes: int = eqx.field(static=True, default=2)
    tolerance: Scalar = 0.1
    max_steps: int = eqx.field(static=True, default=100)

    def init(self, mdp: FiniteMDP, statistics: Statistics) -> State:
        """Start from no reward and unbiased, equal demonstrators."""
        demonstrators = statistics.action_counts.shape[0]
        weights = jnp.zeros(mdp.feature_count)
        model = Demonstrators.unbiased(demonstrators, mdp.feature_count)
        return State(
            weights=weights,
            demonstrators=model,
            weight_prior=Width.starting(self.prior.weights),
            bias_prior=Width.starting(self.prior.bias),
            volume=jnp.zeros(demonstrators),
            memory=self._optimiser().init((weights, model)),  # pyright: ignore[reportArgumentType]
            loss=jnp.asarray(jnp.inf),
            to_gain=jnp.asarray(jnp.inf),
            step=jnp.asarray(0, jnp.int32),
        )

    def finished(self, state: State) -> Bool[Array, ""]:
        """Converged, or out of steps."""
        return self.converged(state) | (state.step >= self.max_steps)

    def converged(self, state: State) -> Bool[Array, ""]:
        """The last step gained next to nothing, after the curvature has been seen twice."""
        return (state.to_gain <= self.tolerance) & (state.step > 2 * self.refresh)

    def update(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> tuple[State, Info]:
        """One step of L-BFGS; now and then, first a look at the curvature."""
        looking = (state.step % self.refresh == 0) & (state.step > 0)
        state = jax.lax.cond(looking, lambda s: self._look(key, s, mdp, statistics), lambda s: s, state)
        prior = Prior(state.bias_prior.inverse, self.prior.log_precision, state.weight_prior.inverse)

        def objective(estimate):
            weights, demonstrators = self._held(estimate)
            perceived = demonstrators.perceived(weights)
            loss = negative_log_likelihood(self.planner, mdp, statistics.action_counts, perceived)
            volume = jnp.vdot(state.volume, gauge(demonstrators.log_precision))
            return loss + prior.penalty(weights, demonstrators) + volume

        estimate: Any = state.weights, state.demonstrators  # optax's types know no modules
        # What the line search remembers of the objective is out of date once its terms have changed.
        value, gradient = jax.lax.cond(
            looking | (state.step == 0),
            lambda: jax.value_and_grad(objective)(estimate),
            lambda: (optax.tree.get(state.memory, "value"), optax.tree.get(state.memory, "grad")),
        )
        updates, memory = self._optimiser().update(
            gradient, state.memory, estimate, value=value, grad=gradient, value_fn=objective
        )
        moved: Any = optax.apply_updates(estimate, updates)
        weights, demonstrators = moved
        gained = jnp.where(looking | (state.step == 0), jnp.inf, value - optax.tree.get(memory, "value"))
        new = State(
            weights=weights,
            demonstrators=demonstrators,
            weight_prior=state.weight_prior,
            bias_prior=state.bias_prior,
            volume=state.volume,
            memory=memory,
            loss=value,
            to_gain=gained,
            step=state.step + 1,
        )
        return new, Info(value, gained, optax.tree.get(memory, "learning_rate"))

    def judge(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> Judgement:
        """What the estimate says of the demonstrators. No intervals: diagonals alone would make them far too narrow."""
        demonstrators = state.demonstrators
        perceived = demonstrators.perceived(state.weights)
        losses = jax.vmap(self._loss_of(mdp))(perceived, statistics.action_counts)
        diagonal = self._diagonal(jax.random.fold_in(key, 1), state, mdp, statistics)
        scaled = demonstrators.precision[:, None] ** 2 * diagonal
        held = state.bias_prior.inverse
        kept = scaled * held / (scaled + held) if self.learn_bias else scaled
        shares = jnp.sum(kept / (state.weight_prior.inverse + jnp.sum(kept, 0))[None], -1)
        return Judgement(
            log_precision_draws=gauge(demonstrators.log_precision)[None],
            bias=demonstrators.bias,
            bias_norm=jnp.linalg.norm(demonstrators.bias, axis=-1),
            bias_norm_deviation=jnp.full(len(losses), jnp.nan),
            log_likelihood=-losses,
            information=shares / jnp.sum(shares),
        )

    def _look(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> State:
        """Learn the inverse variances and the volume terms from the curvature, as `Irleed` does at every step."""
        precision = state.demonstrators.precision
        scaled = precision[:, None] ** 2 * self._diagonal(key, state, mdp, statistics)
        response = scaled / (scaled + state.bias_prior.inverse) if self.learn_bias else jnp.zeros_like(scaled)
        kept = jnp.sum(scaled * (1 - response), 0)
        known = kept + state.weight_prior.inverse
        weight_prior = state.weight_prior.learn(state.weights, jnp.sum(kept / known))
        bias_prior = state.bias_prior.learn(state.demonstrators.bias, jnp.sum(response))
        volume = jnp.sum(response + scaled * (1 - response) ** 2 / known[None], -1)
        return eqx.tree_at(
            lambda s: (s.weight_prior, s.bias_prior, s.volume),
            state,
            (weight_prior, bias_prior if self.learn_bias else state.bias_prior, volume),
        )

    def _diagonal(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> Float[Array, "D F"]:
        perceived = state.demonstrators.perceived(state.weights)
        slope = jax.vmap(jax.grad(self._loss_of(mdp)))

        def probe(key):
            sign = jax.random.rademacher(key, perceived.shape, perceived.dtype)
            return sign * jax.vjp(lambda u: slope(u, statistics.action_counts), perceived)[1](sign)[0]

        return jnp.maximum(jnp.mean(jax.lax.map(probe, jax.random.split(key, self.probes)), 0), 0.0)

    def _loss_of(self, mdp: FiniteMDP):
        return lambda u, count: negative_log_likelihood(self.planner, mdp, count[None], u[None])

    def _held(self, estimate):
        """The estimate with what is held fixed put in its place."""
        weights, demonstrators = estimate
        fixed = Demonstrators.unbiased(*demonstrators.bias.shape)
        return weights, Demonstrators(
            log_precision=demonstrators.log_precision if self.learn_precision else fixed.log_precision,
            bias=demonstrators.bias if self.learn_bias else fixed.bias,
        )

    def _optimiser(self) -> optax.GradientTransformationExtraArgs:
        return optax.lbfgs(memory_size=10, linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=10))
