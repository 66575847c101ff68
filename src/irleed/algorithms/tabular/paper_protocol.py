"""The paper's gridworld protocol, step by step; with known dynamics or with soft Q-learning on samples."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Int, Key, Scalar
from irleed.algorithms.tabular.planning import AbstractPlanner, Averaged, Reward, by_action, soft_maximum
from irleed.algorithms.tabular.posterior import Judgement
from irleed.algorithms.tabular.visitation import Statistics, monte_carlo_features
from irleed.envs.mdp import FiniteMDP
from irleed.model.demonstrators import boltzmann, gauge, perceived

START_WEIGHT = 0.1


class AbstractInference(eqx.Module):
    """How the policy for a reward is computed."""

    @abc.abstractmethod
    def q_values(self, key: Key, mdp: FiniteMDP, reward: Reward, start: Float[Array, "S A"]) -> Float[Array, "S A"]:
        r"""Values $Q$ such that $\pi(a|s) \propto \exp Q(s, a)$; `start` are those of a similar reward, or zeros."""


class Planned(AbstractInference):
    """Planning with known dynamics.

    **Fields:**

    - `planner`: the planner.
    - `endless`: plan as if no state were terminal, as the released program does.
    """

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
    $\partial_{\beta_i} = (\theta + \epsilon_i)^\top (\hat f_i - f_{\pi_i})$. `share` is the weight of each demonstrator
    in the first.
    """
    difference = empirical - expected
    along = precision[:, None] * difference
    return Gradients(
        weights=jnp.sum(along, 0) if share is None else share @ along,
        bias=along,
        precision=jnp.sum((weights[None] + bias) * difference, -1),
    )


class State(eqx.Module):
    """The estimate after some steps of the protocol."""

    weights: Float[Array, " F"]
    precision: Float[Array, " D"]
    bias: Float[Array, "D F"]
    irl_weights: Float[Array, " F"]  # those at the end of the first round: plain IRL
    values: Float[Array, "D S A"]  # the inferred Q of every demonstrator, where inference may start from
    settled: Bool[Array, ""]  # the weights have converged; the next step is one in precision and bias
    inner: Int[Array, ""]  # steps of this round
    outer: Int[Array, ""]  # rounds done
    step: Int[Array, ""]  # steps in all


class Info(eqx.Module):
    """Metrics of one step."""

    feature_error: Float[Array, ""]  # largest entry of the weights' gradient
    moved: Float[Array, ""]  # largest change of a weight


class Published(eqx.Module):
    """The published protocol; its defaults are the paper's settings.

    **Fields:**

    - `inference`: how policies are found, `Planned` or `irleed.algorithms.tabular.paper_protocol.SoftQLearning`.
    - `episodes`: Monte Carlo episodes for each demonstrator and step.
    - `horizon`: the length of these episodes.
    - `inner_steps`: the weights have converged after this many steps of a round at most.
    - `tolerance`: or when none of them moves by more than this.
    - `outer_rounds`: rounds, in each of which the weights converge once.
    - `weights_rate`: the learning rate of the weights, divided by 1 + the steps of this round. They are multiplied by
      an exponential.
    - `bias_rate`: the learning rate of the biases, divided by 1 + the rounds done. It is added to them.
    - `precision_rate`: the learning rate of the precisions, divided by 1 + the rounds done. They are multiplied by an
      exponential.
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
        """The largest possible number of updates."""
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
        """The protocol is done; it has no other criterion."""
        return self.finished(state)

    def update(self, key: Key, state: State, mdp: FiniteMDP, statistics: Statistics) -> tuple[State, Info]:
        """A gradient step from fresh episodes, in the weights or, once these have converged, in precision and bias."""
        values, expected = self._expect(key, state, mdp, statistics)
        share = statistics.episodes / jnp.sum(statistics.episodes)
        slope = gradients(state.weights, state.precision, state.bias, statistics.features, expected, share)

        def rate(rate: Scalar, taken: Array, now: Array):
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
        """The protocol's point estimates for the demonstrators, in the gauge of the other estimators."""
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

        def one(own_key: Key, u: Array, start: Array):
            inference_key, episode_key = jax.random.split(own_key)
            values = self.inference.q_values(inference_key, mdp, mdp.rewards(u), start)
            policy = jax.nn.softmax(values)
            return values, monte_carlo_features(episode_key, walked, policy, self.episodes, self.horizon)

        pursued = perceived(state.precision, state.weights[None], state.bias)
        return jax.vmap(one)(jax.random.split(key, len(pursued)), pursued, state.values)


class SoftQLearning(AbstractInference):
    r"""Learn the values of the `Soft` planner, $Q = r + \gamma E[\log \sum_a \exp Q']$, from transitions alone.

    Walkers act by the current Boltzmann policy mixed with the uniform one, and only sample from `mdp.reset` and
    `mdp.step`. A value that has seen n samples moves by $1 / (1 + (1 - \gamma) n)$ of its difference to the next: a
    plain mean, $1 / (1 + n)$, would forget its first, wrong targets far too slowly.

    **Fields:**

    - `walkers`: number of walkers in parallel.
    - `steps`: steps of each walker.
    - `exploration`: weight of the uniform policy in the mixture.
    - `restart`: probability, at every step, of starting an episode afresh.
    """

    walkers: int = eqx.field(static=True, default=64)
    steps: int = eqx.field(static=True, default=2_000)
    exploration: Scalar = 0.3
    restart: Scalar = 0.02

    def q_values(self, key: Key, mdp: FiniteMDP, reward: Reward, start: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """See `AbstractInference.q_values`. States that are never reached keep what they start from."""
        reset = jax.vmap(mdp.reset)
        terminal, gain = jnp.asarray(mdp.terminal), by_action(mdp, jnp.asarray(reward))
        # Like the planner's: the end gives its own reward, and the entropy of choices that no longer matter.
        final = jnp.asarray(reward) if reward.ndim == 1 else jnp.zeros(mdp.states)
        final = final + jnp.log(float(mdp.actions)) / (1 - mdp.discount)

        def step(carry: Any, step_key: Key):
            q, seen, state = carry
            action_key, move_key, restart_key, reset_key = jax.random.split(step_key, 4)
            action = self._act(action_key, q[state])
            successor = jax.vmap(mdp.step)(jax.random.split(move_key, self.walkers), state, action)
            ahead = jnp.where(terminal[successor], final[successor], soft_maximum(q[successor]))
            target = gain[state, action] + mdp.discount * ahead
            count = jnp.zeros_like(q).at[state, action].add(1.0)
            total = jnp.zeros_like(q).at[state, action].add(target)
            # Walkers that meet count as one sample each: their mean moves the value by as much as they would together.
            rate = count / jnp.maximum(count + (1 - mdp.discount) * seen, 1.0)
            q = q + rate * (total / jnp.maximum(count, 1.0) - q)
            over = terminal[successor] | (jax.random.uniform(restart_key, (self.walkers,), float) < self.restart)
            state = jnp.where(over, reset(jax.random.split(reset_key, self.walkers)), successor)
            return (q, seen + count, state), None

        first_key, walk_key = jax.random.split(key)
        carry = jnp.asarray(start), jnp.zeros_like(start), reset(jax.random.split(first_key, self.walkers))
        (q, _, _), _ = jax.lax.scan(step, carry, jax.random.split(walk_key, self.steps))
        return q

    def _act(self, key: Key, q: Float[Array, "W A"]) -> Array:
        """An action of the mixed policy for every walker."""
        policy = (1 - self.exploration) * jax.nn.softmax(q) + self.exploration / q.shape[-1]
        draw = jax.random.uniform(key, (len(q), 1), float)
        return jnp.sum(jnp.cumsum(policy, -1)[:, :-1] <= draw, -1, dtype=jnp.int32)
