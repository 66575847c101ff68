"""Policies inside traced functions: from an observation to a distribution of actions."""

import abc
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar, Shaped
from irleed.data.conditioning import Conditioning
from irleed.data.transitions import Inputs
from irleed.envs import Actions
from irleed.model.actions import AbstractHead, ActionDistribution, Categorical
from irleed.model.mixed import head_of, outputs_of
from irleed.model.networks import Activation, Mlp


class AbstractActor(eqx.Module):
    """A policy for one observation, a pytree of arrays: several actors are a leading axis."""

    @abc.abstractmethod
    def __call__(self, observation: Shaped[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""

    def act(self, key: Key, observation: Shaped[Array, "..."], greedy: bool = False) -> Shaped[Array, "..."]:
        """A sampled or a greedy action in one state."""
        distribution = self(observation)
        return distribution.mode() if greedy else distribution.sample(key)


class Actor(AbstractActor):
    """A network, and the head that maps its outputs to a distribution."""

    network: Callable[[Float[Array, "..."]], Float[Array, " out"]]  # a module of arrays, such as `Mlp`
    head: AbstractHead

    @classmethod
    def init(
        cls,
        key: Key,
        inputs: Inputs,
        actions: Actions,
        hidden: Sequence[int],
        activation: Activation,
        sharpness: Scalar = 1.0,
    ) -> "Actor":
        """A perceptron for these actions; `sharpness` is that of the softmax over discrete actions."""
        return cls(Mlp.init(key, inputs, (*hidden, outputs_of(actions)), activation), head_of(actions, sharpness))

    def __call__(self, observation: Float[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""
        return self.head(self.network(observation))

    def outputs(self, observations: Float[Array, "B ..."]) -> Float[Array, "B out"]:
        """The network's outputs in each state of a batch, for `head`."""
        return jax.vmap(self.network)(observations)

    def batch(self, observations: Float[Array, "B ..."]) -> ActionDistribution:
        """The distributions of actions in each state of a batch."""
        return self.head(self.outputs(observations))


class TableActor(AbstractActor):
    """A table of probabilities; observations are one-hot vectors of states, as on the host."""

    probabilities: Float[Array, "S A"]

    def __call__(self, observation: Float[Array, " S"]) -> ActionDistribution:
        """The distribution of actions in one state."""
        return Categorical(jnp.log(self.probabilities[jnp.argmax(observation)]))


class EnsembleActor(AbstractActor):
    """K actors that act together: discrete actions by the mean log probabilities, others by the mean outputs."""

    members: Actor  # leading axis K
    conditioning: Conditioning | None = None  # of observations, before the members see them

    def __call__(self, observation: Shaped[Array, "..."]) -> ActionDistribution:
        """The distribution of actions in one state."""
        seen = observation if self.conditioning is None else self.conditioning(observation)
        return self.members.head.averaged(self.outputs(seen))

    def outputs(self, observation: Shaped[Array, "..."]) -> Float[Array, "K out"]:
        """Each member's outputs for a conditioned observation."""
        return jax.vmap(lambda member: member.network(observation))(self.members)
