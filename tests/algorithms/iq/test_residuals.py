"""Demonstrators around a shared policy: what they did, how likely it is, and how much they count."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.iq.gaussian_q import GaussianQ, Parameters
from irleed.algorithms.iq.residuals import counts
from irleed.data.transitions import Inputs, Row
from irleed.envs.step import Bounds

SPREAD, SHIFT = np.array([0.05, 0.1, 0.2], np.float32), 0.2


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    """Two numbers seen, one number done within -2 and 2, three demonstrators of log precision 1, 0 and -1."""
    inputs, bounds = Inputs.plain(jnp.zeros(2, jnp.float32)), Bounds([-2.0], [2.0])
    made = GaussianQ(hidden=(8,)).parameters(jax.random.key(0), inputs, bounds, 3)
    precision = jnp.asarray([1.0, 0.0, -1.0], jnp.float32)
    return Parameters(made.actor, made.level, jnp.asarray([-1.0], jnp.float32), precision, made.bias, made.squashing)


def rows(parameters: Parameters, count: int = 6_000) -> Row:
    """What three demonstrators did, off the shared middle action by their spreads."""
    generator = np.random.default_rng(0)
    obs, who = generator.normal(size=(count, 2)).astype(np.float32), np.arange(count, dtype=np.int32) % 3
    middle = jnp.tanh(jax.vmap(parameters.policy.gaussian)(obs).mean)
    action = 2 * (middle + SPREAD[who][:, None] * generator.normal(size=(count, 1)))
    return Row(obs, obs, np.asarray(action, np.float32), np.ones(count, np.float32), who, obs)


@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_whoever_is_more_precise_counts_for_more(parameters, sharpness):
    """By precision to the power of the sharpness, one on average over the rows that are counted."""
    who, counted = jnp.asarray([0, 1, 2, 2]), jnp.asarray([1.0, 1.0, 1.0, 0.0], jnp.float32)
    count = np.asarray(counts(parameters.log_precision, who, sharpness, counted))
    np.testing.assert_allclose(count[:3].mean(), 1, rtol=1e-5)
    np.testing.assert_allclose(count / count[1], np.exp(sharpness * np.array([1, 0, -1, -1])), rtol=1e-5)


def test_likelihoods_are_densities_of_actions(parameters):
    """They integrate to one over what can be done; and the misfit is made of them."""
    seen, place = jnp.asarray([0.3, -0.2], jnp.float32), np.linspace(-6, 6, 4001, dtype=np.float32)[:, None]
    view = parameters.view(seen, jnp.asarray(0), jnp.asarray([SHIFT], jnp.float32))
    likelihood = np.asarray(jax.vmap(view.log_likelihood)(place))
    assert np.trapezoid(np.exp(likelihood), place[:, 0]) == pytest.approx(1, rel=1e-3)
    one = Row(*(np.asarray(x) for x in (seen[None], seen[None], place[:1], np.ones(1), np.zeros(1, np.int32), seen)))
    scale = np.log(2) + 0.5 * np.log(2 * np.pi)
    misfit = float(parameters.misfit(one, jnp.asarray([[SHIFT]], jnp.float32)))
    assert misfit == pytest.approx(-float(likelihood[0]) - scale, rel=1e-4)


def test_a_bias_is_told_in_spreads_and_without_one_it_is_unknown(parameters):
    seen = jnp.asarray([0.3, -0.2], jnp.float32)
    mean = float(parameters.policy.gaussian(seen).mean[0])
    size, _ = parameters.view(seen, jnp.asarray(1), jnp.asarray([SHIFT], jnp.float32)).sizes()
    off = (np.tanh(mean + SHIFT) - np.tanh(mean)) / np.exp(-1.0)
    assert float(size) == pytest.approx(off**2, rel=1e-4)
    assert np.isnan(parameters.view(seen, jnp.asarray(1), None).sizes()[0])


def test_the_likeliest_precisions_are_the_true_ones(parameters):
    """At true spreads, the misfit has no slope in precisions and in the common spread; at others it has."""
    precision = -2 * np.log(SPREAD) - np.mean(-2 * np.log(SPREAD))
    places = (lambda p: p.log_spread, lambda p: p.log_precision)

    def at(log_spread: float, log_precision: np.ndarray) -> Parameters:
        values = jnp.asarray([log_spread], jnp.float32), jnp.asarray(log_precision, jnp.float32)
        return eqx.tree_at(lambda p: tuple(place(p) for place in places), parameters, values)

    true = at(float(np.mean(np.log(SPREAD))), precision)
    done, still = rows(true), jnp.zeros((6_000, 1), jnp.float32)
    slope = jax.grad(lambda p: p.misfit(done, still))
    wrong = at(float(np.mean(np.log(SPREAD))) + 0.2, precision[::-1])
    for place in places:
        assert np.abs(place(slope(true))).max() < 0.03 < np.abs(place(slope(wrong))).max()


@pytest.mark.optax
def test_gradients_are_those_of_finite_differences(parameters, check_gradients):
    """Of all that is learnt of demonstrators: their spread, precisions and how far they are off."""
    done, places = rows(parameters, 30), lambda p: (p.log_spread, p.log_precision)

    def misfit(learnt):
        return eqx.tree_at(places, parameters, learnt[:2]).misfit(done, learnt[2])

    check_gradients(misfit, (*places(parameters), 0.1 * jnp.ones((30, 1), jnp.float32)))
