"""IRLEED on inverse soft Q-learning that plays as well: the value term over a mixture of what is shown and played."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Transition
from irleed.iq import objective
from irleed.iq.agent import AbstractAgent
from irleed.iq.soft_q import Parameters, SoftQ
from irleed.policy import SoftmaxPolicy


class OnlineSoftQ(AbstractAgent):
    r"""`learner` says what is learnt, as offline; a demonstrated and a played transition are drawn for each other.

    Demonstrated transitions have the values of whoever took them, played ones those of the shared policy, which played
    them: precision 1, bias 0. Without precisions and biases this is IQ-Learn, online: `OnlineSoftQ(SoftQ.iq())`.
    """

    learner: SoftQ = SoftQ()
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    steps: int = eqx.field(static=True, default=50_000)
    capacity: int = eqx.field(static=True, default=50_000)
    warm: int = eqx.field(static=True, default=500)
    random: Scalar = 0.0
    target_rate: Scalar = 1.0

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAgent.parameters`."""
        return self.learner.parameters(key, inputs, actions, demonstrators)

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAgent.rates`."""
        return self.learner.rates()

    def loss(self, parameters: Parameters, target: Parameters, played: Transition, shown: Row) -> Float[Array, ""]:
        """See `AbstractAgent.loss`, in units of T."""
        own = self.learner
        penalty = own.penalty * own.temperature

        def one(seen: Transition, row: Row) -> Float[Array, ""]:
            demonstrated, bias = own.terms(parameters, target, row)
            q_tm1, q_t = parameters.q(seen.obs) / own.temperature, target.q(seen.next_obs) / own.temperature
            proceeds = jnp.where(seen.terminated, 0.0, 1.0)
            mixed = objective.mixed_loss(
                demonstrated, objective.terms(q_tm1, seen.action, q_t, own.discount * proceeds), penalty
            )
            return own.temperature * mixed + own.bias_penalty * objective.bias_penalty(bias)

        return jnp.mean(jax.vmap(one)(played, shown))

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """See `AbstractAgent.policy`."""
        return self.learner.policy(parameters)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `AbstractAgent.log_precision`."""
        return self.learner.log_precision(parameters, data)
