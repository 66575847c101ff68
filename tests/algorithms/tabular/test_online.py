"""Soft Q-learning finds the planner's values from samples, and serves where policies are inferred."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.tabular.paper_protocol import Planned, Published, SoftQLearning
from irleed.algorithms.tabular.planning import Soft
from irleed.algorithms.tabular.visitation import Statistics
from irleed.envs.mdp import gridworld

LEARNER = SoftQLearning(walkers=64, steps=20_000)


def learn(seed, mdp, reward, start=None):
    start = jnp.zeros((mdp.states, mdp.actions)) if start is None else start
    return jax.jit(LEARNER.q_values)(jax.random.key(seed), mdp, reward, start)


@pytest.mark.parametrize("by_action", [False, True])
def test_values_converge_to_the_planners(by_action):
    """To 0.06 in every state one can act in, where values span more than 1."""
    mdp = gridworld(3, 3, goals={8: 1.0}, slip=0.2, obstacles=[4], discount=0.8).mdp
    reward = np.random.default_rng(0).normal(size=(9, 4) if by_action else 9)
    reachable = ~mdp.terminal & (np.arange(9) != 4)
    expected = np.asarray(jax.jit(Soft().q_values)(mdp, reward))[reachable]
    found = np.asarray(learn(0, mdp, reward))[reachable]
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_the_dynamics_are_only_sampled(random_mdp):
    """Tables that `reset` and `step` do not use may hold anything."""
    mdp = random_mdp(1)
    blind = eqx.tree_at(
        lambda mdp: (mdp.forward, mdp.backward),
        mdp,
        jax.tree.map(lambda x: np.full_like(x, np.nan if x.dtype == float else 0), (mdp.forward, mdp.backward)),
    )
    learner = SoftQLearning(walkers=8, steps=50)
    given = np.arange(5.0), jnp.zeros((5, 3))
    seen, unseen = (jax.jit(learner.q_values)(jax.random.key(0), m, *given) for m in (mdp, blind))
    np.testing.assert_array_equal(seen, unseen)


def test_states_never_reached_keep_their_values():
    mdp = gridworld(1, 4, goals={2: 1.0}).mdp  # cell 3 lies behind the goal
    mdp = eqx.tree_at(lambda mdp: mdp.initial, mdp, np.array([1.0, 0.0, 0.0, 0.0]))
    start = jnp.full((4, 4), 7.0)
    found = np.asarray(jax.jit(SoftQLearning(walkers=4, steps=30).q_values)(jax.random.key(0), mdp, mdp.reward, start))
    assert np.all(found[[2, 3]] == 7) and np.all(found[[0, 1]] != 7)


def test_the_published_protocol_without_a_model():
    """The same path as with one, but for the error of the values: here the weights end 0.03 apart or less."""
    mdp = gridworld(3, 3, goals={8: 1.0}, discount=0.8).mdp
    straight = np.array([[0.2, 0.2, 0.2, 0.2, 0.2, 0.8, 0.2, 0.8, 1.0], [0.1, 0.2, 0.3, 0.2, 0.4, 0.8, 0.3, 0.8, 1.0]])
    given = mdp, Statistics(np.zeros((2, 9, 4)), straight, np.ones(2), mdp.initial)
    ended = []
    for inference in (Planned(Soft(), endless=False), SoftQLearning(walkers=16, steps=200)):
        protocol = Published(inference, episodes=50, horizon=20, weights_rate=1.0)
        update, state = jax.jit(protocol.update), protocol.init(*given)
        for step in range(8):
            state, _ = update(jax.random.key(step), state, *given)
        ended.append(np.asarray(state.weights))
    assert np.argmax(ended[0]) == 8 and np.ptp(ended[0]) > 0.2
    np.testing.assert_allclose(*ended, atol=0.03)
