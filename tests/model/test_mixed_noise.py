"""Demonstrators as noise around a shared policy: the likelihood of their actions, their biases, their precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.data.transitions import Inputs, Row
from irleed.envs.step import Bounds
from irleed.model import mixed
from irleed.policies.base import Actor

SPREAD, BIAS = np.array([0.05, 0.1, 0.2], np.float32), 0.2
LOG_STD, LOG_PRECISION = jnp.asarray([-1.0], jnp.float32), jnp.asarray([1.0, 0.0, -1.0], jnp.float32)
SEEN = jnp.asarray([0.3, -0.2], jnp.float32)
SHIFT = jnp.asarray([BIAS], jnp.float32)


@pytest.fixture(scope="module")
def actor() -> Actor:
    """Observations of two numbers, actions of one number within -2 and 2."""
    inputs = Inputs.plain(jnp.zeros(2, jnp.float32))
    return Actor.init(jax.random.key(0), inputs, Bounds([-2.0], [2.0]), (8,), "norm_relu")


def rows(actor: Actor, count: int = 6_000) -> Row:
    """Actions of three demonstrators: noise of each one's own standard deviation around the shared greedy action."""
    generator = np.random.default_rng(0)
    obs, who = generator.normal(size=(count, 2)).astype(np.float32), np.arange(count, dtype=np.int32) % 3
    middle = jnp.tanh(actor.batch(obs).mean)
    action = 2 * (middle + SPREAD[who][:, None] * generator.normal(size=(count, 1)))
    return Row(obs, obs, np.asarray(action, np.float32), np.ones(count, np.float32), who, obs)


def test_likelihoods_are_densities_of_actions(actor):
    """They integrate to one over all actions; and the misfit is made of them."""
    place = np.linspace(-6, 6, 4001, dtype=np.float32)[:, None]
    given = actor(SEEN), LOG_STD, LOG_PRECISION
    found = jax.vmap(lambda action: mixed.noise_description(*given, jnp.asarray(0), SHIFT, action).log_prob)(place)
    assert np.trapezoid(np.exp(found), place[:, 0]) == pytest.approx(1, rel=1e-3)
    one = Row(*(np.asarray(x) for x in (SEEN[None], SEEN[None], place[:1], np.ones(1), np.zeros(1, np.int32), SEEN)))
    scale = np.log(2) + 0.5 * np.log(2 * np.pi)
    misfit = mixed.noise_loss(actor.batch(SEEN[None]), LOG_STD, LOG_PRECISION, one, SHIFT[None])
    assert float(misfit) == pytest.approx(-float(found[0]) - scale, rel=1e-4)


def test_a_bias_is_measured_in_noise_and_unknown_where_none_is_learnt(actor):
    mean, action = float(actor(SEEN).mean[0]), jnp.zeros(1, jnp.float32)
    given = actor(SEEN), LOG_STD, LOG_PRECISION, jnp.asarray(1)
    moved = (np.tanh(mean + BIAS) - np.tanh(mean)) / np.exp(-1.0)
    assert float(mixed.noise_description(*given, SHIFT, action).bias) == pytest.approx(moved**2, rel=1e-4)
    without = mixed.noise_description(*given, None, action)
    assert np.isnan(without.bias)
    assert without.log_prob == mixed.noise_description(*given, jnp.zeros(1, jnp.float32), action).log_prob


def test_the_most_likely_precisions_are_the_true_ones(actor):
    """There, the misfit has no slope in precisions and in the common standard deviation; elsewhere it has."""
    precision = -2 * np.log(SPREAD) - np.mean(-2 * np.log(SPREAD))
    done, still = rows(actor), jnp.zeros((6_000, 1), jnp.float32)
    shared = actor.batch(done.obs)
    slope = jax.grad(
        lambda log_std, log_precision: mixed.noise_loss(shared, log_std, log_precision, done, still), (0, 1)
    )
    level = jnp.asarray([np.mean(np.log(SPREAD))], jnp.float32)
    true = slope(level, jnp.asarray(precision, jnp.float32))
    wrong = slope(level + 0.2, jnp.asarray(precision[::-1].copy(), jnp.float32))
    for right, other in zip(true, wrong, strict=True):
        assert np.abs(right).max() < 0.03 < np.abs(other).max()


def test_the_shared_policy_learns_nothing_from_the_misfit(actor):
    done, still = rows(actor, 30), jnp.full((30, 1), 0.1, jnp.float32)
    slope = jax.grad(lambda own: mixed.noise_loss(own.batch(done.obs), LOG_STD, LOG_PRECISION, done, still))(actor)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slope))


@pytest.mark.optax
def test_gradients_are_those_of_finite_differences(actor, check_gradients):
    """Of all that is learnt of demonstrators: their noise, precisions and biases."""
    done = rows(actor, 30)
    shared = actor.batch(done.obs)

    def misfit(learnt):
        return mixed.noise_loss(shared, learnt[0], learnt[1], done, learnt[2])

    check_gradients(misfit, (LOG_STD, LOG_PRECISION, 0.1 * jnp.ones((30, 1), jnp.float32)))
