r"""Distributions of vectors some of whose entries are choices; the head for any actions; demonstrators of vectors.

An entry that takes few values, such as a gripper's, has a probability for each of them: one Gaussian cannot say that it
is either open or closed. One that is often at a bound has a probability of being there, and a density in between.

Demonstrators of vectors are noise around the shared policy's greedy action. Scaled to bounds from -1 to 1, the action
of demonstrator $i$ is $N(\tanh(\mu(s) + \delta_i(s)), \sigma^2/\beta_i)$: the bias $\delta_i$ moves the shared policy's
mean, and the noise around it has a standard deviation $\sigma$ at precision 1 that is the same in every state. If it
depended on the state, it would explain away differences in precision wherever demonstrators seldom visit the same
states.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.data.transitions import Row
from irleed.envs.step import Actions, Bounds
from irleed.model.actions import (
    EDGE,
    AbstractHead,
    ActionDistribution,
    Categorical,
    Softmax,
    SquashedGaussian,
    Squashing,
)
from irleed.model.demonstrators import Description, log_precision_of


class Mixed(ActionDistribution):
    r"""A distribution over vectors some of whose entries are choices, see `Bounds`.

    The options of such an entry are its values and, if it is free as well, "none of them"; `inside` is the density in
    that case. With $Q(s, a)$ the sum of the logits of these options and of the log densities of the z of free entries,
    $\pi \propto \exp Q$. A demonstrator's precision and bias apply to the options and to the density alike.
    """

    choices: tuple[Categorical, ...]  # one for each entry that chooses
    inside: SquashedGaussian  # of the free entries
    bounds: Bounds = eqx.field(static=True)

    def options(self, action: Float[Array, "*B A"]) -> tuple[Int[Array, "*B"], ...]:
        """The option of each choosing entry: the nearest value, or none if it is free and not at a value."""
        edge, found = 0.5 * EDGE * (self.bounds.high - self.bounds.low), []
        for entry in self.bounds.choosing:
            values = self.bounds.values[entry]
            off = jnp.abs(action[..., entry, None] - np.asarray(values, np.float32)[(None,) * (action.ndim - 1)])
            nearest = jnp.argmin(off, -1)
            none = (jnp.min(off, -1) > edge[entry]) & self.bounds.free[entry]
            found.append(jnp.where(none, len(values), nearest).astype(jnp.int32))
        return tuple(found)

    def is_inside(self, action: Float[Array, "*B A"]) -> Float[Array, "*B M"]:
        """1 for each free entry of an action that is at none of its values, else 0."""
        option = dict(zip(self.bounds.choosing, self.options(action), strict=True))
        found = jnp.ones((*action.shape[:-1], sum(self.bounds.free)), jnp.float32)
        for place, entry in enumerate(np.flatnonzero(self.bounds.free).tolist()):
            if entry in option:
                inside = (option[entry] == len(self.bounds.values[entry])).astype(jnp.float32)
                found = found.at[..., place].set(inside)
        return found

    def choice_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log probability of the options of an action."""
        each = zip(self.choices, self.options(action), strict=True)
        return sum((choice.log_prob(option) for choice, option in each), jnp.zeros(action.shape[:-1], jnp.float32))

    def logit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The logits of the options, and the log densities of the z of free entries."""
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
        """Options of an entry are equally probable, numbers within the bounds uniformly distributed."""
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
        """Precision and bias applied to each part; biases of all options come first, then those of the free entries."""
        ends = np.cumsum([choice.logits.shape[-1] for choice in self.choices]).tolist()
        *parts, inside = jnp.split(bias, ends, -1)
        choices = (choice.as_demonstrator(log_precision, own) for choice, own in zip(self.choices, parts, strict=True))
        return Mixed(tuple(choices), self.inside.as_demonstrator(log_precision, inside), self.bounds)

    def __getitem__(self, states: int | slice) -> "Mixed":
        """The distribution in one or some of many states."""
        return Mixed(tuple(choice[states] for choice in self.choices), self.inside[states], self.bounds)

    def with_noise(self, log_std: Float[Array, " ME"]) -> "Mixed":
        """The same means with noise, see `SquashedGaussian`, and choices with one inverse temperature each."""
        free = self.inside.mean.shape[-1]
        pairs = zip(self.choices, jnp.exp(-log_std[free:]), strict=True)
        choices = tuple(Categorical(certainty * choice.logits) for choice, certainty in pairs)
        return Mixed(choices, self.inside.with_noise(log_std[:free]), self.bounds)

    def noise_misfit(self, action: Float[Array, "*B A"]) -> Float[Array, "*B ME"]:
        """Negative log density of free entries with noise, up to a constant; negative log probability of options."""
        inside = self.is_inside(action) * self.inside.noise_misfit(self.free_part(action))
        each = zip(self.choices, self.options(action), strict=True)
        return jnp.concatenate([inside, *(-choice.log_prob(option)[..., None] for choice, option in each)], -1)

    def noise_log_prob(self, action: Float[Array, "*B A"]) -> Float[Array, "*B"]:
        """The log probability of the options, and the log density of other numbers with noise."""
        level = self.is_inside(action) * self.inside.noise_level(self.free_part(action))
        return -jnp.sum(self.noise_misfit(action), -1) - jnp.sum(level, -1)

    def entry_log_std(self, log_std: Float[Array, " ME"]) -> Float[Array, " A"]:
        """The log standard deviation of the noise in each free entry; 0 for choices."""
        every = jnp.concatenate([log_std, jnp.zeros(1, jnp.float32)])
        return every[np.where(self.bounds.free, np.cumsum(self.bounds.free) - 1, len(log_std))]

    def no_bias(self) -> Float[Array, "*B OM"]:
        """A bias of zero."""
        return jnp.zeros((*self.inside.mean.shape[:-1], bias_size(self.bounds)), jnp.float32)

    def unit_mean(self) -> Float[Array, "*B A"]:
        """The mean of each choice and the greedy action in other entries, scaled to bounds from -1 to 1."""
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

    def _assembled(self, options: Sequence[Int[Array, "*B"]], inside: Float[Array, "*B M"]) -> Float[Array, "*B A"]:
        """The action with these options, and these numbers in free entries."""
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

    def parts(self, output: Float[Array, "*B out"]) -> Sequence[Float[Array, "*B part"]]:
        """The outputs for each entry that chooses, and those for all free entries."""
        return jnp.split(output, np.cumsum([count for count in self.bounds.options if count]).tolist(), -1)


def head_of(actions: Actions, sharpness: Float[Array, ""] | float = 1.0) -> AbstractHead:
    """The head for discrete actions, of which `sharpness` is the inverse temperature, or for vectors within bounds."""
    if isinstance(actions, int):
        return Softmax(jnp.asarray(sharpness, jnp.float32))
    return Mixing.into(actions) if any(actions.options) else Squashing.into(actions)


def bias_size(actions: Actions) -> int:
    """The size of a bias: one number for each action, or for each option and each free entry."""
    return actions if isinstance(actions, int) else sum(actions.options) + sum(actions.free)


def spread_size(actions: Actions) -> int:
    """The size of the noise parameters: one for each free and each choosing entry; 0 for discrete actions."""
    return 0 if isinstance(actions, int) else sum(actions.free) + len(actions.choosing)


def outputs_of(actions: Actions) -> int:
    """The number of network outputs that `head_of` takes."""
    return actions if isinstance(actions, int) else sum(actions.options) + 2 * sum(actions.free)


Vectors = SquashedGaussian | Mixed


def noisy_demonstrator(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    demonstrator: Int[Array, "*B"],
    bias: Float[Array, "*B N"],
) -> Vectors:
    """The demonstrator of each row, for the `noise_...` methods: the mean of z, and the noise of actions."""
    return shared.with_noise(log_std).as_demonstrator(log_precision_of(log_precision, demonstrator), bias)


def noise_loss(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    rows: Row,
    bias: Float[Array, "B N"],
) -> Float[Array, ""]:
    """Mean negative log likelihood of demonstrated actions, up to a constant; the shared policy is held fixed."""
    own = noisy_demonstrator(jax.lax.stop_gradient(shared), log_std, log_precision, rows.demonstrator, bias)
    return jnp.mean(own.noise_misfit(rows.action))


def noise_description(
    shared: Vectors,
    log_std: Float[Array, " S"],
    log_precision: Float[Array, " D"],
    demonstrator: Int[Array, ""],
    bias: Float[Array, " N"] | None,
    action: Float[Array, " A"],
) -> Description:
    """The description of one action; the size of a bias is the shift of the greedy action, in noise at precision 1.

    `bias` is None if biases are not learnt.
    """
    own = noisy_demonstrator(shared, log_std, log_precision, demonstrator, shared.no_bias() if bias is None else bias)
    if bias is None:
        return Description.without_bias(own.noise_log_prob(action))
    moved = (own.unit_mean() - shared.unit_mean()) * jnp.exp(-shared.entry_log_std(log_std))
    return Description(own.noise_log_prob(action), jnp.mean(moved**2), jnp.ones((), jnp.float32))
