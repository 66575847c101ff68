"""The factorised Hessian against the same matrix written out in full."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.algorithms.tabular import posterior as laplace

SHAPES = [(1, 3), (3, 2), (4, 3)]  # demonstrators, features


@functools.partial(jax.jit, static_argnames=("learn_bias", "learn_precision"))
def factorise(problem, rhs, learn_bias, learn_precision):
    found, evidence = laplace.factorise(**problem, learn_bias=learn_bias, learn_precision=learn_precision)
    return found.gauged_solve(*rhs), found.bias_norm_variance(rhs[1]), evidence, found.weights_covariance


def problem_of(seed: int, demonstrators: int, features: int) -> dict:
    """Curvatures as data give them: of any rank, strong or weak."""
    generator = np.random.default_rng(seed)
    rank = generator.integers(1, features + 2)
    root = generator.normal(size=(demonstrators, features, rank)) * np.exp(generator.normal(size=(demonstrators, 1, 1)))
    log_precision = generator.normal(size=demonstrators)
    return {
        "precision": np.exp(log_precision - log_precision.mean()),
        "perceived": generator.normal(size=(demonstrators, features)),
        "hessian": root @ root.transpose(0, 2, 1),
        "weight_prior": np.exp(generator.normal()),
        "bias_prior": np.exp(generator.normal()),
        "precision_prior": np.exp(generator.normal(size=demonstrators)),
    }


def dense(problem: dict) -> np.ndarray:
    """The Gauss-Newton Hessian in (weights, biases, log precisions): a sum over demonstrators, and the priors."""
    (demonstrators, features), hessian = problem["perceived"].shape, problem["hessian"]
    size = features + demonstrators * features + demonstrators
    prior = np.full(size, problem["bias_prior"])
    prior[:features], prior[size - demonstrators :] = problem["weight_prior"], problem["precision_prior"]
    total = np.diag(prior)
    for i, (precision, u) in enumerate(zip(problem["precision"], problem["perceived"], strict=True)):
        slope = np.zeros((features, size))  # of u_i
        slope[:, :features] = slope[:, features * (1 + i) : features * (2 + i)] = precision * np.eye(features)
        slope[:, size - demonstrators + i] = u
        total += slope.T @ hessian[i] @ slope
    return total


def right_hand_side(seed: int, demonstrators: int, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed + 1)
    shapes = (features, (demonstrators, features), demonstrators)
    weights, bias, log_precision = (generator.normal(size=shape) for shape in shapes)
    return weights, bias, log_precision


@given(
    st.integers(0, 2**32 - 2),
    st.sampled_from([(shape, True, True) for shape in SHAPES] + [((3, 2), False, True), ((3, 2), True, False)]),
)
def test_a_solution_under_the_gauge(seed, case):
    """Also with biases or precisions held fixed; the constraint is bordered on to the dense matrix."""
    shape, learn_bias, learn_precision = case
    demonstrators, features = shape
    problem, rhs = problem_of(seed, *shape), right_hand_side(seed, *shape)
    rhs = (rhs[0], rhs[1] * learn_bias, rhs[2] * learn_precision)  # what is held fixed pulls at nothing
    step, shift, turn = factorise(problem, rhs, learn_bias, learn_precision)[0]
    size = features + demonstrators * features + demonstrators
    bordered = np.zeros((size + 1, size + 1))
    bordered[:size, :size] = dense(problem)
    bordered[size, size - demonstrators : size] = bordered[size - demonstrators : size, size] = 1
    free = np.ones(size + 1, bool)
    free[features : size - demonstrators] = learn_bias
    free[size - demonstrators :] = learn_precision
    whole = np.concatenate([rhs[0], rhs[1].ravel(), rhs[2], [0]])
    expected = np.zeros(size + 1)
    expected[free] = np.linalg.solve(bordered[np.ix_(free, free)], whole[free])
    found = np.concatenate([step, np.ravel(shift), turn])
    np.testing.assert_allclose(found, expected[:size], rtol=1e-7, atol=1e-8 * np.abs(expected).max())
    np.testing.assert_allclose(np.sum(turn), 0, atol=1e-9 * np.abs(found).max())


@given(st.integers(0, 2**32 - 2), st.sampled_from(SHAPES))
def test_what_integrating_out_contributes(seed, shape):
    """`parameters` is a derivative of half a log determinant; what is determined, size less prior times variance."""
    demonstrators, features = shape
    problem = problem_of(seed, *shape)
    evidence = factorise(problem, right_hand_side(seed, *shape), True, True)[2]
    inner = features + demonstrators * features

    def half_log_determinant(turn):
        precision = problem["precision"] * np.exp(turn)
        return 0.5 * np.linalg.slogdet(dense({**problem, "precision": precision})[:inner, :inner])[1]

    nudges = 1e-5 * np.eye(demonstrators)
    slope = [(half_log_determinant(nudge) - half_log_determinant(-nudge)) / 2e-5 for nudge in nudges]
    np.testing.assert_allclose(evidence.parameters, slope, rtol=1e-6, atol=1e-7)
    covariance = np.linalg.inv(dense(problem)[:inner, :inner])
    own, others = np.trace(covariance[:features, :features]), np.trace(covariance[features:, features:])
    np.testing.assert_allclose(evidence.weights_determined, features - problem["weight_prior"] * own, atol=1e-8)
    bias_determined = demonstrators * features - problem["bias_prior"] * others
    np.testing.assert_allclose(evidence.bias_determined, bias_determined, atol=1e-8)
    np.testing.assert_allclose(np.sum(evidence.information), 1)


@pytest.mark.parametrize("seed", range(3))
def test_variances_are_those_of_the_dense_inverse(seed):
    """Of a bias along itself, under the gauge; and of the weights, without it."""
    demonstrators, features = 3, 2
    problem, rhs = problem_of(seed, 3, 2), right_hand_side(seed, 3, 2)
    variance, covariance = (factorise(problem, rhs, True, True)[i] for i in (1, 3))
    inverse = np.linalg.inv(dense(problem))
    np.testing.assert_allclose(covariance, inverse[:features, :features], rtol=1e-8)
    gauge = np.concatenate([np.zeros(features * (1 + demonstrators)), np.ones(demonstrators)])
    along = inverse @ gauge
    inverse = inverse - np.outer(along, along) / (gauge @ along)
    for i, bias in enumerate(rhs[1]):
        block = slice(features * (1 + i), features * (2 + i))
        expected = bias @ inverse[block, block] @ bias / (bias @ bias)
        np.testing.assert_allclose(variance[i], expected, rtol=1e-8)


def test_the_slope_of_the_parameters_is_exact_where_the_weights_are_known():
    """With weights held by a strong prior, a demonstrator's parameters depend on their own precision alone."""
    problem = {**problem_of(1, 3, 2), "weight_prior": np.float64(1e9)}
    rhs = right_hand_side(1, 3, 2)
    ends = []
    for way in (1e-5, -1e-5):
        moved = {**problem, "precision": problem["precision"] * np.exp(way)}
        ends.append(factorise(moved, rhs, True, True)[2].parameters)
    slope = factorise(problem, rhs, True, True)[2].parameters_slope
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-5)
