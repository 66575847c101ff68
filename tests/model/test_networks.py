"""Networks: what one computes, many at once, and what a thousand demonstrators cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.data.transitions import Inputs
from irleed.model.networks import Independent, Linear, LowRank, Mlp, biases

OBS = np.array([0.5, -1.0, 2.0], np.float32)
PLAIN = Inputs.plain(OBS)


@pytest.mark.parametrize("activation", ["elu", "relu", "norm_relu"])
def test_a_perceptron_by_hand(activation):
    network = Mlp.init(jax.random.key(0), PLAIN, (5, 4, 2), activation)
    x = OBS.astype(float)
    for weight, offset in zip(network.weights[:-1], network.offsets[:-1], strict=True):
        x = x @ np.asarray(weight, float) + np.asarray(offset)
        if activation == "norm_relu":
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        x = np.where(x > 0, x, np.expm1(x) if activation == "elu" else 0.0)
    np.testing.assert_allclose(network(OBS), x @ network.weights[-1] + network.offsets[-1], rtol=1e-4, atol=1e-6)


def test_layer_norm_bounds_what_a_network_says_however_far_from_the_data():
    far = OBS * 10.0 ** np.arange(3, 8, dtype=np.float32)[:, None]
    plain, normed = (Mlp.init(jax.random.key(0), PLAIN, (16, 16, 2), kind) for kind in ("elu", "norm_relu"))
    assert np.abs(jax.vmap(plain)(far)).max() > 1e4
    # Each of the last hidden units is at most sqrt(16), as their mean square is 1 before they are rectified.
    bound = 4 * np.abs(normed.weights[-1]).sum(0) + np.abs(normed.offsets[-1])
    assert (np.abs(jax.vmap(normed)(far)) <= bound).all()


def test_weights_start_within_their_bound_and_fill_it():
    network = Mlp.init(jax.random.key(0), Inputs.plain(np.zeros((4, 25))), (50, 2))
    for part in (network.weights[0], network.offsets[0]):
        assert np.abs(part).max() <= 0.1 and np.abs(part).max() > 0.08
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(network))


def test_observations_are_standardised_and_how_is_not_learnt():
    own = Inputs(np.array([1.0, -2.0, 0.0], np.float32), np.array([0.5, 4.0, 1.0], np.float32))
    plain, network = (Mlp.init(jax.random.key(0), inputs, (5, 2)) for inputs in (PLAIN, own))
    np.testing.assert_allclose(network(OBS), plain((OBS - own.centre) / own.spread), rtol=1e-6)
    gradient = jax.grad(lambda network: jnp.sum(network(OBS)))(network)
    assert not np.any(gradient.inputs.centre) and not np.any(gradient.inputs.spread)
    assert np.any(gradient.weights[0])


def test_an_observation_may_have_any_shape():
    image = np.arange(6, dtype=np.float32).reshape(2, 3)
    network = Mlp.init(jax.random.key(0), Inputs.plain(image), (2,))
    np.testing.assert_allclose(network(image), image.ravel() @ network.weights[0] + network.offsets[0], rtol=1e-5)


@pytest.mark.parametrize("kind", [Independent, LowRank])
def test_every_demonstrator_has_a_bias_of_their_own(kind):
    bias = kind.init(jax.random.key(0), 3, PLAIN, (8, 2))
    if kind is LowRank:
        np.testing.assert_array_equal(bias(OBS[None], jnp.asarray([1])), 0)  # nobody is biased at first
        bias = jax.tree.map(lambda leaf: leaf + jax.random.normal(jax.random.key(1), leaf.shape), bias)
    each = np.asarray(bias(np.tile(OBS, (3, 1)), jnp.arange(3)))
    assert not np.allclose(each[0], each[1]) and not np.allclose(each[1], each[2])
    if kind is Independent:
        second = jax.tree.map(lambda leaf: leaf[1], bias.network)
        np.testing.assert_allclose(each[1], second(OBS), rtol=1e-5)


def test_linear_biases_are_everyones_own_and_their_mean_is_a_direct_path():
    """Of observations of any shape, standardised as networks see them."""
    images = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    inputs = Inputs(images.mean(0), images.std(0))
    bias, who = Linear.init(3, inputs, 2), jnp.asarray([2, 0, 1, 1, 0])
    np.testing.assert_array_equal(bias(images, who), np.zeros((5, 2)))  # nobody is biased at first
    drawn = [jax.random.normal(jax.random.key(n), leaf.shape) for n, leaf in enumerate((bias.weights, bias.offsets))]
    bias = Linear(inputs, *drawn)
    seen = ((images - inputs.centre) / inputs.spread).reshape(5, -1)
    every = np.einsum("bf,dfa->dba", seen, bias.weights) + np.asarray(bias.offsets)[:, None]
    np.testing.assert_allclose(bias(images, who), every[who, np.arange(5)], atol=1e-5)
    network, say = Mlp.init(jax.random.key(2), inputs, (8, 2)), np.array([0.5, 0.2, 0.3], np.float32)
    found = jax.vmap(bias.added_to(network, say, 0.3))(images)
    np.testing.assert_allclose(found, jax.vmap(network)(images) + 0.3 * np.tensordot(say, every, 1), atol=1e-5)


@pytest.mark.parametrize("rank", [None, 4])
def test_biases_that_nobody_learns_are_nought_and_cost_nothing(rank):
    bias = biases(jax.random.key(0), 3, Inputs.plain(OBS), (8, 8, 2), "relu", rank, learnt=False)
    assert sum(leaf.size for leaf in jax.tree.leaves(bias)) == 0
    np.testing.assert_array_equal(bias(np.tile(OBS, (3, 1)), jnp.arange(3)), np.zeros((3, 2)))


def test_a_thousand_demonstrators_cost_little():
    """Parameters and the memory of a gradient grow by the heads alone."""

    def cost(demonstrators):
        observations = jnp.zeros((32, 8), jnp.float32)
        bias = LowRank.init(jax.random.key(0), demonstrators, Inputs.plain(observations[0]), (64, 64, 4), rank=4)
        who = jnp.arange(32) % demonstrators

        def loss(bias):
            return jnp.sum(bias(observations, who) ** 2)

        analysis = jax.jit(jax.grad(loss)).lower(bias).compile().memory_analysis()
        return sum(leaf.size for leaf in jax.tree.leaves(bias)), analysis.temp_size_in_bytes

    (few, little), (many, more) = cost(3), cost(1000)
    assert many - few == 997 * 4 * 4
    assert more - little < 1_000_000
