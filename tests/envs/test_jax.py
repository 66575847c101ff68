"""CartPole in JAX is Gymnasium's: the same motion, the same end; and a new episode begins where one ended."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.envs.jax import CartPole, CartPoleState


def played(seed: int, skill: float, episodes: int) -> list[dict[str, np.ndarray]]:
    """Whole episodes of Gymnasium's environment by a controller that acts at random now and then.

    `motion` has all T + 1 states in double precision, the other entries T.
    """
    env: Any = gymnasium.make("CartPole-v1")
    generator, played = np.random.default_rng(seed), []
    for episode in range(episodes):
        env.reset(seed=seed + episode)
        motion, rows, over = [env.unwrapped.state], [], False
        while not over:
            balanced = motion[-1] @ (0.1, 0.3, 3.0, 1.0) > 0
            action = int(balanced) if generator.random() < skill else int(generator.integers(2))
            obs, reward, terminated, truncated, _ = env.step(action)
            motion.append(env.unwrapped.state)
            rows.append((action, obs, reward, terminated, truncated and not terminated))
            over = terminated or truncated
        names = ("action", "next_obs", "reward", "terminated", "truncated")
        columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
        played.append({"motion": np.array(motion, float), **columns})
    env.close()
    return played


@jax.jit
def _scan(state: CartPoleState, actions: jax.Array):
    key = jax.random.key(0)
    return jax.lax.scan(lambda state, action: CartPole().step(key, state, action), state, actions)[1]


def replay(episode: dict[str, np.ndarray], steps: int):
    """The same actions from the same start, never looking at what Gymnasium made of them; at most `steps`."""
    state = CartPoleState(motion=jnp.asarray(episode["motion"][0], float), elapsed=jnp.zeros((), jnp.int32))
    actions = jnp.asarray(np.resize(episode["action"], steps), jnp.int32)  # of one length: compiled once
    length = min(steps, len(episode["action"]))
    return jax.tree.map(lambda x: np.asarray(x)[:length], _scan(state, actions)), length


@pytest.mark.parametrize("double, tolerance", [(True, 0), (False, 1e-5)])
def test_whole_episodes_at_random_are_the_same(double, tolerance):
    """From the same start by the same actions to the same end."""
    with jax.enable_x64(double):
        episodes = [e for e in played(0, 0.0, 60) if len(e["action"]) <= 60]
        assert len(episodes) > 50
        for episode in episodes:
            seen, _ = replay(episode, 60)
            np.testing.assert_allclose(seen.next_obs, episode["next_obs"], rtol=0, atol=tolerance)
            for name in ("reward", "terminated", "truncated"):
                np.testing.assert_array_equal(getattr(seen, name), episode[name])


def test_long_episodes_stay_together_for_hundreds_of_steps():
    """Rounding differences grow by 8 % a step; in double precision they do not show for 100, nor matter for 300."""
    for episode in played(1, 0.9, 8):
        seen, length = replay(episode, 300)
        np.testing.assert_array_equal(seen.next_obs[:100], episode["next_obs"][: min(100, length)])
        np.testing.assert_allclose(seen.next_obs, episode["next_obs"][:length], rtol=0, atol=1e-5)
        np.testing.assert_array_equal(seen.terminated, episode["terminated"][:length])


@pytest.mark.parametrize("double, tolerance", [(True, 1e-14), (False, 1e-6)])
def test_every_step_of_episodes_to_the_limit_is_the_same(double, tolerance):
    """From each state that Gymnasium was in, up to the 500th step of an episode that the clock stopped."""
    episodes = played(2, 0.95, 3) + played(2, 0.5, 5)
    assert any(e["truncated"][-1] for e in episodes) and any(e["terminated"][-1] for e in episodes)
    with jax.enable_x64(double):
        advance = jax.jit(jax.vmap(CartPole().advance, (None, 0, 0)))
        for episode in episodes:
            length = len(episode["action"])
            motion = jnp.asarray(np.resize(episode["motion"][:-1], (500, 4)), float)
            state = jax.vmap(CartPoleState)(motion, jnp.arange(500, dtype=jnp.int32))
            actions = jnp.asarray(np.resize(episode["action"], 500), jnp.int32)
            successor, reward, terminated, truncated = advance(jax.random.key(0), state, actions)
            ours = np.asarray(successor.motion)[:length]
            np.testing.assert_allclose(ours, episode["motion"][1:], rtol=0, atol=tolerance)
            np.testing.assert_array_equal(terminated[:length], episode["terminated"])
            np.testing.assert_array_equal(truncated[:length], episode["truncated"])
            assert reward.dtype == jnp.float32 and (reward == 1).all()


def test_the_next_episode_begins_where_one_ended():
    """`next_obs` is where the action led; the state is that of a new episode."""
    env, lanes, steps = CartPole(limit=15), 8, 60

    def step(state, step_key):
        action_key, move_key = jax.random.split(step_key)
        actions = jax.random.randint(action_key, (lanes,), 0, env.actions)
        following, transition = jax.vmap(env.step)(jax.random.split(move_key, lanes), state, actions)
        return following, (transition, state.elapsed)

    @jax.jit
    def walk(key):
        start_key, walk_key = jax.random.split(key)
        state = jax.vmap(env.reset)(jax.random.split(start_key, lanes))
        return jax.lax.scan(step, state, jax.random.split(walk_key, steps))[1]

    seen, elapsed = jax.tree.map(np.asarray, walk(jax.random.key(1)))
    over = seen.terminated | seen.truncated
    assert seen.obs.shape == (steps, lanes, *env.observation_shape) and seen.valid.all()
    assert seen.terminated.any() and seen.truncated.any() and not (seen.terminated & seen.truncated).any()
    started = seen.obs[1:][over[:-1]]
    np.testing.assert_array_equal(seen.obs[1:][~over[:-1]], seen.next_obs[:-1][~over[:-1]])
    assert (np.abs(started) <= 0.05).all() and len(np.unique(started, axis=0)) == len(started)  # each drawn anew
    assert (np.abs(seen.next_obs[over]).max(-1) > 0.05).all()
    np.testing.assert_array_equal(elapsed[1:] == 0, over[:-1])
    np.testing.assert_array_equal(seen.truncated, (elapsed == env.horizon - 1) & ~seen.terminated)


@pytest.mark.parametrize("double", [True, False])
def test_observations_and_rewards_are_in_single_precision(double):
    with jax.enable_x64(double):
        state = jax.eval_shape(CartPole().reset, jax.random.key(0))
        following, seen = jax.eval_shape(CartPole().step, jax.random.key(0), state, jnp.asarray(1, jnp.int32))
    assert following == state
    assert seen.obs.dtype == seen.next_obs.dtype == seen.reward.dtype == jnp.float32


def test_first_states_spread_over_the_same_range():
    motion = jax.vmap(CartPole().reset)(jax.random.split(jax.random.key(0), 4000)).motion
    assert np.abs(motion).max() <= 0.05
    np.testing.assert_allclose(np.asarray(motion).mean(0), 0, atol=0.002)
    np.testing.assert_allclose(np.asarray(motion).std(0), 0.1 / np.sqrt(12), rtol=0.05)
