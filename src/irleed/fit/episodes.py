"""What one person did in each of many episodes, beside a policy that is shared; see `irleed.fit.mixture`."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Scalar
from irleed.model.actions import Categorical

STEP = 0.7  # of a Newton step for which curvature is bounded, not known


class Own(eqx.Module):
    """What sets a person apart from the shared policy."""

    precision: Float[Array, ""]  # c: by how much values are scaled, less 1; of vectors its logarithm
    weights: Float[Array, "F *A"]


class AbstractEpisodes(eqx.Module):
    """What is known of E episodes, for a model of the person who acted in them."""

    @abc.abstractmethod
    def nobody(self) -> Own:
        """The shared policy."""

    @abc.abstractmethod
    def log_likelihood(self, own: Own) -> Float[Array, " E"]:
        """Of the actions of each episode."""

    @abc.abstractmethod
    def learnt(self, own: Own, weight: Float[Array, " E"], width: Scalar) -> Own:
        """After a Newton step on the posterior of a person whose the episodes are to this degree."""

    @abc.abstractmethod
    def alone(self, width: Scalar) -> Float[Array, "E P"]:
        """What each episode says by itself; distances are about those of the policies."""


class Choices(AbstractEpisodes):
    """Of discrete actions, with the logits of a network."""

    values: Float[Array, "N A"]
    inputs: Float[Array, "N F"]
    action: Int[Array, " N"]
    episode: Int[Array, " N"]
    gram: Float[Array, "E F F"]  # sums of products of inputs
    steps: Float[Array, " E"]

    def nobody(self) -> Own:
        """The shared policy."""
        return Own(jnp.zeros(()), jnp.zeros((self.inputs.shape[1], self.values.shape[1])))

    def log_likelihood(self, own: Own) -> Float[Array, " E"]:
        """Of the actions of each episode."""
        return self._sums(Categorical(self._logits(own)).log_prob(self.action))

    def learnt(self, own: Own, weight: Float[Array, " E"], width: Scalar) -> Own:
        """The curvature in w is bounded by the largest eigenvalue that it can have on average in an episode."""
        rows, chance = weight[self.episode], jax.nn.softmax(self._logits(own))
        residual = rows[:, None] * self._off(chance)
        turn = jnp.sum(residual * self.values) - own.precision
        turn = turn / (rows @ _variance(chance, self.values) + 1)
        largest = self._sums(2 * jnp.max(chance * (1 - chance), 1)) / self.steps
        curvature = jnp.tensordot(weight * largest, self.gram, 1) + jnp.eye(self.inputs.shape[1]) / width**2
        change = jnp.linalg.solve(curvature, self.inputs.T @ residual - own.weights / width**2)
        return Own(own.precision + STEP * jnp.clip(turn, -0.5, 0.5), own.weights + STEP * change)

    def alone(self, width: Scalar) -> Float[Array, "E P"]:
        """One step from the shared policy."""
        chance = jax.nn.softmax(self.values)
        residual, variance = self._off(chance), _variance(chance, self.values)
        mean = jnp.maximum(jnp.mean(chance * (1 - chance)), 1e-3)
        slope = self._sums(self.inputs[:, :, None] * residual[:, None, :])
        weights = jnp.linalg.solve(mean * self.gram + jnp.eye(self.inputs.shape[1])[None] / width**2, slope)
        turn = self._sums(jnp.sum(residual * self.values, 1)) / (self._sums(variance) + 1)
        return _described(turn * jnp.sqrt(jnp.mean(variance) / mean), weights, self.gram, self.steps)

    def _logits(self, own: Own) -> Float[Array, "N A"]:
        return (1 + own.precision) * self.values + self.inputs @ own.weights

    def _off(self, chance: Float[Array, "N A"]) -> Float[Array, "N A"]:
        return jax.nn.one_hot(self.action, chance.shape[1]) - chance

    def _sums(self, rows: Float[Array, "N ..."]) -> Float[Array, "E ..."]:
        return jax.ops.segment_sum(rows, self.episode, len(self.steps))


class Numbers(AbstractEpisodes):
    """Of vectors, by sums over each episode of what they differ by from the shared policy's, in standard deviations."""

    gram: Float[Array, "E F F"]
    cross: Float[Array, "E F A"]
    square: Float[Array, " E"]
    steps: Float[Array, " E"]

    def nobody(self) -> Own:
        """The shared policy."""
        return Own(jnp.zeros(()), jnp.zeros(self.cross.shape[1:]))

    def log_likelihood(self, own: Own) -> Float[Array, " E"]:
        """But for a constant."""
        number = self.steps * self.cross.shape[2]
        return 0.5 * (number * own.precision - jnp.exp(own.precision) * self._off(own.weights[None]))

    def learnt(self, own: Own, weight: Float[Array, " E"], width: Scalar) -> Own:
        """Exact in the weights, then in the precision."""
        gram, cross = (jnp.exp(own.precision) * jnp.tensordot(weight, each, 1) for each in (self.gram, self.cross))
        weights = jnp.linalg.solve(gram + jnp.eye(len(gram)) / width**2, cross)
        return Own(self._precision(weight @ self.steps, weight @ self._off(weights[None])), weights)

    def alone(self, width: Scalar) -> Float[Array, "E P"]:
        """The estimate from each episode."""
        weights = jnp.linalg.solve(self.gram + jnp.eye(self.gram.shape[1])[None] / width**2, self.cross)
        turn = self._precision(self.steps, self._off(weights))
        return _described(turn * np.sqrt(0.5 * self.cross.shape[2]), weights, self.gram, self.steps)

    def _off(self, weights: Float[Array, "#E F A"]) -> Float[Array, " E"]:
        """Sums of squares of what weights leave unexplained."""
        moved = jnp.sum(
            weights * (jnp.matmul(self.gram, jnp.broadcast_to(weights, self.cross.shape)) - 2 * self.cross), (1, 2)
        )
        return jnp.maximum(self.square + moved, 0.0)

    def _precision(self, steps: Float[Array, "*E"], off: Float[Array, "*E"]) -> Float[Array, "*E"]:
        """Drawn to 0 as if by ten numbers more."""
        return jnp.clip(jnp.log((self.cross.shape[2] * steps + 10) / (off + 10)), -6.0, 6.0)


class Tables(AbstractEpisodes):
    """In an MDP, by counts of actions in states."""

    counts: Float[Array, "E S A"]
    values: Float[Array, "S A"]
    inputs: Float[Array, "S A F"]  # the values, then their derivatives

    def nobody(self) -> Own:
        """The shared policy."""
        return Own(jnp.zeros(()), jnp.zeros(self.inputs.shape[2] - 1))

    def log_likelihood(self, own: Own) -> Float[Array, " E"]:
        """Of the actions of each episode."""
        return jnp.tensordot(self.counts, jax.nn.log_softmax(self._logits(_joined(own))), 2)

    def learnt(self, own: Own, weight: Float[Array, " E"], width: Scalar) -> Own:
        """With the Fisher information for curvature; a step of at most 1 in each entry."""
        here, counts = _joined(own), jnp.tensordot(weight, self.counts, 1)
        chance, prior = jax.nn.softmax(self._logits(here)), self._prior(width)
        visits = jnp.sum(counts, 1)
        slope = jnp.tensordot(counts - visits[:, None] * chance, self.inputs, 2) - prior * here
        fisher = jnp.tensordot(visits, self._information(chance), 1) + jnp.diag(prior)
        step = jnp.linalg.solve(fisher, slope)
        here = here + step / jnp.maximum(jnp.max(jnp.abs(step)), 1.0)
        return Own(here[0], here[1:])

    def alone(self, width: Scalar) -> Float[Array, "E P"]:
        """One step from the shared policy."""
        chance, visits = jax.nn.softmax(self.values), jnp.sum(self.counts, 2)
        information = self._information(chance)
        slope = jnp.tensordot(self.counts - visits[..., None] * chance[None], self.inputs, 2)
        fisher = jnp.tensordot(visits, information, 1) + jnp.diag(self._prior(width))[None]
        found = jnp.linalg.solve(fisher, slope[..., None])[..., 0]
        return found @ _root(jnp.tensordot(jnp.sum(visits, 0) / jnp.sum(visits), information, 1))

    def _logits(self, here: Float[Array, " F"]) -> Float[Array, "S A"]:
        return self.values + jnp.tensordot(self.inputs, here, 1)

    def _prior(self, width: Scalar) -> Float[Array, " F"]:
        return jnp.concatenate([jnp.ones(1), jnp.full(self.inputs.shape[2] - 1, 1 / width**2)])

    def _information(self, chance: Float[Array, "S A"]) -> Float[Array, "S F F"]:
        mean = jnp.einsum("sa,saf->sf", chance, self.inputs)
        return jnp.einsum("sa,saf,sag->sfg", chance, self.inputs, self.inputs) - mean[:, :, None] * mean[:, None, :]


def _variance(chance: Float[Array, "N A"], values: Float[Array, "N A"]) -> Float[Array, " N"]:
    """Of the values of sampled actions."""
    return jnp.sum(chance * values**2, 1) - jnp.sum(chance * values, 1) ** 2


def _described(
    turn: Float[Array, " E"], weights: Float[Array, "E F A"], gram: Float[Array, "E F F"], steps: Float[Array, " E"]
) -> Float[Array, "E P"]:
    """Precision, and weights by what they come to in everyone's states."""
    root = _root(jnp.sum(gram, 0) / jnp.sum(steps))
    return jnp.concatenate([turn[:, None], jnp.einsum("fg,efa->ega", root, weights).reshape(len(turn), -1)], 1)


def _root(matrix: Float[Array, "F F"]) -> Float[Array, "F F"]:
    return jnp.linalg.cholesky(matrix + 1e-6 * jnp.eye(len(matrix)))


def _joined(own: Own) -> Float[Array, " F"]:
    return jnp.concatenate([own.precision[None], own.weights])
