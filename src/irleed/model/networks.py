"""Networks as trees of arrays alone: stacking runs, demonstrators or ensembles is a leading axis, nothing more."""

import abc
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar
from irleed.data.transitions import Inputs


@jax.custom_jvp
def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x, and exp(x) - 1 below zero; its slope comes from its value, so that nothing else is kept for the gradient."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals, tangents):
    value = elu(*primals)
    return value, tangents[0] * (jnp.minimum(value, 0) + 1)


def norm_relu(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Rectified after layer normalisation: sharp where there are data, and bounded however far from them."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return jax.nn.relu(centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5))


Activation = Literal["elu", "relu", "norm_relu"]
ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu, "norm_relu": norm_relu}


class Mlp(eqx.Module):
    """A multilayer perceptron of one observation; weights and offsets start uniform within 1 / sqrt(inputs)."""

    inputs: Inputs  # held fixed
    weights: tuple[Float[Array, "..."], ...]
    offsets: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True, default="elu")
    direct: Float[Array, "*lanes F out"] | None = None  # from the observation past all layers to the output

    @classmethod
    def init(cls, key: Key, inputs: Inputs, sizes: Sequence[int], activation: Activation = "elu") -> "Mlp":
        """Layers of these sizes, the last one being the output's."""
        weights, offsets = [], []
        for layer, (before, after) in enumerate(zip((inputs.centre.size, *sizes), sizes, strict=False)):
            weight_key, offset_key = jax.random.split(jax.random.fold_in(key, layer))
            bound = before**-0.5
            weights.append(jax.random.uniform(weight_key, (before, after), jnp.float32, -bound, bound))
            offsets.append(jax.random.uniform(offset_key, (after,), jnp.float32, -bound, bound))
        return cls(inputs, tuple(weights), tuple(offsets), activation)

    def __call__(self, observation: Float[Array, "..."]) -> Float[Array, " out"]:
        """The output for one observation, of any shape."""
        seen = x = standardised(self.inputs, observation)
        for weight, offset in zip(self.weights[:-1], self.offsets[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ weight + offset)
        found = x @ self.weights[-1] + self.offsets[-1]
        return found if self.direct is None else found + seen @ self.direct


def standardised(inputs: Inputs, observation: Float[Array, "..."]) -> Float[Array, " F"]:
    """What networks see of one observation, of any shape."""
    inputs = jax.lax.stop_gradient(inputs)
    return jnp.ravel((observation - inputs.centre) / inputs.spread)


class AbstractBias(eqx.Module):
    r"""Every demonstrator's bias $\epsilon_i(s, \cdot)$, in units of Q."""

    @abc.abstractmethod
    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias of one demonstrator in each situation of a batch."""


class Linear(AbstractBias):
    """Linear in the observation, and nought at first: so simple that what is left belongs to the shared Q.

    However large, such a bias is the same everywhere, so that where one demonstrator alone has been, what the others
    would do there is known all the same.
    """

    inputs: Inputs  # held fixed
    weights: Float[Array, "*lanes D F A"]
    offsets: Float[Array, "*lanes D A"]

    @classmethod
    def init(cls, demonstrators: int, inputs: Inputs, actions: int) -> "Linear":
        """Nobody is biased."""
        entries, nought = inputs.centre.size, jnp.zeros((demonstrators, actions), jnp.float32)
        return cls(inputs, jnp.zeros((demonstrators, entries, actions), jnp.float32), nought)

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """See `AbstractBias`."""
        seen = jax.vmap(standardised, (None, 0))(self.inputs, observation)
        own = jax.nn.one_hot(demonstrator, len(self.offsets))
        # A product with everyone's weights rather than an index, whose gradient is a scatter: that would be slow.
        placed = (own[:, :, None] * seen[:, None, :]).reshape(len(seen), -1)
        return placed @ self.weights.reshape(placed.shape[1], -1) + own @ self.offsets

    def added_to(self, network: Mlp, say: Float[Array, " D"], scale: Scalar) -> Mlp:
        """A network without a direct path, and `scale` times the mean of all biases by everyone's say in it."""
        last = network.offsets[-1] + scale * (say @ self.offsets)
        direct = scale * jnp.tensordot(say, self.weights, 1)
        return Mlp(network.inputs, network.weights, (*network.offsets[:-1], last), network.activation, direct)


class Independent(AbstractBias):
    """A network each, as in the paper: for a few demonstrators, as all are evaluated and one is taken."""

    network: Mlp  # leading axis D

    @classmethod
    def init(
        cls, key: Key, demonstrators: int, inputs: Inputs, sizes: Sequence[int], activation: Activation = "elu"
    ) -> "Independent":
        """Networks of these sizes, each started on its own."""
        keys = jax.random.split(key, demonstrators)
        return cls(jax.vmap(lambda each: Mlp.init(each, inputs, sizes, activation))(keys))

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """See `AbstractBias`."""
        every = jax.vmap(lambda network: jax.vmap(network)(observation))(self.network)
        # A sum rather than an index, whose gradient is a scatter: that would be slow.
        return jnp.sum(jax.nn.one_hot(demonstrator, len(every), axis=0)[:, :, None] * every, 0)


class LowRank(AbstractBias):
    """A trunk for all and a small linear head each: a thousand demonstrators cost little more than three."""

    trunk: Mlp
    heads: Float[Array, "D K A"]

    @classmethod
    def init(
        cls,
        key: Key,
        demonstrators: int,
        inputs: Inputs,
        sizes: Sequence[int],
        activation: Activation = "elu",
        rank: int = 8,
    ) -> "LowRank":
        """A trunk of these sizes with `rank` outputs; heads start at zero, so that nobody is biased."""
        trunk = Mlp.init(key, inputs, (*sizes[:-1], rank), activation)
        return cls(trunk, jnp.zeros((demonstrators, rank, sizes[-1]), jnp.float32))

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """See `AbstractBias`."""
        return jax.vmap(lambda own, head: self.trunk(own) @ head)(observation, self.heads[demonstrator])


def biases(
    key: Key,
    demonstrators: int,
    inputs: Inputs,
    sizes: Sequence[int],
    activation: Activation,
    rank: int | None,
    learnt: bool = True,
) -> AbstractBias:
    """A network each, or, with a rank, a trunk for all with so many outputs.

    None at all, if nothing is learnt of them: networks that never change would still cost Adam's time.
    """
    if rank is None or not learnt:
        return Independent.init(key, demonstrators if learnt else 0, inputs, sizes, activation)
    return LowRank.init(key, demonstrators, inputs, sizes, activation, rank)


def unbiased(bias: AbstractBias) -> AbstractBias:
    """The same with the last layer at nought: nobody is biased until there is a reason."""
    if not isinstance(bias, Independent):
        return bias  # whose heads are at nought anyway
    network = bias.network
    last = (jnp.zeros_like(network.weights[-1]), jnp.zeros_like(network.offsets[-1]))
    return Independent(eqx.tree_at(lambda n: (n.weights[-1], n.offsets[-1]), network, last))
