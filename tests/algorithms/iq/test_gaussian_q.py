"""Continuous actions from demonstrations alone: conformance, identities, recovery."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.base import init, train, update
from irleed.algorithms.baselines.ileed_gaussian import GaussianIleed, SkillView
from irleed.algorithms.iq.gaussian_q import GaussianQ
from irleed.algorithms.iq.residuals import counts
from irleed.algorithms.iq.sac import Sac
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Bounds
from irleed.model.actions import Gaussian, GaussianView, Squashing

pytestmark = pytest.mark.optax

SMALL = {"hidden": (8,), "steps": 30, "batch": 8}
LEARNT = {**SMALL, "bias_rate": 1e-3, "penalty": 0.1}
ALGORITHMS = {
    "irleed": GaussianQ(**LEARNT),
    "irleed, own values": GaussianQ(own_values=True, **LEARNT),
    "irleed, own values, low rank": GaussianQ(own_values=True, rank=2, **LEARNT),
    "iq": GaussianQ.iq(**SMALL, penalty=0.1),
    "cloning": GaussianQ.cloning(**SMALL),
    "ileed": GaussianIleed(**SMALL),
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
        proceeds=(np.arange(ROWS) % 4 > 0).astype(np.float32),
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
    assert np.array_equal(single.parameters.squashing.half, [2.0])


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "irleed"])  # some of whose are held
def test_gradients_are_those_of_finite_differences(name, data, check_gradients):
    algorithm = ALGORITHMS[name]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 20)
    held = parameters.squashing  # nothing is learnt of it
    check_gradients(lambda moved: algorithm.loss(eqx.tree_at(lambda p: p.squashing, moved, held), batch), parameters)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_diverging_run_is_told(name, data):
    broken = eqx.tree_at(lambda d: d.obs, data, np.full_like(data.obs, np.nan))
    assert run(ALGORITHMS[name], jax.random.key(0), broken)[0].diverged == 0


@pytest.mark.parametrize("algorithm", [ALGORITHMS["iq"], ALGORITHMS["cloning"], Sac.iq(hidden=(8,))])
def test_without_demonstrators_of_their_own_everyone_is_the_shared_policy(algorithm, data):
    """Their likelihood is that of the policy, whose spread is learnt; that of demonstrators is not."""
    parameters = algorithm.parameters(jax.random.key(0), Inputs.plain(jnp.zeros(2, jnp.float32)), ACTIONS, 3)
    seen, done = jnp.asarray(data.obs[0]), jnp.asarray(data.action[0])
    policy = GaussianView(algorithm.policy(parameters).gaussian(seen), jnp.zeros(1), parameters.squashing)
    found = algorithm.view(parameters, seen, jnp.asarray(1))
    assert float(found.log_likelihood(done)) == pytest.approx(float(policy.log_likelihood(done)), rel=1e-6)
    assert np.isnan(found.sizes()[0])


@pytest.mark.parametrize("skill", [0.0, 1.0])
def test_certain_skill_has_finite_slopes(skill):
    """In single precision a sigmoid is soon 0 or 1 exactly."""
    squashing = Squashing.into(ACTIONS)

    def likelihood(mean, skill):
        policy = Gaussian(mean[None], jnp.zeros(1, jnp.float32))
        return SkillView(policy, skill, squashing).log_likelihood(jnp.asarray([0.5], jnp.float32))

    found, slopes = jax.value_and_grad(likelihood, (0, 1))(*jnp.asarray([0.1, skill], jnp.float32))
    assert np.isfinite(found) and np.all(np.isfinite(slopes))


def test_the_value_is_the_integral_over_actions(data):
    """V_i = log of the integral of exp(beta_i (Q + eps_i)), and the policy is what is left of it."""
    algorithm = ALGORITHMS["irleed, own values"]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    parameters = eqx.tree_at(lambda p: p.log_precision, parameters, jnp.asarray([0.5, -1.0, 0.2], jnp.float32))
    obs, who = jnp.asarray(data.obs[:3]), jnp.asarray(data.demonstrator[:3])
    (own, value), shift = algorithm.acting(parameters, obs, who), algorithm.shift(parameters, obs, who)
    shared = algorithm.policy(parameters)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    for row in range(3):
        gaussian, level = shared.gaussian(obs[row]), float(parameters.level(obs[row])[0])
        beta = float(jnp.exp(parameters.log_precision[who[row]] - jnp.mean(parameters.log_precision)))
        spread = float(jnp.exp(gaussian.log_spread[0]))
        mean = float(gaussian.mean[0]) + spread * float(shift[row, 0])
        place, weight = mean + 12 * spread * nodes / beta**0.5, 12 * spread * weights / beta**0.5
        pursued = beta * (level - 0.5 * ((place - mean) / spread) ** 2)
        assert float(value[row]) == pytest.approx(np.log(weight @ np.exp(pursued)), rel=1e-3)
        found = jax.tree.map(lambda leaf, row=row: leaf[row], own).log_density(jnp.asarray([0.3], jnp.float32))
        assert float(found) == pytest.approx(
            beta * (level - 0.5 * ((0.3 - mean) / spread) ** 2) - float(value[row]), rel=1e-3
        )


def test_precision_one_and_bias_nought_is_iq_learn_and_without_a_penalty_cloning(data):
    held = GaussianQ(learn_precision=False, learn_bias=False, penalty=0.1, **SMALL)
    assert same(run(held, jax.random.key(0), data), run(ALGORITHMS["iq"], jax.random.key(0), data))
    free = dataclasses.replace(ALGORITHMS["iq"], penalty=0.0)
    assert same(run(free, jax.random.key(0), data), run(ALGORITHMS["cloning"], jax.random.key(0), data))
    parameters = init(free, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 50)
    policy = free.policy(parameters)
    z = policy.squashing.unsquashed(batch.action)
    likelihood = [float(policy.gaussian(o).log_density(each)) for o, each in zip(batch.obs, z, strict=True)]
    assert float(free.loss(parameters, batch)) == pytest.approx(-np.mean(likelihood), rel=1e-4)


def test_unbiased_equal_demonstrators_have_the_loss_of_iq_learn(data):
    """As IRLEED with heads at zero starts out."""
    irleed, iq = ALGORITHMS["irleed, own values, low rank"], ALGORITHMS["iq"]
    parameters = init(irleed, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 100)
    np.testing.assert_allclose(irleed.loss(parameters, batch), iq.loss(parameters, batch), rtol=1e-6)


def test_who_counts_for_more_moves_the_shared_policy_alone(data):
    """Its loss is that of IQ-Learn by counts; and whatever demonstrators are learnt, it is for them no other policy."""
    algorithm = ALGORITHMS["irleed"]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    parameters = eqx.tree_at(lambda p: p.log_precision, parameters, jnp.asarray([0.5, -0.4, -0.1], jnp.float32))
    batch = data.sample(jax.random.key(1), 50)
    count = counts(parameters.log_precision, batch.demonstrator, algorithm.sharpness, jnp.ones(50, jnp.float32))
    alone = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch) for row in range(50)]
    each = jnp.stack([ALGORITHMS["iq"].loss(parameters, row) for row in alone])
    shared = jnp.mean(count * each)
    shift = jnp.zeros((50, 1), jnp.float32)  # heads at zero, as they start out
    found = float(algorithm.loss(parameters, batch))
    assert found == pytest.approx(float(shared + parameters.misfit(batch, shift)), rel=1e-5)
    moved = jax.grad(lambda p: p.misfit(batch, shift))(parameters)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(moved.actor))


@pytest.mark.parametrize("name", ["irleed", "irleed, own values", "ileed"])
def test_the_order_of_precisions_and_the_best_action_are_recovered(name, data):
    changed = {"hidden": (16,), "steps": 2000, "batch": 32, "rate": 3e-3}
    more = {"precision_rate": 3e-3, "bias_rate": 1e-4, "penalty": 0.01} if name != "ileed" else {}
    algorithm = dataclasses.replace(ALGORITHMS[name], **changed, **more)
    state, _ = run(algorithm, jax.random.key(0), data)
    found = algorithm.log_precision(state.parameters, data)
    assert list(np.argsort(found)) == list(np.argsort(-SPREAD))
    policy = algorithm.policy(state.parameters)
    best = jax.vmap(lambda o: policy.act(jax.random.key(0), o, greedy=True))(data.obs)
    assert np.abs(np.asarray(best) - 0.5 * data.obs[:, :1]).mean() < 0.1
