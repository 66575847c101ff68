"""A finite MDP holds the dynamics it was given, samples from them, and refuses what is none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.envs.mdp import FiniteMDP
from irleed.errors import DataError


def dense(mdp: FiniteMDP) -> np.ndarray:
    """``P[s, a, s']`` by the plainest means."""
    transitions = np.zeros((mdp.states, mdp.actions, mdp.states))
    np.add.at(transitions, tuple(mdp.transitions()[:3]), mdp.transitions()[3])
    return transitions


def two_states(**changes) -> FiniteMDP:
    """Two states, two actions; `changes` spoil it."""
    given = {
        "transitions": np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]]),
        "initial": np.array([1.0, 0.0]),
        "discount": 0.9,
    } | changes
    return FiniteMDP.from_dense(given.pop("transitions"), **given)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3), st.integers(1, 6))
def test_forward_and_backward_are_transposes(random_mdp, seed, states, actions, successors):
    mdp = random_mdp(seed, states, actions, successors, terminals=0)
    forward, backward = mdp.forward.coordinates(), mdp.backward.coordinates()
    one, other = np.zeros((states * actions, states)), np.zeros((states, states * actions))
    one[forward[:2]], other[backward[:2]] = forward[2], backward[2]
    np.testing.assert_array_equal(one, other.T)
    np.testing.assert_allclose(one.sum(1), 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3), st.integers(1, 6))
def test_transitions_build_the_same_mdp_again(random_mdp, seed, states, actions, successors):
    mdp = random_mdp(seed, states, actions, successors, terminals=states // 3)
    again = FiniteMDP.from_transitions(
        *mdp.transitions(), initial=mdp.initial, discount=mdp.discount, terminal=mdp.terminal, actions=actions
    )
    assert eqx.tree_equal(mdp, again, typematch=True)


def test_repeated_transitions_add_up():
    mdp = FiniteMDP.from_transitions(
        [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 1, 1], [0.25, 0.5, 0.25, 1.0], initial=[1, 0], discount=0.5
    )
    np.testing.assert_array_equal(dense(mdp)[:, 0], [[0.5, 0.5], [0, 1]])


def test_bare_terminal_states_stay_and_given_ones_are_kept():
    bare = FiniteMDP.from_transitions([0, 0], [0, 1], [1, 0], [1, 1], initial=[1, 0], discount=0.5, terminal=[1])
    np.testing.assert_array_equal(dense(bare)[1], [[0, 1], [0, 1]])
    kept = two_states(terminal=[False, True])
    np.testing.assert_array_equal(dense(kept), dense(two_states()))
    assert kept.terminal.tolist() == [False, True]
    assert not kept.without_terminals().terminal.any()


def within_binomial_bounds(counts: np.ndarray, probability: np.ndarray) -> bool:
    """Five standard deviations, and nothing where nothing may be."""
    draws = counts.sum()
    spread = 5 * np.sqrt(draws * probability * (1 - probability))
    return bool(np.all(np.abs(counts - draws * probability) <= spread + 1e-9 * draws))


def test_step_draws_from_the_dynamics(random_mdp):
    mdp, draws = random_mdp(3, states=6, actions=2, successors=4, terminals=0), 20_000
    keys = jax.random.split(jax.random.key(0), draws)
    step = jax.jit(jax.vmap(FiniteMDP.step, in_axes=(None, 0, None, None)))
    for state, action in ((0, 0), (2, 1), (5, 0), (5, 1)):
        drawn = step(mdp, keys, jnp.int32(state), jnp.int32(action))
        assert within_binomial_bounds(np.bincount(drawn, minlength=6), dense(mdp)[state, action])


@pytest.mark.parametrize("successors", [1, 4])
def test_terminal_states_absorb(random_mdp, successors):
    """Whatever transitions are listed for them, until terminals are taken away."""
    mdp = random_mdp(4, states=6, actions=2, successors=successors, terminals=2)
    step = jax.jit(jax.vmap(FiniteMDP.step, in_axes=(None, 0, None, None)))
    keys = jax.random.split(jax.random.key(2), 100)
    for state in np.flatnonzero(mdp.terminal):
        assert np.unique(step(mdp, keys, jnp.int32(state), jnp.int32(1))).tolist() == [state]
        listed = set(np.flatnonzero(dense(mdp)[state, 1]))
        assert set(np.unique(step(mdp.without_terminals(), keys, jnp.int32(state), jnp.int32(1)))) == listed


def test_step_of_a_deterministic_mdp_needs_no_chance():
    table = np.eye(3)[[[1, 2], [2, 0], [0, 1]]]
    mdp = FiniteMDP.from_dense(table, initial=np.ones(3) / 3, discount=0.9)
    for state in range(3):
        for action in range(2):
            reached = jax.jit(FiniteMDP.step)(mdp, jax.random.key(state), jnp.int32(state), jnp.int32(action))
            assert table[state, action, int(reached)] == 1


def test_step_never_leaves_its_row_by_rounding():
    """In single precision, position 1000 + 0.99999997 is 1001, which belongs to the next row."""
    states = 3000
    mdp = FiniteMDP.from_transitions(
        np.repeat(np.arange(states), 2),
        np.zeros(2 * states, int),
        np.repeat(np.arange(states) // 2 * 2, 2) + np.tile([0, 1], states),
        np.full(2 * states, 0.5),
        initial=np.ones(states) / states,
        discount=0.9,
    )
    with jax.enable_x64(False):
        keys = jax.random.split(jax.random.key(0), 100_000)
        drawn = jax.jit(jax.vmap(FiniteMDP.step, in_axes=(None, 0, None, None)))(
            mdp, keys, jnp.int32(2501), jnp.int32(0)
        )
    assert set(np.unique(drawn)) == {2500, 2501}


def test_reset_draws_from_the_initial_distribution():
    mdp = FiniteMDP.from_dense(np.eye(4)[:, None], initial=[0.0, 0.3, 0.7, 0.0], discount=0.9)
    keys = jax.random.split(jax.random.key(1), 20_000)
    drawn = jax.jit(jax.vmap(FiniteMDP.reset, in_axes=(None, 0)))(mdp, keys)
    assert within_binomial_bounds(np.bincount(drawn, minlength=4), np.asarray(mdp.initial))


def test_rewards_and_feature_sum_are_transposes():
    """Reward times visits is weights times summed features, for state features, action features and indicators."""
    generator = np.random.default_rng(0)
    action_visits = generator.random((2, 2))
    state_visits = action_visits.sum(1)
    for features in (None, generator.normal(size=(2, 3)), generator.normal(size=(2, 2, 3))):
        mdp = jax.device_put(two_states(features=features))
        weights = jnp.asarray(generator.normal(size=mdp.feature_count))
        reward = mdp.rewards(weights)
        visits = state_visits if reward.ndim == 1 else action_visits
        summed = mdp.feature_sum(jnp.asarray(state_visits), jnp.asarray(action_visits))
        np.testing.assert_allclose(jnp.sum(reward * visits), weights @ summed, rtol=1e-12)


TRANSITIONS = {"state": [0, 1], "action": [0, 0], "successor": [1, 1], "probability": [1.0, 1.0]}
P = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]])
LOW, NEGATIVE, NOT_A_NUMBER = P.copy(), P.copy(), P.copy()
LOW[1, 0, 0] = 0.9
NEGATIVE[0, 0] = -0.5, 1.5
NOT_A_NUMBER[0, 1, 1] = np.nan


@pytest.mark.parametrize(
    "changes, mentions",
    [
        ({"transitions": LOW}, "P(. | s=1, a=0): got a sum of 0.9, expected 1"),
        ({"transitions": NEGATIVE}, "P(s'=0 | s=0, a=0): got -0.5"),
        ({"transitions": NOT_A_NUMBER}, "P(s'=1 | s=0, a=1): got nan"),
        ({"transitions": np.zeros((2, 2, 2))}, "transitions"),
        ({"transitions": np.ones((2, 3))}, "shape (2, 3), expected [S, A, S]"),
        ({"transitions": np.full((2, 1, 2), "x")}, "transitions: got no array of numbers"),
        ({"initial": [0.5, 0.4]}, "initial distribution: got shape (2,), smallest 0.4, sum 0.9"),
        ({"initial": [1.5, -0.5]}, "initial distribution"),
        ({"initial": [np.nan, 1.0]}, "initial distribution"),
        ({"initial": 1.0}, "initial distribution: got shape ()"),
        ({"initial": []}, "initial distribution"),
        ({"initial": [1.0]}, "state in row"),
        ({"discount": 0.0}, "discount: got 0.0, expected a number in (0, 1)"),
        ({"discount": 1.0}, "discount"),
        ({"discount": -0.1}, "discount"),
        ({"discount": np.nan}, "discount"),
        ({"reward": [0.0, np.nan]}, "reward[1]: got nan, expected a finite number"),
        ({"reward": [[0.0, 0.0], [np.inf, 0.0]]}, "reward[1, 0]: got inf"),
        ({"reward": [0.0, 0.0, 0.0]}, "reward: got shape (3,), expected [2] or [2, 2]"),
        ({"reward": "none"}, "reward: got no array of numbers"),
        ({"features": np.full((2, 3), np.nan)}, "features[0, 0]"),
        ({"features": np.zeros(2)}, "features: got shape (2,), expected [2, F] or [2, 2, F]"),
        ({"features": np.zeros((3, 1))}, "features"),
        ({"terminal": [True]}, "terminal: got shape (1,), expected [2]"),
        ({"terminal": [2]}, "terminal state in row 0: got 2, expected 0 to 1"),
        ({"terminal": [0.5]}, "terminal"),
    ],
)
def test_dense_input_is_checked(changes, mentions):
    with pytest.raises(DataError) as caught:
        two_states(where="here", **changes)
    assert str(caught.value).startswith("here, ") and mentions in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, mentions",
    [
        ({"state": [0, 2]}, "state in row 1: got 2, expected 0 to 1"),
        ({"state": [-1, 1]}, "state in row 0: got -1"),
        ({"successor": [1, 5]}, "successor in row 1: got 5"),
        ({"action": [0, 1], "actions": 1}, "action in row 1: got 1, expected 0 to 0"),
        ({"action": [0, -2]}, "action in row 1"),
        ({"action": [0.0, 0.0]}, "action: got float64"),
        ({"state": [[0, 1]]}, "state: got int64 of shape (1, 2)"),
        ({"probability": [1.0]}, "columns of shapes (2,), (2,), (2,), (1,)"),
        ({"probability": 1.0}, "columns of shapes"),
        ({"probability": ["a", "b"]}, "probability: got no array of numbers"),
        ({"probability": [1.1, 1.0]}, "P(s'=1 | s=0, a=0): got 1.1"),
        (dict.fromkeys(TRANSITIONS, ()), "not empty"),
        ({"actions": 2}, "P(. | s=0, a=1): got a sum of 0"),
    ],
)
def test_listed_input_is_checked(changes, mentions):
    with pytest.raises(DataError) as caught:
        FiniteMDP.from_transitions(**(TRANSITIONS | changes), initial=[1.0, 0.0], discount=0.9)
    assert mentions in str(caught.value) and "\n" not in str(caught.value)


def test_memory_grows_with_the_transitions_not_with_the_widest_row():
    """One hub, from which all of 20,000 states can be reached, in a ring with two actions."""
    states = 20_000
    ring = np.arange(states)
    mdp = FiniteMDP.from_transitions(
        np.concatenate([ring, ring[1:], np.zeros(states, int)]),
        np.concatenate([np.zeros(states, int), np.ones(2 * states - 1, int)]),
        np.concatenate([np.roll(ring, -1), ring[1:], ring]),
        np.concatenate([np.ones(2 * states - 1), np.full(states, 1 / states)]),
        initial=np.ones(states) / states,
        discount=0.9,
    )
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(mdp) if hasattr(leaf, "nbytes"))
    assert held < 100 * len(mdp.outcome)
    product = jax.device_put(mdp.forward).product(jnp.arange(states, dtype=float))
    np.testing.assert_allclose(product[1], (states - 1) / 2, rtol=1e-12)
