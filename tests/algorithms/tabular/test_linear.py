"""Values and visits of a policy: right, transposes and derivatives of each other, by both ways of solving."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import irleed.algorithms.tabular.planning as linear
from irleed.envs.mdp import FiniteMDP, gridworld

TOLERANCE = 1e-12


@pytest.fixture(params=[128, 0], ids=["dense", "iterated"])
def both_ways(request, monkeypatch):
    monkeypatch.setattr(linear, "DENSE_STATES", request.param)


def step_matrix(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """``P(s' | s)`` under the policy, with empty rows for terminal states."""
    matrix = np.zeros((mdp.states, mdp.states))
    state, action, successor, probability = mdp.transitions()
    np.add.at(matrix, (state, successor), probability * policy[state, action])
    return matrix * ~mdp.terminal[:, None]


def instance(random_mdp, seed: int, **settings):
    generator = np.random.default_rng(seed + 1)
    mdp = random_mdp(seed, **settings)
    policy = generator.dirichlet(np.ones(mdp.actions), mdp.states)
    return mdp, policy, generator.normal(size=mdp.states)


# Jitted afresh in every test, because the way of solving is chosen while tracing.
def policy_value(mdp, policy, reward) -> Any:
    return jax.jit(lambda *given: linear.policy_value(TOLERANCE, *given))(mdp, policy, reward)


def discounted_visits(mdp, policy, source) -> Any:
    return jax.jit(lambda *given: linear.discounted_visits(TOLERANCE, *given))(mdp, policy, source)


@pytest.mark.parametrize("terminals, successors", [(0, 1), (2, 3)])
def test_values_and_visits_solve_their_equations(both_ways, random_mdp, terminals, successors):
    mdp, policy, vector = instance(random_mdp, 0, states=7, successors=successors, terminals=terminals)
    system = np.eye(7) - mdp.discount * step_matrix(mdp, policy)
    np.testing.assert_allclose(policy_value(mdp, policy, vector), np.linalg.solve(system, vector), atol=1e-10)
    np.testing.assert_allclose(discounted_visits(mdp, policy, vector), np.linalg.solve(system.T, vector), atol=1e-10)


def test_value_and_visits_are_transposes(both_ways, random_mdp):
    mdp, policy, reward = instance(random_mdp, 1, states=9, terminals=2)
    source = np.random.default_rng(5).normal(size=9)
    ahead, behind = policy_value(mdp, policy, reward), discounted_visits(mdp, policy, source)
    np.testing.assert_allclose(source @ ahead, behind @ reward, rtol=1e-10)


def test_successors_and_flows_are_transposes(random_mdp):
    mdp, policy, value = instance(random_mdp, 2, states=8)
    expected = jax.jit(linear.expected_successor)(mdp, value)
    arrived = jax.jit(linear.push_forward)(mdp, policy)
    np.testing.assert_allclose(np.sum(policy * expected), value @ arrived, rtol=1e-12)
    state, action, successor, probability = mdp.transitions()
    by_hand = np.zeros((8, 3))
    np.add.at(by_hand, (state, action), probability * value[successor])
    np.testing.assert_allclose(expected, by_hand, atol=1e-12)


def test_derivatives_of_first_and_second_order(both_ways, random_mdp):
    """Against finite differences, in the policy and in the vector."""
    mdp, policy, vector = instance(random_mdp, 3, states=5, actions=2, terminals=1)
    weight = jnp.linspace(-1, 1, 5)
    held = jax.device_put(mdp)
    functions: tuple[Any, ...] = (linear.policy_value, linear.discounted_visits)
    for function in functions:
        check_grads(
            jax.jit(lambda policy, vector: weight @ function(TOLERANCE, held, policy, vector)),  # noqa: B023
            (jnp.asarray(policy), jnp.asarray(vector)),
            order=2,
            modes=["rev"],
            rtol=1e-5,
        )


def test_visits_count_steps_and_end_in_terminal_states():
    """A corridor of four cells, walked right from the first: a visit to each, discounted, and none after the goal."""
    mdp = gridworld(1, 4, goals={3: 1.0}, discount=0.5).mdp
    right = np.eye(4)[np.zeros(4, int)]
    visits = discounted_visits(mdp, right, np.eye(4)[0])
    np.testing.assert_allclose(visits, [1, 0.5, 0.25, 0.125], atol=1e-10)
    np.testing.assert_allclose(policy_value(mdp, right, mdp.reward), [0.125, 0.25, 0.5, 1], atol=1e-10)


def test_visits_are_exact_to_the_tolerance_where_the_flow_spreads_thin():
    """From a hub to one of 2,000 states and back: the change of any one state is small long before the sum's is."""
    leaves = np.arange(1, 2001)
    mdp = FiniteMDP.from_transitions(
        np.concatenate([0 * leaves, leaves]),
        np.zeros(4000, int),
        np.concatenate([leaves, 0 * leaves]),
        np.concatenate([np.full(2000, 1 / 2000), np.ones(2000)]),
        initial=np.eye(2001)[0],
        discount=0.9,
    )
    visits = jax.jit(lambda mdp: linear.discounted_visits(1e-8, mdp, jnp.ones((2001, 1)), mdp.initial))(mdp)
    np.testing.assert_allclose(visits[0], 1 / (1 - 0.81), atol=1e-8)


def test_large_values_settle_within_rounding():
    """A value of 1e9 that swings in its last digits moves by more than the tolerance for ever: no reason to go on."""

    def swing(value):  # and count the sweeps
        return jnp.stack([1e9 + jnp.where(value[0] > 1e9, -2e-7, 2e-7), value[1] + 1])

    def first(vector):
        return jnp.abs(vector[0])

    settled = jax.jit(lambda start: linear.fixed_point(swing, start, 1e-9, first))(jnp.zeros(2))
    assert settled[1] < 10


def test_batches_of_problems(both_ways, random_mdp):
    """A lane of a batch is the single run."""
    mdp, policy, vector = instance(random_mdp, 4, states=6)
    policies = np.stack([policy, np.full_like(policy, 1 / 3)])
    vectors = np.stack([vector, vector**2])
    batched = jax.jit(jax.vmap(lambda *given: linear.policy_value(TOLERANCE, *given), in_axes=(None, 0, 0)))
    for lane, value in enumerate(batched(mdp, policies, vectors)):
        np.testing.assert_allclose(value, policy_value(mdp, policies[lane], vectors[lane]), atol=1e-10)
