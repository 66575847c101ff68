r"""IRLEED on inverse soft Q-learning, offline and online; IQ-Learn is its special case.

Values $q = \beta_i(Q + \alpha\epsilon_i)/T$ are the logits of demonstrator $i$'s policy, $V$ is their log partition
($\log\sum_a \exp q$ for discrete actions), and the reward they imply is $r = q(s, a) - \gamma V(s')$. Maximum-entropy
inverse RL maximises $E[r] - \psi(r) - E[V(s) - \gamma V(s')]$ over the demonstrations, with $\psi$ a penalty on large
rewards. Over the same transitions, the first and last terms are the log-likelihood of the actions:
$q(s, a) - V(s) = \log\pi_i(a|s)$.

With discrete actions, the outputs of a network are $Q$. With vectors, values are quadratic in $z$, the action before it
is squashed: $Q(s, z) = C(s) - \frac12\sum((z - \mu(s))/\sigma(s))^2$, so that the soft value is
$V = C + \sum\log(\sigma\sqrt{2\pi})$ and nothing has to be sampled. Demonstrators of vectors are those of
`irleed.model.mixed`: with values of their own, $\sigma(s)$ would explain their noise wherever they are seldom in the
same states, and precision would not be identified. The shared policy learns from their transitions weighted by
$\beta_i^k$.
"""

from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent, with_replayed
from irleed.algorithms.base import FOR_VECTORS, AbstractOffline, ActionKind, rate_of
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions, Transition
from irleed.model import mixed
from irleed.model.actions import ActionDistribution
from irleed.model.demonstrators import Description, gauge, log_precision_of, precision_weights
from irleed.model.mixed import bias_size, spread_size
from irleed.model.networks import AbstractBias, Activation, Linear, Mlp, biases
from irleed.policies.base import Actor


class Terms(eqx.Module):
    """The terms of the objective, of one transition or of a batch."""

    log_likelihood: Float[Array, "*B"]  # q(s, a) - V(s)
    reward: Float[Array, "*B"]  # r = q(s, a) - discount V(s')
    value_step: Float[Array, "*B"]  # V(s) - discount V(s')


def transition_terms(
    q_tm1: Float[Array, "*B"], v_tm1: Float[Array, "*B"], v_t: Float[Array, "*B"], discount_t: Float[Array, "*B"]
) -> Terms:
    r"""The terms of a transition.

    **Arguments:**

    - `q_tm1`: $q(s, a)$, the logit of the action taken.
    - `v_tm1`, `v_t`: the soft values of $s$ and of $s'$.
    - `discount_t`: $\gamma$, or 0 where $s'$ is terminal. Truncation is not termination.
    """
    return Terms(q_tm1 - v_tm1, q_tm1 - discount_t * v_t, v_tm1 - discount_t * v_t)


def demonstration_loss(term: Terms, penalty: Scalar) -> Float[Array, "*B"]:
    r"""$-\log\pi_i(a|s) + c\,r^2$: the value term is a mean over the demonstrations themselves, as offline."""
    return -term.log_likelihood + penalty * term.reward**2


def mixed_loss(demonstrated: Terms, replayed: Terms, penalty: Scalar, fraction: Scalar) -> Float[Array, "*B"]:
    r"""$-r$ of a demonstrated transition, and $V(s) - \gamma V(s') + c\,r^2$ mixed with those of a replayed one.

    Any fraction is valid: $E[V(s) - \gamma V(s')]$ is the same under any policy.
    """
    value = (1 - fraction) * demonstrated.value_step + fraction * replayed.value_step
    size = (1 - fraction) * demonstrated.reward**2 + fraction * replayed.reward**2
    return -demonstrated.reward + value + penalty * size


def mean_squared_bias(bias: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    r"""$\mathrm{mean}_a\,\epsilon_i(s, a)^2$: the penalty on biases. What they share belongs to Q."""
    return jnp.mean(bias**2, -1)


IQ_LEARN: dict[str, Any] = {"precision_learning_rate": None, "bias_learning_rate": None}


class Parameters(eqx.Module):
    """Shared values, and the demonstrators."""

    actor: Actor  # of discrete actions, the network is Q; else it gives the mean and spread of Q
    level: Mlp | None  # C(s), of vectors
    log_std: Float[Array, "*A"]  # of the noise of vectors at precision 1
    log_precision: Float[Array, " D"]
    bias: AbstractBias


class OfflineIrleed(AbstractOffline):
    r"""IRLEED from demonstrations alone; the defaults suit discrete actions, `continuous` vectors.

    **Fields:**

    - `hidden`: the units of each hidden layer.
    - `activation`: of the hidden layers.
    - `steps`: gradient steps (Adam).
    - `batch_size`: demonstrated transitions per update; online, as many replayed ones too.
    - `anneal_lr`: cosine decay of the learning rates to zero.
    - `learning_rate`: that of the networks.
    - `precision_learning_rate`: that of log precisions; None holds all precisions at 1.
    - `bias_learning_rate`: that of biases; None holds them at 0. With both None this is IQ-Learn, see `iq`.
    - `discount`: the discount factor $\gamma$.
    - `temperature`: $T$ of policies and values; at 1 the outputs of the network are logits.
    - `penalty`: $c$ of $c\,(T r)^2$, the penalty on large rewards, which makes use of the dynamics.
    - `bias_scale`: $\alpha$, by which biases are multiplied.
    - `bias_penalty`: the weight of $\epsilon_i^2$.
    - `bias_hidden`: the units of each hidden layer of the biases; None for biases linear in the observation.
    - `precision_exponent`: $k$ of the weights $\beta_i^k$ of transitions, with continuous actions.
    - `held_log_precision`: initial log precision of each demonstrator, if estimated before.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    steps: int = eqx.field(static=True, default=20_000)
    batch_size: int = eqx.field(static=True, default=32)
    anneal_lr: bool = eqx.field(static=True, default=True)
    learning_rate: Scalar = 1e-3
    precision_learning_rate: Scalar | None = 1e-3
    bias_learning_rate: Scalar | None = 1e-2
    discount: Scalar = 0.99
    temperature: Scalar = 1.0
    penalty: Scalar = 0.5
    bias_scale: Scalar = 1.0
    bias_penalty: Scalar = 0.01
    bias_hidden: tuple[int, ...] | None = eqx.field(static=True, default=None)
    precision_exponent: Scalar = 1.0
    held_log_precision: Float[Array, " D"] | None = None

    @classmethod
    def iq(cls, **settings: Any) -> "OfflineIrleed":
        """IQ-Learn: precision 1 and bias 0 held fixed."""
        return cls(**IQ_LEARN, **settings)

    @classmethod
    def continuous(cls, **settings: Any) -> "OfflineIrleed":
        """The settings for vectors; with ``**IQ_LEARN``, those of IQ-Learn."""
        preset: dict[str, Any] = {**FOR_VECTORS, "penalty": 0.01, "bias_hidden": (128, 128)}
        preset |= {"bias_learning_rate": 1e-4, "bias_penalty": 10.0}
        return cls(**(preset | settings))

    @classmethod
    def failure(cls, **settings: Any) -> "OfflineIrleed":
        """For discrete actions where early termination counts as failure, as on CartPole.

        A large penalty drives all rewards to zero. What is left of the values is the expected future entropy, which
        termination cuts off, so that a smooth network's values predict how long the episode lasts. Biases are small
        networks. Where early termination can be a success, as on LunarLander, such policies crash.
        """
        preset: dict[str, Any] = {"activation": "elu", "learning_rate": 4e-3, "penalty": 200.0}
        preset |= {"bias_hidden": (64, 64), "bias_learning_rate": 1e-4, "bias_penalty": 10.0}
        return cls(**(preset | settings))

    @classmethod
    def paper(cls, **settings: Any) -> "OfflineIrleed":
        """The published hyperparameters; with ``**IQ_LEARN``, those of IQ-Learn.

        The paper learns the precision itself, initialised at 1 / T, at a rate of 5e-4: 5e-4 T for its logarithm.
        """
        published: dict[str, Any] = {"activation": "elu", "steps": 50_000, "anneal_lr": False, "temperature": 1e-3}
        published |= {"learning_rate": 1e-4, "precision_learning_rate": 5e-7, "bias_learning_rate": 1e-5}
        published |= {"penalty": 0.5, "bias_scale": 0.01, "bias_penalty": 0.01, "bias_hidden": (64, 64)}
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
        """The initial parameters: precision 1 and bias 0; bias networks of discrete actions are random."""
        discrete = isinstance(actions, int)
        actor_key, *level_keys, bias_key = jax.random.split(key, 2 if discrete else 3)
        biased = demonstrators if self.learns_bias else 0
        return Parameters(
            actor=Actor.init(actor_key, inputs, actions, self.hidden, self.activation, 1 / self.temperature),
            level=None if discrete else Mlp.init(level_keys[0], inputs, (*self.hidden, 1), self.activation),
            log_std=jnp.zeros(spread_size(actions), jnp.float32),
            log_precision=self._first_log_precision(demonstrators),
            bias=biases(
                bias_key, biased, inputs, bias_size(actions), self.bias_hidden, self.activation, zero=not discrete
            ),
        )

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters; 0 where it is held fixed."""
        return {
            **dict.fromkeys(("actor", "level", "log_std"), self.learning_rate),
            "log_precision": rate_of(self.precision_learning_rate),
            "bias": rate_of(self.bias_learning_rate),
        }

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """The mean over transitions, in units of T as in the paper."""
        term, bias, shared = self.terms(parameters, batch)
        loss = self.temperature * demonstration_loss(term, self.penalty * self.temperature)
        biased = self.bias_penalty * mean_squared_bias(bias)
        if not self._noisy(parameters):
            return jnp.mean(loss + biased)
        if self.learns_precision:
            who, every = batch.demonstrator, jnp.ones_like(loss)
            loss = loss * precision_weights(parameters.log_precision, who, self.precision_exponent, every)
        given = parameters.log_std, parameters.log_precision, batch, self.bias_scale * bias
        return jnp.mean(loss + biased) + mixed.noise_loss(cast(mixed.Vectors, shared), *given)

    def terms(self, parameters: Parameters, rows: Row) -> tuple[Terms, Float[Array, "B A"], ActionDistribution]:
        r"""The terms of a batch, and $\epsilon_i(s, \cdot)$ and the shared policy in its states.

        Networks take all states at once, in large matrix products.
        """
        count, noisy = len(rows.demonstrator), self._noisy(parameters)
        obs = jnp.concatenate([rows.obs, rows.next_obs])
        own = shared = parameters.actor.batch(obs)
        if noisy:
            bias = parameters.bias(rows.obs, rows.demonstrator)
        else:
            who = jnp.concatenate([rows.demonstrator, rows.demonstrator])
            bias = parameters.bias(obs, who)
            own = self._own(parameters, shared, who, bias)
        level = jnp.zeros(len(obs), jnp.float32) if parameters.level is None else jax.vmap(parameters.level)(obs)[:, 0]
        value = own.log_partition() + level
        q = own[:count].logit(rows.action) + level[:count]
        found = transition_terms(q, value[:count], value[count:], self.discount * rows.continuation)
        return found, bias[:count], shared[:count]

    def policy(self, parameters: Parameters) -> Actor:
        r"""The shared policy: precision 1 and bias 0 in the gauge.

        With discrete actions and linear biases its values are $\sum_i \beta_i (Q + \alpha\epsilon_i) / \sum_i \beta_i$:
        the mean of all demonstrators' log probabilities up to scale, so that no common bias is left.
        """
        if not (self.learns_bias and parameters.level is None and isinstance(parameters.bias, Linear)):
            return parameters.actor
        share = jax.nn.softmax(parameters.log_precision)
        network = parameters.bias.added_to(cast(Mlp, parameters.actor.network), share, self.bias_scale)
        return Actor(network, parameters.actor.head)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """Each demonstrator's log precision, in the gauge."""
        return gauge(parameters.log_precision)

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """Under the demonstrator's own policy; biases are relative to the shared values, or to the noise of vectors."""
        batch, whose = obs[None], who[None]
        shared, bias = parameters.actor.batch(batch), parameters.bias(batch, whose)
        if self._noisy(parameters):
            moved = self.bias_scale * bias[0] if self.learns_bias else None
            given = parameters.log_std, parameters.log_precision, who, moved, action
            return mixed.noise_description(cast(mixed.Vectors, shared[0]), *given)
        log_prob = self._own(parameters, shared, whose, bias).log_prob(action[None])[0]
        if not self.learns_bias:
            return Description.without_bias(log_prob)
        values = self.policy(parameters).network(obs)
        common = values - parameters.actor.network(obs)
        return Description(log_prob, *(jnp.var(each) for each in (self.bias_scale * bias[0] - common, values)))

    def _noisy(self, parameters: Parameters) -> bool:
        """Whether demonstrators are those of `irleed.model.mixed`."""
        return parameters.level is not None and (self.learns_precision or self.learns_bias)

    def _own(
        self, parameters: Parameters, shared: ActionDistribution, who: Int[Array, " B"], bias: Float[Array, "B A"]
    ) -> ActionDistribution:
        r"""The policy $\exp(\beta_i(Q + \alpha\epsilon_i)/T)$ of the demonstrator of each row."""
        if not (self.learns_precision or self.learns_bias or self.held_log_precision is not None):
            return shared
        log_precision = log_precision_of(parameters.log_precision, who)
        return shared.as_demonstrator(log_precision, self.bias_scale / self.temperature * bias)

    def _first_log_precision(self, demonstrators: int) -> Float[Array, " D"]:
        """Zeros, or `held_log_precision`."""
        known = self.held_log_precision
        return jnp.zeros(demonstrators, jnp.float32) if known is None else jnp.asarray(known, jnp.float32)


# Lower learning rates than offline: the replay buffer keeps changing.
SLOWER: dict[str, Any] = {"learning_rate": 1e-3, "precision_learning_rate": 3e-4}


class OnlineIrleed(AbstractAgent):
    r"""IRLEED online, for discrete actions: each demonstrated transition is paired with a replayed one.

    The value term of demonstrator $i$ may be averaged over the transitions of any policy, so that a replayed transition
    has the values of the demonstrator it is paired with. The shared policy acts. Without precisions and biases this is
    IQ-Learn, see `iq`.

    **Fields:**

    - `learner`: settings of networks and objective, as offline; its `steps`, `batch_size` and `anneal_lr` are not used.
    - `replay_fraction`: weight of replayed transitions in value term and penalty; 0.5 in the paper, and 0 is offline
      learning.
    - Others as those of `irleed.algorithms.agent.AbstractAgent`.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    exploration: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  # a constant
    tau: ClassVar[float] = 1.0  # pyright: ignore[reportIncompatibleVariableOverride]  # there is no target network
    learner: OfflineIrleed = OfflineIrleed(penalty=0.05, **SLOWER)
    steps: int = eqx.field(static=True, default=50_000)
    batch_size: int = eqx.field(static=True, default=32)
    anneal_lr: bool = eqx.field(static=True, default=True)
    num_envs: int = eqx.field(static=True, default=1)
    gradient_steps: int = eqx.field(static=True, default=1)
    buffer_size: int = eqx.field(static=True, default=50_000)
    learning_starts: int = eqx.field(static=True, default=500)
    replay_fraction: Scalar = 0.03

    @classmethod
    def iq(cls, **settings: Any) -> "OnlineIrleed":
        """IQ-Learn; settings are those of the learner."""
        return cls(learner=OfflineIrleed.iq(**{"penalty": 0.05, "learning_rate": 1e-3, **settings}))

    @classmethod
    def failure(cls, **settings: Any) -> "OnlineIrleed":
        """Early termination counts as failure, see `OfflineIrleed.failure`; settings are those of the learner."""
        own: dict[str, Any] = {"penalty": 50.0, **SLOWER, "bias_learning_rate": 3e-5, **settings}
        return cls(learner=OfflineIrleed.failure(**own), replay_fraction=0.5)

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """Those of the learner."""
        return self.learner.parameters(key, inputs, actions, demonstrators)

    def learning_rates(self) -> dict[str, Scalar]:
        """Those of the learner."""
        return self.learner.learning_rates()

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, replayed: Transition, demonstrated: Row
    ) -> Float[Array, ""]:
        """The mean over pairs of transitions, in units of T."""
        own, who = self.learner, demonstrated.demonstrator
        terms, bias, _ = own.terms(parameters, with_replayed(demonstrated, replayed))
        of_demonstrated = jax.tree.map(lambda leaf: leaf[: len(who)], terms)
        of_replayed = jax.tree.map(lambda leaf: leaf[len(who) :], terms)
        penalty = own.penalty * own.temperature
        mixed = mixed_loss(of_demonstrated, of_replayed, penalty, self.replay_fraction)
        return jnp.mean(own.temperature * mixed + own.bias_penalty * mean_squared_bias(bias[: len(who)]))

    def policy(self, parameters: Parameters) -> Actor:
        """That of the learner."""
        return self.learner.policy(parameters)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """That of the learner."""
        return self.learner.log_precision(parameters, data)

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """As the learner does."""
        return self.learner.describe(parameters, obs, action, who)
