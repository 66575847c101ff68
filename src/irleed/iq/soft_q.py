"""IRLEED on inverse soft Q-learning, for discrete actions; IQ-Learn is its special case."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithm import AbstractOffline, View
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.demonstrator import gauge
from irleed.iq import objective
from irleed.iq.networks import AbstractBias, Independent, LowRank, Mlp
from irleed.policy import SoftmaxPolicy


class Parameters(eqx.Module):
    """The shared Q and the demonstrators."""

    q: Mlp
    log_precision: Float[Array, " D"]
    bias: AbstractBias


class SoftQ(AbstractOffline):
    r"""IRLEED with networks: $q_i = \beta_i(Q + \alpha\epsilon_i)/T$, see `irleed.iq.objective`.

    **Fields:**

    - `hidden`: sizes of the hidden layers, of Q and of the biases.
    - `steps`, `batch`, `rate`: of Adam; `precision_rate` and `bias_rate` for their parameters.
    - `discount`: $\gamma$.
    - `temperature`: $T$; 1 is natural scale, in which the network's outputs are logits.
    - `penalty`: $c$ of $c\,(T r)^2$, the penalty on large rewards: what brings the dynamics in.
    - `bias_scale`, `bias_penalty`: $\alpha$, and the weight of $\epsilon_i^2$.
    - `rank`: None for a bias network each; else a shared trunk with so many outputs and a linear head each.
    - `learn_precision`, `learn_bias`: neither is IQ-Learn, see `iq`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 4e-3
    precision_rate: Scalar = 1e-3
    bias_rate: Scalar = 1e-4
    discount: Scalar = 0.99
    temperature: Scalar = 1.0
    penalty: Scalar = 200.0
    bias_scale: Scalar = 1.0
    bias_penalty: Scalar = 10.0
    rank: int | None = eqx.field(static=True, default=None)
    value: Literal["demonstrations", "initial"] = eqx.field(static=True, default="demonstrations")
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)

    @classmethod
    def iq(cls, **settings) -> "SoftQ":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(learn_precision=False, learn_bias=False, **settings)

    @classmethod
    def paper(cls, **settings) -> "SoftQ":
        """The published hyperparameters; with ``learn_precision=False, learn_bias=False``, those of IQ-Learn.

        The paper learns the precision itself at a rate of 5e-4, from 1 / T on: a rate of 5e-4 T for its logarithm.
        """
        published = {"rate": 1e-4, "precision_rate": 5e-7, "bias_rate": 1e-5, "temperature": 1e-3, "penalty": 0.5}
        return cls(
            **{**published, "steps": 50_000, "decay": False, "bias_scale": 0.01, "bias_penalty": 0.01, **settings}
        )

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractOffline.parameters`."""
        q_key, bias_key = jax.random.split(key)
        sizes = (*self.hidden, actions)
        bias: AbstractBias
        if self.rank is None:
            bias = Independent.init(bias_key, demonstrators, inputs, sizes)
        else:
            bias = LowRank.init(bias_key, demonstrators, inputs, sizes, self.rank)
        return Parameters(Mlp.init(q_key, inputs, sizes), jnp.zeros(demonstrators, jnp.float32), bias)

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractOffline.rates`."""
        return {
            "q": self.rate,
            "log_precision": self.precision_rate if self.learn_precision else 0.0,
            "bias": self.bias_rate if self.learn_bias else 0.0,
        }

    def logits(
        self, parameters: Parameters, observation: Float[Array, "..."], demonstrator: Int[Array, ""]
    ) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
        r"""$\beta_i(Q + \alpha\epsilon_i)/T$ in one situation, and $\epsilon_i$ itself."""
        q = parameters.q(observation)
        if not self.learn_bias and not self.learn_precision:
            return q / self.temperature, jnp.zeros_like(q)
        precision = jnp.exp(gauge(parameters.log_precision))[demonstrator] if self.learn_precision else 1.0
        bias = parameters.bias(observation, demonstrator) if self.learn_bias else jnp.zeros_like(q)
        return precision * (q + self.bias_scale * bias) / self.temperature, bias

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """See `AbstractOffline.loss`: the mean over transitions, in units of T, as the published one."""
        return jnp.mean(jax.vmap(lambda row: self._one(parameters, row))(batch))

    def _one(self, parameters: Parameters, row: Row) -> Float[Array, ""]:
        term, bias = self.terms(parameters, parameters, row)
        penalty = self.penalty * self.temperature
        loss = objective.demonstration_loss(term, penalty)
        if self.value == "initial":
            q_0, _ = self.logits(parameters, row.initial, row.demonstrator)
            loss = objective.initial_value(q_0, self.discount) - term.reward + penalty * term.reward**2
        return self.temperature * loss + self.bias_penalty * objective.bias_penalty(bias)

    def terms(self, parameters: Parameters, ahead: Parameters, row: Row) -> tuple[objective.Terms, Float[Array, " A"]]:
        r"""The terms of a demonstrated transition, with $V(s')$ by `ahead`; and $\epsilon_i(s, \cdot)$."""
        q_tm1, bias = self.logits(parameters, row.obs, row.demonstrator)
        q_t, _ = self.logits(ahead, row.next_obs, row.demonstrator)
        return objective.terms(q_tm1, row.action, q_t, self.discount * row.proceeds), bias

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """The shared policy: precision 1 in the gauge, no bias."""
        return SoftmaxPolicy(parameters.q, jnp.asarray(1 / self.temperature, jnp.float32))

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `AbstractOffline.log_precision`."""
        return gauge(parameters.log_precision)

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractOffline.view`."""
        logits, bias = self.logits(parameters, observation, demonstrator)
        return View.of(logits, parameters.q(observation), self.bias_scale * bias if self.learn_bias else None)
