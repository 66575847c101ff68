"""SQIL (Reddy et al., 2020): soft Q-learning with reward 1 for what was demonstrated and 0 for what was played."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.algorithms.experts.soft_q import AbstractSoftQ, Parameters, soft_target
from irleed.data.transitions import Inputs, Row
from irleed.envs.step import Transition
from irleed.model.networks import Mlp


class Sqil(AbstractSoftQ):
    """Settings as those of `irleed.algorithms.experts.soft_q.SoftCritic`."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=50_000)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    copies: int = eqx.field(static=True, default=1)
    updates: int = eqx.field(static=True, default=1)
    capacity: int = eqx.field(static=True, default=50_000)
    warm: int = eqx.field(static=True, default=500)
    rate: Scalar = 1e-3
    discount: Scalar = 0.99
    temperature: Scalar = 1.0
    random: Scalar = 0.0
    target_rate: Scalar = 0.005
    clip: Scalar | None = None

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        return Parameters(Mlp.init(key, inputs, (*self.hidden, actions)), jnp.zeros(demonstrators, jnp.float32))

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, played: Transition, shown: Row
    ) -> Float[Array, ""]:
        """See `AbstractAgent.loss`: the soft Bellman error of both batches."""

        def error(obs, action, reward, next_obs, terminated):
            goal = soft_target(target.q, reward, next_obs, terminated, self.discount, self.temperature)
            return (parameters.q(obs)[action] - goal) ** 2

        ones, noughts = jnp.ones_like(shown.proceeds), jnp.zeros_like(played.reward)
        shown_error = jax.vmap(error)(shown.obs, shown.action, ones, shown.next_obs, shown.proceeds == 0)
        played_error = jax.vmap(error)(played.obs, played.action, noughts, played.next_obs, played.terminated)
        return 0.5 * (jnp.mean(shown_error) + jnp.mean(played_error))
