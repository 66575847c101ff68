"""Simulated data is what was asked for, and goes through a data set and back unchanged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.algorithms.tabular.visitation import Rollout, expected_return, tabulate, tabulate_rollouts
from irleed.envs.mdp import FiniteMDP, gridworld, paper_gridworld
from irleed.errors import ConfigError
from irleed.simulation.mdp import sample_demonstrators, simulate, simulate_rollouts


def rollouts(data, episodes: int, horizon: int) -> Rollout:
    """The data set's episodes as rollouts, D x E."""
    states, actions, alive = [], [], []
    for first, length, row in zip(data.start, data.length, data.row[data.start], strict=True):
        states.append(np.pad(data.obs[row : row + length + 1], (0, horizon - length), mode="edge"))
        actions.append(np.pad(data.action[first : first + length], (0, horizon - length)))
        alive.append(np.arange(horizon) < length)
    shape = (data.demonstrators, episodes, -1)
    return jax.vmap(jax.vmap(Rollout))(*(np.stack(part).reshape(shape) for part in (states, actions, alive)))


def test_data_and_rollouts_have_the_same_statistics():
    """Whatever the features are."""
    mdp = gridworld(3, 3, goals={8: 1.0}, slip=0.1).mdp
    data, _ = simulate(0, mdp, demonstrators=3, demonstrations=7, horizon=20)
    for size in (None, (9, 2), (9, 4, 2)):
        features = None if size is None else np.random.default_rng(0).normal(size=size)
        featured = dataclasses.replace(mdp, features=features)
        from_data = tabulate(data, featured)
        with jax.enable_x64(True):
            from_rollouts = jax.jit(tabulate_rollouts)(featured, rollouts(data, 7, 20))
        for one, other in zip(jax.tree.leaves(from_data), jax.tree.leaves(from_rollouts), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_values_at_rest_are_plain_arrays_of_doubles():
    data, truth = simulate(1, paper_gridworld(4).mdp, planner=Averaged(), endless=True, demonstrations=5)
    data.validate()
    assert truth.bias.shape == (5, 16) and set(np.flatnonzero(truth.weights)) == {0, 3, 15}
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((data, truth)))
    floats = truth.precision, truth.bias, truth.weights, np.asarray(data.reward)
    assert all(array.dtype == np.float64 for array in floats)
    assert data.names[4] == "demonstrator 4" and data.episodes == 25


def test_episodes_end_at_a_goal_or_by_the_clock():
    mdp = paper_gridworld(4).mdp
    data, _ = simulate(2, mdp, demonstrations=30, horizon=6)
    last = data.start + data.length - 1
    arrived = mdp.terminal[data.next_observation[last]]
    np.testing.assert_array_equal(data.terminated[last], arrived)
    assert 0 < arrived.mean() < 1 and np.all(data.length[~arrived] == 6)
    np.testing.assert_array_equal(data.returns(), arrived)


@pytest.mark.parametrize("by_action", [False, True])
def test_returns_are_those_of_the_policy(random_mdp, by_action):
    """Within four standard errors of the exact return: rewards of states are paid on arrival."""
    generator = np.random.default_rng(0)
    reward = generator.normal(size=(5, 3) if by_action else 5)
    features = reward[..., None] if by_action else None
    mdp = random_mdp(0, features=features, reward=reward)
    data, truth = simulate(
        3, mdp, demonstrators=1, demonstrations=2_000, horizon=8, weights=np.ones(1) if by_action else None
    )
    with jax.enable_x64(True):

        @jax.jit
        def exact(mdp, perceived):
            return expected_return(mdp, jax.nn.softmax(Soft().q_values(mdp, mdp.rewards(perceived))), horizon=8)

        expected = float(exact(mdp, truth.precision[0] * (truth.weights + truth.bias[0])))
    returns = np.asarray(data.returns())
    assert abs(returns.mean() - expected) < 4 * returns.std() / np.sqrt(len(returns))


def test_a_reward_by_state_and_action_is_pursued_with_biases_by_state(random_mdp):
    """Within four standard errors of what a demonstrator of that precision and bias would choose."""
    reward = np.random.default_rng(0).normal(size=(5, 3))
    mdp = random_mdp(0, reward=reward)
    data, truth = simulate(3, mdp, demonstrators=1, demonstrations=4_000, horizon=4, max_precision=3.0, accuracy=1.0)
    assert truth.weights is None and truth.bias.shape == (1, 5)
    np.testing.assert_array_equal(data.reward, reward[data.observation, data.action])
    counts = np.asarray(tabulate(data, mdp).action_counts[0])[~mdp.terminal]
    visits = counts.sum(-1, keepdims=True)
    with jax.enable_x64(True):
        choose = jax.jit(lambda mdp, reward: jax.nn.softmax(Soft().q_values(mdp, reward)))
        pursued = [truth.precision[0] * (reward + bias) for bias in (truth.bias[0][:, None], 0.0)]
        biased, blind = (np.asarray(choose(mdp, each))[~mdp.terminal] for each in pursued)
    error = np.sqrt(biased * (1 - biased) / visits)
    assert np.all(np.abs(counts / visits - biased) < 4 * error)
    assert np.any(np.abs(counts / visits - blind) > 8 * error), "the bias makes a difference here"


def test_rewards_from_weights_where_the_mdp_has_none(random_mdp):
    mdp = random_mdp(1, features=np.arange(5.0)[:, None])
    data, _ = simulate(0, mdp, demonstrators=2, demonstrations=3, weights=np.array([2.0]))
    np.testing.assert_array_equal(data.reward, 2.0 * data.next_observation)


def test_same_seed_same_data():
    mdp = paper_gridworld(4).mdp
    one, same, other = (simulate(seed, mdp, demonstrations=30, horizon=6) for seed in (4, jax.random.key(4), 5))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True))
    assert not np.array_equal(one[1].precision, other[1].precision)


def test_demonstrators_are_drawn_as_the_paper_says():
    """In one batch over settings: an infinite accuracy is no bias."""
    with jax.enable_x64(True):
        sample = jax.jit(
            jax.vmap(lambda p, a: sample_demonstrators(jax.random.key(0), 4_000, 2, max_precision=p, accuracy=a))
        )
        precision, bias = map(np.asarray, sample(jnp.array([2.0, 5.0]), jnp.array([4.0, jnp.inf])))
    assert precision.min() >= 0 and precision[0].max() < 2 < precision[1].max() < 5
    np.testing.assert_allclose(precision.mean(-1), [1.0, 2.5], rtol=0.05)
    np.testing.assert_allclose(bias[0].std(), 1 / 4, rtol=0.05)
    np.testing.assert_array_equal(bias[1], 0)


def test_who_plans_endlessly_may_act_differently():
    """With no goal's end in mind, a demonstrator of the soft kind plans to stay; both play in the same world."""
    mdp = gridworld(1, 3, goals={2: 1.0}).mdp
    with jax.enable_x64(True):

        @jax.jit
        def play(key, mdp, plan):
            return simulate_rollouts(key, mdp, Soft(), jnp.ones(1), jnp.zeros((1, 3)), 500, 1, plan).actions

        chosen = [np.mean(play(jax.random.key(0), mdp, plan) == 0) for plan in (mdp, mdp.without_terminals())]
    assert abs(chosen[0] - chosen[1]) > 0.05


BAD = [
    ({"demonstrators": 0}, "simulate, demonstrators: got 0, expected 1 or more"),
    ({"demonstrations": -1}, "simulate, demonstrations: got -1, expected 1 or more"),
    ({"horizon": 0}, "simulate, horizon: got 0, expected 1 or more"),
    ({"max_precision": -1.0}, "simulate, max_precision: got -1.0"),
    ({"max_precision": float("inf")}, "simulate, max_precision: got inf"),
    ({"accuracy": 0.0}, "simulate, accuracy: got 0.0, expected above 0"),
]


@pytest.mark.parametrize("settings, message", BAD)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError) as caught:
        simulate(0, paper_gridworld(3).mdp, **settings)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_reward_must_be_known(random_mdp):
    for tables in ({}, {"features": np.ones((5, 2)), "reward": np.ones(5)}):
        with pytest.raises(ConfigError, match="^true weights: got an MDP with .*pass `weights`$"):
            simulate(0, random_mdp(0, **tables))


def test_an_episode_must_have_an_action():
    mdp = FiniteMDP.from_dense(np.ones((1, 1, 1)), initial=[1.0], terminal=[0], discount=0.9, reward=[1.0])
    with pytest.raises(ConfigError, match="a terminal state to start in"):
        simulate(0, mdp)
