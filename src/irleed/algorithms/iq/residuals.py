r"""Demonstrators who act around a shared policy of continuous actions: who is how far off, and how much each counts.

In bounds from -1 to 1, what demonstrator $i$ does is $N(\tanh(\mu(s) + \alpha\delta_i(s)), \sigma^2/\beta_i)$: they are
off the shared policy's middle action by a bias, and all around that by a spread, the smaller the more precise they are.
The spread at precision 1 is the same in every situation; if it depended on the situation, it would explain away who is
precise wherever demonstrators are seldom in the same one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Scalar, Shaped
from irleed.data.transitions import Row
from irleed.model.actions import AbstractView, GaussianPolicy, Squashing, gaussians
from irleed.model.demonstrators import gauge
from irleed.model.networks import AbstractBias, Mlp


class AbstractResiduals(eqx.Module):
    """Parameters of a shared actor and of demonstrators around it."""

    actor: eqx.AbstractVar[Mlp]
    log_spread: eqx.AbstractVar[Float[Array, " A"]]  # of demonstrators' actions, at precision 1
    log_precision: eqx.AbstractVar[Float[Array, " D"]]
    bias: eqx.AbstractVar[AbstractBias]
    squashing: eqx.AbstractVar[Squashing]

    @property
    def policy(self) -> GaussianPolicy:
        """The shared one."""
        return GaussianPolicy(self.actor, self.squashing)

    def misfit(self, rows: Row, shift: Float[Array, "B A"]) -> Float[Array, ""]:
        """Of demonstrators so far off to what they did, the shared policy being as it is; minus a log likelihood."""
        middle = jnp.tanh(gaussians(jax.lax.stop_gradient(self.actor), rows.obs).mean + shift)
        log_spread = self.log_spreads(rows.demonstrator)
        standard = (self.squashing.unit(rows.action) - middle) * jnp.exp(-log_spread)
        return jnp.mean(0.5 * standard**2 + log_spread)

    def log_spreads(self, who: Int[Array, "*B"]) -> Float[Array, "*B A"]:
        """Of demonstrators' actions."""
        common = jnp.broadcast_to(self.log_spread, (*who.shape, len(self.log_spread)))
        return common - 0.5 * gauge(self.log_precision)[who][..., None]

    def view(
        self, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""], shift: Float[Array, " A"] | None
    ) -> "ResidualView":
        """What is known of a demonstrator in a situation; no shift: nothing is known of a bias."""
        mean = self.policy.gaussian(observation).mean
        middle = jnp.tanh(mean if shift is None else mean + shift)
        off = (middle - jnp.tanh(mean)) * jnp.exp(-self.log_spread)
        return ResidualView(
            middle, self.log_spreads(demonstrator), off * jnp.nan if shift is None else off, self.squashing
        )


def counts(
    log_precision: Float[Array, " D"], who: Int[Array, " B"], sharpness: Scalar, counted: Float[Array, " B"]
) -> Float[Array, " B"]:
    r"""How much each row counts: by $\beta_i^k$, 1 on average over those counted; nothing is learnt of it."""
    weight = jnp.exp(sharpness * jax.lax.stop_gradient(gauge(log_precision)))[who]
    return weight * jnp.sum(counted) / jnp.sum(counted * weight)


class ResidualView(AbstractView):
    """A demonstrator around the shared policy's middle action, in bounds from -1 to 1."""

    middle: Float[Array, " A"]
    log_spread: Float[Array, " A"]
    shift: Float[Array, " A"]  # how far the middle is off, in spreads at precision 1; NaN: no bias is known
    squashing: Squashing

    def log_likelihood(self, action: Float[Array, " A"]) -> Float[Array, ""]:
        """See `AbstractView.log_likelihood`: a density in the action's own units."""
        standard = (self.squashing.unit(action) - self.middle) * jnp.exp(-self.log_spread)
        scale = self.log_spread + jnp.log(self.squashing.half) + 0.5 * np.log(2 * np.pi)
        return jnp.sum(-0.5 * standard**2 - scale)

    def sizes(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """See `AbstractView.sizes`."""
        return jnp.mean(self.shift**2), jnp.ones(())
