"""The probes' values are the soft values of what their steps do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import PROBES, Probe, ProbeState

DISCOUNT = 0.9


def everything(probe: Probe):
    """One transition from every place by every action: all that there is to learn."""
    place, action = (jnp.asarray(x.ravel(), jnp.int32) for x in np.indices(probe.soft_q(DISCOUNT).shape))
    state = jax.vmap(ProbeState)(place, jnp.zeros_like(place))
    return jax.jit(jax.vmap(probe.step, (None, 0, 0)))(jax.random.key(0), state, action)[1]


@pytest.mark.parametrize("make", PROBES)
@pytest.mark.parametrize("discount", [0.5, DISCOUNT])
def test_values_solve_the_soft_bellman_equation(make, discount):
    """Of the transitions as an agent gets them: successors known by sight, no value after an end."""
    probe = make()
    q, seen = probe.soft_q(discount), everything(probe)
    reached = np.argmax(np.asarray(seen.next_obs) == probe.observations.T, -1)
    value = np.logaddexp.reduce(q, -1)[reached] * ~np.asarray(seen.terminated)
    np.testing.assert_allclose(q.ravel(), np.asarray(seen.reward) + discount * value, atol=1e-12)


@pytest.mark.parametrize("make", PROBES)
def test_walks_show_every_place_and_the_true_successor(make):
    probe, lanes, steps = make(), 16, 12

    def step(state, step_key):
        action_key, move_key = jax.random.split(step_key)
        actions = jax.random.randint(action_key, (lanes,), 0, probe.actions)
        return jax.vmap(probe.step)(jax.random.split(move_key, lanes), state, actions)

    @jax.jit
    def walk(key):
        start_key, walk_key = jax.random.split(key)
        state = jax.vmap(probe.reset)(jax.random.split(start_key, lanes))
        return jax.lax.scan(step, state, jax.random.split(walk_key, steps))[1]

    seen = walk(jax.random.key(0))
    over, obs, next_obs = (np.asarray(x) for x in (seen.terminated | seen.truncated, seen.obs, seen.next_obs))
    assert obs.shape == (steps, lanes, *probe.observation_shape)
    assert set(np.unique(obs)) == set(probe.observations.ravel())
    np.testing.assert_array_equal(obs[1:][~over[:-1]], next_obs[:-1][~over[:-1]])
    np.testing.assert_array_equal(over[probe.horizon - 1 :: probe.horizon], True)  # all episodes have that many steps
    assert over.sum() == lanes * steps // probe.horizon


@pytest.mark.parametrize("make", PROBES)
@pytest.mark.parametrize("double", [True, False])
def test_types_are_the_same_with_64_bits_and_without(make, double):
    with jax.enable_x64(double):
        state = jax.eval_shape(make().reset, jax.random.key(0))
        following, seen = jax.eval_shape(make().step, jax.random.key(0), state, jnp.asarray(1, jnp.int32))
    assert following == state
    assert seen.obs.dtype == seen.next_obs.dtype == seen.reward.dtype == jnp.float32


def test_what_the_docstrings_say():
    """The numbers themselves, at a discount of 0.9."""
    constant, choice, context, delay, endless = (make().soft_q(DISCOUNT) for make in PROBES)
    log_2 = np.log(2)
    np.testing.assert_array_equal(constant, [[1, 1]])
    np.testing.assert_array_equal(choice, [[0, 1]])
    np.testing.assert_array_equal(context, [[1, 0], [0, 1]])
    np.testing.assert_allclose(delay, [[0.9 * log_2, 0.9 * (1 + log_2)], [0, 0], [1, 1]])
    np.testing.assert_allclose(endless, np.array([[9, 9], [10, 10]]) + 9 * log_2)


def test_the_clock_alone_stops_the_endless_probe():
    """Taking its truncation for an end, or for a step to the next episode's start, gives other values."""
    probe = PROBES[-1]()
    state = ProbeState(place=jnp.asarray(1, jnp.int32), elapsed=jnp.asarray(1, jnp.int32))
    following, last = jax.jit(probe.step)(jax.random.key(0), state, jnp.asarray(0, jnp.int32))
    assert last.truncated and not last.terminated and float(last.next_obs[0]) == 1
    assert float(probe.observe(following)[0]) == 0 and int(following.elapsed) == 0
    right = probe.soft_q(DISCOUNT)[1, 0]
    value = np.logaddexp.reduce(probe.soft_q(DISCOUNT), -1)
    assert abs(right - 1) > 1 and abs(right - (1 + DISCOUNT * value[0])) > 0.5
