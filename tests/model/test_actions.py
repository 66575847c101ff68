"""Distributions of actions: their densities, samples and bounds, and what a precision and a bias make of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.envs.step import Bounds
from irleed.model.actions import EDGE, Categorical, Softmax, SquashedGaussian, Squashing, log_slope
from irleed.model.mixed import head_of
from irleed.policies.base import Actor

BOUNDS = Bounds([-1.0, 0.0], [3.0, 0.5])
SQUASHING = Squashing.into(BOUNDS)
ONE = SquashedGaussian(jnp.asarray([0.4, -1.0], jnp.float32), jnp.asarray([-0.5, 0.3], jnp.float32), SQUASHING)
LOGITS = jnp.asarray([[0.3, -1.0, 2.0], [5.0, 5.0, -2.0]], jnp.float32)


def nodes(count: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Of a quadrature between two ends."""
    place, weight = np.polynomial.legendre.leggauss(count)
    return (low + 0.5 * (high - low) * (place + 1)).astype(np.float32), 0.5 * (high - low) * weight


def test_the_density_of_actions_integrates_to_one():
    """Over the whole box, in the action's own units."""
    inside = SquashedGaussian(ONE.mean, ONE.log_std - 1, SQUASHING)  # hardly anything of it lies beyond the edge
    ends = zip(BOUNDS.low, BOUNDS.high, strict=True)
    (first, by_first), (second, by_second) = (
        nodes(60, low + EDGE * (high - low) / 2, high - EDGE * (high - low) / 2) for low, high in ends
    )
    grid = np.stack(np.meshgrid(first, second, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(np.asarray(jax.vmap(inside.log_prob)(grid), float)).reshape(60, 60)
    assert by_first @ density @ by_second == pytest.approx(1, abs=2e-3)


def test_samples_have_the_density_that_is_said():
    """Of each sample; and the mean of that over many is minus the entropy, by quadrature."""
    mean, log_std = (jnp.broadcast_to(leaf, (20_000, 2)) for leaf in (ONE.mean, ONE.log_std))
    unit, said = SquashedGaussian(mean, log_std, SQUASHING).sample_unit(jax.random.key(0))
    inside = np.abs(unit).max(1) < 1 - EDGE
    expected = jax.vmap(ONE.log_prob)(SQUASHING.action(jnp.arctanh(unit))) + float(jnp.sum(jnp.log(SQUASHING.half)))
    np.testing.assert_allclose(said[inside], expected[inside], rtol=1e-3, atol=1e-3)
    entropy = 0.0
    for middle, spread in zip(np.asarray(ONE.mean, float), np.exp(np.asarray(ONE.log_std, float)), strict=True):
        place, weight = nodes(200, middle - 8 * spread, middle + 8 * spread)
        density = np.exp(-0.5 * ((place - middle) / spread) ** 2) / spread / np.sqrt(2 * np.pi)
        entropy += weight @ (density * (np.asarray(log_slope(jnp.asarray(place)), float) - np.log(density)))
    assert float(np.mean(said)) == pytest.approx(-entropy, abs=0.03)


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
    """exp(beta (Q + eps)) with Q = -((z - mean)/std)^2/2 and eps = z shift/std^2, normalised numerically."""
    mean, log_std, log_precision, shift = 0.4, -0.5, np.log(3.0), 0.7
    unit = Squashing.into(Bounds([-1.0], [1.0]))
    shared = SquashedGaussian(jnp.asarray([mean], jnp.float32), jnp.asarray([log_std], jnp.float32), unit)
    found = shared.as_demonstrator(jnp.asarray(log_precision, jnp.float32), jnp.asarray([shift], jnp.float32))
    place, weight = nodes(200, -3.0, 3.0)
    std = np.exp(log_std)
    pursued = 3.0 * (-0.5 * ((place - mean) / std) ** 2 + place * shift / std**2)
    density = np.exp(pursued - np.log(weight @ np.exp(pursued)))
    action = jnp.tanh(jnp.asarray(place[:, None], jnp.float32))
    in_z = jax.vmap(lambda a: found.logit(a) - found.log_partition())(action)
    np.testing.assert_allclose(np.exp(in_z), density, atol=2e-3)


def test_a_demonstrator_with_discrete_actions_has_the_products_of_precision_and_biased_values():
    log_precision, bias = jnp.asarray([0.7, -1.0], jnp.float32), 0.1 * LOGITS[::-1]
    found = Categorical(LOGITS).as_demonstrator(log_precision, bias)
    expected = np.exp(np.asarray(log_precision))[:, None] * (np.asarray(LOGITS) + np.asarray(bias))
    np.testing.assert_allclose(found.logits, expected, rtol=1e-6)


@pytest.mark.parametrize("distribution", [Categorical(LOGITS[0]), ONE], ids=["categorical", "gaussian"])
def test_precision_one_and_bias_zero_change_nothing(distribution):
    same = distribution.as_demonstrator(jnp.zeros((), jnp.float32), jnp.zeros_like(jax.tree.leaves(distribution)[0]))
    for one, other in zip(jax.tree.leaves(same), jax.tree.leaves(distribution), strict=True):
        np.testing.assert_array_equal(one, other)


def test_discrete_actions_have_the_probabilities_of_a_softmax_and_occur_as_often():
    distribution = Categorical(LOGITS)
    probability = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    for action in range(3):
        taken = jnp.full(2, action, jnp.int32)
        np.testing.assert_allclose(np.exp(distribution.log_prob(taken)), probability[:, action], rtol=1e-5)
        np.testing.assert_array_equal(distribution.logit(taken), LOGITS[:, action])
    assert distribution.mode().tolist() == [2, 0] and distribution[1].mode() == 0
    np.testing.assert_allclose(distribution.log_partition(), np.log(np.exp(LOGITS).sum(1)), rtol=1e-6)
    np.testing.assert_allclose(np.exp(distribution.uniform_log_prob(taken)), 1 / 3, rtol=1e-6)
    keys = jax.random.split(jax.random.key(0), 8000)
    for sample, expected in ((distribution.sample, probability[0]), (distribution.sample_uniformly, np.full(3, 1 / 3))):
        found = np.bincount(np.asarray(jax.vmap(sample)(keys))[:, 0], minlength=3) / 8000
        np.testing.assert_allclose(found, expected, atol=0.03)


def test_a_head_is_the_one_for_the_actions():
    assert isinstance(head_of(3, 2.0), Softmax) and isinstance(head_of(BOUNDS), Squashing)
    np.testing.assert_array_equal(head_of(3, 2.0)(LOGITS).logits, 2 * LOGITS)
    slope = jax.grad(lambda head: jnp.sum(head(LOGITS).logits))(head_of(3, 2.0))
    assert not np.any(slope.sharpness)  # it is held fixed in training


def test_a_policy_is_greedy_or_samples_within_bounds():
    policy = Actor(lambda observation: jnp.asarray([0.3, -0.2, 0.0, 0.0], jnp.float32), SQUASHING)
    greedy = policy.act(jax.random.key(0), jnp.zeros(3), greedy=True)
    np.testing.assert_allclose(greedy, SQUASHING.action(jnp.asarray([0.3, -0.2], jnp.float32)))
    keys = jax.random.split(jax.random.key(1), 500)
    for act in (lambda key: policy.act(key, jnp.zeros(3)), policy(jnp.zeros(3)).sample_uniformly):
        found = np.asarray(jax.vmap(act)(keys))
        assert np.all(found >= BOUNDS.low) and np.all(found <= BOUNDS.high) and np.all(found.std(0) > 0)
    np.testing.assert_allclose(found.mean(0), 0.5 * (BOUNDS.low + BOUNDS.high), atol=0.2)
