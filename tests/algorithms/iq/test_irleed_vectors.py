"""Continuous actions from demonstrations alone: conformance, identities, recovery."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import update

from irleed.algorithms.base import init, train
from irleed.algorithms.baselines import BehaviourCloning, Ileed
from irleed.algorithms.baselines.ileed import mixture_log_prob
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, SacIrleed
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Bounds
from irleed.model import mixed
from irleed.model.actions import SquashedGaussian, Squashing
from irleed.model.demonstrators import precision_weights

pytestmark = pytest.mark.optax

SMALL = {"hidden": (8,), "steps": 30, "batch_size": 8}
LEARNT = {**SMALL, "bias_learning_rate": 1e-3, "penalty": 0.1}
ALGORITHMS = {
    "irleed": OfflineIrleed.continuous(**LEARNT),
    "iq": OfflineIrleed.continuous(**IQ_LEARN, **SMALL, penalty=0.1),
    "cloning": BehaviourCloning.continuous(**SMALL),
    "ileed": Ileed.continuous(**SMALL),
}
ACTIONS, DEMONSTRATORS, ROWS = Bounds([-2.0], [2.0]), 3, 600
SPREAD = np.array([0.8, 0.1, 0.3])


@pytest.fixture(scope="module")
def data() -> Transitions:
    """The best action is half the first number seen; three demonstrators err from it by different amounts."""
    generator = np.random.default_rng(0)
    obs = generator.uniform(-1, 1, (ROWS, 2)).astype(np.float32)
    who = np.arange(ROWS, dtype=np.int32) % DEMONSTRATORS
    action = 0.5 * obs[:, :1] + SPREAD[who][:, None] * generator.normal(size=(ROWS, 1))
    return Transitions(
        obs=obs,
        next_obs=generator.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        action=np.clip(action, -2, 2).astype(np.float32),
        continuation=(np.arange(ROWS) % 4 > 0).astype(np.float32),
        demonstrator=who,
        initial=obs[:5],
        size=np.asarray(ROWS, np.int32),
    )


def run(algorithm, key, data):
    return jax.jit(lambda *given: train(*given, ACTIONS, DEMONSTRATORS))(algorithm, key, data)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_conformance(name, data):
    """One shape of state; the key decides, and alone; a lane of a batch is the single run."""
    algorithm, keys = ALGORITHMS[name], jax.random.split(jax.random.key(0), 2)
    both = jax.jit(lambda keys: jax.vmap(lambda key: train(algorithm, key, data, ACTIONS, DEMONSTRATORS))(keys))
    state, info = both(keys)
    assert same(both(keys), (state, info)) and not np.array_equal(info.loss[0], info.loss[1])
    single, _ = run(algorithm, keys[1], data)
    for whole, part in zip(jax.tree.leaves(state), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(whole[1], part, rtol=1e-3, atol=1e-5)
    start = jax.eval_shape(lambda: init(algorithm, keys[0], data, ACTIONS, DEMONSTRATORS))
    after = jax.eval_shape(lambda s: update(algorithm, keys[0], s, data)[0], start)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert algorithm.log_precision(single.parameters, data).shape == (DEMONSTRATORS,)
    assert np.array_equal(single.parameters.actor.head.half, [2.0])


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "irleed"])  # some of whose are held
def test_gradients_are_those_of_finite_differences(name, data, check_gradients):
    algorithm = ALGORITHMS[name]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 20)
    held = parameters.actor.head  # nothing is learnt of it
    check_gradients(lambda moved: algorithm.loss(eqx.tree_at(lambda p: p.actor.head, moved, held), batch), parameters)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_diverging_run_is_told(name, data):
    broken = eqx.tree_at(lambda d: d.obs, data, np.full_like(data.obs, np.nan))
    assert run(ALGORITHMS[name], jax.random.key(0), broken)[0].diverged == 0


@pytest.mark.parametrize("algorithm", [ALGORITHMS["iq"], ALGORITHMS["cloning"], SacIrleed.iq(hidden=(8,))])
def test_without_precision_and_bias_all_demonstrators_are_the_shared_policy(algorithm, data):
    """Their likelihood is that of the policy, whose standard deviation is learnt; their noise is not."""
    parameters = algorithm.parameters(jax.random.key(0), Inputs.plain(jnp.zeros(2, jnp.float32)), ACTIONS, 3)
    seen, done = jnp.asarray(data.obs[0]), jnp.asarray(data.action[0])
    found = algorithm.describe(parameters, seen, done, jnp.asarray(1))
    assert float(found.log_prob) == pytest.approx(float(algorithm.policy(parameters)(seen).log_prob(done)), rel=1e-6)
    assert np.isnan(found.bias)


@pytest.mark.parametrize("skill", [0.0, 1.0])
def test_certain_skill_has_finite_slopes(skill):
    """In single precision a sigmoid is soon 0 or 1 exactly."""
    squashing = Squashing.into(ACTIONS)

    def likelihood(mean, skill):
        policy = SquashedGaussian(mean[None], jnp.zeros(1, jnp.float32), squashing)
        return mixture_log_prob(policy, skill, jnp.asarray([0.5], jnp.float32))

    found, slopes = jax.value_and_grad(likelihood, (0, 1))(*jnp.asarray([0.1, skill], jnp.float32))
    assert np.isfinite(found) and np.all(np.isfinite(slopes))


def test_terms_are_those_of_values_quadratic_in_the_action(data):
    """The implied reward is Q(s, z) - discount V(s'), where V is the log of the integral of exp Q over z."""
    algorithm = ALGORITHMS["irleed"]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    rows = jax.tree.map(lambda leaf: leaf[:4], data.sample(jax.random.key(1), 20))
    terms, bias, _ = algorithm.terms(parameters, rows)
    place, weight = np.polynomial.legendre.leggauss(400)

    def level_mean_std(obs):
        own = parameters.actor(obs)
        return float(parameters.level(obs)[0]), float(own.mean[0]), float(np.exp(own.log_std[0]))

    def soft_value(obs):
        level, _, std = level_mean_std(obs)
        return np.log(10 * std * weight @ np.exp(level - 0.5 * (10 * place) ** 2))

    for row in range(4):
        value, after = soft_value(rows.obs[row]), soft_value(rows.next_obs[row])
        level, mean, std = level_mean_std(rows.obs[row])
        chosen = level - 0.5 * ((float(np.arctanh(rows.action[row, 0] / 2)) - mean) / std) ** 2
        ahead = 0.99 * float(rows.continuation[row]) * after
        found = [float(leaf[row]) for leaf in (terms.log_likelihood, terms.reward, terms.value_step)]
        np.testing.assert_allclose(found, [chosen - value, chosen - ahead, value - ahead], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(bias, np.zeros((4, 1)))  # networks start at zero


def test_precision_one_and_bias_zero_is_iq_learn_and_without_a_penalty_cloning(data):
    held = dataclasses.replace(ALGORITHMS["irleed"], **IQ_LEARN)
    assert same(run(held, jax.random.key(0), data), run(ALGORITHMS["iq"], jax.random.key(0), data))
    free = dataclasses.replace(ALGORITHMS["iq"], penalty=0.0)
    one, other = (run(algorithm, jax.random.key(0), data)[0] for algorithm in (free, ALGORITHMS["cloning"]))
    for own, cloned in zip(jax.tree.leaves(one.parameters.actor), jax.tree.leaves(other.parameters.actor), strict=True):
        np.testing.assert_allclose(own, cloned, rtol=1e-4, atol=1e-6)
    parameters = init(free, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 50)
    policy = free.policy(parameters)
    acting = policy.batch(batch.obs)
    likelihood = np.asarray(acting.logit(batch.action) - acting.log_partition())
    assert float(free.loss(parameters, batch)) == pytest.approx(-np.mean(likelihood), rel=1e-4)


def test_the_loss_is_that_of_iq_learn_weighted_by_precision_and_the_misfit(data):
    algorithm = ALGORITHMS["irleed"]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    parameters = eqx.tree_at(lambda p: p.log_precision, parameters, jnp.asarray([0.5, -0.4, -0.1], jnp.float32))
    batch = data.sample(jax.random.key(1), 50)
    every = jnp.ones(50, jnp.float32)
    weight = precision_weights(parameters.log_precision, batch.demonstrator, algorithm.precision_exponent, every)
    alone = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(50)]
    each = jnp.stack([ALGORITHMS["iq"].loss(parameters, row) for row in alone])
    shared = jnp.mean(weight * each)
    shift = jnp.zeros((50, 1), jnp.float32)  # heads at zero, as they start out
    found = float(algorithm.loss(parameters, batch))
    acting = parameters.actor.batch(batch.obs)
    misfit = mixed.noise_loss(acting, parameters.log_std, parameters.log_precision, batch, shift)
    assert found == pytest.approx(float(shared + misfit), rel=1e-5)


@pytest.mark.parametrize("name", ["irleed", "ileed"])
def test_the_order_of_precisions_and_the_best_action_are_recovered(name, data):
    changed = {"hidden": (16,), "steps": 2000, "batch_size": 32, "learning_rate": 3e-3}
    more = {"precision_learning_rate": 3e-3, "bias_learning_rate": 1e-4, "penalty": 0.01} if name != "ileed" else {}
    algorithm = dataclasses.replace(ALGORITHMS[name], **changed, **more)
    state, _ = run(algorithm, jax.random.key(0), data)
    found = algorithm.log_precision(state.parameters, data)
    assert list(np.argsort(found)) == list(np.argsort(-SPREAD))
    policy = algorithm.policy(state.parameters)
    best = jax.vmap(lambda o: policy.act(jax.random.key(0), o, greedy=True))(data.obs)
    assert np.abs(np.asarray(best) - 0.5 * data.obs[:, :1]).mean() < 0.1
