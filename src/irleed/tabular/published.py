r"""The paper's gridworld experiment, step by step: stochastic gradients from Monte Carlo feature expectations.

`irleed.tabular.irleed` fits the same model exactly; this is the protocol behind the published figures. A round moves
the weights until they settle, then takes one step in every precision and bias. The first round, in which all
precisions are 1 and all biases 0, is maximum-entropy IRL.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Int, Key, Scalar
from irleed.demonstrator import boltzmann, gauge
from irleed.envs.mdp import FiniteMDP
from irleed.tabular.intervals import Judgement
from irleed.tabular.planning import AbstractPlanner, Averaged, Reward
from irleed.tabular.statistics import Statistics, monte_carlo_features

START_WEIGHT = 0.1


class AbstractInference(eqx.Module):
    """How the policy that pursues a reward is found."""

    @abc.abstractmethod
    def q_values(self, key: Key, mdp: FiniteMDP, reward: Reward, start: Float[Array, "S A"]) -> Float[Array, "S A"]:
        r"""Values $Q$ such that $\pi(a|s) \propto \exp Q(s, a)$; `start` are those of a similar reward, or zeros."""


class Planned(AbstractInference):
    """The dynamics are known: plan. The released program plans as if no state absorbed, which is `endless`."""

    planner: AbstractPlanner = Averaged()
    endless: bool = eqx.field(static=True, default=True)

    def q_values(self, key: Key, mdp: FiniteMDP, reward: Reward, start: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """See `AbstractInference.q_values`."""
        return self.planner.q_values(mdp.without_terminals() if self.endless else mdp, reward)


class Gradients(eqx.Module):
    """The gradient of the log-likelihood, Eqs. (8)-(10)."""

    weights: Float[Array, " F"]
    bias: Float[Array, "D F"]
    precision: Float[Array, " D"]


def gradients(
    weights: Float[Array, " F"],
    precision: Float[Array, " D"],
    bias: Float[Array, "D F"],
    empirical: Float[Array, "D F"],
    expected: Float[Array, "D F"],
    share: Float[Array, " D"] | None = None,
) -> Gradients:
    r"""The paper's Lemma: all gradients from $\hat f_i - f_{\pi_i}$, empirical minus expected features.

    $\nabla_\theta = \sum_i \beta_i (\hat f_i - f_{\pi_i})$, $\nabla_{\epsilon_i} = \beta_i (\hat f_i - f_{\pi_i})$ and
    $\partial_{\beta_i} = (\theta + \epsilon_i)^\top (\hat f_i - f_{\pi_i})$. With `share`, demonstrators count by it in
    the first.
    """
    difference = empirical - expected
    along = precision[:, None] * difference
    return Gradients(
        weights=jnp.sum(along, 0) if share is None else share @ along,
        bias=along,
        precision=jnp.sum((weights[None] + bias) * difference, -1),
    )


class State(eqx.Module):
    """The estimate after some steps."""

    weights: Float[Array, " F"]
    precision: Float[Array, " D"]
    bias: Float[Array, "D F"]
    irl_weights: Float[Array, " F"]  # those at the end of the first round: plain IRL
    values: Float[Array, "D S A"]  # the inferred Q of every demonstrator, where inference may start from
    settled: Bool[Array, ""]  # the weights have; the next step is one in precision and bias
    inner: Int[Array, ""]  # steps of this round
    outer: Int[Array, ""]  # rounds done
    step: Int[Array, ""]  # steps in all


class Info(eqx.Module):
    """What one step looked like."""

    feature_error: Float[Array, ""]  # largest entry of the weights' gradient
    moved: Float[Array, ""]  # largest change of a weight


class Published(eqx.Module):
    """The published protocol; its defaults are the paper's settings.

    **Fields:**

    - `inference`: how policies are found, `Planned` or `irleed.tabular.online.SoftQLearning`.
    - `episodes`, `horizon`: Monte Carlo episodes for each demonstrator and step, and their length.
    - `inner_steps`, `tolerance`: the weights have settled after so many steps, or when none moves by more than this.
    - `outer_rounds`: how often the weights settle.
    - `weights_rate`, `bias_rate`, `precision_rate`: learning rates, divided by 1 + steps of this round for the weights
      and by 1 + rounds done for the others. Weights and precisions are multiplied by an exponential, biases added to.
    """

    inference: AbstractInference = Planned()
    episodes: int = eqx.field(static=True, default=100)
    horizon: int = eqx.field(static=True, default=100)
    inner_steps: int = eqx.field(static=True, default=100)
    outer_rounds: int = eqx.field(static=True, default=2)
    weights_rate: Scalar = 0.2
    bias_rate: Scalar = 0.1
    precision_rate: Scalar = 0.05
    tolerance: Scalar = 1e-4

    @property
    def max_steps(self) -> int:
        """The most updates there can be."""
        return self.outer_rounds * (self.inner_steps + 1)

    def init(self, mdp: FiniteMDP, statistics: Statistics) -> State:
        """Start from equal weights and unbiased, equal demonstrators."""
        demonstrators = statistics.features.shape[0]
        weights = jnp.full(mdp.feature_count, START_WEIGHT, float)
        return State(
            weights=weights,
            precision=jnp.ones(demonstrators),
            bias=jnp.zeros((demonstrators, mdp.feature_count)),
            irl_weights=weights,
            values=jnp.zeros((demonstrators, mdp.states, mdp.actions)),
            settled=jnp.zeros((), bool),
            inner=jnp.zeros((), int),
            outer=jnp.zeros((), int),
            step=jnp.zeros((), int),
        )

    def finished(self, state: State) -> Bool[Array, ""]:
        """All rounds are done."""
        return state.outer >= self.outer_rounds

    def converged(self, state: State) -> Bool[Array, ""]:
        """The protocol has run its course; it asks for no more."""
        return self.finished(state)

    def update(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> tuple[State, Info]:
        """One gradient from fresh episodes: spent on the weights or, when these have settled, on precision and bias."""
        values, expected = self._expect(key, state, mdp, statistics)
        share = statistics.episodes / jnp.sum(statistics.episodes)
        slope = gradients(state.weights, state.precision, state.bias, statistics.features, expected, share)

        def rate(rate, taken, now):
            return jnp.where(now, rate / (1 + taken.astype(float)), 0.0)

        weights_rate = rate(self.weights_rate, state.inner, ~state.settled)
        bias_rate = rate(self.bias_rate, state.outer, state.settled)
        precision_rate = rate(self.precision_rate, state.outer, state.settled)
        weights = state.weights * jnp.exp(weights_rate * slope.weights)
        moved = jnp.max(jnp.abs(weights - state.weights))
        settled = (moved <= self.tolerance) | (state.inner + 1 >= self.inner_steps)
        new = State(
            weights=weights,
            precision=state.precision * jnp.exp(precision_rate * slope.precision),
            bias=state.bias + bias_rate * slope.bias,
            irl_weights=jnp.where(state.outer == 0, weights, state.irl_weights),
            values=values,
            settled=~state.settled & settled,
            inner=jnp.where(state.settled, 0, state.inner + 1),
            outer=state.outer + state.settled.astype(state.outer.dtype),
            step=state.step + 1,
        )
        return new, Info(feature_error=jnp.max(jnp.abs(slope.weights)), moved=moved)

    def judge(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> Judgement:
        """What the protocol says of the demonstrators: point estimates, in the gauge of the other estimators."""
        del key, mdp
        counts = statistics.action_counts
        return Judgement(
            log_precision_draws=gauge(jnp.log(state.precision))[None],
            bias=state.bias,
            bias_norm=jnp.linalg.norm(state.bias, axis=-1),
            bias_norm_deviation=jnp.full(state.precision.shape, jnp.nan),
            log_likelihood=jnp.sum(counts * boltzmann(state.values), (1, 2)),
            information=state.precision / jnp.sum(state.precision),
        )

    def _expect(
        self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics
    ) -> tuple[Float[Array, "D S A"], Float[Array, "D F"]]:
        """Every demonstrator's values and expected features; episodes start where the demonstrators' did."""
        walked = eqx.tree_at(lambda mdp: mdp.initial, mdp, statistics.initial)

        def one(own_key, u, start):
            inference_key, episode_key = jax.random.split(own_key)
            values = self.inference.q_values(inference_key, mdp, mdp.rewards(u), start)
            policy = jax.nn.softmax(values)
            return values, monte_carlo_features(episode_key, walked, policy, self.episodes, self.horizon)

        perceived = state.precision[:, None] * (state.weights[None] + state.bias)
        return jax.vmap(one)(jax.random.split(key, len(perceived)), perceived, state.values)
