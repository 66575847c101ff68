"""The planners do what their equations say, and their derivatives are those of what they do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irleed.algorithms.tabular.planning as linear
import irleed.algorithms.tabular.planning as planning
from irleed.algorithms.tabular.planning import Averaged, Soft, optimal_q_values
from irleed.envs.mdp import FiniteMDP, gridworld

PLANNERS = {"soft": Soft(tolerance=1e-12), "averaged": Averaged(tolerance=1e-12)}
COMPILED = {kind: jax.jit(planner.q_values) for kind, planner in PLANNERS.items()}
COMPILED["optimal"] = jax.jit(functools.partial(optimal_q_values, tolerance=1e-12))


@pytest.fixture(params=[128, 0], ids=["dense", "iterated"])
def both_ways(request, monkeypatch):
    for module in (linear, planning):
        monkeypatch.setattr(module, "DENSE_STATES", request.param)


@pytest.fixture(params=["by state", "by action"])
def per_action(request):
    return request.param == "by action"


def log_sum_exp(q: np.ndarray) -> np.ndarray:
    largest = q.max(-1, keepdims=True)
    return (largest + np.log(np.exp(q - largest).sum(-1, keepdims=True)))[..., 0]


def reference(kind: str, mdp: FiniteMDP, reward: np.ndarray) -> np.ndarray:
    """Q by sweeps over a dense table: slow, plain, and nothing in common with the library."""
    transitions = np.zeros((mdp.states, mdp.actions, mdp.states))
    np.add.at(transitions, tuple(mdp.transitions()[:3]), mdp.transitions()[3])
    gain = reward[:, None] + np.zeros(mdp.actions) if reward.ndim == 1 else reward
    final = reward if reward.ndim == 1 else np.zeros(mdp.states)
    if kind == "soft":  # who has arrived still has choices, all alike
        final = final + np.log(mdp.actions) / (1 - mdp.discount)
    summary = {"soft": log_sum_exp, "averaged": lambda q: q.mean(-1), "optimal": lambda q: q.max(-1)}[kind]
    q = np.zeros((mdp.states, mdp.actions))
    for _ in range(2_000):
        value = np.where(mdp.terminal, final, summary(q))
        previous, q = q, gain + mdp.discount * transitions @ value
        if np.max(np.abs(q - previous)) < 1e-15:
            break
    return q / mdp.discount if kind == "averaged" else q


def random_reward(mdp: FiniteMDP, seed: int, per_action: bool, scale: float = 1.0) -> np.ndarray:
    size = (mdp.states, mdp.actions) if per_action else mdp.states
    return scale * np.random.default_rng(seed).normal(size=size)


@pytest.mark.parametrize("kind", ["soft", "averaged", "optimal"])
def test_q_values_are_those_of_plain_iteration(per_action, random_mdp, kind):
    for terminals in (0, 2):
        mdp = random_mdp(0, states=6, successors=3, terminals=terminals)
        reward = random_reward(mdp, 1, per_action, scale=3.0)
        np.testing.assert_allclose(COMPILED[kind](mdp, reward), reference(kind, mdp, reward), atol=1e-9)


@pytest.mark.parametrize("kind", PLANNERS)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_values_by_both_ways_of_solving(both_ways, random_mdp, kind, scale):
    """Dense and iterated, where choices are gentle and where they are as good as hard."""
    mdp = random_mdp(1, states=6, terminals=2)
    reward = random_reward(mdp, 2, per_action=False, scale=scale)
    q = jax.jit(lambda *given: PLANNERS[kind].q_values(*given))(mdp, reward)  # afresh: chosen while tracing
    np.testing.assert_allclose(q, reference(kind, mdp, reward), atol=1e-9 * scale)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 4]), st.booleans(), st.sampled_from([0.1, 1.0, 30.0]))
def test_q_values_of_many_mdps(random_mdp, seed, successors, by_action, scale):
    """Deterministic and stochastic ones, gentle and steep rewards."""
    mdp = random_mdp(seed, states=4, actions=2, successors=successors, discount=0.7)
    reward = random_reward(mdp, seed + 1, by_action, scale)
    for kind in PLANNERS:
        np.testing.assert_allclose(COMPILED[kind](mdp, reward), reference(kind, mdp, reward), atol=1e-9 * max(scale, 1))


@pytest.mark.parametrize("kind", PLANNERS)
def test_derivatives_of_the_log_likelihood(both_ways, per_action, random_mdp, kind):
    """First derivatives against differences of the plain reference, second ones against differences of the first."""
    mdp = random_mdp(2, states=4, actions=3, successors=3, terminals=1)
    reward = random_reward(mdp, 3, per_action)
    counts = np.random.default_rng(4).integers(0, 5, size=(4, 3)).astype(float)

    def plain(reward):
        q = reference(kind, mdp, reward)
        return np.sum(counts * (q - log_sum_exp(q)[:, None]))

    def log_likelihood(reward, mdp):
        return jnp.sum(counts * jax.nn.log_softmax(PLANNERS[kind].q_values(mdp, reward)))

    value_and_slope = jax.jit(jax.value_and_grad(log_likelihood))
    curvature = jax.jit(jax.jacrev(jax.grad(log_likelihood)))(reward, mdp)
    first, second = np.zeros(reward.shape), np.zeros((*reward.shape, *reward.shape))
    for place in np.ndindex(reward.shape):
        nudge = np.zeros(reward.shape)
        nudge[place] = 1e-5
        first[place] = (plain(reward + nudge) - plain(reward - nudge)) / 2e-5
        second[place] = np.subtract(*(value_and_slope(reward + way * nudge, mdp)[1] for way in (1, -1))) / 2e-5
    value, slope = value_and_slope(reward, mdp)
    np.testing.assert_allclose(value, plain(reward), rtol=1e-9)
    np.testing.assert_allclose(slope, first, atol=1e-7)
    np.testing.assert_allclose(curvature, second, atol=1e-6)


def test_a_terminal_state_is_worth_its_own_reward_once():
    """One step from a goal worth 2: optimal value 0.9 * 2, not a sum over an endless stay."""
    mdp = gridworld(1, 3, goals={2: 2.0}, discount=0.9).mdp
    q = COMPILED["optimal"](mdp, np.array([0.0, 0.0, 2.0]))
    np.testing.assert_allclose(q[:2].max(-1), [0.9 * 0.9 * 2, 0.9 * 2], atol=1e-9)


def test_a_soft_policy_of_no_reward_is_uniform_and_counts_its_choices():
    """Whether a state ends the episode or not: nobody flees an end, or seeks one, that pays nothing."""
    mdp = gridworld(3, 3, goals={8: 1.0}, discount=0.5).mdp
    for world in (mdp, mdp.without_terminals()):
        np.testing.assert_allclose(COMPILED["soft"](world, np.zeros(9)), 0.5 * np.log(4) / (1 - 0.5), atol=1e-9)


@pytest.mark.parametrize("unrolled", [0, 16])
def test_soft_maximum_by_both_ways(monkeypatch, unrolled):
    monkeypatch.setattr(planning, "UNROLLED_ACTIONS", unrolled)
    q = np.array([[0.0, 1.0, 2.0], [1e4, -1e4, 1e4], [-800.0, -801.0, -802.0]])
    np.testing.assert_allclose(planning.soft_maximum(jnp.asarray(q)), log_sum_exp(q), rtol=1e-12)


def test_mean_reward_of_a_policy(per_action, random_mdp):
    mdp = random_mdp(5, states=5)
    reward = random_reward(mdp, 6, per_action)
    policy = np.random.default_rng(7).dirichlet(np.ones(3), 5)
    expected = np.where(mdp.terminal, 0.0, (policy * reward).sum(-1)) if per_action else reward
    np.testing.assert_allclose(jax.jit(planning.mean_reward)(mdp, policy, reward), expected, atol=1e-12)
