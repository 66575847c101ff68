"""IRLEED on inverse soft Q-learning, for discrete actions; IQ-Learn is its special case."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.iq import objective
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.errors import ConfigError, problem
from irleed.model.actions import View
from irleed.model.demonstrators import gauge
from irleed.model.networks import AbstractBias, Activation, Linear, Mlp, biases
from irleed.policies.base import SoftmaxPolicy


class Parameters(eqx.Module):
    """The shared Q and the demonstrators."""

    q: Mlp
    log_precision: Float[Array, " D"]
    bias: AbstractBias


class SoftQ(AbstractOffline):
    r"""IRLEED with networks: $q_i = \beta_i(Q + \alpha\epsilon_i)/T$, see `irleed.algorithms.iq.objective`.

    **Fields:**

    - `hidden`, `activation`: sizes of the hidden layers of Q, and what is between them.
    - `steps`, `batch`, `rate`: of Adam; `precision_rate` and `bias_rate` for their parameters.
    - `discount`: $\gamma$.
    - `temperature`: $T$; 1 is natural scale, in which the network's outputs are logits.
    - `penalty`: $c$ of $c\,(T r)^2$, the penalty on large rewards: what brings the dynamics in.
    - `bias_scale`, `bias_penalty`: $\alpha$, and the weight of $\epsilon_i^2$.
    - `bias_hidden`: None for biases that are linear in the observation, see `shared`; else sizes of the hidden layers
      of bias networks.
    - `rank`: None for a bias network each; else one trunk with so many outputs and a linear head each.
    - `learn_precision`, `learn_bias`: neither is IQ-Learn, see `iq`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 1e-3
    precision_rate: Scalar = 1e-3
    bias_rate: Scalar = 1e-2
    discount: Scalar = 0.99
    temperature: Scalar = 1.0
    penalty: Scalar = 0.5
    bias_scale: Scalar = 1.0
    bias_penalty: Scalar = 0.01
    bias_hidden: tuple[int, ...] | None = eqx.field(static=True, default=None)
    rank: int | None = eqx.field(static=True, default=None)
    value: Literal["demonstrations", "initial"] = eqx.field(static=True, default="demonstrations")
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        if self.rank is not None and self.bias_hidden is None:
            expected, remedy = "bias_hidden, the layers of the trunk", "give both or neither"
            raise ConfigError(problem("rank of biases", got="linear biases", expected=expected, remedy=remedy))

    @classmethod
    def iq(cls, **settings) -> "SoftQ":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(learn_precision=False, learn_bias=False, **settings)

    @classmethod
    def survival(cls, **settings) -> "SoftQ":
        """For tasks in which an early end is a failure, as on CartPole; on LunarLander, where not, policies crash.

        A large penalty draws all rewards to nought. What is left of the values is the entropy still to come, which an
        end cuts off, so that they say how long a smooth network expects to go on. Biases are small networks.
        """
        bias = {"bias_hidden": (64, 64), "bias_rate": 1e-4, "bias_penalty": 10.0}
        return cls(**{"activation": "elu", "rate": 4e-3, "penalty": 200.0, **bias, **settings})

    @classmethod
    def paper(cls, **settings) -> "SoftQ":
        """The published hyperparameters; with ``learn_precision=False, learn_bias=False``, those of IQ-Learn.

        The paper learns the precision itself at a rate of 5e-4, from 1 / T on: a rate of 5e-4 T for its logarithm.
        """
        rates = {"rate": 1e-4, "precision_rate": 5e-7, "bias_rate": 1e-5, "steps": 50_000, "decay": False}
        bias = {"bias_scale": 0.01, "bias_penalty": 0.01, "bias_hidden": (64, 64)}
        return cls(**{"activation": "elu", "temperature": 1e-3, "penalty": 0.5, **rates, **bias, **settings})

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        q_key, bias_key = jax.random.split(key)
        q = Mlp.init(q_key, inputs, (*self.hidden, actions), self.activation)
        if self.bias_hidden is None:
            bias = Linear.init(demonstrators if self.learn_bias else 0, inputs, actions)
        else:
            sizes = (*self.bias_hidden, actions)
            bias = biases(bias_key, demonstrators, inputs, sizes, self.activation, self.rank, self.learn_bias)
        return Parameters(q, jnp.zeros(demonstrators, jnp.float32), bias)

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {
            "q": self.rate,
            "log_precision": self.precision_rate if self.learn_precision else 0.0,
            "bias": self.bias_rate if self.learn_bias else 0.0,
        }

    def logits(
        self, parameters: Parameters, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]
    ) -> tuple[Float[Array, "B A"], Float[Array, "B A"]]:
        r"""$\beta_i(Q + \alpha\epsilon_i)/T$ in each situation of a batch, and $\epsilon_i$ itself.

        Networks take the batch as a whole: products of matrices are then as large as they can be, with no copies.
        """
        q = jax.vmap(parameters.q)(observation)
        if not self.learn_bias and not self.learn_precision:
            return q / self.temperature, jnp.zeros_like(q)
        own = jax.nn.one_hot(demonstrator, len(parameters.log_precision))
        precision = jnp.exp(own @ gauge(parameters.log_precision))[:, None] if self.learn_precision else 1.0
        bias = parameters.bias(observation, demonstrator) if self.learn_bias else jnp.zeros_like(q)
        return precision * (q + self.bias_scale * bias) / self.temperature, bias

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """See `AbstractOffline.loss`: the mean over transitions, in units of T, as the published one."""
        term, bias = self.terms(parameters, parameters, batch)
        penalty = self.penalty * self.temperature
        loss = jax.vmap(objective.demonstration_loss, (0, None))(term, penalty)
        if self.value == "initial":
            q_0, _ = self.logits(parameters, batch.initial, batch.demonstrator)
            value = jax.vmap(objective.initial_value, (0, None))(q_0, self.discount)
            loss = value - term.reward + penalty * term.reward**2
        return jnp.mean(self.temperature * loss + self.bias_penalty * jax.vmap(objective.bias_penalty)(bias))

    def terms(
        self, parameters: Parameters, ahead: Parameters, rows: Row
    ) -> tuple[objective.Terms, Float[Array, "B A"]]:
        r"""The terms of a batch of transitions, with $V(s')$ by `ahead`; and $\epsilon_i(s, \cdot)$."""
        count, who = len(rows.action), rows.demonstrator
        if ahead is parameters:  # once through the networks with all: fewer and larger products
            obs = jnp.concatenate([rows.obs, rows.next_obs])
            logits, bias = self.logits(parameters, obs, jnp.concatenate([who, who]))
            q_tm1, q_t, bias = logits[:count], logits[count:], bias[:count]
        else:
            q_tm1, bias = self.logits(parameters, rows.obs, who)
            q_t, _ = self.logits(ahead, rows.next_obs, who)
        return jax.vmap(objective.terms)(q_tm1, rows.action, q_t, self.discount * rows.proceeds), bias

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """The shared policy: precision 1 and bias 0 in the gauge."""
        return SoftmaxPolicy(self.shared(parameters), jnp.asarray(1 / self.temperature, jnp.float32))

    def shared(self, parameters: Parameters) -> Mlp:
        r"""With linear biases $\sum_i \beta_i (Q + \alpha\epsilon_i) / \sum_i \beta_i$, with networks $Q$.

        The former is the mean of everyone's log probabilities, but for its scale: who is surer has more of a say. What
        the biases have in common is no bias.
        """
        if not (self.learn_bias and isinstance(parameters.bias, Linear)):
            return parameters.q
        say = jax.nn.softmax(self.learn_precision * parameters.log_precision)
        return parameters.bias.added_to(parameters.q, say, self.bias_scale)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `AbstractAlgorithm.log_precision`."""
        return gauge(parameters.log_precision)

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractAlgorithm.view`."""
        (logits,), (bias,) = self.logits(parameters, observation[None], demonstrator[None])
        shared = self.shared(parameters)(observation)
        common = shared - parameters.q(observation)
        return View.of(logits, shared, self.bias_scale * bias - common if self.learn_bias else None)
