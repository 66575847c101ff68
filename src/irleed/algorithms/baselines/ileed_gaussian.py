r"""ILEED for continuous actions: $\pi_i(a|s) = \rho_i(s)\,\pi(a|s) + (1 - \rho_i(s))/\text{volume}$, see `ileed`.

Whoever does not follow the shared policy, a squashed Gaussian, acts uniformly within the bounds.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines.ileed import Skill
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Bounds
from irleed.model.actions import AbstractView, Gaussian, GaussianPolicy, Squashing, gaussians, log_slope
from irleed.model.networks import Activation, Mlp

LEAST = 1e-6  # probability of following and of not; in single precision, a skill can be 1 exactly


class Parameters(eqx.Module):
    """Policy and skill."""

    actor: Mlp
    skill: Skill
    squashing: Squashing  # held fixed


class SkillView(AbstractView):
    """Someone who follows the shared policy as often as their skill says."""

    policy: Gaussian
    skill: Float[Array, ""]
    squashing: Squashing

    def log_likelihood(self, action: Float[Array, " A"]) -> Float[Array, ""]:
        """See `AbstractView.log_likelihood`: a density in the action's own units."""
        z = self.squashing.unsquashed(action)
        following = self.policy.log_density(z) - jnp.sum(log_slope(z))
        uniform = -jnp.log(2.0) * z.shape[-1]
        mixed = jnp.logaddexp(jnp.log(self.skill + LEAST) + following, jnp.log(1.0 - self.skill + LEAST) + uniform)
        return mixed - jnp.sum(jnp.log(self.squashing.half))

    def sizes(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """See `AbstractView.sizes`: no bias is known."""
        return jnp.full((), jnp.nan), jnp.ones(())


class GaussianIleed(AbstractOffline):
    """Settings as those of `irleed.algorithms.iq.gaussian_q.GaussianQ`; `embedding` is the size of the embeddings."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    activation: Activation = eqx.field(static=True, default="norm_relu")
    embedding: int = eqx.field(static=True, default=2)
    steps: int = eqx.field(static=True, default=20_000)
    batch: int = eqx.field(static=True, default=64)
    decay: bool = eqx.field(static=True, default=True)
    rate: Scalar = 1e-3

    def parameters(self, key: Key, inputs: Inputs, actions: Bounds, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        keys, embedding = jax.random.split(key, 3), (*self.hidden, self.embedding)
        return Parameters(
            actor=Mlp.init(keys[0], inputs, (*self.hidden, 2 * actions.size), self.activation),
            skill=Skill.init(keys[1:], inputs, demonstrators, embedding, self.activation),
            squashing=Squashing.into(actions),
        )

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {"actor": self.rate, "skill": self.rate, "squashing": 0.0}

    def loss(self, parameters: Parameters, batch: Row) -> Float[Array, ""]:
        """Mean negative log-likelihood."""
        skill = jax.vmap(parameters.skill)(batch.obs, batch.demonstrator)

        def one(policy, skill, action):
            return SkillView(policy, skill, parameters.squashing).log_likelihood(action)

        return -jnp.mean(jax.vmap(one)(gaussians(parameters.actor, batch.obs), skill, batch.action))

    def policy(self, parameters: Parameters) -> GaussianPolicy:
        """See `AbstractAlgorithm.policy`."""
        return GaussianPolicy(parameters.actor, parameters.squashing)

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """See `irleed.algorithms.baselines.ileed.Skill.log_odds`."""
        return parameters.skill.log_odds(data)

    def view(
        self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]
    ) -> SkillView:
        """See `AbstractAlgorithm.view`: skill, no bias."""
        policy = self.policy(parameters).gaussian(observation)
        return SkillView(policy, parameters.skill(observation, demonstrator), parameters.squashing)
