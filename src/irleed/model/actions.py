r"""Distributions of actions, and how a demonstrator's precision and bias change them.

`Categorical` is for discrete actions, `SquashedGaussian` for vectors within bounds, and `irleed.model.mixed.Mixed` for
vectors with discrete entries. Each is $\pi(a|s) \propto \exp Q(s, a)$ for some $Q$;
demonstrator $i$ acts by $\exp(\beta_i(Q + \epsilon_i))$ (Eq. 6), which is a distribution of the same kind, see
`ActionDistribution.as_demonstrator`.

A squashed Gaussian samples $z \sim N(\mu, \sigma^2)$ and acts by $a = m + h \tanh z$, where $m$ and $h$ are the middle
and half the width of the bounds. Its $Q$ is quadratic in $z$ and its biases are linear in $z$: $\beta_i$ divides the
variance, $\epsilon_i$ moves the mean.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.envs.step import Bounds
from irleed.model.demonstrators import perceived

EDGE = 1e-3  # least distance of demonstrated actions from a bound, relative to half the width
LOG_STDS = (-5.0, 2.0)  # the range of log standard deviations that networks can express
LOG_NORMALISER = 0.5 * np.log(2 * np.pi)


class ActionDistribution(eqx.Module):
    """A distribution of actions in one state or, with leading axes, in many."""

    @abc.abstractmethod
    def logit(self, action: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """The unnormalised log probability of an action; of a vector, that of its z."""

    @abc.abstractmethod
    def log_partition(self) -> Float[Array, "..."]:
        r"""$\log\sum_a \exp$ or $\log\int \exp$ of `logit`: the soft value of the state."""

    @abc.abstractmethod
    def log_prob(self, action: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """The log probability of an action, or its log density in the action's own units."""

    @abc.abstractmethod
    def uniform_log_prob(self, action: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """The log probability, or log density, of an action under the uniform distribution."""

    @abc.abstractmethod
    def sample(self, key: Key) -> Shaped[Array, "..."]:
        """A sampled action."""

    @abc.abstractmethod
    def sample_uniformly(self, key: Key) -> Shaped[Array, "..."]:
        """An action sampled from the uniform distribution."""

    @abc.abstractmethod
    def mode(self) -> Shaped[Array, "..."]:
        """The greedy action: the most probable one, or the action at the mean of z."""

    @abc.abstractmethod
    def as_demonstrator(self, log_precision: Float[Array, "..."], bias: Float[Array, "... A"]) -> "ActionDistribution":
        r"""$\exp(\beta(Q + \epsilon))$ where this is $\exp Q$: how a demonstrator acts."""

    @abc.abstractmethod
    def __getitem__(self, states: int | slice) -> "ActionDistribution":
        """The distribution in one or some of many states."""


class Categorical(ActionDistribution):
    """A distribution over discrete actions, numbered from 0."""

    logits: Float[Array, "*B A"]

    def logit(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """The logit of an action."""
        return jnp.take_along_axis(self.logits, action[..., None], -1)[..., 0]

    def log_partition(self) -> Float[Array, "*B"]:
        r"""$\log\sum_a \exp Q(s, a)$."""
        return jax.nn.logsumexp(self.logits, -1)

    def log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """The log probability of an action."""
        return self.logit(action) - self.log_partition()

    def uniform_log_prob(self, action: Int[Array, "*B"]) -> Float[Array, "*B"]:
        """Minus the logarithm of the number of actions."""
        return jnp.full(self.logits.shape[:-1], -np.log(self.logits.shape[-1]), self.logits.dtype)

    def sample(self, key: Key) -> Int[Array, "*B"]:
        """A sampled action."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def sample_uniformly(self, key: Key) -> Int[Array, "*B"]:
        """A uniformly sampled action."""
        return jax.random.randint(key, self.logits.shape[:-1], 0, self.logits.shape[-1], jnp.int32)

    def mode(self) -> Int[Array, "*B"]:
        """The most probable action."""
        return jnp.argmax(self.logits, -1).astype(jnp.int32)

    def as_demonstrator(self, log_precision: Float[Array, "*B"], bias: Float[Array, "*B A"]) -> "Categorical":
        r"""Logits $\beta(Q + \epsilon)$."""
        return Categorical(perceived(jnp.exp(log_precision), self.logits, bias))

    def __getitem__(self, states: int | slice) -> "Categorical":
        """The distribution in one or some of many states."""
        return Categorical(self.logits[states])


class SquashedGaussian(ActionDistribution):
    """A distribution over vectors within bounds: a Gaussian of z, squashed by tanh."""

    mean: Float[Array, "*B A"]
    log_std: Float[Array, "*B A"]
    squashing: "Squashing"

    def logit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        r"""$-\frac12\sum((z - \mu)/\sigma)^2$ at the z of an action."""
        return -0.5 * jnp.sum(((self.squashing.unsquashed(action) - self.mean) * jnp.exp(-self.log_std)) ** 2, -1)

    def log_partition(self) -> Float[Array, "*B"]:
        r"""$\sum\log(\sigma\sqrt{2\pi})$: the integral over z."""
        return jnp.sum(self.log_std + LOG_NORMALISER, -1)

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log density of an action, in its own units."""
        return self.logit(action) - self.log_partition() - jnp.sum(self.log_slopes(action), -1)

    def log_densities(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The log density of the z of each entry of an action."""
        standard = (self.squashing.unsquashed(action) - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * standard**2 - self.log_std - LOG_NORMALISER

    def log_slopes(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The log derivative of each entry of an action with respect to its z."""
        return log_slope(self.squashing.unsquashed(action)) + self.squashing.log_half(action)

    def uniform_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """Minus the logarithm of the volume of the box."""
        return -jnp.sum(self.squashing.log_half(action) + np.log(2.0), -1)

    def sample(self, key: Key) -> Float[Array, "*B A"]:
        """A sampled action."""
        return self.squashing.action(self._sample_z(key)[0])

    def sample_uniformly(self, key: Key) -> Float[Array, "*B A"]:
        """An action sampled uniformly from the box."""
        unit = jax.random.uniform(key, self.mean.shape, jnp.float32, -1.0, 1.0)
        middle, half = self.squashing.like(unit)
        return middle + half * unit

    def sample_unit(self, key: Key) -> tuple[Float[Array, "*B A"], Float[Array, "*B"]]:
        """A sampled action scaled to bounds from -1 to 1, and its log density there; differentiable."""
        z, noise = self._sample_z(key)
        log_density = -0.5 * noise**2 - self.log_std - LOG_NORMALISER - log_slope(z)
        return jnp.tanh(z), jnp.sum(log_density, -1)

    def mode(self) -> Float[Array, "*B A"]:
        """The action at the mean of z."""
        return self.squashing.action(self.mean)

    def as_demonstrator(self, log_precision: Float[Array, "*B"], bias: Float[Array, "*B A"]) -> "SquashedGaussian":
        r"""$N(\mu + \delta, \sigma^2/\beta)$, where the bias $\delta$ shifts the mean of z."""
        return SquashedGaussian(self.mean + bias, self.log_std - 0.5 * log_precision[..., None], self.squashing)

    def __getitem__(self, states: int | slice) -> "SquashedGaussian":
        """The distribution in one or some of many states."""
        return SquashedGaussian(self.mean[states], self.log_std[states], self.squashing)

    def with_noise(self, log_std: Float[Array, " A"]) -> "SquashedGaussian":
        """The same means with state-independent noise, for `noise_log_prob`."""
        return SquashedGaussian(self.mean, jnp.broadcast_to(log_std, self.mean.shape), self.squashing)

    def unit_mean(self) -> Float[Array, "*B A"]:
        """The greedy action, scaled to bounds from -1 to 1."""
        return jnp.tanh(self.mean)

    def entry_log_std(self, log_std: Float[Array, " A"]) -> Float[Array, " A"]:
        """The log standard deviation of the noise in each entry."""
        return log_std

    def no_bias(self) -> Float[Array, "*B A"]:
        """A bias of zero."""
        return jnp.zeros_like(self.mean)

    def noise_misfit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        r"""Negative log density, up to a constant, of each entry of an action if noise is added after squashing.

        The action, scaled to bounds from -1 to 1, is then $N(\tanh\mu, \sigma^2)$.
        """
        standard = (self.squashing.unit(action) - jnp.tanh(self.mean)) * jnp.exp(-self.log_std)
        return 0.5 * standard**2 + self.log_std

    def noise_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log density of an action, in its own units, if noise is added after squashing."""
        return -jnp.sum(self.noise_misfit(action) + self.noise_level(action), -1)

    def noise_level(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The constant that `noise_misfit` leaves out."""
        return LOG_NORMALISER + self.squashing.log_half(action)

    def _sample_z(self, key: Key) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
        noise = jax.random.normal(key, self.mean.shape, jnp.float32)
        return self.mean + jnp.exp(self.log_std) * noise, noise


class AbstractHead(eqx.Module):
    """Maps a network's outputs to a distribution of actions."""

    @abc.abstractmethod
    def __call__(self, output: Float[Array, "..."]) -> ActionDistribution:
        """The distribution for an output, or for a batch of outputs."""

    @abc.abstractmethod
    def averaged(self, output: Float[Array, "K ..."]) -> ActionDistribution:
        """The distribution of an ensemble of K members, each with its own head, in one state."""


class Softmax(AbstractHead):
    """Outputs times `sharpness` are the logits of discrete actions."""

    sharpness: Float[Array, "*lanes"]

    def __call__(self, output: Float[Array, "*B A"]) -> Categorical:
        """The softmax distribution of an output."""
        return Categorical(jax.lax.stop_gradient(jnp.asarray(self.sharpness)) * output)

    def averaged(self, output: Float[Array, "K A"]) -> Categorical:
        """The members' mean log probabilities, as logits."""
        return Categorical(jnp.mean(jax.nn.log_softmax(self.sharpness[:, None] * output), 0))


class Squashing(AbstractHead):
    """Outputs are means and raw log standard deviations of z, and `action` brings z within bounds."""

    middle: Float[Array, "*lanes A"]
    half: Float[Array, "*lanes A"]

    @classmethod
    def into(cls, bounds: Bounds) -> "Squashing":
        """A head for these bounds."""
        return cls(jnp.asarray(0.5 * (bounds.low + bounds.high)), jnp.asarray(0.5 * (bounds.high - bounds.low)))

    def __call__(self, output: Float[Array, "*B AA"]) -> SquashedGaussian:
        """The Gaussian of an output; log standard deviations are squashed into their range."""
        mean, raw = jnp.split(output, 2, -1)
        low, high = LOG_STDS
        return SquashedGaussian(mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1), self)

    def averaged(self, output: Float[Array, "K AA"]) -> SquashedGaussian:
        """The Gaussian of the members' mean output, within the bounds of the first."""
        return Squashing(jnp.asarray(self.middle)[0], jnp.asarray(self.half)[0])(jnp.mean(output, 0))

    def action(self, z: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The action of z, clipped to the bounds against rounding."""
        middle, half = self.like(z)
        return jnp.clip(middle + half * jnp.tanh(z), middle - half, middle + half)

    def unit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """An action scaled to bounds from -1 to 1."""
        middle, half = self.like(action)
        return (action - middle) / half

    def unsquashed(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The z of an action; one at a bound, which no finite z reaches, is moved slightly inside."""
        return jnp.arctanh(jnp.clip(self.unit(action), -1 + EDGE, 1 - EDGE))

    def log_half(self, values: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The logarithm of half the width, in the shape of `values`: the log derivative of actions by units."""
        return jnp.log(self.like(values)[1])

    def like(self, values: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
        """Middle and half the width in the shape of `values`, without gradients."""
        held = jax.lax.stop_gradient((jnp.asarray(self.middle), jnp.asarray(self.half)))
        return jnp.broadcast_to(held[0], values.shape), jnp.broadcast_to(held[1], values.shape)


def log_slope(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log(1 - \tanh^2 z)$, exact however large z is."""
    return 2 * (np.log(2.0) - z - jax.nn.softplus(-2 * z))
