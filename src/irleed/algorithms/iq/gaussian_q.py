r"""IRLEED with continuous actions from demonstrations alone; IQ-Learn and behaviour cloning are its special cases.

The objective is that of discrete actions (`objective`), with values that are quadratic in $z$, the action
before it is squashed into its bounds: $Q(s, z) = C(s) - \frac12\sum ((z - \mu(s))/\sigma(s))^2$. Everything is then
known in closed form, and nothing has to be drawn: demonstrator $i$, who pursues $\beta_i(Q + \epsilon_i)$ with a bias
that is linear in $z$, acts by $N(\mu + \delta_i, \sigma^2/\beta_i)$, and
$V_i = \log\int\exp(\beta_i(Q + \epsilon_i))\,dz = \beta_i C + \sum\log(\sigma\sqrt{2\pi/\beta_i})$.

Exact as that is (`own_values`), it says little where demonstrators are seldom in the same situation: $\sigma(s)$ then
explains their spreads. By default demonstrators are therefore those of `residuals`, as when playing, and
the shared policy learns from what they did by how precise they are.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.iq import objective
from irleed.algorithms.iq.residuals import AbstractResiduals, ResidualView, counts
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Bounds
from irleed.model.actions import Gaussian, GaussianPolicy, GaussianView, Squashing, gaussians
from irleed.model.demonstrators import gauge
from irleed.model.networks import AbstractBias, Activation, Mlp, biases, unbiased


class Parameters(AbstractResiduals):
    """What is shared, and the demonstrators."""

    actor: Mlp
    level: Mlp  # C(s)
    log_spread: Float[Array, " A"]
    log_precision: Float[Array, " D"]
    bias: AbstractBias
    squashing: Squashing  # held fixed


class GaussianQ(AbstractOffline):
    r"""IRLEED with values quadratic in the action.

    **Fields:** those of `irleed.algorithms.iq.soft_q.SoftQ`, in natural scale, and

    - `own_values`: whether demonstrators have values of their own, of which precision and bias are part; the bias is
      then how far a mean is off, in spreads of the shared policy. Else they act around the shared policy, see
      `irleed.algorithms.iq.residuals`, and their transitions count by $\beta_i^k$, $k$ being the `sharpness`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=64)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 1e-3
    precision_rate: Scalar = 1e-3
    bias_rate: Scalar = 1e-4
    discount: Scalar = 0.99
    penalty: Scalar = 0.01
    bias_scale: Scalar = 1.0
    bias_penalty: Scalar = 10.0
    rank: int | None = eqx.field(static=True, default=None)
    own_values: bool = eqx.field(static=True, default=False)
    sharpness: Scalar = 2.0
    learn_precision: bool = eqx.field(static=True, default=True)
    learn_bias: bool = eqx.field(static=True, default=True)

    @classmethod
    def iq(cls, **settings) -> "GaussianQ":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(learn_precision=False, learn_bias=False, **settings)

    @classmethod
    def cloning(cls, **settings) -> "GaussianQ":
        """Behaviour cloning: the likelihood of the actions alone, whoever took them."""
        return cls.iq(penalty=0.0, **settings)

    def parameters(self, key: Key, inputs: Inputs, actions: Bounds, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        actor_key, level_key, bias_key = jax.random.split(key, 3)
        sizes = (*self.hidden, actions.size)
        return Parameters(
            actor=Mlp.init(actor_key, inputs, (*self.hidden, 2 * actions.size), self.activation),
            level=Mlp.init(level_key, inputs, (*self.hidden, 1), self.activation),
            log_spread=jnp.zeros(actions.size, jnp.float32),
            log_precision=jnp.zeros(demonstrators, jnp.float32),
            bias=unbiased(biases(bias_key, demonstrators, inputs, sizes, self.activation, self.rank, self.learn_bias)),
            squashing=Squashing.into(actions),
        )

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {
            "actor": self.rate,
            "level": self.rate,
            "log_spread": 0.0 if self.own_values else self.precision_rate,
            "log_precision": self.precision_rate if self.learn_precision else 0.0,
            "bias": self.bias_rate if self.learn_bias else 0.0,
            "squashing": 0.0,
        }

    def shift(self, parameters: Parameters, obs: Float[Array, "B ..."], who: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias in each situation of a batch."""
        if self.learn_bias:
            return parameters.bias(obs, who)
        return jnp.zeros((len(who), len(parameters.log_spread)), jnp.float32)

    def acting(
        self, parameters: Parameters, obs: Float[Array, "B ..."], who: Int[Array, " B"]
    ) -> tuple[Gaussian, Float[Array, " B"]]:
        r"""$\pi_i$ and $V_i$ in each situation of a batch; without values of their own, $\pi$ and $V$."""
        shared = gaussians(parameters.actor, obs)
        level = jax.vmap(parameters.level)(obs)[:, 0]
        if self.own_values:
            precision = gauge(parameters.log_precision)[who] if self.learn_precision else jnp.zeros_like(level)
            off = self.bias_scale * jnp.exp(shared.log_spread) * self.shift(parameters, obs, who)
            shared = shared.as_demonstrator(precision, off)
            level = jnp.exp(precision) * level
        return shared, level + jnp.sum(shared.log_spread + 0.5 * jnp.log(2 * jnp.pi), -1)

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """See `AbstractOffline.loss`."""
        count, who = len(batch.proceeds), batch.demonstrator
        both = jnp.concatenate([batch.obs, batch.next_obs])
        acting, value = self.acting(parameters, both, jnp.concatenate([who, who]))
        shift = self.shift(parameters, batch.obs, who)
        now: Gaussian = jax.tree.map(lambda leaf: leaf[:count], acting)
        likelihood = now.log_density(parameters.squashing.unsquashed(batch.action))
        ahead = self.discount * batch.proceeds * value[count:]
        step = value[:count] - ahead
        term = jax.vmap(objective.Terms)(likelihood, likelihood + step, step)
        loss = jax.vmap(objective.demonstration_loss, (0, None))(term, self.penalty)
        biased = self.bias_penalty * jnp.mean(jax.vmap(objective.bias_penalty)(shift))
        if self.own_values or not (self.learn_precision or self.learn_bias):
            return jnp.mean(loss) + biased
        if self.learn_precision:
            loss = counts(parameters.log_precision, who, self.sharpness, jnp.ones_like(loss)) * loss
        return jnp.mean(loss) + biased + parameters.misfit(batch, self.bias_scale * shift)

    def policy(self, parameters: Parameters) -> GaussianPolicy:
        """The shared policy: precision 1 in the gauge, no bias."""
        return parameters.policy

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `AbstractAlgorithm.log_precision`."""
        return gauge(parameters.log_precision)

    def view(
        self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]
    ) -> GaussianView | ResidualView:
        """See `AbstractAlgorithm.view`."""
        off = self.bias_scale * self.shift(parameters, observation[None], demonstrator[None])[0]
        if not self.own_values and (self.learn_precision or self.learn_bias):
            return parameters.view(observation, demonstrator, off if self.learn_bias else None)
        acting, _ = self.acting(parameters, observation[None], demonstrator[None])
        own = jax.tree.map(lambda leaf: leaf[0], acting)  # without demonstrators of their own, the shared policy
        return GaussianView(own, off if self.learn_bias else off * jnp.nan, parameters.squashing)
