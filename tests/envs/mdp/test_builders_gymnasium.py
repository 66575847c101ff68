"""Gymnasium's tables arrive unchanged, and what has no usable table is refused in one line."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.tabular.planning import optimal_q_values
from irleed.envs.mdp import FiniteMDP, from_gymnasium
from irleed.errors import DataError, SpaceError

TAXI, CLIFF = (
    max(env_id for env_id in gymnasium.registry if env_id.startswith(f"{name}-v")) for name in ("Taxi", "CliffWalking")
)


def tables(env_id: str, **make_kwargs):
    """``P[s, a, s']``, expected reward and states where an episode ends, entry by entry."""
    env: Any = gymnasium.make(env_id, **make_kwargs).unwrapped
    states, actions = int(env.observation_space.n), int(env.action_space.n)
    transitions, reward, ends = np.zeros((states, actions, states)), np.zeros((states, actions)), set()
    for s in range(states):
        for a in range(actions):
            for probability, successor, gain, terminated in env.P[s][a]:
                transitions[s, a, successor] += probability
                reward[s, a] += probability * gain
                if terminated:
                    ends.add(int(successor))
    return transitions, reward, ends, np.asarray(env.initial_state_distrib)


@pytest.mark.parametrize(
    "env_id, make_kwargs",
    [
        ("FrozenLake-v1", {}),
        ("FrozenLake-v1", {"is_slippery": False}),
        ("FrozenLake-v1", {"desc": ["SFH", "HFG"]}),
        ("FrozenLake8x8-v1", {}),
        (CLIFF, {}),
        (CLIFF, {"is_slippery": True}),
        (TAXI, {}),
        (TAXI, {"is_rainy": True}),
    ],
)
def test_agrees_with_gymnasiums_table(env_id, make_kwargs):
    mdp: Any = from_gymnasium(env_id, 0.9, **make_kwargs)
    transitions, reward, ends, initial = tables(env_id, **make_kwargs)
    held = np.zeros_like(transitions)
    np.add.at(held, tuple(mdp.transitions()[:3]), mdp.transitions()[3])
    np.testing.assert_allclose(held, transitions, atol=1e-12)
    np.testing.assert_allclose(mdp.reward, reward, atol=1e-12)
    np.testing.assert_array_equal(mdp.initial, initial)
    assert set(np.flatnonzero(mdp.terminal)) == ends
    assert not np.any(mdp.initial[mdp.terminal])
    assert mdp.features is None and mdp.discount == 0.9


@pytest.mark.parametrize("make_kwargs", [{}, {"is_slippery": False}])
def test_frozen_lake_is_solved_as_by_plain_value_iteration(make_kwargs):
    mdp: Any = from_gymnasium("FrozenLake-v1", 0.95, **make_kwargs)
    env: Any = gymnasium.make("FrozenLake-v1", **make_kwargs).unwrapped
    q = np.zeros((16, 4))
    for _ in range(500):
        for s in range(16):
            for a in range(4):
                q[s, a] = sum(p * (r + 0.95 * (not end) * q[n].max()) for p, n, r, end in env.P[s][a])
    solved = jax.jit(optimal_q_values)(mdp, mdp.reward)
    np.testing.assert_allclose(solved[~mdp.terminal], q[~mdp.terminal], atol=1e-7)


def test_episodes_of_both_run_alike():
    """Without slipping: the same actions lead to the same states and rewards."""
    env = gymnasium.make(TAXI)
    mdp: Any = from_gymnasium(TAXI, 0.9)
    step = jax.jit(FiniteMDP.step)
    state, _ = env.reset(seed=3)
    for action in np.random.default_rng(0).integers(6, size=30):
        reached, reward, terminated, _, _ = env.step(int(action))
        assert int(step(mdp, jax.random.key(0), jnp.int32(state), jnp.int32(action))) == reached
        assert mdp.reward[state, action] == reward
        assert mdp.terminal[reached] == terminated
        state = reached


class Listed(gymnasium.Env):
    """Two states and an action, with whatever table it is given."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, P=None, initial=(1.0, 0.0)):
        if P is not None:
            self.P = P
        if initial is not None:
            self.initial_state_distrib = np.array(initial)


@pytest.fixture
def listed():
    gymnasium.register("irleed/Listed-v0", entry_point=lambda **given: Listed(**given))
    yield "irleed/Listed-v0"
    del gymnasium.registry["irleed/Listed-v0"]


GOOD = {0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 3.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}


def test_lists_are_read_as_well_as_dictionaries(listed):
    for table in (GOOD, [[GOOD[0][0]], [GOOD[1][0]]]):
        mdp: Any = from_gymnasium(listed, 0.5, P=table)
        assert mdp.terminal.tolist() == [False, True] and mdp.reward.tolist() == [[2.0], [0.0]]


def test_states_that_end_some_episodes_only_are_refused(listed):
    both = {0: {0: [(0.5, 1, 1.0, False), (0.5, 1, 3.0, True)]}, 1: {0: [(1.0, 0, 0.0, False)]}}
    with pytest.raises(SpaceError, match=r"irleed/Listed-v0, state 1: got episodes that end there and others"):
        from_gymnasium(listed, 0.5, P=both)
    with pytest.raises(SpaceError, match="state 1"):
        from_gymnasium(listed, 0.5, P=GOOD, initial=(0.5, 0.5))  # a start in a terminal state


def test_impossible_transitions_do_not_count(listed):
    table = {0: {0: [(1.0, 0, 0.0, False), (0.0, 1, 5.0, True)]}, 1: {0: [(1.0, 0, 0.0, True)]}}
    mdp: Any = from_gymnasium(listed, 0.5, P=table)
    assert not mdp.terminal.any() and not mdp.reward.any(), "no episode ever is in state 1"


@pytest.mark.parametrize(
    "env_id, make_kwargs, mentions",
    [
        ("Nowhere-v1", {}, "doesn't exist"),
        ("no_such_module:Nowhere-v1", {}, "ModuleNotFoundError"),
        ("not a name", {}, "Malformed"),
        ("FrozenLake-v1", {"no_such_argument": 1}, "no_such_argument"),
        ("CartPole-v1", {}, "no attribute P"),
        ("Blackjack-v1", {}, "no attribute P"),
        (TAXI, {"fickle_passenger": True}, "fickle passenger"),
        ("irleed/Listed-v0", {}, "no attribute P"),
        ("irleed/Listed-v0", {"P": GOOD, "initial": None}, "no attribute initial_state_distrib"),
        ("irleed/Listed-v0", {"P": GOOD, "initial": [1.0]}, "initial_state_distrib of another form"),
        ("irleed/Listed-v0", {"P": np.ones((2, 1, 2))}, "a P of another form"),
        ("irleed/Listed-v0", {"P": {}}, "a P of another form"),
        ("irleed/Listed-v0", {"P": 7}, "a P of another form"),
        ("irleed/Listed-v0", {"P": {0: {0: [(1.0, 2, 0.0, False)]}}}, "beyond its 2 states"),
    ],
)
def test_unsuited_environments_are_refused_in_one_line(listed, env_id, make_kwargs, mentions):
    with pytest.raises(SpaceError) as caught:
        from_gymnasium(env_id, 0.9, **make_kwargs)
    message = str(caught.value)
    assert message.startswith(f"environment {env_id}") and mentions in message and "FrozenLake-v1" in message
    assert "\n" not in message


def test_a_table_that_is_no_distribution_is_refused(listed):
    with pytest.raises(DataError, match=r"irleed/Listed-v0, P\(. \| s=0, a=0\): got a sum of 0.5"):
        from_gymnasium(listed, 0.9, P=GOOD | {0: {0: [(0.5, 1, 1.0, True)]}})
