r"""ILEED (Beliaev et al., 2022): behaviour cloning with a skill that depends on who acts and on the situation.

Demonstrator $i$ follows the shared policy with probability $\rho_i(s) = \sigma(f(s)^\top \omega_i)$ and acts at random
otherwise: $\pi_i(a|s) = \rho_i(s)\,\pi(a|s) + (1 - \rho_i(s))/A$. Policy, embedding of situations $f$ and embeddings of
demonstrators $\omega_i$ are learnt together by maximum likelihood.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractOffline
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.model.actions import View
from irleed.model.demonstrators import gauge
from irleed.model.networks import Activation, Mlp
from irleed.policies.base import SoftmaxPolicy


class Skill(eqx.Module):
    """Embeddings of situations and of demonstrators."""

    situation: Mlp
    demonstrator: Float[Array, "D K"]

    @classmethod
    def init(
        cls, keys: Shaped[Array, " 2"], inputs: Inputs, demonstrators: int, sizes: Sequence[int], activation: Activation
    ) -> "Skill":
        """Layers of these sizes, the last one being that of the embeddings."""
        return cls(
            situation=Mlp.init(keys[0], inputs, sizes, activation),
            demonstrator=jax.random.normal(keys[1], (demonstrators, sizes[-1]), jnp.float32),
        )

    def __call__(self, observation: Float[Array, "..."], demonstrator: Int[Array, ""]) -> Float[Array, ""]:
        r"""$\rho_i(s)$."""
        return jax.nn.sigmoid(jnp.dot(self.situation(observation), self.demonstrator[demonstrator]))

    def log_odds(self, data: Transitions) -> Float[Array, " D"]:
        """The mean skill of each where they were seen, as log odds: an order, on no common scale with precision."""
        skill = jax.vmap(self)(data.obs, data.demonstrator)
        counted = jnp.arange(len(skill)) < data.size
        own = jax.nn.one_hot(data.demonstrator, len(self.demonstrator)) * counted[:, None]
        mean = (skill @ own) / jnp.maximum(jnp.sum(own, 0), 1.0)
        return gauge(jax.scipy.special.logit(jnp.clip(mean, 1e-6, 1 - 1e-6)))


class Parameters(eqx.Module):
    """Policy and skill."""

    logits: Mlp
    skill: Skill


class Ileed(AbstractOffline):
    """Settings as those of `irleed.algorithms.iq.soft_q.SoftQ`; `embedding` is the size K of the embeddings."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    embedding: int = eqx.field(static=True, default=2)
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=32)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 1e-3

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        keys, embedding = jax.random.split(key, 3), (*self.hidden, self.embedding)
        return Parameters(
            logits=Mlp.init(keys[0], inputs, (*self.hidden, actions), self.activation),
            skill=Skill.init(keys[1:], inputs, demonstrators, embedding, self.activation),
        )

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {"logits": self.rate, "skill": self.rate}

    def probabilities(
        self, parameters: Parameters, observation: Float[Array, "..."], demonstrator: Int[Array, ""]
    ) -> Float[Array, " A"]:
        r"""$\pi_i$ in one situation."""
        policy = jax.nn.softmax(parameters.logits(observation))
        skill = parameters.skill(observation, demonstrator)
        return skill * policy + (1 - skill) / policy.size

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """Mean negative log-likelihood."""

        def one(obs, action, demonstrator):
            return -jnp.log(self.probabilities(parameters, obs, demonstrator)[action] + 1e-8)

        return jnp.mean(jax.vmap(one)(batch.obs, batch.action, batch.demonstrator))

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """See `AbstractAlgorithm.policy`."""
        return SoftmaxPolicy(parameters.logits, jnp.asarray(1.0, jnp.float32))

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `Skill.log_odds`."""
        return parameters.skill.log_odds(data)

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractAlgorithm.view`: skill, no bias."""
        chosen = jnp.log(self.probabilities(parameters, observation, demonstrator))
        return View.of(chosen, parameters.logits(observation))
