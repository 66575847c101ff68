"""Networks as trees of arrays alone: stacking runs, demonstrators or ensembles is a leading axis, nothing more."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Key
from irleed.data.transitions import Inputs

ACTIVATIONS = {"elu": jax.nn.elu, "relu": jax.nn.relu}


class Mlp(eqx.Module):
    """A multilayer perceptron of one observation; weights and offsets start uniform within 1 / sqrt(inputs)."""

    inputs: Inputs  # held fixed
    weights: tuple[Float[Array, "..."], ...]
    offsets: tuple[Float[Array, "..."], ...]
    activation: str = eqx.field(static=True, default="elu")

    @classmethod
    def init(cls, key: Key, inputs: Inputs, sizes: Sequence[int], activation: str = "elu") -> "Mlp":
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
        inputs = jax.lax.stop_gradient(self.inputs)
        x = jnp.ravel((observation - inputs.centre) / inputs.spread)
        for weight, offset in zip(self.weights[:-1], self.offsets[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ weight + offset)
        return x @ self.weights[-1] + self.offsets[-1]


class AbstractBias(eqx.Module):
    r"""Every demonstrator's bias $\epsilon_i(s, \cdot)$, in units of Q."""

    @abc.abstractmethod
    def __call__(self, observation: Float[Array, "..."], demonstrator: Int[Array, ""]) -> Float[Array, " A"]:
        """The bias of one demonstrator in one situation."""


class Independent(AbstractBias):
    """A network each, as in the paper: for a few demonstrators, as all are evaluated and one is taken."""

    network: Mlp  # leading axis D

    @classmethod
    def init(cls, key: Key, demonstrators: int, inputs: Inputs, sizes: Sequence[int]) -> "Independent":
        """Networks of these sizes, each started on its own."""
        return cls(jax.vmap(lambda each: Mlp.init(each, inputs, sizes))(jax.random.split(key, demonstrators)))

    def __call__(self, observation: Float[Array, "..."], demonstrator: Int[Array, ""]) -> Float[Array, " A"]:
        """See `AbstractBias`."""
        return jax.vmap(lambda network: network(observation))(self.network)[demonstrator]


class LowRank(AbstractBias):
    """A trunk for all and a small linear head each: a thousand demonstrators cost little more than three."""

    trunk: Mlp
    heads: Float[Array, "D K A"]

    @classmethod
    def init(cls, key: Key, demonstrators: int, inputs: Inputs, sizes: Sequence[int], rank: int = 8) -> "LowRank":
        """A trunk of these sizes with `rank` outputs; heads start at zero, so that nobody is biased."""
        return cls(Mlp.init(key, inputs, (*sizes[:-1], rank)), jnp.zeros((demonstrators, rank, sizes[-1]), jnp.float32))

    def __call__(self, observation: Float[Array, "..."], demonstrator: Int[Array, ""]) -> Float[Array, " A"]:
        """See `AbstractBias`."""
        return self.trunk(observation) @ self.heads[demonstrator]
