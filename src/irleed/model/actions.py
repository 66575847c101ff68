r"""Policies over continuous actions: a Gaussian, squashed into the bounds of the action space.

With $z \sim N(\mu, \sigma^2)$ the action is $a = m + h \tanh z$, $m$ and $h$ being the middle and half the width of the
bounds. A demonstrator who acts by $\exp(\beta_i(Q + \epsilon_i))$ where $Q$ is quadratic in $z$ and $\epsilon_i$ linear
is such a policy again: its variance is $\sigma^2/\beta_i$, and its mean is off by a vector, here $\delta_i$.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.envs.step import Bounds
from irleed.model.networks import Mlp
from irleed.policies.base import AbstractActor

EDGE = 1e-3  # how near to a bound, in halves of the width, a demonstrated action is taken to be at most
LOG_SPREADS = (-5.0, 2.0)  # of the policies that networks can express


class Gaussian(eqx.Module):
    """Of z, in one situation or, with leading axes, in many."""

    mean: Float[Array, "*B A"]
    log_spread: Float[Array, "*B A"]

    @classmethod
    def of(cls, output: Float[Array, "*B AA"]) -> "Gaussian":
        """From a network's output: means, and what is squeezed into the range of log spreads."""
        mean, raw = jnp.split(output, 2, -1)
        low, high = LOG_SPREADS
        return cls(mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1))

    def as_demonstrator(self, log_precision: Float[Array, "*B"], shift: Float[Array, "*B A"]) -> "Gaussian":
        r"""$N(\mu + \delta_i, \sigma^2/\beta_i)$."""
        return Gaussian(self.mean + shift, self.log_spread - 0.5 * log_precision[..., None])

    def draw(self, key: Key) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
        """Some z, and the log density of the action that it becomes in bounds from -1 to 1; differentiable."""
        noise = jax.random.normal(key, self.mean.shape, jnp.float32)
        z = self.mean + jnp.exp(self.log_spread) * noise
        density = -0.5 * noise**2 - self.log_spread - 0.5 * np.log(2 * np.pi) - log_slope(z)
        return z, jnp.sum(density, -1)

    def log_density(self, z: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log density of z itself."""
        standard = (z - self.mean) * jnp.exp(-self.log_spread)
        return jnp.sum(-0.5 * standard**2 - self.log_spread - 0.5 * np.log(2 * np.pi), -1)


class Squashing(eqx.Module):
    """Between z and actions within bounds."""

    middle: Float[Array, "*lanes A"]
    half: Float[Array, "*lanes A"]

    @classmethod
    def into(cls, bounds: Bounds) -> "Squashing":
        """Into these bounds."""
        return cls(jnp.asarray(0.5 * (bounds.low + bounds.high)), jnp.asarray(0.5 * (bounds.high - bounds.low)))

    def action(self, z: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """What z becomes; exactly within the bounds, whatever rounding does."""
        middle, half = self._like(z)
        return jnp.clip(middle + half * jnp.tanh(z), middle - half, middle + half)

    def unit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """An action in bounds from -1 to 1."""
        middle, half = self._like(action)
        return (action - middle) / half

    def unsquashed(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The z behind an action; one at a bound, which no z reaches, is taken to be near it."""
        return jnp.arctanh(jnp.clip(self.unit(action), -1 + EDGE, 1 - EDGE))

    def _like(self, values: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
        """Middle and half the width, for each of the batch; nothing is learnt of them."""
        held = jax.lax.stop_gradient((self.middle, self.half))
        return jnp.broadcast_to(held[0], values.shape), jnp.broadcast_to(held[1], values.shape)


class GaussianPolicy(AbstractActor):
    """Acts by a network's squashed Gaussian."""

    network: Callable[[Float[Array, "..."]], Float[Array, " AA"]]  # a module, of arrays alone
    squashing: Squashing

    def gaussian(self, observation: Float[Array, "..."]) -> Gaussian:
        """Of z in one situation."""
        return Gaussian.of(self.network(observation))

    def act(self, key: Key, observation: Shaped[Array, "..."], greedy: bool = False) -> Float[Array, " A"]:
        """See `AbstractActor.act`; the best is the one of the mean."""
        found = self.gaussian(observation)
        return self.squashing.action(found.mean if greedy else found.draw(key)[0])

    def stray(self, key: Key, observation: Shaped[Array, "..."]) -> Float[Array, " A"]:
        """See `AbstractActor.stray`."""
        share = jax.random.uniform(key, self.squashing.half.shape, jnp.float32, -1.0, 1.0)
        return self.squashing.middle + self.squashing.half * share


def log_slope(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log(1 - \tanh^2 z)$, exact however large z is."""
    return 2 * (np.log(2.0) - z - jax.nn.softplus(-2 * z))


def gaussians(actor: Mlp, obs: Float[Array, "B ..."]) -> Gaussian:
    """How an actor acts in each situation of a batch."""
    return Gaussian.of(jax.vmap(actor)(obs))


class AbstractView(eqx.Module):
    """What an algorithm makes of one demonstrator in one situation."""

    @abc.abstractmethod
    def log_likelihood(self, action: Shaped[Array, "..."]) -> Float[Array, ""]:
        """Log probability, or density, of what they do."""

    @abc.abstractmethod
    def sizes(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean squares of their bias and, in the same units, of what it is compared with; NaN: it knows no bias."""


class View(AbstractView):
    """Of discrete actions; values are relative to their mean over actions."""

    log_policy: Float[Array, " A"]  # how they act
    shared: Float[Array, " A"]  # what all are after
    bias: Float[Array, " A"]  # how far their own values are off, in the same units; NaN: it knows no bias

    @classmethod
    def of(
        cls, logits: Float[Array, " A"], values: Float[Array, " A"], bias: Float[Array, " A"] | None = None
    ) -> "View":
        """From the logits of their policy, the shared values, and what they add to them."""
        bias = jnp.full_like(values, jnp.nan) if bias is None else bias
        return cls(jax.nn.log_softmax(logits), values - jnp.mean(values), bias - jnp.mean(bias))

    def log_likelihood(self, action: Int[Array, ""]) -> Float[Array, ""]:
        """See `AbstractView.log_likelihood`."""
        return self.log_policy[action]

    def sizes(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """See `AbstractView.sizes`: of the bias and of the shared values."""
        return jnp.mean(self.bias**2), jnp.mean(self.shared**2)


class GaussianView(AbstractView):
    """Of continuous actions; the bias is how far the mean is off, in spreads of the shared policy."""

    own: Gaussian
    shift: Float[Array, " A"]  # in shared spreads; NaN: no bias is known
    squashing: Squashing

    def log_likelihood(self, action: Float[Array, " A"]) -> Float[Array, ""]:
        """See `AbstractView.log_likelihood`: a density in the action's own units."""
        z = self.squashing.unsquashed(action)
        return self.own.log_density(z) - jnp.sum(log_slope(z) + jnp.log(self.squashing.half))

    def sizes(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """See `AbstractView.sizes`."""
        return jnp.mean(self.shift**2), jnp.ones(())
