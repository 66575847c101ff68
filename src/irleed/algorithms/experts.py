r"""Experts trained on the true reward, to simulate demonstrators from; IRLEED itself does not need them.

Discrete actions: soft Q-learning, $Q \leftarrow r + \gamma\,T \log\sum_a \exp(Q'/T)$. Vectors: soft actor-critic
(Haarnoja et al., 2018).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent, Critics, soft_value
from irleed.algorithms.base import ActionKind
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Actions, Bounds, Transition
from irleed.model.actions import SquashedGaussian, Squashing
from irleed.model.demonstrators import Description
from irleed.model.networks import Mlp
from irleed.policies.base import Actor


class AbstractExpert(AbstractAgent):
    """An agent that treats demonstrators alike; its parameters have an `actor`, and zeros as `demonstrators`."""

    def policy(self, parameters: Any) -> Actor:
        """The learnt policy."""
        return parameters.actor

    def log_precision(self, parameters: Any, data: Transitions) -> Float[Array, " D"]:
        """Zeros."""
        return parameters.demonstrators

    def describe(
        self, parameters: Any, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """By the shared policy."""
        return Description.without_bias(parameters.actor(obs).log_prob(action))


class SoftQParameters(eqx.Module):
    """The policy, whose network is Q, and log precision 0 for each demonstrator: they are treated alike."""

    actor: Actor
    demonstrators: Float[Array, " D"]

    @classmethod
    def init(
        cls,
        key: Key,
        inputs: Inputs,
        actions: Actions,
        demonstrators: int,
        hidden: Sequence[int],
        temperature: Scalar,
    ) -> "SoftQParameters":
        """A new network."""
        actor = Actor.init(key, inputs, actions, hidden, "elu", 1 / temperature)
        return cls(actor, jnp.zeros(demonstrators, jnp.float32))

    def q(self, observation: Float[Array, "..."]) -> Float[Array, " A"]:
        """The values in one state."""
        return self.actor.network(observation)


class AbstractSoftQ(AbstractExpert):
    """Soft Q-learning that treats demonstrators alike."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    learning_rate: eqx.AbstractVar[Scalar]

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {"actor": self.learning_rate, "demonstrators": 0.0}


class SoftQExpert(AbstractSoftQ):
    """Soft Q-learning on the true reward.

    - `temperature`: of policy and values; `exploration`: the fraction of uniformly random actions.
    - `start`: a critic to continue from, instead of a new one.
    - Others as those of `irleed.algorithms.agent.AbstractAgent`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=100_000)
    batch_size: int = eqx.field(static=True, default=128)
    anneal_lr: bool = eqx.field(static=True, default=True)
    num_envs: int = eqx.field(static=True, default=1)
    gradient_steps: int = eqx.field(static=True, default=1)
    buffer_size: int = eqx.field(static=True, default=50_000)
    learning_starts: int = eqx.field(static=True, default=1_000)
    learning_rate: Scalar = 3e-4
    discount: Scalar = 0.99
    temperature: Scalar = 0.1
    exploration: Scalar = 0.05
    tau: Scalar = 0.005
    start: Mlp | None = None

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> SoftQParameters:
        """The initial parameters, with the critic to continue from if there is one."""
        new = SoftQParameters.init(key, inputs, actions, demonstrators, self.hidden, self.temperature)
        return new if self.start is None else SoftQParameters(Actor(self.start, new.actor.head), new.demonstrators)

    def loss(
        self, key: Key, parameters: SoftQParameters, target: SoftQParameters, replayed: Transition, demonstrated: None
    ) -> Float[Array, ""]:
        """The Huber loss of soft Bellman errors."""

        def one(seen: Transition) -> Float[Array, ""]:
            goal = soft_target(target, seen.reward, seen.next_obs, seen.terminated, self.discount, self.temperature)
            return optax.huber_loss(parameters.q(seen.obs)[seen.action], goal, delta=10.0)

        return jnp.mean(jax.vmap(one)(replayed))


def soft_target(
    target: SoftQParameters, reward: Array, next_obs: Array, terminated: Array, discount: Scalar, temperature: Scalar
) -> Float[Array, ""]:
    r"""$r + \gamma\,T \log\sum_a \exp(Q(s', a)/T)$, and $r$ alone where $s'$ is terminal."""
    after = temperature * target.actor(next_obs).log_partition()
    return reward + discount * jnp.where(terminated, 0.0, after)


class SacParameters(eqx.Module):
    """Actor, two critics, log temperature; and log precision 0 for each demonstrator: they are treated alike."""

    actor: Actor
    critics: Critics
    log_temperature: Float[Array, ""]
    demonstrators: Float[Array, " D"]


class SacExpert(AbstractExpert):
    """Soft actor-critic with two critics.

    - `target_entropy`: for each dimension of the action, scaled to bounds from -1 to 1; the temperature adapts to it.
    - Others as those of `irleed.algorithms.iq.SacIrleed`.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("continuous",)
    exploration: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  # a constant
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    steps: int = eqx.field(static=True, default=500_000)
    batch_size: int = eqx.field(static=True, default=256)
    anneal_lr: bool = eqx.field(static=True, default=True)
    num_envs: int = eqx.field(static=True, default=8)
    gradient_steps: int = eqx.field(static=True, default=4)
    buffer_size: int = eqx.field(static=True, default=500_000)
    learning_starts: int = eqx.field(static=True, default=5_000)
    learning_rate: Scalar = 3e-4
    discount: Scalar = 0.99
    target_entropy: Scalar = -1.0
    tau: Scalar = 0.005

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> SacParameters:
        """The initial parameters."""
        actor_key, critic_key = jax.random.split(key)
        return SacParameters(
            actor=Actor.init(actor_key, inputs, actions, self.hidden, "relu"),
            critics=Critics.init(critic_key, 2, inputs, cast(Bounds, actions).size, self.hidden, "relu"),
            log_temperature=jnp.zeros((), jnp.float32),
            demonstrators=jnp.zeros(demonstrators, jnp.float32),
        )

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {**dict.fromkeys(("actor", "critics", "log_temperature"), self.learning_rate), "demonstrators": 0.0}

    def loss(
        self, key: Key, parameters: SacParameters, target: SacParameters, replayed: Transition, demonstrated: None
    ) -> Float[Array, ""]:
        """The sum of the losses of critics, actor and temperature, each with gradients for its own part."""
        value_key, actor_key = jax.random.split(key)
        held = jax.lax.stop_gradient(parameters)
        temperature = jnp.exp(held.log_temperature)
        next_policy = cast(SquashedGaussian, held.actor.batch(replayed.next_obs))
        after = soft_value(value_key, target.critics, next_policy, replayed.next_obs, temperature)
        goal = replayed.reward + self.discount * jnp.where(replayed.terminated, 0.0, after)
        unit = cast(Squashing, held.actor.head).unit(replayed.action)
        critic_loss = jnp.mean(jnp.sum((parameters.critics(replayed.obs, unit) - goal[None]) ** 2, 0))
        policy = cast(SquashedGaussian, parameters.actor.batch(replayed.obs))
        sampled, log_prob = policy.sample_unit(actor_key)
        actor_loss = jnp.mean(temperature * log_prob - jnp.min(held.critics(replayed.obs, sampled), 0))
        excess = jnp.mean(jax.lax.stop_gradient(-log_prob)) - self.target_entropy * sampled.shape[-1]
        return critic_loss + actor_loss + parameters.log_temperature * excess
