"""The terms of one transition, against their definitions written out."""

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from irleed.algorithms.iq.irleed import Terms, demonstration_loss, mixed_loss, transition_terms

Q, NEXT = np.array([0.3, -1.2, 2.0], np.float32), np.array([1.0, 0.5, -0.7], np.float32)


def log_sum_exp(q: np.ndarray) -> float:
    return float(np.log(np.sum(np.exp(q))))


def terms(q, action: int, following, discount: float) -> Terms:
    """Of a transition with discrete actions."""
    return transition_terms(
        jnp.asarray(q)[action], jax.nn.logsumexp(q), jax.nn.logsumexp(following), np.asarray(discount, q.dtype)
    )


@pytest.mark.parametrize("action", [0, 2])
@pytest.mark.parametrize("discount", [0.99, 0.0])
def test_terms(action, discount):
    term = terms(jnp.asarray(Q), action, jnp.asarray(NEXT), discount)
    np.testing.assert_allclose(term.log_likelihood, np.log(np.exp(Q) / np.sum(np.exp(Q)))[action], rtol=1e-5)
    np.testing.assert_allclose(term.reward, Q[action] - discount * log_sum_exp(NEXT), rtol=1e-5)
    np.testing.assert_allclose(term.value_step, log_sum_exp(Q) - discount * log_sum_exp(NEXT), rtol=1e-5)


def test_over_the_same_transition_value_and_reward_are_the_likelihood():
    """E[V(s) - discount V(s')] - E[r] collapses to the negative log-likelihood: offline and mixed losses agree."""
    term = terms(jnp.asarray(Q), 1, jnp.asarray(NEXT), 0.9)
    np.testing.assert_allclose(mixed_loss(term, term, 0.5, 0.3), demonstration_loss(term, 0.5), rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    with jax.enable_x64(True):
        given = [jnp.asarray(Q.astype(float)), jnp.asarray(NEXT.astype(float))]

        def loss(q_tm1, q_t):
            term = terms(q_tm1, 1, q_t, 0.9)
            return demonstration_loss(term, 0.7) + mixed_loss(term, term, 0.2, 0.3)

        jax.test_util.check_grads(loss, given, order=2, modes=["rev"])
