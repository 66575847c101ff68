r"""Experts with discrete actions: soft Q-learning, $Q \leftarrow r + \gamma\,T \log\sum_a \exp(Q'/T)$."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import ActionKind
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Actions, Transition
from irleed.model.demonstrators import Description
from irleed.model.networks import Mlp
from irleed.policies.actor import Actor


class Parameters(eqx.Module):
    """The policy, whose network is Q, and a zero for each demonstrator: they are treated alike."""

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
    ) -> "Parameters":
        """A new network."""
        actor = Actor.init(key, inputs, actions, hidden, "elu", 1 / temperature)
        return cls(actor, jnp.zeros(demonstrators, jnp.float32))

    def q(self, observation: Float[Array, "..."]) -> Float[Array, " A"]:
        """The values in one state."""
        return self.actor.network(observation)


class AbstractSoftQ(AbstractAgent):
    """An agent that learns one Q by soft Bellman errors and treats demonstrators alike."""

    learning_rate: eqx.AbstractVar[Scalar]

    @property
    def action_kinds(self) -> tuple[ActionKind, ...]:
        """Discrete actions."""
        return ("discrete",)

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {"actor": self.learning_rate, "demonstrators": 0.0}

    def policy(self, parameters: Parameters) -> Actor:
        """The softmax of Q/T."""
        return parameters.actor

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """Zeros."""
        return parameters.demonstrators

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """By the shared policy."""
        return Description.without_bias(parameters.actor(obs).log_prob(action))


class SoftQExpert(AbstractSoftQ):
    """A soft-Q agent on the true reward.

    - `temperature`: of policy and values; `exploration`: the share of uniformly random actions on top.
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

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters, with the critic to continue from if there is one."""
        new = Parameters.init(key, inputs, actions, demonstrators, self.hidden, self.temperature)
        return new if self.start is None else Parameters(Actor(self.start, new.actor.head), new.demonstrators)

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, replayed: Transition, demonstrated: None
    ) -> Float[Array, ""]:
        """The Huber loss of soft Bellman errors."""

        def one(seen: Transition) -> Float[Array, ""]:
            goal = soft_target(target, seen.reward, seen.next_obs, seen.terminated, self.discount, self.temperature)
            return optax.huber_loss(parameters.q(seen.obs)[seen.action], goal, delta=10.0)

        return jnp.mean(jax.vmap(one)(replayed))


def soft_target(
    target: Parameters, reward, next_obs, terminated, discount: Scalar, temperature: Scalar
) -> Float[Array, ""]:
    r"""$r + \gamma\,T \log\sum_a \exp(Q(s', a)/T)$, and $r$ alone where $s'$ is terminal."""
    after = temperature * target.actor(next_obs).log_partition()
    return reward + discount * jnp.where(terminated, 0.0, after)
