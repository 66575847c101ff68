r"""ILEED (Beliaev et al., 2022): behaviour cloning with a skill that depends on the demonstrator and on the state.

Demonstrator $i$ follows the shared policy with probability $\rho_i(s) = \sigma(f(s)^\top \omega_i)$ and acts uniformly
at random otherwise: $\pi_i(a|s) = \rho_i(s)\,\pi(a|s) + (1 - \rho_i(s))\,u(a)$, where $u$ is $1/A$ for $A$ discrete
actions, and 1 over the volume of the bounds of vectors. The policy, the embedding of states $f$ and the embeddings of
demonstrators $\omega_i$ are learnt together by maximum likelihood.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import FOR_VECTORS, AbstractOffline, ActionKind
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions
from irleed.model.actions import ActionDistribution
from irleed.model.demonstrators import Description, gauge
from irleed.model.networks import Activation, Mlp
from irleed.policies.base import Actor

LEAST = 1e-6  # keeps the logarithms finite: in single precision, a skill can be exactly 0 or 1


class Skill(eqx.Module):
    """Embeddings of states and of demonstrators."""

    state: Mlp
    demonstrator: Float[Array, "D K"]

    @classmethod
    def init(
        cls, keys: Shaped[Array, " 2"], inputs: Inputs, demonstrators: int, sizes: Sequence[int], activation: Activation
    ) -> "Skill":
        """New embeddings; the last of `sizes` is theirs, the others are hidden layers."""
        return cls(
            state=Mlp.init(keys[0], inputs, sizes, activation),
            demonstrator=jax.random.normal(keys[1], (demonstrators, sizes[-1]), jnp.float32),
        )

    def __call__(self, observation: Float[Array, "..."], demonstrator: Int[Array, ""]) -> Float[Array, ""]:
        r"""$\rho_i(s)$."""
        return jax.nn.sigmoid(jnp.dot(self.state(observation), self.demonstrator[demonstrator]))

    def log_odds(self, data: Transitions) -> Float[Array, " D"]:
        """Log odds of each demonstrator's mean skill over their own states; not on the scale of precision."""
        skill = jax.vmap(self)(data.obs, data.demonstrator)
        counted = jnp.arange(len(skill)) < data.size
        own = jax.nn.one_hot(data.demonstrator, len(self.demonstrator)) * counted[:, None]
        mean = (skill @ own) / jnp.maximum(jnp.sum(own, 0), 1.0)
        return gauge(jax.scipy.special.logit(jnp.clip(mean, 1e-6, 1 - 1e-6)))


class Parameters(eqx.Module):
    """Policy and skill."""

    actor: Actor
    skill: Skill


class Ileed(AbstractOffline):
    """ILEED; settings as those of `BehaviourCloning`, and one more.

    **Fields:**

    - `embedding`: the size of the embeddings of states and demonstrators.
    """

    action_kinds: ClassVar[tuple[ActionKind, ...]] = ("discrete", "continuous")
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    embedding: int = eqx.field(static=True, default=2)
    steps: int = eqx.field(static=True, default=20_000)
    batch_size: int = eqx.field(static=True, default=32)
    anneal_lr: bool = eqx.field(static=True, default=True)
    learning_rate: Scalar = 1e-3

    @classmethod
    def continuous(cls, **settings: Any) -> "Ileed":
        """The settings for vectors."""
        return cls(**(FOR_VECTORS | settings))

    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Parameters:
        """The initial parameters."""
        keys, embedding = jax.random.split(key, 3), (*self.hidden, self.embedding)
        return Parameters(
            actor=Actor.init(keys[0], inputs, actions, self.hidden, self.activation),
            skill=Skill.init(keys[1:], inputs, demonstrators, embedding, self.activation),
        )

    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""
        return {"actor": self.learning_rate, "skill": self.learning_rate}

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """Mean negative log likelihood."""
        skill = jax.vmap(parameters.skill)(batch.obs, batch.demonstrator)
        return -jnp.mean(mixture_log_prob(parameters.actor.batch(batch.obs), skill, batch.action))

    def policy(self, parameters: Parameters) -> Actor:
        """The shared policy."""
        return parameters.actor

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """The mean skill of each demonstrator as log odds, see `Skill.log_odds`."""
        return parameters.skill.log_odds(data)

    def describe(
        self, parameters: Parameters, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """By the demonstrator's mixture of the shared policy and the uniform one."""
        skill = parameters.skill(obs, who)
        return Description.without_bias(mixture_log_prob(parameters.actor(obs), skill, action))


def mixture_log_prob(
    policy: ActionDistribution, skill: Float[Array, "*B"], action: Shaped[Array, "..."]
) -> Float[Array, "*B"]:
    r"""$\log(\rho\,\pi(a) + (1 - \rho)\,u(a))$, with $u$ the uniform distribution."""
    follows, uniform = jnp.log(skill + LEAST), jnp.log(1.0 - skill + LEAST)
    return jnp.logaddexp(follows + policy.log_prob(action), uniform + policy.uniform_log_prob(action))
