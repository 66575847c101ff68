"""The two loops: the same environment gives the same run in either, and Gymnasium's runs in the second."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import on_device, on_host
from probes import endless

from irleed.algorithms.baselines.sqil import Sqil
from irleed.algorithms.experts import SoftQExpert
from irleed.algorithms.iq import OfflineIrleed, OnlineIrleed
from irleed.algorithms.training import Lanes, round_keys
from irleed.data.transitions import Transitions, stack
from irleed.envs.host import make_host
from irleed.envs.jax import CartPole
from irleed.envs.step import AbstractEnv, Transition

pytestmark = pytest.mark.optax

LANES, DEMONSTRATORS = 3, 2
SMALL = {"steps": 60, "batch_size": 8, "buffer_size": 50, "learning_starts": 10}
IQ = OnlineIrleed(learner=OfflineIrleed.iq(hidden=(8,), learning_rate=1e-3, penalty=5.0), **SMALL)
SQIL = Sqil(hidden=(8,), **SMALL)
SEVERAL = Sqil(hidden=(8,), num_envs=3, gradient_steps=2, **SMALL)
CRITIC = SoftQExpert(hidden=(8,), **{**SMALL, "steps": 250})


class Stepped:
    """An environment in JAX as the host sees it, its lanes drawing from the keys that `on_device` would use."""

    def __init__(self, env: AbstractEnv, keys: jax.Array, copies: int) -> None:
        split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
        self.actions, self._number, self._loop_keys = env.actions, 0, split[:, 2]
        self._state = jax.vmap(env.reset)(jax.vmap(lambda key: jax.random.split(key, copies))(split[:, 1]).ravel())
        self._observe = jax.jit(jax.vmap(env.observe))

        @jax.jit
        def step(loop_keys, number, states, actions):
            own = jax.vmap(lambda key: jax.random.split(round_keys(key, number)[1], copies))(loop_keys)
            return jax.vmap(env.step)(own.ravel(), states, actions)

        self._step = step

    @property
    def obs(self) -> np.ndarray:
        return np.asarray(self._observe(self._state))

    def step(self, actions: np.ndarray) -> Transition:
        self._state, seen = self._step(self._loop_keys, self._number, self._state, jnp.asarray(actions))
        self._number += 1
        return jax.tree.map(np.asarray, seen)


def demonstrations(env: AbstractEnv) -> Transitions:
    """Made up, and others in every lane: of several sizes too."""

    def one(seed):
        generator, rows = np.random.default_rng(seed), 20 + seed
        obs, following = generator.normal(size=(2, rows, *env.observation_shape)).astype(np.float32)
        action, who = generator.integers(0, [[env.actions], [DEMONSTRATORS]], (2, rows)).astype(np.int32)
        flags = generator.integers(0, 2, rows).astype(np.float32)
        return Transitions(obs, following, action, flags, who, obs[:3], np.asarray(rows, np.int32))

    return stack([one(seed) for seed in range(LANES)])


@pytest.mark.parametrize(
    "env, agent", [(CartPole(), IQ), (endless(), SQIL), (CartPole(), SEVERAL)], ids=["iq", "sqil", "several copies"]
)
def test_both_loops_agree(env, agent):
    """On what was played and on what was learnt from it, through ends of episodes and a full buffer."""
    keys, data = jax.random.split(jax.random.key(0), LANES), demonstrations(env)
    many = jax.jit(jax.vmap(lambda key, own: on_device(agent, key, env, own, DEMONSTRATORS)))
    device, info = many(keys, data)
    host, last = on_host(agent, keys, Stepped(env, keys, agent.num_envs), data, DEMONSTRATORS)
    ring = host.replay.ring
    assert np.any(ring.terminated | ring.truncated) and host.replay.added.tolist() == [60] * LANES
    assert not np.array_equal(ring.action[0], ring.action[1])
    assert host.learner.step.tolist() == [(agent.rounds - -(-10 // agent.num_envs)) * agent.gradient_steps] * LANES
    np.testing.assert_array_equal(device.replay.ring.action, ring.action)
    for one, other in zip(jax.tree.leaves((device, info.loss[:, -1])), jax.tree.leaves((host, last.loss)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def gymnasium_run(autoreset: str, progress=None):
    env = make_host("CartPole-v1", LANES, seed=1, autoreset=autoreset)
    assert isinstance(env, Lanes)
    state, info = on_host(CRITIC, jax.random.split(jax.random.key(0), LANES), env, progress=progress)
    env.close()
    return jax.tree.map(np.asarray, (state, info))


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_an_environment_of_gymnasium(autoreset):
    """Every lane learns from its own steps, one after the other; steps that only reset are left out."""
    state, info = gymnasium_run(autoreset)
    replay, ring = state.replay, state.replay.ring
    assert np.isfinite(info.loss).all() and state.learner.diverged.tolist() == [-1] * LANES
    for lane, added in enumerate(replay.added):
        newest = np.arange(added - 50, added) % 50  # oldest first
        seen = jax.tree.map(lambda leaf, lane=lane, newest=newest: leaf[lane][newest], ring)
        over = seen.terminated | seen.truncated
        np.testing.assert_array_equal(seen.next_obs[:-1][~over[:-1]], seen.obs[1:][~over[:-1]])
        assert over.any() and seen.valid.all() and np.all(seen.reward == 1)
        assert (np.abs(seen.obs[1:][over[:-1]]) <= 0.05).all()  # first observations
    wasted = CRITIC.steps - replay.added
    assert np.all(wasted > 0 if autoreset == "next_step" else wasted == 0)


def test_the_same_keys_and_seeds_give_the_same_run_on_the_host():
    """Whether or not one looks on; what is told is every hundredth step."""
    told = []
    watched, alone = gymnasium_run("same_step", lambda *both: told.append(both)), gymnasium_run("same_step")
    leaves = zip(jax.tree.leaves(watched), jax.tree.leaves(alone), strict=True)
    assert all(np.array_equal(one, other) for one, other in leaves)
    assert told == [(100, 250), (200, 250)]
