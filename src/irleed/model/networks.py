"""Multilayer perceptrons and the biases of demonstrators, as pytrees: a leading axis stacks several."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key, Scalar
from irleed.data.transitions import Inputs


@jax.custom_jvp
def elu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x, and exp(x) - 1 below zero; its derivative is computed from its value, which saves memory."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0)) - 1)


@elu.defjvp
def _elu_jvp(primals: Any, tangents: Any):
    value = elu(*primals)
    return value, tangents[0] * (jnp.minimum(value, 0) + 1)


def norm_relu(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """ReLU after layer normalisation: outputs stay bounded far from the data."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return jax.nn.relu(centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5))


# Where biases are networks, up to this many demonstrators have one each; more share a trunk with this many outputs.
OWN_NETWORKS, RANK = 16, 8

Activation = Literal["elu", "relu", "norm_relu"]
ACTIVATIONS: dict[Activation, Callable[[Array], Array]] = {"elu": elu, "relu": jax.nn.relu, "norm_relu": norm_relu}


class Mlp(eqx.Module):
    """A multilayer perceptron of one observation; weights and offsets are initialised in +-1 / sqrt(inputs)."""

    inputs: Inputs  # held fixed
    weights: tuple[Float[Array, "..."], ...]
    offsets: tuple[Float[Array, "..."], ...]
    activation: Activation = eqx.field(static=True, default="elu")
    direct: Float[Array, "*lanes F out"] | None = None  # from the observation past all layers to the output

    @classmethod
    def init(cls, key: Key, inputs: Inputs, sizes: Sequence[int], activation: Activation = "elu") -> "Mlp":
        """A network with layers of these sizes, the last of which is the output."""
        weights, offsets = [], []
        for layer, (before, after) in enumerate(zip((inputs.centre.size, *sizes), sizes, strict=False)):
            weight_key, offset_key = jax.random.split(jax.random.fold_in(key, layer))
            bound = before**-0.5
            weights.append(jax.random.uniform(weight_key, (before, after), jnp.float32, -bound, bound))
            offsets.append(jax.random.uniform(offset_key, (after,), jnp.float32, -bound, bound))
        return cls(inputs, tuple(weights), tuple(offsets), activation)

    def __call__(self, observation: Float[Array, "..."]) -> Float[Array, " out"]:
        """The output for one observation of any shape."""
        seen = x = standardised(self.inputs, observation)
        for weight, offset in zip(self.weights[:-1], self.offsets[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ weight + offset)
        found = x @ self.weights[-1] + self.offsets[-1]
        return found if self.direct is None else found + seen @ self.direct


def standardised(inputs: Inputs, observation: Float[Array, "..."]) -> Float[Array, " F"]:
    """One observation of any shape, standardised and flattened."""
    inputs = jax.lax.stop_gradient(inputs)
    return jnp.ravel((observation - inputs.centre) / inputs.spread)


class AbstractBias(eqx.Module):
    r"""Every demonstrator's bias $\epsilon_i(s, \cdot)$, in units of Q."""

    @abc.abstractmethod
    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias of one demonstrator in each state of a batch."""


class Linear(AbstractBias):
    """Linear in the observation, initialised at zero.

    A linear bias is determined everywhere, also in states that only other demonstrators visit.
    """

    inputs: Inputs  # held fixed
    weights: Float[Array, "*lanes D F A"]
    offsets: Float[Array, "*lanes D A"]

    @classmethod
    def init(cls, demonstrators: int, inputs: Inputs, actions: int) -> "Linear":
        """All biases are zero."""
        entries, offsets = inputs.centre.size, jnp.zeros((demonstrators, actions), jnp.float32)
        return cls(inputs, jnp.zeros((demonstrators, entries, actions), jnp.float32), offsets)

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias of one demonstrator in each state of a batch."""
        seen = jax.vmap(standardised, (None, 0))(self.inputs, observation)
        own = jax.nn.one_hot(demonstrator, len(self.offsets))
        # A product with all weights: the gradient of indexing is a scatter, which is slow.
        placed = (own[:, :, None] * seen[:, None, :]).reshape(len(seen), -1)
        return placed @ self.weights.reshape(placed.shape[1], self.offsets.shape[-1]) + own @ self.offsets

    def added_to(self, network: Mlp, share: Float[Array, " D"], scale: Scalar) -> Mlp:
        """A network without a direct path, plus `scale` times the mean of all biases, weighted by `share`."""
        last = network.offsets[-1] + scale * (share @ self.offsets)
        direct = scale * jnp.tensordot(share, self.weights, 1)
        return Mlp(network.inputs, network.weights, (*network.offsets[:-1], last), network.activation, direct)


class Independent(AbstractBias):
    """A network for each demonstrator, as in the paper; all are evaluated, so this is for few demonstrators."""

    network: Mlp  # leading axis D

    @classmethod
    def init(
        cls, key: Key, demonstrators: int, inputs: Inputs, sizes: Sequence[int], activation: Activation = "elu"
    ) -> "Independent":
        """Independently initialised networks of these sizes."""
        keys = jax.random.split(key, demonstrators)
        return cls(jax.vmap(lambda each: Mlp.init(each, inputs, sizes, activation))(keys))

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias of one demonstrator in each state of a batch."""
        every = jax.vmap(lambda network: jax.vmap(network)(observation))(self.network)
        # A sum: the gradient of indexing is a scatter, which is slow.
        return jnp.sum(jax.nn.one_hot(demonstrator, len(every), axis=0)[:, :, None] * every, 0)


class LowRank(AbstractBias):
    """A shared trunk and a linear head for each demonstrator; the cost hardly grows with their number."""

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
        """A trunk of these sizes with `rank` outputs; heads, and so all biases, are initialised at zero."""
        trunk = Mlp.init(key, inputs, (*sizes[:-1], rank), activation)
        return cls(trunk, jnp.zeros((demonstrators, rank, sizes[-1]), jnp.float32))

    def __call__(self, observation: Float[Array, "B ..."], demonstrator: Int[Array, " B"]) -> Float[Array, "B A"]:
        """The bias of one demonstrator in each state of a batch."""
        return jax.vmap(lambda own, head: self.trunk(own) @ head)(observation, self.heads[demonstrator])


def biases(
    key: Key,
    demonstrators: int,
    inputs: Inputs,
    actions: int,
    hidden: Sequence[int] | None,
    activation: Activation = "elu",
    *,
    zero: bool = False,
) -> AbstractBias:
    """Biases of `actions` outputs: linear ones, or networks with these hidden layers.

    Without demonstrators, all biases are zero and cost nothing. Up to `OWN_NETWORKS` demonstrators have a network each;
    more share a trunk with `RANK` outputs. With `zero`, networks are initialised with outputs of 0 (linear biases and
    those with a shared trunk always are).
    """
    if hidden is None:
        return Linear.init(demonstrators, inputs, actions)
    sizes = (*hidden, actions)
    if demonstrators > OWN_NETWORKS:
        return LowRank.init(key, demonstrators, inputs, sizes, activation, RANK)
    bias = Independent.init(key, demonstrators, inputs, sizes, activation)
    if not zero:
        return bias
    last = jnp.zeros_like(bias.network.weights[-1]), jnp.zeros_like(bias.network.offsets[-1])
    return eqx.tree_at(lambda b: (b.network.weights[-1], b.network.offsets[-1]), bias, last)
