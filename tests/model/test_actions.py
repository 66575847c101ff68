"""Squashed Gaussians: densities are those of what is drawn, and actions stay within their bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.envs.step import Bounds
from irleed.model.actions import EDGE, Gaussian, GaussianPolicy, GaussianView, Squashing, log_slope

BOUNDS = Bounds([-1.0, 0.0], [3.0, 0.5])
SQUASHING = Squashing.into(BOUNDS)
ONE = Gaussian(jnp.asarray([0.4, -1.0], jnp.float32), jnp.asarray([-0.5, 0.3], jnp.float32))


def nodes(count: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Of a quadrature between two ends."""
    place, weight = np.polynomial.legendre.leggauss(count)
    return (low + 0.5 * (high - low) * (place + 1)).astype(np.float32), 0.5 * (high - low) * weight


def test_the_density_of_actions_integrates_to_one():
    """Over the whole box, in the action's own units."""
    inside = Gaussian(ONE.mean, ONE.log_spread - 1)  # hardly anything of it lies beyond the edge
    view = GaussianView(inside, jnp.zeros(2, jnp.float32), SQUASHING)
    ends = zip(BOUNDS.low, BOUNDS.high, strict=True)
    (first, by_first), (second, by_second) = (
        nodes(60, low + EDGE * (high - low) / 2, high - EDGE * (high - low) / 2) for low, high in ends
    )
    grid = np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(np.asarray(jax.vmap(view.log_likelihood)(grid), float)).reshape(60, 60)
    assert by_first @ density @ by_second == pytest.approx(1, abs=2e-3)


def test_what_is_drawn_has_the_density_that_is_said():
    """Of each draw; and the mean of that over many is minus the entropy, by quadrature."""
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (20_000, 2)), ONE)
    z, said = many.draw(jax.random.key(0))
    np.testing.assert_allclose(said, ONE_DENSITY(z) - np.sum(np.asarray(log_slope(z)), -1), rtol=1e-3, atol=1e-3)
    entropy = 0.0
    for mean, log_spread in zip(np.asarray(ONE.mean, float), np.asarray(ONE.log_spread, float), strict=True):
        place, weight = nodes(200, mean - 8 * np.exp(log_spread), mean + 8 * np.exp(log_spread))
        density = np.exp(-0.5 * ((place - mean) / np.exp(log_spread)) ** 2 - log_spread) / np.sqrt(2 * np.pi)
        entropy += weight @ (density * (np.asarray(log_slope(jnp.asarray(place)), float) - np.log(density)))
    assert float(np.mean(said)) == pytest.approx(-entropy, abs=0.03)


def ONE_DENSITY(z):  # noqa: N802
    standard = (np.asarray(z, float) - np.asarray(ONE.mean, float)) / np.exp(np.asarray(ONE.log_spread, float))
    return np.sum(-0.5 * standard**2 - np.asarray(ONE.log_spread, float) - 0.5 * np.log(2 * np.pi), -1)


def test_the_slope_is_exact_where_it_underflows():
    z = np.array([-40.0, -3.0, 0.0, 3.0, 40.0])
    found = np.asarray(log_slope(jnp.asarray(z, jnp.float32)), float)
    np.testing.assert_allclose(found[1:4], np.log1p(-(np.tanh(z[1:4]) ** 2)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[[0, 4]], 2 * np.log(2) - 80, rtol=1e-5)


def test_actions_are_within_bounds_and_come_back():
    z = jnp.asarray([[-50.0, 50.0], [0.3, -0.7]], jnp.float32)
    action = np.asarray(SQUASHING.action(z))
    assert np.all(action >= BOUNDS.low) and np.all(action <= BOUNDS.high)
    np.testing.assert_array_equal(action[0], [BOUNDS.low[0], BOUNDS.high[1]])
    np.testing.assert_allclose(SQUASHING.unsquashed(action[1]), z[1], rtol=1e-4)
    np.testing.assert_allclose(SQUASHING.unsquashed(action[0]), np.arctanh([EDGE - 1, 1 - EDGE]), rtol=1e-4)


def test_a_demonstrator_is_the_product_of_the_shared_values_and_a_linear_bias():
    """exp(beta (Q + eps)) with Q = -((z - mean)/spread)^2/2 and eps = z shift/spread^2, normalised numerically."""
    mean, log_spread, log_precision, shift = 0.4, -0.5, np.log(3.0), 0.7
    found = Gaussian(jnp.asarray([mean], jnp.float32), jnp.asarray([log_spread], jnp.float32)).as_demonstrator(
        jnp.asarray(log_precision, jnp.float32), jnp.asarray([shift], jnp.float32)
    )
    place, weight = nodes(200, -4.0, 6.0)
    spread = np.exp(log_spread)
    pursued = 3.0 * (-0.5 * ((place - mean) / spread) ** 2 + place * shift / spread**2)
    density = np.exp(pursued - np.log(weight @ np.exp(pursued)))
    np.testing.assert_allclose(
        np.exp(jax.vmap(found.log_density)(jnp.asarray(place[:, None], jnp.float32))), density, atol=2e-3
    )


def test_a_policy_acts_by_its_mean_or_draws_and_strays_within_bounds():
    policy = GaussianPolicy(lambda observation: jnp.asarray([0.3, -0.2, 0.0, 0.0], jnp.float32), SQUASHING)
    best = policy.act(jax.random.key(0), jnp.zeros(3), greedy=True)
    np.testing.assert_allclose(best, SQUASHING.action(jnp.asarray([0.3, -0.2], jnp.float32)))
    keys = jax.random.split(jax.random.key(1), 500)
    for act in (policy.act, policy.stray):
        found = np.asarray(jax.vmap(lambda key, act=act: act(key, jnp.zeros(3)))(keys))
        assert np.all(found >= BOUNDS.low) and np.all(found <= BOUNDS.high) and np.all(found.std(0) > 0)
    np.testing.assert_allclose(found.mean(0), 0.5 * (BOUNDS.low + BOUNDS.high), atol=0.2)
