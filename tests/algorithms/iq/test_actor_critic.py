"""Continuous actions by playing: conformance and identities."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import on_device
from probes import tracking

from irleed import _compute as cores
from irleed.algorithms import agent as agents
from irleed.algorithms.experts import SacExpert
from irleed.algorithms.iq import IQ_LEARN, SacIrleed, actor_critic
from irleed.data.transitions import Transitions
from irleed.model.demonstrators import gauge

pytestmark = pytest.mark.optax

PLAIN = {"num_envs": 1, "gradient_steps": 1}
SMALL = {"hidden": (8,), "steps": 30, "batch_size": 8, "buffer_size": 20, "learning_starts": 10, **PLAIN}
AGENTS = {
    "irleed": SacIrleed(**SMALL),
    "irleed, published": SacIrleed.paper(**SMALL),
    "iq": SacIrleed.iq(**SMALL),
    "expert": SacExpert(anneal_lr=False, **SMALL),
}
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


def shown(name: str, data: Transitions) -> Transitions | None:
    """Experts learn from no demonstrations."""
    return None if name == "expert" else data


@eqx.filter_jit
def run(agent, key, data, env=ENV):
    return on_device(agent, key, env, data, DEMONSTRATORS)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


@pytest.mark.parametrize("name", [name for name in AGENTS if name != "iq"])  # which is irleed's program, held fixed
def test_conformance(name, data):
    """The key decides, and alone; a lane of a batch is the single run; the bounds stay what they are."""
    agent, own, keys = AGENTS[name], shown(name, data), jax.random.split(jax.random.key(0), 2)
    both = eqx.filter_jit(lambda keys, own: jax.vmap(lambda key: on_device(agent, key, ENV, own, DEMONSTRATORS))(keys))
    state, info = both(keys, own)
    assert same(both(keys, own), (state, info))
    assert not np.array_equal(info.loss[0], info.loss[1]) and np.all(np.isfinite(info.loss))
    single, _ = run(agent, keys[1], own)
    for whole, part in zip(jax.tree.leaves(state), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(whole[1], part, rtol=1e-3, atol=1e-4)
    assert single.learner.step == 30 - 10 and single.learner.diverged == -1 and single.replay.added == 30
    assert agent.log_precision(single.learner.parameters, data).shape == (DEMONSTRATORS,)
    np.testing.assert_array_equal(single.learner.parameters.actor.head.half, [2.0])


def test_runs_one_after_the_other_are_those_of_a_batch(data, monkeypatch):
    """As large networks learn on a CPU; the demonstrations are everyone's, the rest is each run's own."""
    agent, keys = AGENTS["irleed"], jax.random.split(jax.random.key(0), 2)
    state, _ = jax.jit(jax.vmap(lambda key: on_device(agent, key, ENV, data, DEMONSTRATORS)))(keys)
    found = []
    for large in (cores.LARGE, 0):
        monkeypatch.setattr(cores, "LARGE", large)
        every = jax.vmap(lambda key, own: agents.update(agent, key, own, data))
        found.append(jax.jit(every)(keys, state))
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert not np.array_equal(found[1][1].loss[0], found[1][1].loss[1])


@pytest.mark.parametrize("name", ["irleed", "expert"])
def test_a_diverging_run_is_told_by_its_step(name, data):
    agent, own = AGENTS[name], shown(name, data)
    state, _ = run(agent, jax.random.key(0), own)
    lost = eqx.tree_at(lambda s: s.replay.ring.obs, state, jnp.full_like(state.replay.ring.obs, jnp.nan))
    lost, info = eqx.filter_jit(agents.update)(agent, jax.random.key(1), lost, own)
    assert lost.learner.diverged == state.learner.step and np.isnan(info.loss)


def test_precision_one_and_bias_zero_is_iq_learn(data):
    """By both names to the bit; and with equal precisions what actor and critics learn is the same."""
    held = dataclasses.replace(AGENTS["irleed"], **IQ_LEARN)
    assert same(run(held, jax.random.key(0), data), run(AGENTS["iq"], jax.random.key(0), data))
    equal = SacIrleed(precision_learning_rate=0.0, **SMALL)
    irleed, iq = (run(agent, jax.random.key(0), data)[0].learner.parameters for agent in (equal, AGENTS["iq"]))
    for one, other in zip(jax.tree.leaves(irleed.critics), jax.tree.leaves(iq.critics), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(jax.tree.leaves(irleed.actor), jax.tree.leaves(iq.actor), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("objective", ["bounded", "paper"])
def test_values_ahead_are_bounded_but_for_the_papers(objective, data):
    """Critics that are far off move the loss only as far as a bounded value can."""
    agent = SacIrleed.iq(objective=objective, **SMALL)
    state = run(agent, jax.random.key(0), data)[0]
    rows = eqx.tree_at(lambda r: r.continuation, data.sample(jax.random.key(1), 16), jnp.ones(16, jnp.float32))
    losses = []
    for scale in (1e6, 1e7):
        mad = jax.tree.map(lambda leaf, scale=scale: scale * leaf, state.target.critics.networks.offsets)
        target = eqx.tree_at(lambda p: p.critics.networks.offsets, state.target, mad)
        losses.append(float(agent._critic_loss(jax.random.key(2), state.learner.parameters, target, rows)))
    assert (losses[0] == pytest.approx(losses[1], rel=0.5)) == (objective == "bounded")


def test_the_value_of_termination_is_learnt_from_who_terminates(data, monkeypatch):
    """Where all that is demonstrated terminates and all that is replayed does, it is neither good nor bad."""
    monkeypatch.setattr(actor_critic, "ESTIMATE_RATE", 1e-2)
    agent = SacIrleed.iq(**{**SMALL, "steps": 300, "learning_starts": 50, "buffer_size": 300})
    even, _ = run(agent, jax.random.key(0), data)
    assert abs(float(even.learner.parameters.terminal)) < 0.3
    endless = dataclasses.replace(data, continuation=np.ones(ROWS, np.float32))
    bad, _ = run(agent, jax.random.key(0), endless)
    assert float(bad.learner.parameters.terminal) < -0.8


@pytest.mark.parametrize("objective", ["bounded", "paper"])
@pytest.mark.parametrize("ends", ["neutral", "failure"])
def test_the_value_of_termination_if_it_is_held(ends, objective, data):
    """It is held but where it is neutral and bounded; where critics say 0 and all terminates, the loss is known."""
    agent = SacIrleed.iq(penalty=2.0, ends=ends, objective=objective, **SMALL)
    terminal = -0.5 if ends == "failure" else 0.0
    parameters = agent.parameters(jax.random.key(0), data.inputs, ENV.actions, DEMONSTRATORS)
    assert parameters.terminal == terminal
    assert (agent.learning_rates()["terminal"] > 0) == (ends == "neutral" and objective == "bounded")
    if objective == "paper" or ends == "neutral":
        return
    layers = (parameters.critics.networks.weights, parameters.critics.networks.offsets)
    silent = jax.tree.map(jnp.zeros_like, layers)
    parameters = eqx.tree_at(lambda p: (p.critics.networks.weights, p.critics.networks.offsets), parameters, silent)
    rows = data.sample(jax.random.key(1), 16)
    assert not np.any(rows.continuation)
    reward = -0.99 * terminal / (1 - 0.99)
    expected = 2 * 0.5 * 2.0 * ((reward - 0.5) ** 2 + (reward + 0.5) ** 2)
    assert float(agent._critic_loss(jax.random.key(2), parameters, parameters, rows)) == pytest.approx(expected, 1e-4)


@pytest.mark.parametrize("objective", ["bounded", "paper"])
def test_precision_is_that_of_a_soft_policy_that_loses_as_much(objective, data):
    """In closed form: by noise around what is best, and by getting into worse states than the best do."""
    noise, far = np.array([3.0, 1.0, 9.0]), np.array([0.0, 0.05, 0.5])
    agent = SacIrleed(objective=objective, temperature=0.02, penalty=2.0, **SMALL)
    parameters = agent.parameters(jax.random.key(0), data.inputs, ENV.actions, DEMONSTRATORS)
    known = jnp.asarray([0.5, 0.4, -0.5], jnp.float32), -jnp.log(jnp.asarray(noise, jnp.float32))
    parameters = eqx.tree_at(lambda p: (p.visited, p.log_precision), parameters, known)
    found = np.asarray(agent.log_precision(parameters, data))
    # A step, of one number; a reward is at most 1 / penalty. The paper's is by noise alone.
    lost = 0.5 * 0.02 * noise + (far if objective == "bounded" else 0.0)
    np.testing.assert_allclose(found - found[0], -np.log(lost / lost[0]), rtol=1e-5)
    np.testing.assert_allclose(found.mean(), 0, atol=1e-6)


def test_precision_is_lower_for_those_who_terminate_where_others_go_on(data, monkeypatch):
    """All of the agent's steps terminate, so that termination is bad; the first never does, the third always."""
    monkeypatch.setattr(actor_critic, "ESTIMATE_RATE", 1e-2)
    often = np.array([0.0, 0.5, 1.0])[data.demonstrator] > np.random.default_rng(1).uniform(size=ROWS)
    falling = dataclasses.replace(data, continuation=1 - often.astype(np.float32))
    agent = SacIrleed(**{**SMALL, "steps": 400, "learning_starts": 50, "buffer_size": 400})
    state, _ = run(agent, jax.random.key(0), falling)
    found = np.asarray(agent.log_precision(state.learner.parameters, falling))
    assert found[0] - found[1] > 1 and found[1] - found[2] > 0.3
    by_noise = np.asarray(gauge(state.learner.parameters.log_precision))
    assert not by_noise[0] - by_noise[1] > 1


@pytest.mark.parametrize("name", ["irleed", "irleed, published"])
def test_a_demonstrator_is_described_by_precision_and_bias(name, data):
    """More precision, more density at the greedy action; a bias has a size, and is not known to IQ-Learn."""
    agent = AGENTS[name]
    parameters = agent.parameters(jax.random.key(0), data.inputs, ENV.actions, DEMONSTRATORS)
    precision = jnp.asarray([2.0, 0.0, -2.0], jnp.float32)
    networks = jax.tree.map(lambda leaf: leaf + 0.1, parameters.bias.network.offsets)
    places = (lambda p: p.log_precision, lambda p: p.bias.network.offsets)
    parameters = eqx.tree_at(lambda p: tuple(place(p) for place in places), parameters, (precision, networks))
    seen = jnp.asarray(data.obs[0])
    greedy = agent.policy(parameters)(seen).mode()
    found = [agent.describe(parameters, seen, greedy, jnp.asarray(who)) for who in range(DEMONSTRATORS)]
    assert found[0].log_prob > found[2].log_prob and all(each.bias > 0 and each.shared == 1 for each in found)
    held = dataclasses.replace(agent, bias_learning_rate=None)
    alone = held.parameters(jax.random.key(0), data.inputs, ENV.actions, DEMONSTRATORS)
    assert np.isnan(held.describe(alone, seen, greedy, jnp.asarray(0)).bias)
