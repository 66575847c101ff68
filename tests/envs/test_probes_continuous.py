"""The soft values of the probes with continuous actions are those of what their steps do."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import CONTINUOUS_PROBES, ContinuousProbe, target, tracking
from probes import continuous_delay as delay

LANES = 64


def walk(probe: ContinuousProbe, steps: int):
    """Random actions within the bounds, as ``[T, L, ...]``."""
    bounds = probe.actions

    def step(state, step_key):
        action_key, move_key = jax.random.split(step_key)
        actions = jax.random.uniform(action_key, (LANES, bounds.size), jnp.float32, bounds.low[0], bounds.high[0])
        return jax.vmap(probe.step)(jax.random.split(move_key, LANES), state, actions)

    @jax.jit
    def walked(key):
        start_key, walk_key = jax.random.split(key)
        state = jax.vmap(probe.reset)(jax.random.split(start_key, LANES))
        return jax.lax.scan(step, state, jax.random.split(walk_key, steps))[1]

    return jax.tree.map(np.asarray, walked(jax.random.key(0)))


def log_normaliser(mean: float, bound: float, temperature: float) -> float:
    """Of exp(-(a - mean)^2 / T) within the bounds: a normal distribution that is cut off."""
    root = math.sqrt(temperature)
    return math.log(
        math.sqrt(math.pi * temperature) / 2 * (math.erf((bound - mean) / root) + math.erf((bound + mean) / root))
    )


@pytest.mark.parametrize("make", CONTINUOUS_PROBES)
@pytest.mark.parametrize("discount, temperature", [(0.9, 0.1), (0.5, 1.0)])
def test_values_solve_the_soft_bellman_equation(make, discount, temperature):
    """Of the transitions as an agent gets them: successors known by sight, no value after an end."""
    probe = make()
    seen = walk(probe, 4)
    expected, on = seen.reward.astype(float), ~seen.terminated
    expected[on] += discount * probe.soft_value(seen.next_obs[on], temperature, discount)
    np.testing.assert_allclose(probe.soft_q(seen.obs, seen.action, temperature, discount), expected, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 3.0])
def test_values_are_those_of_a_normal_distribution_within_bounds(temperature):
    first = target().soft_value(np.zeros((1,)), temperature, 0.9)
    np.testing.assert_allclose(first, temperature * log_normaliser(0.3, 1, temperature), atol=1e-10)
    for place in (-1.0, 0.0, 0.7):
        value = tracking().soft_value(np.array([place]), temperature, 0.9)
        np.testing.assert_allclose(value, temperature * log_normaliser(place / 2, 2, temperature), atol=1e-10)
        q = delay().soft_q(np.zeros(2), np.array([place]), temperature, 0.9)
        value = temperature * log_normaliser(place / 2, 1, temperature) - (place + 0.4) ** 2
        np.testing.assert_allclose(q, 0.9 * value, atol=1e-10)


@pytest.mark.parametrize("make, best", [(target, 0.3), (tracking, 0.0), (delay, -0.4)])
def test_the_density_is_one_and_highest_at_the_best_action(make, best):
    probe = make()
    actions = np.linspace(-probe.bound, probe.bound, 401)[:, None]
    obs = np.zeros((len(actions), *probe.observation_shape))
    density = np.exp(probe.log_density(obs, actions, 0.02, 0.9))
    np.testing.assert_allclose(np.trapezoid(density, actions[:, 0]), 1, atol=1e-6)
    np.testing.assert_allclose(actions[density.argmax(), 0], best, atol=1e-2)


@pytest.mark.parametrize("make", CONTINUOUS_PROBES)
def test_walks_keep_to_the_clock_and_show_the_true_successor(make):
    probe, steps = make(), 6
    seen = walk(probe, steps)
    assert seen.obs.shape == (steps, LANES, *probe.observation_shape) and seen.action.shape == (steps, LANES, 1)
    clock = np.arange(1, steps + 1)[:, None] + np.zeros(LANES)
    np.testing.assert_array_equal(seen.terminated, clock % probe.horizon == 0)
    assert not seen.truncated.any()
    on = ~seen.terminated[:-1]
    np.testing.assert_array_equal(seen.obs[1:][on], seen.next_obs[:-1][on])
    np.testing.assert_array_equal(seen.next_obs[:-1][on][:, :1], seen.action[:-1][on])
    start = seen.obs[:: probe.horizon]
    assert start[..., 0].min() >= probe.starts[0] and start[..., 0].max() <= probe.starts[1]
    assert (start[..., 0].std() > 0.5) == (make is tracking)  # as of a uniform distribution, or of one place
    assert np.abs(seen.action).max() > 0.9 * probe.bound


@pytest.mark.parametrize("make", CONTINUOUS_PROBES)
@pytest.mark.parametrize("double", [True, False])
def test_types_are_the_same_with_64_bits_and_without(make, double):
    with jax.enable_x64(double):
        state = jax.eval_shape(make().reset, jax.random.key(0))
        following, seen = jax.eval_shape(make().step, jax.random.key(0), state, jnp.zeros(1, jnp.float32))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), following) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert {seen.obs.dtype, seen.next_obs.dtype, seen.reward.dtype, seen.action.dtype} == {jnp.dtype(jnp.float32)}
