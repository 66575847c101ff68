"""Vectors some of whose entries are choices: their probabilities and densities, samples, demonstrators, averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.envs.step import Bounds
from irleed.model.actions import Categorical, SquashedGaussian, Squashing
from irleed.model.mixed import Mixed, Mixing, bias_size, head_of, outputs_of, spread_size

# A number, a gripper, and a torque that is often at one of its bounds.
BOUNDS = Bounds([-1.0, 0.0, -2.0], [1.0, 1.0, 2.0], [(), (0.0, 1.0), (-2.0, 2.0)], [True, False, True])
ONE = Mixed(
    (Categorical(jnp.asarray([0.3, -0.5], jnp.float32)), Categorical(jnp.asarray([0.1, -1.0, 0.7], jnp.float32))),
    SquashedGaussian(
        jnp.asarray([0.3, -0.4], jnp.float32), jnp.asarray([-1.2, -1.0], jnp.float32), Squashing.into(BOUNDS.inside)
    ),
    BOUNDS,
)


def total(log_prob) -> float:
    """The sum over all options and the integral over all else."""
    place, weight = np.polynomial.legendre.leggauss(40)
    place = 0.999 * place
    found = 0.0
    for gripper in (0.0, 1.0):
        for torque, by_torque in ((np.array([-2.0]), [1]), (np.array([2.0]), [1]), (2 * place, 2 * weight)):
            grid = np.stack([each.ravel() for each in np.meshgrid(place, [gripper], torque, indexing="ij")], -1)
            density = np.exp(np.asarray(jax.vmap(log_prob)(jnp.asarray(grid, jnp.float32)), float))
            found += weight @ density.reshape(len(place), -1) @ by_torque
    return found


def test_probabilities_and_densities_sum_to_one():
    assert total(ONE.log_prob) == pytest.approx(1, abs=5e-3)
    assert total(ONE.uniform_log_prob) == pytest.approx(1, abs=5e-3)


def test_without_choices_it_is_the_squashed_gaussian():
    plain = Mixed((), ONE.inside, BOUNDS.inside)
    for action in ([0.3, -0.4], [0.9, 1.9]):
        taken = jnp.asarray(action, jnp.float32)
        assert float(plain.log_prob(taken)) == pytest.approx(float(ONE.inside.log_prob(taken)), rel=1e-5)
        assert float(plain.noise_log_prob(taken)) == pytest.approx(float(ONE.inside.noise_log_prob(taken)), rel=1e-5)


@pytest.mark.parametrize("way", ["sample", "sample_uniformly"])
def test_samples_occur_as_often_as_is_said(way):
    found = np.asarray(jax.vmap(getattr(ONE, way))(jax.random.split(jax.random.key(0), 8000)))
    first, second = (np.asarray(choice.logits, float) for choice in ONE.choices)
    if way == "sample_uniformly":
        first, second = np.zeros(2), np.zeros(3)
    expected = [np.exp(each) / np.exp(each).sum() for each in (first, second)]
    assert set(np.unique(found[:, 1])) == {0.0, 1.0}
    np.testing.assert_allclose(np.mean(found[:, 1]), expected[0][1], atol=0.03)
    at_bound = [np.mean(found[:, 2] == value) for value in (-2.0, 2.0)]
    np.testing.assert_allclose(at_bound, expected[1][:2], atol=0.03)
    assert np.abs(found[:, [0, 2]]).max() <= 2 and len(np.unique(found[:, 0])) > 7000


def test_the_greedy_action_is_made_of_the_most_probable_options():
    np.testing.assert_allclose(ONE.mode(), [np.tanh(0.3), 0.0, 2 * np.tanh(-0.4)], rtol=1e-5)
    sure = Mixed((ONE.choices[0], Categorical(jnp.asarray([0.0, 9.0, 0.0], jnp.float32))), ONE.inside, BOUNDS)
    np.testing.assert_allclose(sure.mode(), [np.tanh(0.3), 0.0, 2.0], rtol=1e-5)


def test_a_demonstrator_has_the_products_of_precision_and_biased_values():
    """Eq. 5 for the options of a choice, and for the z of what is free."""
    bias = jnp.asarray([0.1, 0.2, -0.3, 0.4, 0.5, 0.6, -0.7], jnp.float32)
    assert bias.size == bias_size(BOUNDS)
    own = ONE.as_demonstrator(jnp.log(3.0), bias)
    np.testing.assert_allclose(own.choices[1].logits, 3 * (ONE.choices[1].logits + bias[2:5]), rtol=1e-5)
    np.testing.assert_allclose(own.inside.mean, ONE.inside.mean + bias[5:], rtol=1e-5)
    np.testing.assert_allclose(own.inside.log_std, ONE.inside.log_std - 0.5 * np.log(3), rtol=1e-5)
    same = ONE.as_demonstrator(jnp.zeros((), jnp.float32), ONE.no_bias())
    for one, other in zip(jax.tree.leaves(same), jax.tree.leaves(ONE), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_head_gives_it_for_a_batch_and_averages_members():
    head = head_of(BOUNDS)
    assert isinstance(head, Mixing) and spread_size(BOUNDS) == 4
    output = jax.random.normal(jax.random.key(0), (5, outputs_of(BOUNDS)), jnp.float32)
    batch, action = head(output), jnp.asarray([[0.1, 1.0, -2.0]] * 5, jnp.float32)
    single = jax.vmap(lambda own, taken: head(own).log_prob(taken))(output, action)
    np.testing.assert_allclose(batch.log_prob(action), single, rtol=1e-5)
    np.testing.assert_allclose(batch[2].log_prob(action[2]), single[2], rtol=1e-5)
    members = jax.tree.map(lambda leaf: jnp.stack([leaf] * 5), head)
    mean = members.averaged(output)
    each = jnp.stack([jax.nn.log_softmax(own) for own in batch.choices[1].logits])
    np.testing.assert_allclose(mean.choices[1].logits, jnp.mean(each, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean.inside.mean, jnp.mean(batch.inside.mean, 0), rtol=1e-4, atol=1e-5)


def test_values_are_told_apart_from_numbers_that_are_near():
    action = jnp.asarray([[0.0, 0.9, -2.0], [0.0, 0.2, -1.9], [0.0, 0.0, 1.9999]], jnp.float32)
    batch = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (3, *leaf.shape)), (ONE.choices, ONE.inside.mean))
    found = Mixed(batch[0], SquashedGaussian(batch[1], batch[1], ONE.inside.squashing), BOUNDS)
    assert [option.tolist() for option in found.options(action)] == [[1, 0, 0], [0, 2, 1]]
    np.testing.assert_array_equal(found.is_inside(action), [[1, 0], [1, 1], [1, 0]])


def test_the_mean_of_an_action_is_that_of_its_samples_where_nothing_is_free():
    """Scaled to bounds from -1 to 1."""
    bounds = Bounds([0.0], [4.0], [(0.0, 1.0, 4.0)], [False])
    own = head_of(bounds)(jnp.asarray([0.3, 0.1, -0.4], jnp.float32))
    drawn = np.asarray(jax.vmap(own.sample)(jax.random.split(jax.random.key(0), 8000)))
    assert float(own.unit_mean()[0]) == pytest.approx(float(drawn.mean()) / 2 - 1, abs=0.03)


def test_demonstrators_noise_is_a_distribution_too():
    noisy = ONE.with_noise(jnp.asarray([-2.0, -1.5, 0.5, -0.5], jnp.float32))
    np.testing.assert_allclose(noisy.choices[0].logits, np.exp(-0.5) * ONE.choices[0].logits, rtol=1e-5)
    assert total(noisy.noise_log_prob) == pytest.approx(1, abs=2e-2)
