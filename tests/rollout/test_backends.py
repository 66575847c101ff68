"""Backends: on the device and on the host, many policies play and many agents learn in the same way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.baselines.sqil import Sqil
from irleed.data.transitions import Transitions, stack
from irleed.envs.host import HostEnv, make_host
from irleed.envs.jax import CartPole
from irleed.model.actions import Softmax
from irleed.policies.base import Actor
from irleed.rollout import DeviceBackend, HostBackend, backends, greedy_action, sampled_action
from irleed.simulation.critics import load_critic

pytestmark = pytest.mark.optax

KEY, EPISODES = jax.random.key(0), 3


@pytest.fixture(scope="module", params=["device", "host"])
def backend(request):
    made = DeviceBackend(CartPole()) if request.param == "device" else HostBackend("CartPole-v1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def policies() -> Actor:
    """One takes the critic's best actions, the other its worst."""
    critic = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), load_critic("cartpole"))
    return Actor(critic, Softmax(jnp.asarray([1.0, -1.0], jnp.float32)))


def equal(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def test_episodes(backend, policies):
    """Of each policy, from a start to the first end and no further; a trained critic balances to the last step."""
    assert (backend.actions, backend.observation_shape) == (2, (4,))
    played = backend.play(KEY, policies, greedy_action, EPISODES)
    assert played.obs.shape == played.next_obs.shape == (2, EPISODES, 500, 4)
    assert played.action.shape == played.reward.shape == played.alive.shape == (2, EPISODES, 500)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(played))
    length = played.alive.sum(-1)
    np.testing.assert_array_equal(played.alive, np.arange(500) < length[..., None])
    np.testing.assert_array_equal(played.total, np.where(played.alive, played.reward, 0).sum(-1))
    assert np.all(length[0] == 500) and np.all((length[1] > 5) & (length[1] < 20))
    ended = (played.terminated & played.alive).sum(-1)
    assert not ended[0].any() and np.all(ended[1] == 1)  # by the clock, and by the task
    for person, number in np.ndindex(2, EPISODES):
        obs, following = (leaf[person, number, : length[person, number]] for leaf in (played.obs, played.next_obs))
        np.testing.assert_array_equal(obs[1:], following[:-1])
        assert np.abs(obs[0]).max() <= 0.05
        assert played.terminated[person, number, len(obs) - 1] == (person == 1)
    assert len(np.unique(played.obs[:, :, 0].reshape(-1, 4), axis=0)) == 2 * EPISODES


def test_the_key_decides(backend, policies):
    """And alone: whatever was played before, and whether returns or whole episodes are asked for."""
    played, returns = (
        backend.play(KEY, policies, sampled_action, EPISODES),
        backend.returns(KEY, policies, sampled_action, EPISODES),
    )
    other = backend.returns(jax.random.key(1), policies, sampled_action, EPISODES)
    assert returns.shape == (2, EPISODES) and not np.array_equal(returns, other)
    np.testing.assert_array_equal(played.total, returns)
    np.testing.assert_array_equal(backend.returns(KEY, policies, sampled_action, EPISODES), returns)


def demonstrations(rows: int) -> Transitions:
    generator = np.random.default_rng(rows)
    obs, following = generator.normal(size=(2, rows, 4)).astype(np.float32)
    action, ones = generator.integers(0, 2, rows).astype(np.int32), np.ones(rows, np.float32)
    return Transitions(obs, following, action, ones, 0 * action, obs[:1], np.asarray(rows, np.int32))


def test_agents_learn(backend):
    """A run for each key, on data of its own."""
    agent = Sqil(hidden=(8,), steps=40, batch_size=4, buffer_size=30, learning_starts=10)
    keys, data = jax.random.split(KEY, 2), stack([demonstrations(20), demonstrations(30)])
    state, _ = backend.learn(agent, keys, data, 1)
    assert state.learner.step.tolist() == [30, 30] and state.replay.added.tolist() == [40, 40]
    np.testing.assert_allclose(
        state.learner.parameters.actor.network.inputs.centre[0], demonstrations(20).obs.mean(0), atol=1e-5
    )
    assert equal(backend.learn(agent, keys, data, 1)[0], state)
    assert not equal(backend.learn(agent, keys[::-1], data, 1)[0], state)


def test_more_episodes_than_lanes_are_played_in_turns(policies, monkeypatch):
    """Six episodes in lanes of four: the counts are the same, and no episode is another's."""
    monkeypatch.setattr(backends, "MOST_LANES", 4)
    backend = HostBackend("CartPole-v1")
    played = backend.play(KEY, policies, greedy_action, EPISODES)
    assert played.obs.shape == (2, EPISODES, 500, 4) and np.all(played.total[0] == 500) and np.all(played.total[1] < 20)
    np.testing.assert_array_equal(backend.returns(KEY, policies, greedy_action, EPISODES), played.total)
    assert len(np.unique(played.obs[:, :, 0].reshape(-1, 4), axis=0)) == 2 * EPISODES
    backend.close()


def test_an_endless_episode_counts_as_it_stands(policies):
    backend = HostBackend("CartPole-v1", limit=30)
    played = backend.play(KEY, policies, greedy_action, 1)
    assert played.action.shape == (2, 1, 30) and played.alive[0].all() and played.total[0] == 30
    assert not played.alive[1].all()
    backend.close()


def test_a_seed_given_to_a_reset_starts_over():
    host = make_host("CartPole-v1", 2, seed=1)
    first = host.reset(5)
    host.step(np.array([0, 1]))
    further = host.reset()
    np.testing.assert_array_equal(host.reset(5), first)
    assert not np.array_equal(further, first) and not np.array_equal(host.reset(6), first)
    host.close()


def test_steps_that_nobody_looks_at_are_spared(policies, monkeypatch):
    """To the same returns."""
    backend, resting = HostBackend("CartPole-v1"), []
    spared = backend.returns(KEY, policies, sampled_action, EPISODES)
    monkeypatch.setattr(HostEnv, "rest", lambda self, lanes: resting.append(int(lanes.sum())))
    np.testing.assert_array_equal(backend.returns(KEY, policies, sampled_action, EPISODES), spared)
    assert resting == sorted(resting) and resting[0] > 0 and len(np.unique(spared)) > 2
    backend.close()
