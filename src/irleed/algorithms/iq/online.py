"""IRLEED on inverse soft Q-learning that also acts in an environment, for discrete actions."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent, with_replayed
from irleed.algorithms.base import ActionKind
from irleed.algorithms.iq import objective
from irleed.algorithms.iq.offline import OfflineIrleed, Parameters
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions, Transition
from irleed.model.demonstrators import Description
from irleed.policies.actor import Actor

# Slower than offline: the replay buffer keeps changing.
SLOWER: dict[str, Any] = {"learning_rate": 1e-3, "precision_learning_rate": 3e-4}


class OnlineIrleed(AbstractAgent):
    r"""Learns from demonstrated transitions, each paired with one of its own from the replay buffer.

    Demonstrator $i$'s objective compares their own value with what the steps of any policy say of it, so that a
    replayed transition has the values of the demonstrator it is paired with. The shared policy acts. Without precisions
    and biases this is IQ-Learn, see `iq`.

    **Fields:**

    - `learner`: what is learnt, as offline; its `steps`, `batch_size` and `anneal_lr` are not used.
    - `replay_fraction`: the share of replayed transitions in the value term and the penalty. The published mixture is
      0.5; at 0 this is learning offline.
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
    def iq(cls, **settings) -> "OnlineIrleed":
        """IQ-Learn; settings are those of the learner."""
        return cls(learner=OfflineIrleed.iq(**{"penalty": 0.05, "learning_rate": 1e-3, **settings}))

    @classmethod
    def failure(cls, **settings) -> "OnlineIrleed":
        """Early termination counts as failure, see `OfflineIrleed.failure`; settings are those of the learner."""
        own = {"penalty": 50.0, **SLOWER, "bias_learning_rate": 3e-5, **settings}
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
        mixed = objective.mixed_loss(of_demonstrated, of_replayed, penalty, self.replay_fraction)
        return jnp.mean(own.temperature * mixed + own.bias_penalty * objective.bias_penalty(bias[: len(who)]))

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
