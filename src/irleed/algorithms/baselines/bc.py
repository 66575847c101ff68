"""Behaviour cloning: maximum likelihood of the actions, all demonstrators pooled."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import FOR_VECTORS, AbstractOffline, ActionKind
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions
from irleed.model.demonstrators import Description
from irleed.model.networks import Activation
from irleed.policies.base import Actor


class Parameters(eqx.Module):
    """The policy, and log precision 0 for each demonstrator: cloning treats them alike."""

    actor: Actor
    demonstrators: Float[Array, " D"]


class BehaviourCloning(AbstractOffline):
    """Settings as those of `irleed.algorithms.iq.OfflineIrleed`; the defaults suit discrete actions."""

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    steps: int = eqx.field(static=True, default=20_000)
    batch_size: int = eqx.field(static=True, default=32)
    anneal_lr: bool = eqx.field(static=True, default=True)
    learning_rate: Scalar = 1e-3

    @classmethod
    def continuous(cls, **settings: Any) -> "BehaviourCloning":
        """The settings for vectors."""
        return cls(**(FOR_VECTORS | settings))

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters; of vectors, those of `OfflineIrleed`, of which this is a special case."""
        own_key = key if isinstance(actions, int) else jax.random.split(key, 3)[0]
        actor = Actor.init(own_key, inputs, actions, self.hidden, self.activation)
        return Parameters(actor, jnp.zeros(demonstrators, jnp.float32))

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {"actor": self.learning_rate, "demonstrators": 0.0}

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """Mean negative log likelihood; of vectors, of the z behind them, which differs by a constant."""
        policy = parameters.actor.batch(batch.obs)
        return -jnp.mean(policy.logit(batch.action) - policy.log_partition())

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
