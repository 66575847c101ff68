"""SQIL (Reddy et al., 2020): soft Q-learning with reward 1 for demonstrated transitions and 0 for the agent's own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.algorithms.experts import AbstractSoftQ, soft_target
from irleed.algorithms.experts import SoftQParameters as Parameters
from irleed.data.transitions import Inputs, Row
from irleed.envs.step import Actions, Transition


class Sqil(AbstractSoftQ):
    """Settings as those of `irleed.algorithms.experts.SoftQExpert`."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=50_000)
    batch_size: int = eqx.field(static=True, default=32)
    anneal_lr: bool = eqx.field(static=True, default=True)
    num_envs: int = eqx.field(static=True, default=1)
    gradient_steps: int = eqx.field(static=True, default=1)
    buffer_size: int = eqx.field(static=True, default=50_000)
    learning_starts: int = eqx.field(static=True, default=500)
    learning_rate: Scalar = 1e-3
    discount: Scalar = 0.99
    temperature: Scalar = 1.0
    exploration: Scalar = 0.0
    tau: Scalar = 0.005

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters."""
        return Parameters.init(key, inputs, actions, demonstrators, self.hidden, self.temperature)

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, replayed: Transition, demonstrated: Row
    ) -> Float[Array, ""]:
        """The soft Bellman error of both batches."""

        def error(obs: Any, action: Array, reward: Array, next_obs: Array, terminated: Array):
            goal = soft_target(target, reward, next_obs, terminated, self.discount, self.temperature)
            return (parameters.q(obs)[action] - goal) ** 2

        one, zero = jnp.ones_like(demonstrated.continuation), jnp.zeros_like(replayed.reward)
        first, second = demonstrated, replayed
        first_error = jax.vmap(error)(first.obs, first.action, one, first.next_obs, first.continuation == 0)
        second_error = jax.vmap(error)(second.obs, second.action, zero, second.next_obs, second.terminated)
        return 0.5 * (jnp.mean(first_error) + jnp.mean(second_error))
