r"""IRLEED online with continuous actions: inverse soft Q-learning as a soft actor-critic.

The critics imply a reward, $r = Q(s, a) - \gamma V(s')$ with $V(s) = E_{a\sim\pi}[Q(s, a) - T\log\pi(a|s)]$, and the
actor follows the critics. Demonstrators are those of `irleed.model.mixed`; their precision $\beta_i$ is
estimated from their noise and from the states they visit, see `SacIrleed.log_precision`.

With the penalty on demonstrated and replayed transitions, the best reward for given data is bounded: it lies between
$-1/c$ and $1/c$. The objective `bounded` uses this (LS-IQ, Al-Hafez et al., 2023): rewards are regressed to
$1/c$ where demonstrated and to $-1/c$ where replayed, and no value exceeds $1/(c(1-\gamma))$.
"""

from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent, Critics, soft_value, with_replayed
from irleed.algorithms.base import ActionKind, rate_of
from irleed.algorithms.iq.irleed import IQ_LEARN
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions, Bounds, Transition
from irleed.errors import ConfigError
from irleed.model import mixed
from irleed.model.actions import SquashedGaussian, Squashing
from irleed.model.demonstrators import Description, gauge, log_precision_of, precision_weights
from irleed.model.networks import AbstractBias, biases
from irleed.policies.base import Actor

PAPER_BIAS_SCALE = 0.01  # alpha
ESTIMATE_RATE = 1e-3  # learning rate of running means


class Parameters(eqx.Module):
    """Shared networks, and the demonstrators."""

    actor: Actor
    critics: Critics
    terminal: Float[Array, ""]  # the reward of every step after termination
    log_std: Float[Array, " A"]  # of the demonstrators' noise at precision 1
    log_precision: Float[Array, " D"]  # by noise
    visited: Float[Array, " D"]  # running mean of the values of the states that a demonstrator visits, in units of 1/c
    bias: AbstractBias


class SacIrleed(AbstractAgent):
    r"""IRLEED as a soft actor-critic; without precisions and biases IQ-Learn, see `iq`.

    **Fields:**

    - `learning_rate`: that of the critics and of the demonstrators' noise.
    - `actor_learning_rate`: that of the actor.
    - `temperature`: $T$, held fixed.
    - `penalty`: $c$ of $\frac c2 r^2$, the penalty on large rewards.
    - `bias_penalty`: the weight of $\delta_i^2$.
    - `objective`: `bounded`, or that of the `paper`: one critic without layer norm, a value term over initial states,
      unbounded values, and demonstrators with values of their own, at temperature $T/\beta_i$.
    - `ends`: the value of a terminal state. `neutral`: learnt from how often demonstrators and agent terminate (zero in
      the paper's objective). `failure`: early termination counts as failure; the value is the lowest possible,
      $-1/(c(1-\gamma))$.
    - Others as those of `irleed.algorithms.iq.OfflineIrleed` and `irleed.algorithms.agent.AbstractAgent`.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("continuous",)
    exploration: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  # a constant
    anneal_lr: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]  # a constant
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    steps: int = eqx.field(static=True, default=500_000)
    batch_size: int = eqx.field(static=True, default=256)
    num_envs: int = eqx.field(static=True, default=8)
    gradient_steps: int = eqx.field(static=True, default=1)
    buffer_size: int = eqx.field(static=True, default=500_000)
    learning_starts: int = eqx.field(static=True, default=1_280)
    learning_rate: Scalar = 3e-4
    actor_learning_rate: Scalar = 1e-4
    precision_learning_rate: Scalar | None = 3e-4
    bias_learning_rate: Scalar | None = 3e-5
    discount: Scalar = 0.99
    temperature: Scalar = 0.01
    penalty: Scalar = 1.0
    bias_penalty: Scalar = 10.0
    tau: Scalar = 0.005
    objective: Literal["bounded", "paper"] = eqx.field(static=True, default="bounded")
    ends: Literal["neutral", "failure"] = eqx.field(static=True, default="neutral")

    def __check_init__(self) -> None:
        # Values are bounded by 1 / (c (1 - discount)).
        for name, good in (("discount", lambda value: value < 1), ("penalty", lambda value: value > 0)):
            value = getattr(self, name)
            if not isinstance(value, Tracer) and not np.all(good(np.asarray(value))):
                where, expected = f"{type(self).__name__}.{name}", "below 1" if name == "discount" else "above 0"
                raise ConfigError(where, got=value, expected=expected, remedy="choose another value")

    @classmethod
    def iq(cls, **settings: Any) -> "SacIrleed":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(**IQ_LEARN, **settings)

    @classmethod
    def paper(cls, **settings: Any) -> "SacIrleed":
        """The published hyperparameters; with ``**IQ_LEARN``, those of IQ-Learn.

        The paper learns the precision itself, initialised at 1 / T, at a learning rate of 1e-5: 1e-7 for its logarithm.
        """
        published: dict[str, Any] = {"objective": "paper", "num_envs": 1, "gradient_steps": 1, "bias_penalty": 0.01}
        published |= {"learning_rate": 3e-4, "actor_learning_rate": 3e-5}
        published |= {"precision_learning_rate": 1e-7, "bias_learning_rate": 3e-6}
        return cls(**(published | settings))

    @property
    def learns_precision(self) -> bool:
        """Whether precisions are learnt."""
        return self.precision_learning_rate is not None

    @property
    def learns_bias(self) -> bool:
        """Whether biases are learnt."""
        return self.bias_learning_rate is not None

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters: precision 1 and bias 0; with the paper's objective, random biases."""
        actor_key, critic_key, bias_key = jax.random.split(key, 3)
        size, biased = cast(Bounds, actions).size, demonstrators if self.learns_bias else 0
        count, activation = (1, "relu") if self.objective == "paper" else (2, "norm_relu")
        return Parameters(
            actor=Actor.init(actor_key, inputs, actions, self.hidden, "relu"),
            critics=Critics.init(critic_key, count, inputs, size, self.hidden, activation),
            terminal=jnp.asarray(-1 / self.penalty if self.ends == "failure" else 0.0, jnp.float32),
            log_std=jnp.zeros(size, jnp.float32),
            log_precision=jnp.zeros(demonstrators, jnp.float32),
            visited=jnp.zeros(demonstrators, jnp.float32),
            bias=biases(bias_key, biased, inputs, size, self.hidden, "relu", zero=self.objective == "bounded"),
        )

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters; 0 where it is held fixed."""
        return {
            "actor": self.actor_learning_rate,
            "critics": self.learning_rate,
            "terminal": ESTIMATE_RATE if self._learns_ends else 0.0,
            "log_std": self.learning_rate,
            "log_precision": rate_of(self.precision_learning_rate),
            "visited": ESTIMATE_RATE,
            "bias": rate_of(self.bias_learning_rate),
        }

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, replayed: Transition, demonstrated: Row
    ) -> Float[Array, ""]:
        """The sum of the losses of critics, actor and demonstrators, each with gradients for its own parameters."""
        critic_key, actor_key = jax.random.split(key)
        rows = with_replayed(demonstrated, replayed)
        total = self._critic_loss(critic_key, parameters, target, rows) + self._actor_loss(actor_key, parameters, rows)
        if self.learns_precision or self.learns_bias:
            total = total + self._demonstrator_loss(parameters, demonstrated)
        return total

    def _critic_loss(self, key: Key, parameters: Parameters, target: Parameters, rows: Row) -> Float[Array, ""]:
        """The critics' loss; the first half of the rows are demonstrated, the second replayed."""
        after_key, value_key = jax.random.split(key)
        most, count = 1 / self.penalty, len(rows.continuation)
        demonstrated = (jnp.arange(count) < count // 2).astype(jnp.float32)
        after = self._value(after_key, parameters, target.critics, rows.next_obs, rows.demonstrator)
        if self.objective == "bounded":
            after = jnp.clip(after, -most / (1 - self.discount), most / (1 - self.discount))
        ended = jax.lax.stop_gradient(parameters.terminal) / (1 - self.discount)
        after = jnp.where(rows.continuation > 0, after, ended)
        unit = cast(Squashing, parameters.actor.head).unit(rows.action)
        reward = parameters.critics(rows.obs, unit) - self.discount * after[None]
        # Weights for means over demonstrated and over replayed rows, of which there are equally many.
        first, second = 2 * demonstrated, 2 * (1 - demonstrated)
        if self.objective == "paper":
            error = 0.5 * self.penalty * reward**2 - first[None] * reward
            initial = self._value(value_key, parameters, parameters.critics, rows.initial, rows.demonstrator)
            value = (1 - self.discount) * jnp.mean(initial)
            return jnp.sum(jnp.mean(error, -1)) + len(reward) * value
        found = self._visited_loss(parameters, rows, after, first) if self.learns_precision else 0.0
        weighted = first
        if self.learns_precision:
            weighted = first * precision_weights(self._log_precision(parameters), rows.demonstrator, 1.0, demonstrated)
        error = weighted[None] * (reward - most) ** 2 + second[None] * (reward + most) ** 2
        found = found + 0.5 * self.penalty * jnp.sum(jnp.mean(error, -1))
        if not self._learns_ends:
            return found
        error = weighted * (parameters.terminal - most) ** 2 + second * (parameters.terminal + most) ** 2
        return found + 0.5 * self.penalty * jnp.mean((1 - rows.continuation) * error)

    def _visited_loss(
        self, parameters: Parameters, rows: Row, after: Float[Array, " B"], demonstrated: Float[Array, " B"]
    ) -> Float[Array, ""]:
        r"""Squared error of each demonstrator's running mean of next-state values, scaled by $1 - \gamma$."""
        level = jax.lax.stop_gradient(self.penalty * (1 - self.discount) * after)
        return 0.5 * jnp.mean(demonstrated * (parameters.visited[rows.demonstrator] - level) ** 2)

    def _value(
        self, key: Key, parameters: Parameters, critics: Critics, obs: Float[Array, "B ..."], who: Int[Array, " B"]
    ) -> Float[Array, " B"]:
        """The soft value of each state under the shared policy or, in the paper, under the demonstrator's own."""
        policy = _gaussian(jax.lax.stop_gradient(parameters.actor), obs)
        if self.objective == "bounded":
            return soft_value(key, critics, policy, obs, self.temperature)
        held = jax.lax.stop_gradient(parameters.bias)
        own, temperature = self._own(policy, parameters.log_precision, held, obs, who)
        return soft_value(key, critics, own, obs, temperature)

    def _own(
        self,
        shared: SquashedGaussian,
        log_precision: Float[Array, " D"],
        bias: AbstractBias,
        obs: Float[Array, "B ..."],
        who: Int[Array, " B"],
    ) -> tuple[SquashedGaussian, Float[Array, " B"]]:
        r"""The paper's policy and temperature, $T/\beta_i$, of the demonstrator of each row.

        Precisions have a gradient through the temperature only.
        """
        learnt = log_precision_of(log_precision, who)
        own = shared.as_demonstrator(jax.lax.stop_gradient(learnt), PAPER_BIAS_SCALE * bias(obs, who))
        return own, self.temperature * jnp.exp(-learnt)

    def _actor_loss(self, key: Key, parameters: Parameters, rows: Row) -> Float[Array, ""]:
        """The actor maximises its soft value; in the paper, so does every demonstrator's policy."""
        critics, policy = jax.lax.stop_gradient(parameters.critics), _gaussian(parameters.actor, rows.obs)
        found = -jnp.mean(soft_value(key, critics, policy, rows.obs, self.temperature))
        if self.objective == "bounded":
            return found
        held = jax.lax.stop_gradient(parameters.log_precision)
        own, temperature = self._own(policy, held, parameters.bias, rows.obs, rows.demonstrator)
        return found - jnp.mean(soft_value(jax.random.fold_in(key, 1), critics, own, rows.obs, temperature))

    def _demonstrator_loss(self, parameters: Parameters, rows: Row) -> Float[Array, ""]:
        """The negative log likelihood of demonstrated actions, and the penalty on biases."""
        bias = parameters.bias(rows.obs, rows.demonstrator)
        found = self.bias_penalty * jnp.mean(jnp.square(bias))
        if self.objective == "paper":
            return found
        shared = _gaussian(parameters.actor, rows.obs)
        return found + mixed.noise_loss(shared, parameters.log_std, parameters.log_precision, rows, bias)

    def policy(self, parameters: Parameters) -> Actor:
        """The shared policy."""
        return parameters.actor

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        r"""Each demonstrator's log precision, in the gauge: from their noise and from the states they visit.

        A demonstrator's likelihood is maximal at the precision at which a soft policy has their return under the learnt
        reward. With values quadratic in the action, a soft policy of precision $\beta$ loses $AT/2\beta$ per step
        compared with the optimal one, $A$ being the dimension of the action; noise around the optimal action costs the
        same if its variance is $1/\beta$ of that at precision 1. By noise alone, demonstrator $i$ loses
        $AT/2\beta^a_i$, with $\beta^a_i$ the precision of their actions, at most 1. The states they visit cost another
        $m - v_i$, with $v_i$ the mean of $(1-\gamma)V(s')$ over these states and $m$ the largest of the $v_i$:
        $1/\beta_i = 1/\beta^a_i + 2(m - v_i)/AT$. In the paper's objective it is $\beta^a_i$ alone.
        """
        return self._log_precision(parameters)

    def _log_precision(self, parameters: Parameters) -> Float[Array, " D"]:
        by_noise = gauge(parameters.log_precision)
        if self.objective == "paper" or not self.learns_precision:
            return by_noise
        lost = (jnp.max(parameters.visited) - parameters.visited) / self.penalty
        cost = 2 * lost / (parameters.log_std.size * self.temperature)
        return gauge(-jnp.log(jnp.exp(jnp.max(by_noise) - by_noise) + cost))

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """By the demonstrator's own policy; the size of a bias is how far it moves the greedy action."""
        batch, whose = obs[None], who[None]
        shared = cast(SquashedGaussian, parameters.actor(obs))
        if self.objective == "bounded" and (self.learns_precision or self.learns_bias):
            bias = parameters.bias(batch, whose)[0] if self.learns_bias else None
            given = parameters.log_std, parameters.log_precision, who, bias, action
            return mixed.noise_description(shared, *given)
        if self.objective == "bounded":
            return Description.without_bias(shared.log_prob(action))
        own, _ = self._own(_gaussian(parameters.actor, batch), parameters.log_precision, parameters.bias, batch, whose)
        if not self.learns_bias:
            return Description.without_bias(own[0].log_prob(action))
        moved = PAPER_BIAS_SCALE * parameters.bias(batch, whose)[0] * jnp.exp(-shared.log_std)
        return Description(own[0].log_prob(action), jnp.mean(moved**2), jnp.ones((), jnp.float32))

    @property
    def _learns_ends(self) -> bool:
        return self.ends == "neutral" and self.objective == "bounded"


def _gaussian(actor: Actor, obs: Float[Array, "B ..."]) -> SquashedGaussian:
    """The actor's distributions, which are squashed Gaussians."""
    return cast(SquashedGaussian, actor.batch(obs))
