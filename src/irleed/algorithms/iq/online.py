"""IRLEED on inverse soft Q-learning that plays as well: the value term over a mixture of what is shown and played."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.iq import objective
from irleed.algorithms.iq.soft_q import Parameters, SoftQ
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Transition
from irleed.model.actions import View
from irleed.policies.base import SoftmaxPolicy

# Slower than offline: what was played keeps changing.
SLOWER: dict[str, Any] = {"rate": 1e-3, "precision_rate": 3e-4}


class OnlineSoftQ(AbstractAgent):
    r"""`learner` says what is learnt, as offline; a demonstrated and a played transition are drawn for each other.

    Demonstrator $i$'s objective holds their own value to what any policy's steps say of it, so that a played transition
    is looked at through the eyes of whoever took the demonstrated one beside it. The shared policy plays. Without
    precisions and biases this is IQ-Learn, online: `OnlineSoftQ(learner=SoftQ.iq())`.

    - `share`: of what was played in the value term and in the penalty; the rest is over the demonstrations. Without any
      it is learning offline. Half is the published mixture.
    - `residual`: whether $V(s')$ is learnt from as $V(s)$ is, as offline; else it is a target network's, which follows
      at `target_rate`.
    """

    learner: SoftQ = SoftQ(penalty=0.05, **SLOWER)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    steps: int = eqx.field(static=True, default=50_000)
    copies: int = eqx.field(static=True, default=1)
    updates: int = eqx.field(static=True, default=1)
    capacity: int = eqx.field(static=True, default=50_000)
    warm: int = eqx.field(static=True, default=500)
    random: Scalar = 0.0
    share: Scalar = 0.03
    residual: bool = eqx.field(static=True, default=True)
    target_rate: Scalar = 0.005
    clip: Scalar | None = None

    @classmethod
    def survival(cls, **settings) -> "OnlineSoftQ":
        """Where an early end is a failure, see `SoftQ.survival`; settings are those of the learner."""
        return cls(learner=SoftQ.survival(**{"penalty": 50.0, **SLOWER, "bias_rate": 3e-5, **settings}), share=0.5)

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        return self.learner.parameters(key, inputs, actions, demonstrators)

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return self.learner.rates()

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, played: Transition, shown: Row
    ) -> Float[Array, ""]:
        """See `AbstractAgent.loss`, in units of T."""
        own, ahead = self.learner, parameters if self.residual else target
        penalty = own.penalty * own.temperature

        proceeds = jnp.where(played.terminated, 0.0, 1.0)
        looked_at = Row(played.obs, played.next_obs, played.action, proceeds, shown.demonstrator, shown.initial)
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), shown, looked_at)
        terms, bias = own.terms(parameters, ahead, rows)
        count = len(shown.action)
        demonstrated = jax.tree.map(lambda leaf: leaf[:count], terms)
        seen = jax.tree.map(lambda leaf: leaf[count:], terms)
        mixed = jax.vmap(objective.mixed_loss, (0, 0, None, None))(demonstrated, seen, penalty, self.share)
        return jnp.mean(own.temperature * mixed + own.bias_penalty * jax.vmap(objective.bias_penalty)(bias[:count]))

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """See `AbstractAlgorithm.policy`."""
        return self.learner.policy(parameters)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `AbstractAlgorithm.log_precision`."""
        return self.learner.log_precision(parameters, data)

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractAlgorithm.view`."""
        return self.learner.view(parameters, observation, demonstrator)
