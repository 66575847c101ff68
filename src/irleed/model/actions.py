r"""Distributions of actions, and how a demonstrator's precision and bias change them.

There are three: `Categorical`, of discrete actions, `SquashedGaussian`, of vectors within bounds, and `Mixed`, of vectors
some of whose entries are choices. Each is $\pi(a|s) \propto \exp Q(s, a)$ for some $Q$; demonstrator $i$ acts by
$\exp(\beta_i(Q + \epsilon_i))$ (Eq. 5), which is a distribution of the same kind, see
`ActionDistribution.as_demonstrator`.

A squashed Gaussian samples $z \sim N(\mu, \sigma^2)$ and acts by $a = m + h \tanh z$, where $m$ and $h$ are the middle
and half the width of the bounds. Its $Q$ is quadratic in $z$ and its biases are linear in $z$: $\beta_i$ divides the
variance, $\epsilon_i$ moves the mean.

An entry that takes few values, such as a gripper's, has a probability for each of them: one bell cannot say that it is
either open or closed. One that is often at a bound has a probability of being there, and a density in between.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.envs.step import Bounds
from irleed.model.demonstrators import perceived

EDGE = 1e-3  # a demonstrated action counts as at least this far from a bound, in halves of the width
LOG_STDS = (-5.0, 2.0)  # the range of log standard deviations that networks can express
LOG_NORMALISER = 0.5 * np.log(2 * np.pi)
NEVER = -1e9  # the logit of an option that an entry does not have


class ActionDistribution(eqx.Module):
    """A distribution of actions in one state or, with leading axes, in many."""

    @abc.abstractmethod
    def logit(self, action: Shaped[Array, "..."]) -> Float[Array, "..."]:
        """The unnormalised log probability of an action; of a vector, that of the z behind it."""

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
        """The greedy action: the most probable one, or that of the mean."""

    @abc.abstractmethod
    def as_demonstrator(self, log_precision: Float[Array, "..."], bias: Float[Array, "... A"]) -> "ActionDistribution":
        r"""$\exp(\beta(Q + \epsilon))$ where this is $\exp Q$: how a demonstrator acts."""

    @abc.abstractmethod
    def __getitem__(self, states: int | slice) -> "ActionDistribution":
        """The distribution in one or some of many states."""


class Categorical(ActionDistribution):
    """Of discrete actions, numbered from 0."""

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
        """Any action, all with the same probability."""
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
    """Of vectors within bounds: a Gaussian of z, squashed by tanh."""

    mean: Float[Array, "*B A"]
    log_std: Float[Array, "*B A"]
    squashing: "Squashing"

    def logit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        r"""$-\frac12\sum((z - \mu)/\sigma)^2$ at the z behind an action."""
        return -0.5 * jnp.sum(((self.squashing.unsquashed(action) - self.mean) * jnp.exp(-self.log_std)) ** 2, -1)

    def log_partition(self) -> Float[Array, "*B"]:
        r"""$\sum\log(\sigma\sqrt{2\pi})$: the integral over z."""
        return jnp.sum(self.log_std + LOG_NORMALISER, -1)

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log density of an action, in its own units."""
        return self.logit(action) - self.log_partition() - jnp.sum(self.log_slopes(action), -1)

    def log_densities(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The log density of the z behind each number of an action."""
        standard = (self.squashing.unsquashed(action) - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * standard**2 - self.log_std - LOG_NORMALISER

    def log_slopes(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """By how much less dense each number of an action is than the z behind it."""
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
        """The action of the mean."""
        return self.squashing.action(self.mean)

    def as_demonstrator(self, log_precision: Float[Array, "*B"], bias: Float[Array, "*B A"]) -> "SquashedGaussian":
        r"""$N(\mu + \delta, \sigma^2/\beta)$, where the bias $\delta$ is how far it moves the mean of z."""
        return SquashedGaussian(self.mean + bias, self.log_std - 0.5 * log_precision[..., None], self.squashing)

    def __getitem__(self, states: int | slice) -> "SquashedGaussian":
        """The distribution in one or some of many states."""
        return SquashedGaussian(self.mean[states], self.log_std[states], self.squashing)

    def with_noise(self, log_std: Float[Array, " A"]) -> "SquashedGaussian":
        """The same means, with noise of the same standard deviation in every state, for `noise_log_prob`."""
        return SquashedGaussian(self.mean, jnp.broadcast_to(log_std, self.mean.shape), self.squashing)

    def unit_mean(self) -> Float[Array, "*B A"]:
        """The greedy action, scaled to bounds from -1 to 1."""
        return jnp.tanh(self.mean)

    def entry_log_std(self, log_std: Float[Array, " A"]) -> Float[Array, " A"]:
        """Of each entry, that noise's."""
        return log_std

    def no_bias(self) -> Float[Array, "*B A"]:
        """A bias of zero."""
        return jnp.zeros_like(self.mean)

    def noise_misfit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        r"""Minus the log density, but for a constant, of each number of an action if noise is added after squashing.

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


class Mixed(ActionDistribution):
    r"""Of vectors some of whose entries are choices, see `Bounds`.

    The options of such an entry are its values and, if it is free as well, to be none of them; then it is as `inside`
    says. With $Q(s, a)$ the sum of the logits of these options and of the log densities of the z behind free entries,
    $\pi \propto \exp Q$. A demonstrator's precision and bias apply to the options and to what is inside, in turn.
    """

    choices: tuple[Categorical, ...]  # one for each entry that chooses
    inside: SquashedGaussian  # of the free entries
    bounds: Bounds = eqx.field(static=True)

    def options(self, action: Float[Array, "*B A"]) -> tuple[Int[Array, "*B"], ...]:
        """Which option each choosing entry of an action is: the nearest value or, if it is free and off, none."""
        edge, found = 0.5 * EDGE * (self.bounds.high - self.bounds.low), []
        for entry in self.bounds.choosing:
            values = self.bounds.values[entry]
            off = jnp.abs(action[..., entry, None] - np.asarray(values, np.float32)[(None,) * (action.ndim - 1)])
            nearest = jnp.argmin(off, -1)
            none = (jnp.min(off, -1) > edge[entry]) & self.bounds.free[entry]
            found.append(jnp.where(none, len(values), nearest).astype(jnp.int32))
        return tuple(found)

    def is_inside(self, action: Float[Array, "*B A"]) -> Float[Array, "*B M"]:
        """1 for each free entry of an action that is none of its values, else 0."""
        option = dict(zip(self.bounds.choosing, self.options(action), strict=True))
        found = jnp.ones((*action.shape[:-1], sum(self.bounds.free)), jnp.float32)
        for place, entry in enumerate(np.flatnonzero(self.bounds.free).tolist()):
            if entry in option:
                found = found.at[..., place].set(option[entry] == len(self.bounds.values[entry]))
        return found

    def choice_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log probability of the options of an action."""
        each = zip(self.choices, self.options(action), strict=True)
        return sum((choice.log_prob(option) for choice, option in each), jnp.zeros(action.shape[:-1], jnp.float32))

    def logit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The logits of the options, and the log densities of the z behind free entries."""
        density = jnp.sum(self.is_inside(action) * self.inside.log_densities(self.free_part(action)), -1)
        return self.choice_log_prob(action) + self.log_partition() + density

    def log_partition(self) -> Float[Array, "*B"]:
        r"""$\sum\log\sum\exp$ of the logits of the options: the densities integrate to one."""
        level = jnp.zeros(self.inside.mean.shape[:-1], jnp.float32)
        return sum((choice.log_partition() for choice in self.choices), level)

    def log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log probability of the options, and the log density of other numbers in their own units."""
        slope = jnp.sum(self.is_inside(action) * self.inside.log_slopes(self.free_part(action)), -1)
        return self.logit(action) - self.log_partition() - slope

    def uniform_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """All options of an entry have one probability, all numbers within the bounds one density."""
        options = sum(np.log(count) for count in self.bounds.options if count)
        width = self.inside.squashing.log_half(self.free_part(action)) + np.log(2.0)
        return -jnp.sum(self.is_inside(action) * width, -1) - options

    def sample(self, key: Key) -> Float[Array, "*B A"]:
        """A sampled action."""
        *keys, inside_key = jax.random.split(key, len(self.choices) + 1)
        options = [choice.sample(own) for choice, own in zip(self.choices, keys, strict=True)]
        return self._assembled(options, self.inside.sample(inside_key))

    def sample_uniformly(self, key: Key) -> Float[Array, "*B A"]:
        """An action whose options and numbers are sampled uniformly."""
        *keys, inside_key = jax.random.split(key, len(self.choices) + 1)
        options = [choice.sample_uniformly(own) for choice, own in zip(self.choices, keys, strict=True)]
        return self._assembled(options, self.inside.sample_uniformly(inside_key))

    def mode(self) -> Float[Array, "*B A"]:
        """The most probable option of each entry, and the action of the mean."""
        return self._assembled([choice.mode() for choice in self.choices], self.inside.mode())

    def as_demonstrator(self, log_precision: Float[Array, "*B"], bias: Float[Array, "*B OM"]) -> "Mixed":
        """Each part as a demonstrator's; biases are those of all options, then those of the free entries."""
        ends = np.cumsum([choice.logits.shape[-1] for choice in self.choices]).tolist()
        *parts, inside = jnp.split(bias, ends, -1)
        choices = (
            choice.as_demonstrator(log_precision, own) for choice, own in zip(self.choices, parts, strict=True)
        )
        return Mixed(tuple(choices), self.inside.as_demonstrator(log_precision, inside), self.bounds)

    def __getitem__(self, states: int | slice) -> "Mixed":
        """The distribution in one or some of many states."""
        return Mixed(tuple(choice[states] for choice in self.choices), self.inside[states], self.bounds)

    def with_noise(self, log_std: Float[Array, " ME"]) -> "Mixed":
        """The same choices, less certain by one number each, and the same means, with noise, see `SquashedGaussian`."""
        free = self.inside.mean.shape[-1]
        pairs = zip(self.choices, jnp.exp(-log_std[free:]), strict=True)
        choices = tuple(Categorical(certainty * choice.logits) for choice, certainty in pairs)
        return Mixed(choices, self.inside.with_noise(log_std[:free]), self.bounds)

    def noise_misfit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B ME"]:
        """Minus the log density of each free entry with noise, but for a constant, and the log probability of options."""
        inside = self.is_inside(action) * self.inside.noise_misfit(self.free_part(action))
        each = zip(self.choices, self.options(action), strict=True)
        return jnp.concatenate([inside, *(-choice.log_prob(option)[..., None] for choice, option in each)], -1)

    def noise_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log probability of the options, and the log density of other numbers with noise."""
        level = self.is_inside(action) * self.inside.noise_level(self.free_part(action))
        return -jnp.sum(self.noise_misfit(action), -1) - jnp.sum(level, -1)

    def entry_log_std(self, log_std: Float[Array, " ME"]) -> Float[Array, " A"]:
        """Of each free entry, that noise's; choices have half their width."""
        places = np.cumsum(self.bounds.free) - 1
        return jnp.stack([log_std[n] if free else jnp.zeros((), jnp.float32) for n, free in zip(places, self.bounds.free, strict=True)])

    def no_bias(self) -> Float[Array, "*B OM"]:
        """A bias of zero."""
        return jnp.zeros((*self.inside.mean.shape[:-1], bias_size(self.bounds)), jnp.float32)

    def unit_mean(self) -> Float[Array, "*B A"]:
        """The mean of each choice and the greedy number of other entries, scaled to bounds from -1 to 1."""
        middle, half = 0.5 * (self.bounds.high + self.bounds.low), 0.5 * (self.bounds.high - self.bounds.low)
        numbers, columns = iter(jnp.moveaxis(self.inside.unit_mean(), -1, 0)), []
        share = {e: jax.nn.softmax(choice.logits) for e, choice in zip(self.bounds.choosing, self.choices, strict=True)}
        for entry, (values, free) in enumerate(zip(self.bounds.values, self.bounds.free, strict=True)):
            column = next(numbers) if free else jnp.zeros(self.inside.mean.shape[:-1], jnp.float32)
            if values:
                unit = (np.asarray(values, np.float32) - middle[entry]) / half[entry]
                column = share[entry][..., : len(values)] @ unit + (share[entry][..., -1] * column if free else 0.0)
            columns.append(column)
        return jnp.stack(columns, -1)

    def free_part(self, action: Float[Array, "*B A"]) -> Float[Array, "*B M"]:
        """The free entries of an action."""
        return action[..., np.flatnonzero(self.bounds.free)]

    def _assembled(self, options: list[Int[Array, "*B"]], inside: Float[Array, "*B M"]) -> Float[Array, "*B A"]:
        """The action of these options, with these numbers where an entry is free."""
        option, columns = dict(zip(self.bounds.choosing, options, strict=True)), []
        numbers = iter(jnp.moveaxis(inside, -1, 0))
        for entry, (values, free) in enumerate(zip(self.bounds.values, self.bounds.free, strict=True)):
            column = next(numbers) if free else None
            if values:
                own = np.asarray(values, np.float32)
                chosen = jnp.asarray(own)[jnp.minimum(option[entry], len(own) - 1)]
                column = chosen if column is None else jnp.where(option[entry] < len(own), chosen, column)
            columns.append(column)
        return jnp.stack(columns, -1)


class AbstractHead(eqx.Module):
    """How a network's output is a distribution of actions."""

    @abc.abstractmethod
    def __call__(self, output: Float[Array, "..."]) -> ActionDistribution:
        """The distribution that an output, or a batch of outputs, stands for."""

    @abc.abstractmethod
    def averaged(self, output: Float[Array, "K ..."]) -> ActionDistribution:
        """The distribution of an ensemble of K members, each with its own head, in one state."""


class Softmax(AbstractHead):
    """Outputs times `sharpness` are the logits of discrete actions."""

    sharpness: Float[Array, "*lanes"]

    def __call__(self, output: Float[Array, "*B A"]) -> Categorical:
        """The softmax of an output."""
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
        """Into these bounds."""
        return cls(jnp.asarray(0.5 * (bounds.low + bounds.high)), jnp.asarray(0.5 * (bounds.high - bounds.low)))

    def __call__(self, output: Float[Array, "*B AA"]) -> SquashedGaussian:
        """The Gaussian of an output, its log standard deviations squeezed into their range."""
        mean, raw = jnp.split(output, 2, -1)
        low, high = LOG_STDS
        return SquashedGaussian(mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1), self)

    def averaged(self, output: Float[Array, "K AA"]) -> SquashedGaussian:
        """The Gaussian of the members' mean output, within the bounds of the first."""
        return Squashing(jnp.asarray(self.middle)[0], jnp.asarray(self.half)[0])(jnp.mean(output, 0))

    def action(self, z: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The action of z; within the bounds to the last digit."""
        middle, half = self.like(z)
        return jnp.clip(middle + half * jnp.tanh(z), middle - half, middle + half)

    def unit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """An action scaled to bounds from -1 to 1."""
        middle, half = self.like(action)
        return (action - middle) / half

    def unsquashed(self, action: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The z behind an action; one at a bound, which no z reaches, is taken to be near it."""
        return jnp.arctanh(jnp.clip(self.unit(action), -1 + EDGE, 1 - EDGE))

    def log_half(self, values: Float[Array, "*B A"]) -> Float[Array, "*B A"]:
        """The logarithm of half the width, in the shape of `values`: by how much less dense actions are than units."""
        return jnp.log(self.like(values)[1])

    def like(self, values: Float[Array, "*B A"]) -> tuple[Float[Array, "*B A"], Float[Array, "*B A"]]:
        """Middle and half the width in the shape of `values`; they are held fixed in training."""
        held = jax.lax.stop_gradient((jnp.asarray(self.middle), jnp.asarray(self.half)))
        return jnp.broadcast_to(held[0], values.shape), jnp.broadcast_to(held[1], values.shape)


class Mixing(AbstractHead):
    """Outputs are the logits of all options, then means and raw log standard deviations of the z of free entries."""

    squashing: Squashing  # of the free entries
    bounds: Bounds = eqx.field(static=True)

    @classmethod
    def into(cls, bounds: Bounds) -> "Mixing":
        """Into these bounds."""
        return cls(Squashing.into(bounds.inside), bounds)

    def __call__(self, output: Float[Array, "*B out"]) -> Mixed:
        """The options and the Gaussian of an output."""
        *options, inside = self.parts(output)
        return Mixed(tuple(map(Categorical, options)), self.squashing(inside), self.bounds)

    def averaged(self, output: Float[Array, "K out"]) -> Mixed:
        """The members' mean log probabilities of options, and the Gaussian of their mean output."""
        *options, inside = self.parts(output)
        choices = (Categorical(jnp.mean(jax.nn.log_softmax(own), 0)) for own in options)
        return Mixed(tuple(choices), self.squashing.averaged(inside), self.bounds)

    def parts(self, output: Float[Array, "*B out"]) -> list[Float[Array, "*B part"]]:
        """The outputs for each entry that chooses, and those for all free entries."""
        return jnp.split(output, np.cumsum([count for count in self.bounds.options if count]).tolist(), -1)


def head_of(actions: int | Bounds, sharpness: Float[Array, ""] | float = 1.0) -> AbstractHead:
    """The head for so many discrete actions, or for vectors within bounds, to which `sharpness` does not apply."""
    if isinstance(actions, int):
        return Softmax(jnp.asarray(sharpness, jnp.float32))
    return Mixing.into(actions) if any(actions.options) else Squashing.into(actions)


def bias_size(actions: int | Bounds) -> int:
    """How many numbers a bias has: one for each action, or one for each option and one for each free entry."""
    return actions if isinstance(actions, int) else sum(actions.options) + sum(actions.free)


def spread_size(actions: int | Bounds) -> int:
    """How many numbers say how large noise is: one for each free entry and one for each that chooses; 0 of choices."""
    return 0 if isinstance(actions, int) else sum(actions.free) + len(actions.choosing)


def outputs_of(actions: int | Bounds) -> int:
    """How many outputs of a network `head_of` takes."""
    return actions if isinstance(actions, int) else sum(actions.options) + 2 * sum(actions.free)


def log_slope(z: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$\log(1 - \tanh^2 z)$, exact however large z is."""
    return 2 * (np.log(2.0) - z - jax.nn.softplus(-2 * z))
