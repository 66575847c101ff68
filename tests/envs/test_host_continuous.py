"""Environments whose actions are vectors work as those with choices do, and what is out of bounds is refused."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from irleed.envs.host import HostEnv, make_host
from irleed.envs.step import Bounds, Transition
from irleed.errors import SpaceError

ECHO = "irleed-tests/Echo-v0"


class Echo(gymnasium.Env):
    """Shows the last action, as the engine got it, and ends after five; its actions are what the test says."""

    def __init__(self, space):
        self.observation_space, self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float64), space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        return np.array(action, np.float64), float(self.action_space.contains(action)), False, False, {}


@pytest.fixture(autouse=True)
def echo():
    gymnasium.register(ECHO, lambda **options: Echo(**options), max_episode_steps=5)
    yield
    gymnasium.registry.pop(ECHO)


def refusal(act) -> str:
    with pytest.raises(SpaceError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def play(host: HostEnv, steps: int) -> list[Transition]:
    generator, bounds = np.random.default_rng(0), host.actions
    assert isinstance(bounds, Bounds)
    draws = generator.uniform(bounds.low, bounds.high, (steps, host.lanes, bounds.size)).astype(np.float32)
    seen = [host.step(actions) for actions in draws]
    np.testing.assert_array_equal([step.action for step in seen], draws)
    host.close()
    return seen


def pendulum_angles(obs: np.ndarray) -> np.ndarray:
    return np.arctan2(obs[:, 1], obs[:, 0])


def test_pendulum_goes_where_its_equations_say():
    """The engine gets the very actions that are asked for; an episode ends by the clock and keeps its last sight."""
    host = make_host("Pendulum-v1", 3, seed=2, max_episode_steps=8)
    assert host.observation_shape == (3,)
    assert host.actions == Bounds(low=np.float32([-2]), high=np.float32([2]))
    seen = play(host, 30)
    assert sum(step.truncated.sum() for step in seen) == 9 and not any(step.terminated.any() for step in seen)
    for step in seen:
        assert (step.action.dtype, step.action.shape, step.obs.dtype) == (np.float32, (3, 1), np.float32)
        angle, speed, torque = pendulum_angles(step.obs), step.obs[:, 2], step.action[:, 0]
        next_speed = np.clip(speed + (15 * np.sin(angle) + 3 * torque) * 0.05, -8, 8)
        np.testing.assert_allclose(step.next_obs[:, 2], next_speed, atol=1e-5)
        np.testing.assert_allclose(step.reward, -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2), atol=1e-5)


def test_workers_give_the_same_steps():
    alone, spread = (play(make_host("Pendulum-v1", 3, seed=4, workers=n, max_episode_steps=8), 12) for n in (0, 2))
    for one, other in zip(alone, spread, strict=True):
        for name in ("obs", "next_obs", "reward", "truncated", "action"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_engine_gets_actions_of_its_own_kind(dtype):
    """What is beyond a bound by no more than rounding is the bound; any array library's actions will do."""
    host = make_host(ECHO, 2, space=spaces.Box(np.array([-1, 0]), np.array([1, 5]), dtype=dtype))
    seen = host.step(jnp.array([[-1 - 5e-7, 5.000004], [0.25, 0]], jnp.float32))
    np.testing.assert_array_equal(seen.action, np.float32([[-1, 5], [0.25, 0]]))
    np.testing.assert_array_equal(seen.next_obs, seen.action)
    np.testing.assert_array_equal(seen.reward, 1)
    host.close()


@pytest.mark.parametrize(
    "actions, parts",
    [
        ([[0.0, 1.0], [0.5, 5.25]], ("5.25 as number 1 of lane 1", "out of bounds by 0.25", "0.0 to 5.0")),
        ([[-1.5, 1.0], [0.5, 5.1]], ("-1.5 as number 0 of lane 0", "out of bounds by 0.5", "-1.0 to 1.0")),
        ([[0.0, np.nan], [0.0, 0.0]], ("nan as number 1 of lane 0", "finite")),
        ([[0.0, 0.0], [np.inf, 0.0]], ("inf as number 0 of lane 1", "finite")),
        ([[0.0, 1.0]], ("float64 of shape (1, 2)", "2 vectors of 2 numbers")),
        ([0.0, 1.0], ("float64 of shape (2,)", "2 vectors of 2 numbers")),
        ([[0, 1], [0, 1]], ("int64 of shape (2, 2)", "2 vectors of 2 numbers")),
    ],
)
def test_actions_that_do_not_exist_are_refused(actions, parts):
    host = make_host(ECHO, 2, space=spaces.Box(np.float32([-1, 0]), np.float32([1, 5])))
    message = refusal(lambda: host.step(np.array(actions)))
    assert all(part in message for part in (f"environment {ECHO}, actions", *parts)), message
    host.close()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "space, part",
    [
        (spaces.Box(-1, np.inf, (2,)), "finite bounds"),
        (spaces.Box(-3e38, 3e38, (2,)), "finite bounds"),
        (spaces.Box(np.float32([-1, 1]), np.float32([1, 1])), "the upper above the lower"),
        (spaces.Box(-1, 1, (2, 2)), "one list of real numbers"),
        (spaces.Box(0, 9, (2,), np.int32), "one list of real numbers"),
        (spaces.MultiDiscrete([2, 3]), "Discrete, or a Box"),
    ],
)
def test_spaces_that_do_not_suit_are_refused(space, part, workers):
    message = refusal(lambda: make_host(ECHO, 2, space=space, workers=workers))
    assert part in message and f"environment {ECHO}, actions: got {str(space)[:4]}" in message
