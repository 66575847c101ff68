"""The width of a prior is learnt where its evidence is largest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from irleed.algorithms.tabular.posterior import LARGEST_INVERSE, LONGEST_STEP, PRIOR_PARAMETERS, Width

learn = jax.jit(Width.learn)


@pytest.mark.parametrize("start", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("spread", [0.2, 3.0])
def test_the_fixed_point_is_the_largest_evidence(start, spread):
    """Forty values seen through noise of known variance: the evidence of a width is a product of Gaussians."""
    generator = np.random.default_rng(0)
    noise = generator.uniform(0.05, 2.0, 40)
    seen = spread * generator.normal(size=40) + np.sqrt(noise) * generator.normal(size=40)

    def negative_log_evidence(log_inverse):
        inverse = np.exp(log_inverse)
        variance = 1 / inverse + noise
        more = PRIOR_PARAMETERS * (log_inverse - inverse / LARGEST_INVERSE)  # the parameters as if seen
        return 0.5 * np.sum(np.log(variance) + seen**2 / variance) - 0.5 * more

    best = scipy.optimize.minimize_scalar(negative_log_evidence, bounds=(-8, 12), options={"xatol": 1e-10})
    width = Width.starting(start)
    for _ in range(100):
        known = 1 / (1 / noise + width.inverse)  # the posterior variance of each value
        width = learn(width, jnp.asarray(seen / noise * known), 40 - width.inverse * jnp.sum(known))
    np.testing.assert_allclose(np.log(width.inverse), best.x, atol=1e-4)
    np.testing.assert_allclose(width.to_gain(jnp.asarray(40.0)), 0, atol=1e-12)


def test_values_that_are_nothing_reach_the_largest_inverse():
    """Biases of no size at all are as good as known: their inverse variance stops at its bound."""
    width = Width.starting(1.0)
    for _ in range(60):
        width = learn(width, jnp.zeros(5), jnp.asarray(0.0))
    np.testing.assert_allclose(width.inverse, LARGEST_INVERSE, rtol=1e-9)


@pytest.mark.parametrize("values", [0.0, 1e6])
def test_a_step_is_cut(values):
    width = learn(Width.starting(1.0), jnp.full(5, values), jnp.asarray(5.0))
    np.testing.assert_allclose(abs(np.log(width.inverse)), LONGEST_STEP)
    np.testing.assert_allclose(abs(width.step), LONGEST_STEP)
    np.testing.assert_allclose(width.to_gain(jnp.asarray(4.0)), 0.5 * 4 * LONGEST_STEP**2)


def test_what_is_not_yet_learnt_has_all_to_gain():
    assert Width.starting(2.0).to_gain(jnp.asarray(1.0)) == np.inf


def test_a_width_at_its_limit_has_arrived():
    """Who may go no further has nothing to gain: an estimate held by the limit converges."""
    width, limit = Width.starting(1.0), jnp.asarray(2.0)
    for _ in range(3):
        width = learn(width, jnp.zeros(5), jnp.asarray(5.0)).limited(limit)
    assert width.inverse == limit and abs(width.step) < 1e-12
