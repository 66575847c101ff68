"""Experts with continuous actions: soft actor-critic (Haarnoja et al., 2018) on the true reward."""

from typing import ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import ActionKind
from irleed.algorithms.critics import Critics, soft_value
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Actions, Bounds, Transition
from irleed.model.actions import SquashedGaussian, Squashing
from irleed.model.demonstrators import Description
from irleed.policies.actor import Actor


class Parameters(eqx.Module):
    """Actor, two critics, the log temperature; and a zero for each demonstrator: they are treated alike."""

    actor: Actor
    critics: Critics
    log_temperature: Float[Array, ""]
    demonstrators: Float[Array, " D"]


class SacExpert(AbstractAgent):
    """Soft actor-critic with two critics.

    - `target_entropy`: of each number of an action, scaled to bounds from -1 to 1; the temperature adapts to it.
    - Others as those of `irleed.algorithms.iq.SacIrleed`.
    """

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

    @property
    def action_kinds(self) -> tuple[ActionKind, ...]:
        """Vectors."""
        return ("continuous",)

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters."""
        actor_key, critic_key = jax.random.split(key)
        return Parameters(
            actor=Actor.init(actor_key, inputs, actions, self.hidden, "relu"),
            critics=Critics.init(critic_key, 2, inputs, cast(Bounds, actions).size, self.hidden, "relu"),
            log_temperature=jnp.zeros((), jnp.float32),
            demonstrators=jnp.zeros(demonstrators, jnp.float32),
        )

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {**dict.fromkeys(("actor", "critics", "log_temperature"), self.learning_rate), "demonstrators": 0.0}

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, replayed: Transition, demonstrated: None
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

    def policy(self, parameters: Parameters) -> Actor:
        """The learnt policy."""
        return parameters.actor

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """Zeros."""
        return parameters.demonstrators

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """By the shared policy."""
        return Description.without_bias(parameters.actor(obs).log_prob(action))
