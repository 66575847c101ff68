"""Conformance: what holds for every agent that plays; their losses written out; what they learn where it is known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import on_device
from probes import context

from irleed.algorithms import agent as agents
from irleed.algorithms.baselines.sqil import Sqil
from irleed.algorithms.experts import SoftQExpert
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed
from irleed.data.transitions import Row, Transitions
from irleed.envs.jax import CartPole
from irleed.envs.step import Transition
from irleed.model.demonstrators import gauge

KEY = jax.random.key(3)  # of losses that draw nothing

pytestmark = pytest.mark.optax

HIDDEN = {"hidden": (8,)}
RATES = {"learning_rate": 1e-3, "precision_learning_rate": 1e-3, "bias_learning_rate": 1e-3}
IRLEED = {**HIDDEN, **RATES, "penalty": 5.0}  # not as they are tuned
SMALL = {"steps": 30, "batch_size": 8, "buffer_size": 20, "learning_starts": 10}
AGENTS = {
    "irleed": OnlineIrleed(learner=OfflineIrleed(**IRLEED), **SMALL),
    "networks": OnlineIrleed(learner=OfflineIrleed(bias_hidden=(8,), **IRLEED), **SMALL),
    "iq": OnlineIrleed(learner=OfflineIrleed(**{**IRLEED, **IQ_LEARN}), **SMALL),
    "sqil": Sqil(**HIDDEN, **SMALL),
    "critic": SoftQExpert(**HIDDEN, **SMALL),
}
ENV, DEMONSTRATORS, ROWS = CartPole(), 3, 60


@pytest.fixture(scope="module")
def data() -> Transitions:
    """Anything that could have been seen in CartPole; one in four rows is an end."""
    generator = np.random.default_rng(0)
    obs, following = generator.normal(size=(2, ROWS, 4)).astype(np.float32)
    return Transitions(
        obs=obs,
        next_obs=following,
        action=generator.integers(0, 2, ROWS).astype(np.int32),
        continuation=(np.arange(ROWS) % 4 > 0).astype(np.float32),
        demonstrator=np.arange(ROWS, dtype=np.int32) % DEMONSTRATORS,
        initial=obs[:5],
        size=np.asarray(ROWS, np.int32),
    )


def shown(name: str, data: Transitions) -> Transitions | None:
    """Experts learn from no demonstrations."""
    return None if name == "critic" else data


@eqx.filter_jit
def run(agent, key, data):
    return on_device(agent, key, ENV, data, DEMONSTRATORS)


@eqx.filter_jit
def begin(agent, key, data) -> agents.AgentState:
    """As `on_device` does."""
    _, example = ENV.step(key, ENV.reset(key), jnp.asarray(0, jnp.int32))
    return agents.init(agent, jax.random.split(key, 3)[0], example, ENV.actions, data, DEMONSTRATORS)


update = eqx.filter_jit(agents.update)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


def kinds(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


@pytest.mark.parametrize("name", AGENTS)
def test_conformance(name, data):
    """One shape of state; the key decides, and alone; a lane of a batch is the single run."""
    agent, own, keys = AGENTS[name], shown(name, data), jax.random.split(jax.random.key(0), 2)
    both = eqx.filter_jit(lambda keys, own: jax.vmap(lambda key: on_device(agent, key, ENV, own, DEMONSTRATORS))(keys))
    state, info = both(keys, own)
    assert same(both(keys, own), (state, info))
    assert not np.array_equal(info.loss[0], info.loss[1]) and np.all(np.isfinite(info.loss))
    single, _ = run(agent, keys[1], own)
    for whole, part in zip(jax.tree.leaves(state), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(whole[1], part, rtol=1e-3, atol=1e-5)
    assert kinds(jax.eval_shape(lambda: begin(agent, keys[0], own))) == kinds(single)
    assert single.learner.step == 30 - 10 and single.learner.diverged == -1 and single.replay.added == 30
    assert agent.log_precision(single.learner.parameters, data).shape == (DEMONSTRATORS,)


@pytest.mark.parametrize("name", AGENTS)
def test_nothing_is_learnt_before_there_is_enough_to_learn_from(name, data):
    """One step short of it all is as it began; with that step it is not."""
    start, own = begin(AGENTS[name], jax.random.key(0), shown(name, data)), shown(name, data)

    def updated(played):
        ready = eqx.tree_at(lambda s: s.replay.added, start, jnp.asarray(played, jnp.int32))
        return update(AGENTS[name], jax.random.key(1), ready, own)[0]

    cold, ready = updated(9), updated(10)
    assert same((cold.learner, cold.target), (start.learner, start.target))
    assert not same(ready.learner.parameters, start.learner.parameters) and ready.learner.step == 1
    assert not same(ready.target, start.target)


@pytest.mark.parametrize("name", AGENTS)
def test_a_diverging_run_is_told_by_its_step(name, data):
    """That of the first loss that was no number, whatever comes after."""
    agent, own = AGENTS[name], shown(name, data)
    state, _ = run(agent, jax.random.key(0), own)
    lost = eqx.tree_at(lambda s: s.replay.ring.obs, state, jnp.full_like(state.replay.ring.obs, jnp.nan))
    for _ in range(2):
        lost, info = update(agent, jax.random.key(1), lost, own)
        assert lost.learner.diverged == state.learner.step and np.isnan(info.loss)
    assert lost.learner.step == state.learner.step + 2


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_the_target_follows_at_its_rate(rate, data):
    """At a rate of 1 it is the parameters."""
    agent = dataclasses.replace(AGENTS["sqil"], tau=rate)
    before, _ = run(AGENTS["sqil"], jax.random.key(0), data)
    after, _ = update(agent, jax.random.key(1), before, data)
    new, old = jax.tree.leaves(after.learner.parameters), jax.tree.leaves(before.target)
    for found, start, end in zip(jax.tree.leaves(after.target), old, new, strict=True):
        np.testing.assert_allclose(found, (1 - rate) * start + rate * end, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exploration", [0.0, 0.4, 1.0])
def test_actions_are_the_policys_but_for_a_random_share(exploration, data):
    agent = dataclasses.replace(AGENTS["sqil"], exploration=exploration)
    state, obs = begin(agent, jax.random.key(0), data), jnp.asarray([3.0, -2.0, 1.0, 2.0], jnp.float32)
    likely = jax.nn.softmax(agent.policy(state.learner.parameters)(obs).logits)
    assert abs(likely[0] - 0.5) > 0.1
    acted = jax.jit(jax.vmap(lambda key: agents.act(agent, key, state, obs[None])[0]))(
        jax.random.split(jax.random.key(1), 4000)
    )
    np.testing.assert_allclose(np.bincount(acted) / 4000, (1 - exploration) * likely + exploration / 2, atol=0.03)


class Case(eqx.Module):
    """A batch of each kind, and parameters that differ from their target."""

    parameters: eqx.Module
    target: eqx.Module
    played: Transition
    shown: Row


def case(agent, data: Transitions, count: int = 20) -> Case:
    """Of what was played, some rows ended and some were cut short; precisions and biases are not those of the start."""
    parameters, target = (begin(agent, jax.random.key(seed), data).learner.parameters for seed in (0, 1))
    if hasattr(parameters, "log_precision"):
        parameters = eqx.tree_at(lambda p: p.log_precision, parameters, jnp.asarray([0.5, -1.0, 0.8], jnp.float32))
    row, number = data.sample(jax.random.key(2), count), np.arange(count)
    played = Transition(
        obs=-row.next_obs,
        action=1 - row.action,
        reward=jnp.ones(count, jnp.float32),
        terminated=number % 3 == 0,
        truncated=number % 3 == 1,
        next_obs=-row.obs,
        valid=np.ones(count, bool),
    )
    return Case(parameters, target, played, data.sample(jax.random.key(3), count))


@pytest.mark.parametrize("name", ["irleed", "iq", "sqil"])
def test_gradients_are_those_of_finite_differences(name, data, check_gradients):
    one = case(AGENTS[name], data)
    held = one.parameters.actor.head  # nothing is learnt of it

    def loss(moved):
        moved = eqx.tree_at(lambda p: p.actor.head, moved, held)
        return AGENTS[name].loss(KEY, moved, one.target, one.played, one.shown)

    check_gradients(loss, one.parameters)


def table(network, obs) -> np.ndarray:
    return np.asarray(jax.vmap(network)(jnp.asarray(obs)), float)


def soft(q: np.ndarray, temperature: float) -> np.ndarray:
    return temperature * np.log(np.sum(np.exp(q / temperature), -1))


@pytest.mark.parametrize("name", ["irleed", "iq"])
def test_the_loss_online_is_that_of_inverse_soft_q_learning_over_a_mixture(name, data):
    """Written out; a played transition has the values of whoever took the demonstrated one, IQ-Learn's are Q itself."""
    learner = dataclasses.replace(AGENTS[name].learner, temperature=0.5, penalty=0.7, bias_scale=0.3, bias_penalty=0.2)
    agent = dataclasses.replace(AGENTS[name], learner=learner, replay_fraction=0.2)
    one, rows = case(agent, data), np.arange(20)
    who = one.shown.demonstrator

    def values(parameters, obs):
        q = table(parameters.actor.network, obs)
        if name == "iq":
            return q, 0 * q
        bias = np.asarray(parameters.bias(jnp.asarray(obs), who), float)
        return np.exp(gauge(parameters.log_precision))[who, None] * (q + 0.3 * bias), bias

    def terms(batch, continuation):
        q, bias = values(one.parameters, batch.obs)
        after = 0.99 * continuation * soft(values(one.parameters, batch.next_obs)[0], 0.5)
        return q[rows, batch.action] - after, soft(q, 0.5) - after, bias

    reward, step, bias = terms(one.shown, np.asarray(one.shown.continuation))
    played_reward, played_step, _ = terms(one.played, ~one.played.terminated)
    mixed = [0.8 * shown + 0.2 * played for shown, played in ((step, played_step), (reward**2, played_reward**2))]
    expected = np.mean(-reward + mixed[0] + 0.7 * mixed[1])
    expected += 0.2 * np.mean(bias**2)
    np.testing.assert_allclose(agent.loss(KEY, one.parameters, one.target, one.played, one.shown), expected, rtol=1e-4)


def test_unbiased_equal_demonstrators_have_the_loss_of_iq_learn(data):
    """As online IRLEED with linear biases starts out."""
    irleed = dataclasses.replace(AGENTS["irleed"], learner=OfflineIrleed(**IRLEED))
    one = case(irleed, data)
    equal = eqx.tree_at(lambda p: p.log_precision, one.parameters, jnp.zeros(DEMONSTRATORS, jnp.float32))
    losses = [agent.loss(KEY, equal, one.target, one.played, one.shown) for agent in (irleed, AGENTS["iq"])]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_the_loss_of_sqil(data):
    """Written out: reward 1 for what was shown, 0 for what was played; values ahead are the target's."""
    agent = dataclasses.replace(AGENTS["sqil"], temperature=0.5, discount=0.9)
    one, rows = case(agent, data), np.arange(20)

    def error(batch, reward, continuation):
        goal = reward + 0.9 * continuation * soft(table(one.target.q, batch.next_obs), 0.5)
        return np.mean((table(one.parameters.q, batch.obs)[rows, batch.action] - goal) ** 2)

    expected = error(one.shown, 1.0, np.asarray(one.shown.continuation)) + error(
        one.played, 0.0, ~one.played.terminated
    )
    np.testing.assert_allclose(
        agent.loss(KEY, one.parameters, one.target, one.played, one.shown), expected / 2, rtol=1e-4
    )


@pytest.fixture(scope="module")
def contrary() -> Transitions:
    """Demonstrations in the probe `context`: in each place the action that its reward speaks against."""
    number = np.arange(2, dtype=np.int32)
    obs = context().observations
    return Transitions(obs, obs, 1 - number, np.zeros(2, np.float32), 0 * number, obs, np.asarray(2, np.int32))


LONGER = {"steps": 2500, "batch_size": 32, "buffer_size": 300, "learning_starts": 50}


def learnt(agent, data: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Values of the action that was shown and of the other, in both places."""
    probe = context()
    state = jax.jit(lambda key: on_device(agent, key, probe, data, 1)[0])(jax.random.key(0))
    q = table(state.learner.parameters.actor.network, probe.observations)
    assert np.argmax(q, -1).tolist() == data.action.tolist()
    return q[np.arange(2), data.action], q[np.arange(2), 1 - data.action]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_sqil_takes_what_was_shown_whatever_it_is_worth(contrary):
    """An action that was shown in half of all rows and played with probability p has the value 1 / (1 + p)."""
    good, bad = learnt(Sqil(hidden=(16,), learning_rate=3e-3, **LONGER), contrary)
    np.testing.assert_allclose(bad, 0, atol=0.1)
    np.testing.assert_allclose(good, 1 / (1 + sigmoid(good - bad)), atol=0.1)


def test_inverse_soft_q_learning_takes_what_was_shown_whatever_it_is_worth(contrary):
    r"""Where every step is the last, $-Q(a) + V + c\,(Q(a)^2 + E_\pi Q^2) / 2$ is least: its derivatives vanish."""
    often = {**LONGER, "steps": 20_000, "num_envs": 8, "buffer_size": 4000}  # the other action is rarely played
    learner = OfflineIrleed.iq(hidden=(16,), learning_rate=3e-3, penalty=0.5)
    good, bad = learnt(OnlineIrleed(learner=learner, replay_fraction=0.5, **often), contrary)
    p = sigmoid(good - bad)
    np.testing.assert_allclose(bad, -2, atol=0.2)
    np.testing.assert_allclose(0.5 * good * (1 + p), 1 - p, atol=0.05)
