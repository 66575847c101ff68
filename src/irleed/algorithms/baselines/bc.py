"""Behaviour cloning: the likelihood of the actions, whoever took them."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractOffline
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.model.actions import View
from irleed.model.networks import Activation, Mlp
from irleed.policies.base import SoftmaxPolicy


class Parameters(eqx.Module):
    """The policy's logits, and as many zeros as there are demonstrators: cloning knows no difference."""

    logits: Mlp
    demonstrators: Float[Array, " D"]


class BehaviourCloning(AbstractOffline):
    """Settings as those of `irleed.algorithms.iq.soft_q.SoftQ`."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 1e-3

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        logits = Mlp.init(key, inputs, (*self.hidden, actions), self.activation)
        return Parameters(logits, jnp.zeros(demonstrators, jnp.float32))

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {"logits": self.rate, "demonstrators": 0.0}

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """Mean negative log-likelihood."""
        log_policy = jax.nn.log_softmax(jax.vmap(parameters.logits)(batch.obs))
        return -jnp.mean(jnp.take_along_axis(log_policy, batch.action[:, None], -1))

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """See `AbstractAlgorithm.policy`."""
        return SoftmaxPolicy(parameters.logits, jnp.asarray(1.0, jnp.float32))

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """All alike."""
        return parameters.demonstrators

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractAlgorithm.view`: all alike."""
        values = parameters.logits(observation)
        return View.of(values, values)
