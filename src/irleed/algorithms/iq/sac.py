r"""IRLEED with continuous actions, by playing: the soft actor-critic form of inverse soft Q-learning.

The critic implies a reward, $r = Q(s, a) - \gamma V(s')$ with $V(s) = E_{a\sim\pi}[Q(s, a) - T\log\pi(a|s)]$, and the
actor follows the critic. Demonstrator $i$ acts around the shared policy, off by $\delta_i(s)$ and with a spread of
their own (see `residuals`); precision $\beta_i$ is told by this spread and by what situations they get into.

With the penalty on both what is shown and what is played, the best reward for given data is bounded: it lies between
$-1/c$ and $1/c$. The default objective, `targets`, says so directly (LS-IQ, Al-Hafez et al., 2023): rewards are to be
$1/c$ where shown and $-1/c$ where played, and no value can be beyond $1/(c(1-\gamma))$.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.critics import Critics, soft_value
from irleed.algorithms.iq.residuals import AbstractResiduals, ResidualView, counts
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Bounds, Transition
from irleed.model.actions import GaussianPolicy, GaussianView, Squashing, gaussians
from irleed.model.demonstrators import gauge
from irleed.model.networks import AbstractBias, Activation, Mlp, biases, unbiased


class Parameters(AbstractResiduals):
    """What is shared, and the demonstrators."""

    actor: Mlp
    critics: Critics
    ended: Float[Array, ""]  # the reward of every step after the task has ended
    log_spread: Float[Array, " A"]
    log_precision: Float[Array, " D"]  # by actions
    standing: Float[Array, " D"]  # mean value of the situations that a demonstrator gets into, in units of 1/c
    bias: AbstractBias
    squashing: Squashing  # held fixed


class Sac(AbstractAgent):
    r"""IRLEED that plays; without precisions and biases IQ-Learn, see `iq`.

    **Fields:**

    - `hidden`, `activation`: of all networks; `critic_activation` of the critics, `critics` their number.
    - `steps`: in the environment, of which a run plays `copies` side by side; `updates`: of Adam, for every step of
      them all. `decay`: whether rates go down to nought.
    - `batch`, `rate`: of Adam, `batch` being that of either kind of transitions; `actor_rate`, `precision_rate`,
      `bias_rate`, `ended_rate`, `standing_rate` for their parameters.
    - `temperature`: $T$, held fixed.
    - `penalty`: $c$ of $\frac c2 r^2$.
    - `objective`: `targets`; or the value term at first states (`initial`, the published one) or over the mixture of
      what is shown and played (`mixture`).
    - `bounded`: whether $V(s')$ is kept within $\pm 1/(c(1-\gamma))$.
    - `penalise`: rewards of what is shown and played (`mixture`), or of what is shown alone.
    - `ends`: what it is worth that the task ended, which is a situation that stays as it is. It is `learnt` from who
      ends how often; `nought`, as published; or, where an early end is a `failure`, `failure` times the least that any
      other situation can be worth, $-1/(c(1-\gamma))$: with 1, to go on for ever as nobody does is as bad.
    - `own_values`: whether each demonstrator has values by their own policy and temperature $T/\beta_i$, as published.
      Else precision and bias are those that make their actions likeliest, and transitions count by
      $\beta_i^k$, $k$ being the `sharpness`: what is visited at the optimum is the mixture of what was shown, by count.
    - `precision`: that of `actions`, how near someone's are to the shared policy's; of `returns`, how good the
      situations are that they get into, by what is learnt; or of `both`, see `log_precision`. With `own_values` it is
      the first.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    activation: Activation = eqx.field(static=True, default="relu")
    critic_activation: Activation = eqx.field(static=True, default="norm_relu")
    critics: int = eqx.field(static=True, default=2)
    steps: int = eqx.field(static=True, default=500_000)
    batch: int = eqx.field(static=True, default=256)
    decay: bool = eqx.field(static=True, default=False)
    copies: int = eqx.field(static=True, default=8)
    updates: int = eqx.field(static=True, default=1)
    capacity: int = eqx.field(static=True, default=500_000)
    warm: int = eqx.field(static=True, default=1_280)
    rate: Scalar = 3e-4
    actor_rate: Scalar = 1e-4
    precision_rate: Scalar = 3e-4
    bias_rate: Scalar = 3e-5
    ended_rate: Scalar = 1e-3
    standing_rate: Scalar = 1e-3
    discount: Scalar = 0.99
    temperature: Scalar = 0.01
    penalty: Scalar = 1.0
    bias_scale: Scalar = 1.0
    bias_penalty: Scalar = 10.0
    rank: int | None = eqx.field(static=True, default=None)
    objective: Literal["targets", "initial", "mixture"] = eqx.field(static=True, default="targets")
    penalise: Literal["mixture", "shown"] = eqx.field(static=True, default="mixture")
    bounded: bool = eqx.field(static=True, default=True)
    ends: Literal["learnt", "nought", "failure"] = eqx.field(static=True, default="learnt")
    failure: Scalar = 1.0
    own_values: bool = eqx.field(static=True, default=False)
    precision: Literal["both", "actions", "returns"] = eqx.field(static=True, default="both")
    sharpness: Scalar = 1.0
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)
    random: Scalar = 0.0
    target_rate: Scalar = 0.005
    clip: Scalar | None = None

    @classmethod
    def iq(cls, **settings) -> "Sac":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(learn_precision=False, learn_bias=False, **settings)

    @classmethod
    def paper(cls, **settings) -> "Sac":
        """The published hyperparameters; with ``learn_precision=False, learn_bias=False``, those of IQ-Learn.

        The paper learns the precision itself at a rate of 1e-5, from 1 / T on: a rate of 1e-7 for its logarithm.
        """
        rates = {"rate": 3e-4, "actor_rate": 3e-5, "precision_rate": 1e-7, "bias_rate": 3e-6}
        bias = {"bias_scale": 0.01, "bias_penalty": 0.01, "own_values": True}
        plain = {"critics": 1, "critic_activation": "relu", "bounded": False, "ends": "nought", "clip": None}
        pace = {"copies": 1, "updates": 1, "decay": False}
        return cls(**{"objective": "initial", "penalty": 1.0, **plain, **pace, **rates, **bias, **settings})

    def parameters(self, key: Key, inputs: Inputs, actions: Bounds, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        actor_key, critic_key, bias_key = jax.random.split(key, 3)
        sizes = (*self.hidden, actions.size)
        bias = biases(bias_key, demonstrators, inputs, sizes, self.activation, self.rank, self.learn_bias)
        return Parameters(
            actor=Mlp.init(actor_key, inputs, (*self.hidden, 2 * actions.size), self.activation),
            critics=Critics.init(critic_key, self.critics, inputs, actions.size, self.hidden, self.critic_activation),
            ended=jnp.asarray(-self.failure / self.penalty if self.ends == "failure" else 0.0, jnp.float32),
            log_spread=jnp.zeros(actions.size, jnp.float32),
            log_precision=jnp.zeros(demonstrators, jnp.float32),
            standing=jnp.zeros(demonstrators, jnp.float32),
            bias=bias if self.own_values else unbiased(bias),
            squashing=Squashing.into(actions),
        )

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {
            "actor": self.actor_rate,
            "critics": self.rate,
            "ended": self.ended_rate if self.ends == "learnt" else 0.0,
            "log_spread": self.precision_rate,
            "log_precision": self.precision_rate if self.learn_precision else 0.0,
            "standing": self.standing_rate if self.by_returns else 0.0,
            "bias": self.bias_rate if self.learn_bias else 0.0,
            "squashing": 0.0,
        }

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, played: Transition, shown: Row
    ) -> Float[Array, ""]:
        """See `AbstractAgent.loss`: of critics, actor and demonstrators, each learning from its own part."""
        critic_key, actor_key = jax.random.split(key)
        proceeds = jnp.where(played.terminated, 0.0, 1.0)
        looked_at = Row(played.obs, played.next_obs, played.action, proceeds, shown.demonstrator, shown.initial)
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), shown, looked_at)
        total = self._critic_loss(critic_key, parameters, target, rows) + self._actor_loss(actor_key, parameters, rows)
        if self.learn_precision or self.learn_bias:
            total = total + self._demonstrator_loss(parameters, shown)
        return total

    def _critic_loss(self, key: Key, parameters: Parameters, target: Parameters, rows: Row) -> Float[Array, ""]:
        r"""Of the reward that the critics imply; the first half of the rows was shown, the other played."""
        ahead_key, value_key = jax.random.split(key)
        most, shown = 1 / self.penalty, (jnp.arange(len(rows.proceeds)) < len(rows.proceeds) // 2).astype(jnp.float32)
        after = self._value(ahead_key, parameters, target.critics, rows.next_obs, rows.demonstrator)
        if self.bounded:
            after = jnp.clip(after, -most / (1 - self.discount), most / (1 - self.discount))
        ended = jax.lax.stop_gradient(parameters.ended) / (1 - self.discount)
        after = jnp.where(rows.proceeds > 0, after, ended)
        reward = parameters.critics(rows.obs, parameters.squashing.unit(rows.action)) - self.discount * after[None]
        # Means over the rows shown and over those played: there are as many of either.
        of_shown, of_played = 2 * shown, 2 * (1 - shown)
        found = self._standing_loss(parameters, rows, after, of_shown) if self.by_returns else 0.0
        if self.learn_precision and not self.own_values:
            of_shown = of_shown * counts(self._log_precision(parameters), rows.demonstrator, self.sharpness, shown)
        if self.objective == "targets":
            error = of_shown[None] * (reward - most) ** 2 + of_played[None] * (reward + most) ** 2
            found = found + 0.5 * self.penalty * jnp.sum(jnp.mean(error, -1))
        else:
            size = 0.5 * (of_shown + of_played) if self.penalise == "mixture" else of_shown
            error = 0.5 * self.penalty * size[None] * reward**2 - of_shown[None] * reward
            found = found + jnp.sum(jnp.mean(error, -1))
            places = rows.initial if self.objective == "initial" else rows.obs
            value = self._value(value_key, parameters, parameters.critics, places, rows.demonstrator)
            share = (1 - self.discount) * value if self.objective == "initial" else value - self.discount * after
            found = found + len(reward) * jnp.mean(share)
        if self.ends != "learnt":
            return found
        error = of_shown * (parameters.ended - most) ** 2 + of_played * (parameters.ended + most) ** 2
        return found + 0.5 * self.penalty * jnp.mean((1 - rows.proceeds) * error)

    def _standing_loss(
        self, parameters: Parameters, rows: Row, after: Float[Array, " B"], of_shown: Float[Array, " B"]
    ) -> Float[Array, ""]:
        """Of running means of what demonstrators get into; an end counts as what it is worth for ever."""
        level = jax.lax.stop_gradient(self.penalty * (1 - self.discount) * after)
        return 0.5 * jnp.mean(of_shown * (parameters.standing[rows.demonstrator] - level) ** 2)

    def _value(
        self, key: Key, parameters: Parameters, critics: Critics, obs: Float[Array, "B ..."], who: Int[Array, " B"]
    ) -> Float[Array, " B"]:
        """The soft value of each situation: by the shared policy, or by each demonstrator's own."""
        acting = gaussians(jax.lax.stop_gradient(parameters.actor), obs)
        if not self.own_values:
            return soft_value(key, critics, acting, obs, self.temperature)
        log_precision = gauge(parameters.log_precision)[who]
        shift = self.bias_scale * jax.lax.stop_gradient(parameters.bias)(obs, who)
        acting = acting.as_demonstrator(jax.lax.stop_gradient(log_precision), shift)
        return soft_value(key, critics, acting, obs, self.temperature * jnp.exp(-log_precision))

    def _actor_loss(self, key: Key, parameters: Parameters, rows: Row) -> Float[Array, ""]:
        """The actor follows the critics; with values of their own, so does every demonstrator's."""
        critics, acting = jax.lax.stop_gradient(parameters.critics), gaussians(parameters.actor, rows.obs)
        found = -jnp.mean(soft_value(key, critics, acting, rows.obs, self.temperature))
        if not self.own_values:
            return found
        log_precision = jax.lax.stop_gradient(gauge(parameters.log_precision))[rows.demonstrator]
        own = acting.as_demonstrator(log_precision, self.bias_scale * parameters.bias(rows.obs, rows.demonstrator))
        temperature = self.temperature * jnp.exp(-log_precision)
        return found - jnp.mean(soft_value(jax.random.fold_in(key, 1), critics, own, rows.obs, temperature))

    def _demonstrator_loss(self, parameters: Parameters, shown: Row) -> Float[Array, ""]:
        """Precision and bias under which what was shown is likeliest, the shared policy being as it is."""
        shift = parameters.bias(shown.obs, shown.demonstrator) if self.learn_bias else jnp.zeros_like(shown.action)
        found = self.bias_penalty * jnp.mean(jnp.square(shift))
        if self.own_values:
            return found
        return found + parameters.misfit(shown, self.bias_scale * shift)

    def policy(self, parameters: Parameters) -> GaussianPolicy:
        """The shared policy."""
        return parameters.policy

    @property
    def by_returns(self) -> bool:
        """Whether precision is learnt, and is that of returns, wholly or in part."""
        return self.learn_precision and not self.own_values and self.precision != "actions"

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        r"""See `AbstractAlgorithm.log_precision`.

        The likelihood of a demonstrator is greatest at the precision at which a soft policy earns what they do, by the
        reward that is learnt. With values quadratic in the action, a soft policy of precision $\beta$ loses
        $AT/2\beta$ a step to the best one, $A$ being the numbers in an action; noise around what is best costs the
        same if its variance is $1/\beta$ of that at precision 1. By noise alone, demonstrator $i$ loses
        $AT/2\beta^a_i$, with $\beta^a_i$ the precision of actions, at most 1. They lose $m - v_i$ besides, with $v_i$
        the mean value of the situations that they get into, a step's share of it, and $m$ the largest of these:
        $1/\beta_i = 1/\beta^a_i + 2(m - v_i)/AT$; by returns alone, $\beta^a_i$ is 1.
        """
        return self._log_precision(parameters)

    def _log_precision(self, parameters: Parameters) -> Float[Array, " D"]:
        by_actions = gauge(parameters.log_precision)
        if not self.by_returns:
            return by_actions
        noise = jnp.exp(jnp.max(by_actions) - by_actions) if self.precision == "both" else 1.0
        lost = (jnp.max(parameters.standing) - parameters.standing) / self.penalty
        return gauge(-jnp.log(noise + 2 * lost / (parameters.log_spread.size * self.temperature)))

    def view(
        self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]
    ) -> GaussianView | ResidualView:
        """See `AbstractAlgorithm.view`."""
        shift = self.bias_scale * parameters.bias(observation[None], demonstrator[None])[0]
        if not self.own_values and (self.learn_precision or self.learn_bias):
            return parameters.view(observation, demonstrator, shift if self.learn_bias else None)
        shared = parameters.policy.gaussian(observation)
        log_precision = gauge(parameters.log_precision)[demonstrator]
        own = shared.as_demonstrator(log_precision, shift) if self.own_values else shared
        off = shift * jnp.exp(-shared.log_spread)
        return GaussianView(own, off if self.learn_bias else off * jnp.nan, parameters.squashing)
