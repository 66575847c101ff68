"""Posterior draws of the precisions against integrals computed another way, and against the truth."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from irleed.algorithms.tabular import posterior as intervals
from irleed.model.expertise import INTERVAL

PRIOR = 0.1
KEY = 3


@jax.jit
def draws_of(log_precision, weights, covariance, perceived, gradient, hessian):
    spectrum = intervals.diagonalise(weights, covariance, perceived, gradient, hessian)
    return intervals.precision_draws(jax.random.key(KEY), log_precision, *spectrum, PRIOR)


def problem_of(seed: int, demonstrators: int, features: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(features, features))
    curved = generator.normal(size=(demonstrators, features, features))
    return (
        generator.normal(size=demonstrators),
        generator.normal(size=features),
        root @ root.T + 0.1 * np.eye(features),
        generator.normal(size=(demonstrators, features)),
        generator.normal(size=(demonstrators, features)),
        curved @ curved.transpose(0, 2, 1) + 0.1 * np.eye(features),
    )


def by_quadrature(log_precision, weights, covariance, perceived, gradient, hessian) -> float:
    """One feature: the integral over u of likelihood times prior, as a sum over a fine grid."""
    centre, width = np.exp(log_precision) * weights[0], np.exp(log_precision) * np.sqrt(covariance[0, 0])
    u = np.linspace(centre - 12 * width, centre + 12 * width, 200_001)
    likelihood = -gradient[0] * (u - perceived[0]) - 0.5 * hessian[0, 0] * (u - perceived[0]) ** 2
    prior = -0.5 * ((u - centre) / width) ** 2 - np.log(width)
    return logsumexp(likelihood + prior) + np.log(u[1] - u[0]) - 0.5 * PRIOR * log_precision**2


def by_convolution(log_precision, weights, covariance, perceived, gradient, hessian) -> float:
    """Many features: the likelihood's mean, seen through the sum of its covariance and the prior's."""
    precision, noise = np.exp(log_precision), np.linalg.inv(hessian)
    seen = multivariate_normal(precision * weights, noise + precision**2 * covariance)
    return seen.logpdf(perceived - noise @ gradient) - 0.5 * PRIOR * log_precision**2


@pytest.mark.parametrize("features, log_density", [(1, by_quadrature), (3, by_convolution)])
def test_draws_are_quantiles_of_the_integrated_posterior(features, log_density):
    """Each demonstrator's draws are evenly spread over their own posterior; then all are centred together."""
    log_precision, weights, covariance, *own = problem = problem_of(features, 2, features)
    offset = np.linspace(-intervals.GRID_BELOW, intervals.GRID_ABOVE, intervals.GRID_POINTS)
    expected = []
    for i, key in enumerate(jax.random.split(jax.random.key(KEY), 2)):
        grid = log_precision[i] + offset
        density = np.array([log_density(at, weights, covariance, *(part[i] for part in own)) for at in grid])
        cumulative = np.cumsum(np.exp(density - density.max()))
        levels = (np.asarray(jax.random.permutation(key, intervals.DRAWS)) + 0.5) / intervals.DRAWS
        expected.append(np.interp(levels, cumulative / cumulative[-1], grid))
    found = draws_of(*problem)
    np.testing.assert_allclose(found, np.transpose(expected) - np.mean(expected, 0)[:, None], atol=1e-6)
    np.testing.assert_allclose(np.mean(found, -1), 0, atol=1e-12)


def test_much_data_narrow_no_data_wide_and_far_down():
    """Nine features; of three demonstrators, one known well, one a little, one not at all."""
    weights, hessian = np.ones(9), np.eye(9) * np.array([1e4, 3.0, 0.0])[:, None, None]
    perceived = np.tile(weights, (3, 1))
    given = np.zeros(3), weights, 0.05 * np.eye(9), perceived, np.zeros((3, 9)), hessian
    draws = np.asarray(draws_of(*given))
    # Differences from the best known are what is known apart from the gauge.
    low, high = np.quantile(draws[:, 1:] - draws[:, :1], [0.05, 0.95], axis=0)
    assert high[0] - low[0] < 1.0
    assert high[1] - low[1] > 5.0 and low[1] < -4.0


def test_an_idle_demonstrator_in_a_fit(batch):
    """Nobody has seen the last one act: the interval reaches far down, what is known of the others stays narrow."""
    draws = batch.judgement.log_precision_draws[-1]
    np.testing.assert_allclose(batch.judgement.log_precision_draws.mean(-1), 0, atol=1e-12)
    seen = np.quantile(draws[:, 1] - draws[:, 0], [0.05, 0.95])
    idle = np.quantile(draws[:, 2] - draws[:, 0], [0.05, 0.95])
    assert np.ptp(seen) < 0.4 * np.ptp(idle)
    assert idle[0] < -3
    np.testing.assert_allclose(batch.judgement.information[-1, 2], 0, atol=1e-12)


def test_intervals_cover_the_truth(batch):
    """Nine in ten, give or take what forty data sets can tell; and not by being endlessly wide."""
    tail = (1 - INTERVAL) / 2
    low, high = np.quantile(batch.judgement.log_precision_draws[:-1], [tail, 1 - tail], axis=1)
    truth = batch.true_log_precision[:-1]
    inside = (truth >= low) & (truth <= high)
    assert inside.shape == (40, 3)
    assert 0.75 <= inside.mean() <= 1.0
    assert np.median(high - low) < 2.5
