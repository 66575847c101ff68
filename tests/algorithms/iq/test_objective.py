"""The terms of one transition, against their definitions written out."""

import jax
import jax.test_util
import numpy as np
import pytest

from irleed.algorithms.iq import objective

Q, NEXT = np.array([0.3, -1.2, 2.0], np.float32), np.array([1.0, 0.5, -0.7], np.float32)


def log_sum_exp(q: np.ndarray) -> float:
    return float(np.log(np.sum(np.exp(q))))


@pytest.mark.parametrize("action", [0, 2])
@pytest.mark.parametrize("discount", [0.99, 0.0])
def test_terms(action, discount):
    term = objective.terms(Q, np.asarray(action, np.int32), NEXT, discount)
    np.testing.assert_allclose(term.log_likelihood, np.log(np.exp(Q) / np.sum(np.exp(Q)))[action], rtol=1e-5)
    np.testing.assert_allclose(term.reward, Q[action] - discount * log_sum_exp(NEXT), rtol=1e-5)
    np.testing.assert_allclose(term.value_step, log_sum_exp(Q) - discount * log_sum_exp(NEXT), rtol=1e-5)


def test_over_the_same_transition_value_and_reward_are_the_likelihood():
    """E[V(s) - discount V(s')] - E[r] collapses to the negative log-likelihood: offline and mixed losses agree."""
    term = objective.terms(Q, np.asarray(1, np.int32), NEXT, 0.9)
    np.testing.assert_allclose(
        objective.mixed_loss(term, term, 0.5, 0.3), objective.demonstration_loss(term, 0.5), rtol=1e-5
    )


def test_initial_value_telescopes():
    """Along an endless path, the discounted sum of V(s) - discount V(s') is V(s_0)."""
    values = np.random.default_rng(0).normal(size=(400, 3))
    v = np.array([log_sum_exp(q) for q in values])
    total = np.sum(0.9 ** np.arange(399) * (v[:-1] - 0.9 * v[1:]))
    np.testing.assert_allclose(objective.initial_value(values[0].astype(np.float32), 0.9), 0.1 * total, rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    with jax.enable_x64(True):
        given = [Q.astype(float), NEXT.astype(float)]

        def loss(q_tm1, q_t):
            term = objective.terms(q_tm1, np.asarray(1, np.int32), q_t, 0.9)
            return objective.demonstration_loss(term, 0.7) + objective.mixed_loss(term, term, 0.2, 0.3)

        jax.test_util.check_grads(loss, given, order=2, modes=["rev"])
