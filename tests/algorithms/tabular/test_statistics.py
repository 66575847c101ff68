"""Visits counted exactly, by sampling and from data agree with each other and with plain arithmetic."""

import jax
import numpy as np
import pytest

import irleed.algorithms.tabular.visitation as statistics
from irleed.algorithms.tabular.visitation import (
    expected_features,
    expected_return,
    expected_visits,
    monte_carlo_features,
    rollout,
    tabulate,
)
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.envs.mdp import FiniteMDP, gridworld
from irleed.errors import ConfigError, SpaceError

TABLES = ["one-hot", "by state", "by action"]


def instance(random_mdp, seed: int, kind: str = "one-hot", **settings) -> tuple[FiniteMDP, np.ndarray]:
    """A random MDP with features and reward of a kind, and a random policy."""
    generator = np.random.default_rng(seed + 100)
    size = {"one-hot": (), "by state": (5, 2), "by action": (5, 3, 2)}[kind]
    features = generator.normal(size=size) if size else None
    reward = generator.normal(size=(5, 3) if kind == "by action" else 5)
    return random_mdp(seed, features=features, reward=reward, **settings), generator.dirichlet(np.ones(3), 5)


def plain_visits(mdp: FiniteMDP, policy: np.ndarray, steps: int, discount) -> tuple[np.ndarray, np.ndarray]:
    """Visits by powers of the dense transition matrix."""
    matrix = np.zeros((mdp.states, mdp.states))
    state, action, successor, probability = mdp.transitions()
    np.add.at(matrix, (state, successor), probability * policy[state, action])
    matrix *= ~np.asarray(mdp.terminal)[:, None]
    powers = [discount**t * mdp.initial @ np.linalg.matrix_power(matrix, t) for t in range(steps + 1)]
    acted = np.sum(powers[:-1], 0) * ~np.asarray(mdp.terminal)
    return np.sum(powers, 0), acted[:, None] * policy


def within_standard_error(samples: np.ndarray, expected: np.ndarray) -> None:
    """The mean of the samples is within four standard errors of what is expected."""
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(0) - expected) <= 4 * error + 1e-12)


@pytest.mark.parametrize("terminals", [0, 2])
def test_expected_visits_are_sums_of_matrix_powers(random_mdp, terminals):
    mdp, policy = instance(random_mdp, 0, terminals=terminals)
    for horizon, steps, discount in ((7, 7, 1.0), (1, 1, 1.0), (None, 200, mdp.discount)):
        found = jax.jit(lambda mdp, policy: expected_visits(mdp, policy, horizon=horizon))(mdp, policy)  # noqa: B023
        for table, plain in zip(found, plain_visits(mdp, policy, steps, discount), strict=True):
            np.testing.assert_allclose(table, plain, atol=1e-12)


@pytest.mark.parametrize("kind", ["one-hot", "by action"])
def test_sampled_features_agree_with_exact_ones(random_mdp, kind):
    """Undiscounted over a horizon, and discounted over one that is as good as infinite."""
    mdp, policy = instance(random_mdp, 1, kind, discount=0.6)

    @jax.jit
    def run(key, mdp, policy, discount):
        def sample(key):
            return monte_carlo_features(key, mdp, policy, 50, 40, discount=discount)

        exact = [expected_features(mdp, policy, horizon=horizon) for horizon in (40, None)]
        return jax.vmap(sample)(jax.random.split(key, 60)), exact

    for which, discount in enumerate((1.0, 0.6)):
        samples, exact = run(jax.random.key(2), mdp, policy, discount)
        within_standard_error(np.asarray(samples), np.asarray(exact[which]))


@pytest.mark.parametrize("kind", TABLES)
def test_expected_return(random_mdp, kind):
    """Discounted, the value of the start; over a horizon, what is collected after it."""
    mdp, policy = instance(random_mdp, 3, kind)
    by_action = kind == "by action"
    states, actions = plain_visits(mdp, policy, 200, mdp.discount)
    expected = np.sum(actions * mdp.reward) if by_action else states @ mdp.reward
    np.testing.assert_allclose(jax.jit(expected_return)(mdp, policy), expected, rtol=1e-9)
    states, actions = plain_visits(mdp, policy, 6, 1.0)
    expected = np.sum(actions * mdp.reward) if by_action else (states - mdp.initial) @ mdp.reward
    np.testing.assert_allclose(jax.jit(lambda *given: expected_return(*given, horizon=6))(mdp, policy), expected)


def test_a_return_needs_a_reward(random_mdp):
    with pytest.raises(ConfigError, match="without reward"):
        expected_return(random_mdp(0), np.full((5, 3), 1 / 3))


def test_a_rollout_ends_in_a_terminal_state():
    """A corridor of four cells, walked right from the first."""
    mdp = gridworld(1, 4, goals={3: 1.0}).mdp
    right = np.eye(4)[np.zeros(4, int)]
    walk = jax.jit(jax.vmap(lambda key, mdp: rollout(key, mdp, right, 6), in_axes=(0, None)))
    walks = walk(jax.random.split(jax.random.key(0), 20), mdp)
    for states, actions, alive in zip(*jax.tree.leaves(jax.tree.map(np.asarray, walks)), strict=True):
        start = states[0]
        np.testing.assert_array_equal(states, np.minimum(start + np.arange(7), 3))
        np.testing.assert_array_equal(alive, states[:-1] < 3)
        assert np.all(actions[alive] == 0)


@pytest.mark.parametrize("unrolled", [0, 16])
def test_actions_are_drawn_by_their_probabilities(monkeypatch, unrolled):
    monkeypatch.setattr(statistics, "UNROLLED_ACTIONS", unrolled)
    probability = np.array([0.0, 0.3, 0.0, 0.6, 0.1, 0.0])
    mdp = FiniteMDP.from_dense(np.ones((1, 6, 1)), initial=[1.0], discount=0.9)
    draw = jax.jit(lambda key, mdp, policy: rollout(key, mdp, policy, 4_000).actions)
    actions = np.asarray(draw(jax.random.key(0), mdp, probability[None]))
    assert set(actions) == {1, 3, 4}
    within_standard_error((actions[:, None] == np.arange(6)).astype(float), probability)


def corridor() -> FiniteMDP:
    """Cells 0 1 2 3, the last one terminal; actions right, left, down, up."""
    return gridworld(1, 4, goals={3: 1.0}).mdp


def two_walkers(**changes) -> Demonstrations:
    """Ann walks to the goal from 1 and from 2; Bob steps left from 1 and stays at the edge."""
    episodes = {
        "first": Episode(obs=[1, 2, 3], action=[0, 0], terminated=True, demonstrator="Ann"),
        "second": Episode(obs=[1, 0, 0], action=[1, 1], terminated=False, demonstrator="Bob"),
        "third": Episode(obs=[2, 3], action=[0], terminated=True, demonstrator="Ann"),
    }
    return Demonstrations.from_episodes((episodes | changes).values())


def test_tabulate_by_hand():
    found = tabulate(two_walkers(), corridor())
    counts = np.zeros((2, 4, 4))
    counts[0, 1, 0], counts[0, 2, 0], counts[1, 1, 1], counts[1, 0, 1] = 1, 2, 1, 1
    np.testing.assert_array_equal(found.action_counts, counts)
    np.testing.assert_array_equal(found.features, [[0, 0.5, 1, 1], [2, 1, 0, 0]])
    np.testing.assert_array_equal(found.episodes, [2, 1])
    np.testing.assert_array_equal(found.initial, [0, 0.75, 0.25, 0])
    assert all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float64 for leaf in jax.tree.leaves(found))


def test_tabulate_is_in_double_precision_whatever_the_caller_does():
    features = np.random.default_rng(0).normal(size=(4, 4, 2))
    mdp = gridworld(1, 4, goals={3: 1.0}, features=features).mdp
    with jax.enable_x64(False):
        found = tabulate(two_walkers(), mdp)
    np.testing.assert_allclose(found.features[0], (features[1, 0] + 2 * features[2, 0]) / 2, rtol=1e-14)


def test_whole_numbers_may_be_stored_as_fractions():
    third = Episode(obs=[2.0, 3.0], action=[0.0], terminated=True, demonstrator="Ann")
    same = jax.tree.map(
        np.array_equal, tabulate(two_walkers(), corridor()), tabulate(two_walkers(third=third), corridor())
    )
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize(
    "episode, where, got",
    [
        ({"obs": [2, 7], "action": [0]}, "step 1, observation", "got 7, expected a whole number from 0 to 3"),
        ({"obs": [-1, 3], "action": [0]}, "step 0, observation", "got -1, expected a whole number from 0 to 3"),
        ({"obs": [1, 1.5, 2], "action": [0, 0]}, "step 1, observation", "got 1.5, expected a whole number"),
        ({"obs": [1, 2, 3], "action": [0, 4]}, "step 1, action", "got 4, expected a whole number from 0 to 3"),
        ({"obs": [0, 2, 3], "action": [0, 0]}, "step 0", "got state 2 after action 0 in state 0, expected state 1;"),
        ({"obs": [2, 3, 3], "action": [0, 0]}, "step 1", "got an action in terminal state 3, expected none"),
    ],
)
def test_data_that_does_not_fit(episode, where, got):
    with pytest.raises(SpaceError) as caught:
        tabulate(two_walkers(third=Episode(**episode, terminated=True, demonstrator="Ann")), corridor())
    message = str(caught.value)
    assert message.startswith(f"demonstrator 'Ann', episode 2, {where}: {got}")
    assert "\n" not in message and "; " in message


@pytest.mark.parametrize("obs, action, what", [([[1], [2]], [0], "observation"), ([1, 2], [[0]], "action")])
def test_data_of_another_shape(obs, action, what):
    data = Demonstrations.from_episodes([Episode(obs=obs, action=action, terminated=False, demonstrator="Ann")])
    with pytest.raises(SpaceError, match=rf"^demonstrator 'Ann', episode 0.* got {what}s of shape \(1,\)"):
        tabulate(data, corridor())


def test_an_impossible_transition_lists_what_was_possible(random_mdp):
    mdp = random_mdp(4, states=9, actions=2, successors=8, terminals=0)
    state, action, successor, _ = mdp.transitions()
    reached = successor[(state == 0) & (action == 1)]
    (missing,) = set(range(9)) - set(reached)
    data = Demonstrations.from_episodes([Episode([0, missing], [1], terminated=False, demonstrator="Ann")])
    with pytest.raises(SpaceError, match=f"expected state {' or '.join(map(str, reached[:6]))} or ...;"):
        tabulate(data, mdp)
