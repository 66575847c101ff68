"""Continuous actions by playing: probes with known answers."""

import equinox as eqx
import jax
import numpy as np
import pytest
from loops import on_device
from probes import continuous_delay as delay
from probes import target, tracking

from irleed.algorithms.experts import SacExpert
from irleed.algorithms.iq import SacIrleed
from irleed.data.transitions import Transitions
from irleed.model.demonstrators import gauge

pytestmark = pytest.mark.optax

ENV, DEMONSTRATORS, ROWS = tracking(), 3, 600
SPREAD, SHIFT = np.array([0.05, 0.2, 0.8]), np.array([0.0, 0.0, 0.5])


@pytest.fixture(scope="module")
def data() -> Transitions:
    """The best action is half of what is seen; one demonstrator is good, one errs, one errs more and to one side."""
    generator = np.random.default_rng(0)
    obs = generator.uniform(-1, 1, (ROWS, 1)).astype(np.float32)
    who = np.arange(ROWS, dtype=np.int32) % DEMONSTRATORS
    action = 0.5 * obs + (SPREAD[who] * generator.normal(size=ROWS) + SHIFT[who])[:, None]
    ends, size = np.zeros(ROWS, np.float32), np.asarray(ROWS, np.int32)
    return Transitions(obs, obs, np.clip(action, -2, 2).astype(np.float32), ends, who, obs[:10], size)


@eqx.filter_jit
def run(agent, key, data, env=ENV):
    return on_device(agent, key, env, data, DEMONSTRATORS)


def learnt(agent, state, obs) -> np.ndarray:
    """The actions that are deemed best."""
    policy = agent.policy(state.learner.parameters)
    return np.asarray(jax.vmap(lambda each: policy.act(jax.random.key(0), each, greedy=True))(obs))


PROBE = {"num_envs": 1, "gradient_steps": 1, "learning_starts": 200}
PROBE |= {"hidden": (32,), "batch_size": 32, "learning_rate": 1e-3}


@pytest.mark.parametrize(
    ("env", "obs", "best"),
    [
        (target(), np.zeros((1, 1)), np.array([[0.3]])),
        (tracking(), np.array([[-0.8], [0.0], [0.8]]), np.array([[-0.4], [0.0], [0.4]])),
    ],
    ids=["target", "tracking"],
)
def test_experts_learn_what_is_best(env, obs, best):
    agent = SacExpert(**PROBE, anneal_lr=False, steps=2500, buffer_size=2500)
    state, _ = run(agent, jax.random.key(0), None, env)
    np.testing.assert_allclose(learnt(agent, state, obs.astype(np.float32)), best, atol=0.1)


def test_experts_look_ahead():
    """The first of two actions has no reward of its own, and decides what the second can earn."""
    env = delay()
    agent = SacExpert(**PROBE, anneal_lr=False, steps=2500, buffer_size=2500)
    state, _ = run(agent, jax.random.key(0), None, env)
    start = env.observe(env.reset(jax.random.key(5)))[None]
    chosen = learnt(agent, state, start)
    grid = np.linspace(-1, 1, 41, dtype=np.float32)[:, None]
    values = env.soft_q(np.repeat(np.asarray(start), 41, 0), grid, 0.05, 0.99)
    assert values[np.abs(grid - chosen).argmin()] > values.max() - 0.1 * np.ptp(values)


def test_irleed_learns_from_the_good_and_iq_learn_from_all(data):
    """The best action, and who is how precise; what is learnt from all alike is dragged to one side."""
    settings = {**PROBE, "steps": 3000, "buffer_size": 3000, "actor_learning_rate": 1e-3}
    obs = np.array([[-0.5], [0.0], [0.5]], np.float32)
    irleed = SacIrleed(**settings, precision_learning_rate=1e-3)
    state, _ = run(irleed, jax.random.key(1), data)
    np.testing.assert_allclose(learnt(irleed, state, obs), 0.5 * obs, atol=0.12)
    parameters = state.learner.parameters
    for precision in (gauge(parameters.log_precision), irleed.log_precision(parameters, data)):  # of actions; in all
        assert list(np.argsort(-precision)) == [0, 1, 2] and precision[0] - precision[2] > 2
    iq = SacIrleed.iq(**settings)
    other, _ = run(iq, jax.random.key(1), data)
    error = [np.abs(learnt(agent, each, obs) - 0.5 * obs).mean() for agent, each in ((irleed, state), (iq, other))]
    assert error[0] < error[1]
