"""Experts with continuous actions: soft actor-critic (Haarnoja et al., 2018) on the true reward.

Nothing of IRLEED needs them; they are what demonstrators of several stages of training are made from.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.critics import Critics, soft_value
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Bounds, Transition
from irleed.model.actions import GaussianPolicy, GaussianView, Squashing, gaussians
from irleed.model.networks import Activation, Mlp


class Parameters(eqx.Module):
    """Actor, two critics, the logarithm of the temperature; and as many zeros as there are demonstrators."""

    actor: Mlp
    critics: Critics
    log_temperature: Float[Array, ""]
    squashing: Squashing  # held fixed
    demonstrators: Float[Array, " D"]  # held fixed: it knows no difference


class SacExpert(AbstractAgent):
    """Soft actor-critic with two critics and a temperature that keeps the entropy of each action near `-narrow`.

    The higher `narrow`, the less do drawn actions differ from the likeliest. Other settings as those of
    `irleed.algorithms.iq.sac.Sac`.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    activation: Activation = eqx.field(static=True, default="relu")
    critic_activation: Activation = eqx.field(static=True, default="relu")
    steps: int = eqx.field(static=True, default=500_000)
    batch: int = eqx.field(static=True, default=256)
    decay: bool = eqx.field(static=True, default=True)
    copies: int = eqx.field(static=True, default=8)
    updates: int = eqx.field(static=True, default=4)
    capacity: int = eqx.field(static=True, default=500_000)
    warm: int = eqx.field(static=True, default=5_000)
    rate: Scalar = 3e-4
    discount: Scalar = 0.99
    narrow: Scalar = 1.0
    random: Scalar = 0.0
    target_rate: Scalar = 0.005
    clip: Scalar | None = None

    def parameters(self, key: Key, inputs: Inputs, actions: Bounds, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        actor_key, critic_key = jax.random.split(key)
        return Parameters(
            actor=Mlp.init(actor_key, inputs, (*self.hidden, 2 * actions.size), self.activation),
            critics=Critics.init(critic_key, 2, inputs, actions.size, self.hidden, self.critic_activation),
            log_temperature=jnp.zeros((), jnp.float32),
            squashing=Squashing.into(actions),
            demonstrators=jnp.zeros(demonstrators, jnp.float32),
        )

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        learnt = dict.fromkeys(("actor", "critics", "log_temperature"), self.rate)
        return learnt | {"squashing": 0.0, "demonstrators": 0.0}

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, played: Transition, shown: None
    ) -> Float[Array, ""]:
        """See `AbstractAgent.loss`: of critics, actor and temperature, each learning from its own part."""
        value_key, actor_key = jax.random.split(key)
        held = jax.lax.stop_gradient(parameters)
        temperature = jnp.exp(held.log_temperature)
        ahead = soft_value(
            value_key, target.critics, gaussians(held.actor, played.next_obs), played.next_obs, temperature
        )
        goal = played.reward + self.discount * jnp.where(played.terminated, 0.0, ahead)
        unit = held.squashing.unit(played.action)
        critic_loss = jnp.mean(jnp.sum((parameters.critics(played.obs, unit) - goal[None]) ** 2, 0))
        z, log_density = gaussians(parameters.actor, played.obs).draw(actor_key)
        chosen = jnp.min(held.critics(played.obs, jnp.tanh(z)), 0)
        actor_loss = jnp.mean(temperature * log_density - chosen)
        entropy_lacking = jnp.mean(jax.lax.stop_gradient(log_density)) - self.narrow * z.shape[-1]
        return critic_loss + actor_loss - parameters.log_temperature * entropy_lacking

    def policy(self, parameters: Parameters) -> GaussianPolicy:
        """See `AbstractAlgorithm.policy`."""
        return GaussianPolicy(parameters.actor, parameters.squashing)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """All alike."""
        return parameters.demonstrators

    def view(
        self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]
    ) -> GaussianView:
        """See `AbstractAlgorithm.view`: all alike."""
        own = self.policy(parameters).gaussian(observation)
        return GaussianView(own, jnp.full_like(own.mean, jnp.nan), parameters.squashing)
