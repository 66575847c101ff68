"""Conformance: what holds for every algorithm on networks; and identities between them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from irleed.algorithm import init, train, update
from irleed.baselines.bc import BehaviourCloning
from irleed.baselines.ileed import Ileed
from irleed.data.transitions import Transitions
from irleed.demonstrator import gauge
from irleed.iq.soft_q import SoftQ

pytestmark = pytest.mark.optax

SMALL = {"hidden": (8,), "steps": 30, "batch": 8}
ALGORITHMS = {
    "irleed": SoftQ(**SMALL),
    "irleed, low rank": SoftQ(rank=2, **SMALL),
    "irleed, initial states": SoftQ(value="initial", **SMALL),
    "irleed, published": SoftQ.paper(**SMALL),
    "iq": SoftQ.iq(**SMALL),
    "ileed": Ileed(**SMALL),
    "bc": BehaviourCloning(**SMALL),
}
DEMONSTRATORS, ACTIONS = 3, 2
PRECISION = np.array([0.3, 3.0, 1.0])


@pytest.fixture(scope="module")
def data() -> Transitions:
    """Choices between two actions whose values differ by the observation's first entry, by three demonstrators."""
    generator = np.random.default_rng(0)
    rows = 600
    obs = generator.normal(size=(rows, 2)).astype(np.float32)
    who = np.arange(rows, dtype=np.int32) % DEMONSTRATORS
    right = generator.random(rows) < 1 / (1 + np.exp(-2 * PRECISION[who] * obs[:, 0]))
    return Transitions(
        obs=obs,
        next_obs=generator.normal(size=(rows, 2)).astype(np.float32),
        action=right.astype(np.int32),
        proceeds=np.ones(rows, np.float32),
        demonstrator=who,
        initial=obs[:5],
        size=np.asarray(rows, np.int32),
    )


def run(algorithm, key, data):
    return jax.jit(lambda *given: train(*given, ACTIONS, DEMONSTRATORS))(algorithm, key, data)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_conformance(name, data):
    """One shape of state, one trace; the key decides, and alone; a lane of a batch is the single run."""
    algorithm = ALGORITHMS[name]
    traces = []

    @jax.jit
    def both(keys, data):
        traces.append(1)
        return jax.vmap(lambda key: train(algorithm, key, data, ACTIONS, DEMONSTRATORS))(keys)

    keys = jax.random.split(jax.random.key(0), 2)
    state, info = both(keys, data)
    assert same(both(keys, data), (state, info)) and len(traces) == 1
    single, _ = run(algorithm, keys[1], data)
    for whole, part in zip(jax.tree.leaves(state), jax.tree.leaves(single), strict=True):
        np.testing.assert_allclose(whole[1], part, rtol=1e-3, atol=1e-5)
    assert not np.array_equal(info.loss[0], info.loss[1])
    assert state.step.tolist() == [30, 30] and state.diverged.tolist() == [-1, -1]
    start = init(algorithm, keys[0], data, ACTIONS, DEMONSTRATORS)
    after = jax.eval_shape(lambda s: update(algorithm, keys[0], s, data)[0], start)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert algorithm.log_precision(single.parameters, data).shape == (DEMONSTRATORS,)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_gradients_are_those_of_finite_differences(name, data):
    algorithm = ALGORITHMS[name]
    with jax.enable_x64(True):
        parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
        parameters = jax.tree.map(lambda leaf: leaf.astype(float), parameters)
        batch = jax.tree.map(lambda leaf: leaf[:20] if np.ndim(leaf) else leaf, data)
        batch = dataclasses.replace(batch, initial=batch.obs)

        def loss(parameters):  # NumPy's arrays, where differences are taken
            return algorithm.loss(jax.tree.map(jnp.asarray, parameters), batch)

        jax.test_util.check_grads(loss, [parameters], order=1, modes=["rev"], rtol=1e-3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_diverging_run_is_told(name, data):
    broken = eqx.tree_at(lambda d: d.obs, data, np.full_like(data.obs, np.nan))
    state, _ = run(ALGORITHMS[name], jax.random.key(0), broken)
    assert state.diverged == 0


def test_precision_one_and_bias_nought_is_iq_learn(data):
    """To the bit by both names; and the loss is IQ-Learn's, written out."""
    held = SoftQ(learn_precision=False, learn_bias=False, **SMALL)
    assert same(run(held, jax.random.key(0), data), run(ALGORITHMS["iq"], jax.random.key(0), data))
    algorithm = SoftQ.iq(temperature=0.5, penalty=0.7, **SMALL)
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 50)
    q, ahead = (np.asarray(jax.vmap(parameters.q)(x), float) for x in (batch.obs, batch.next_obs))
    value, after = (0.5 * np.log(np.sum(np.exp(x / 0.5), -1)) for x in (q, ahead))
    chosen = q[np.arange(50), batch.action]
    reward = chosen - 0.99 * np.asarray(batch.proceeds) * after
    np.testing.assert_allclose(algorithm.loss(parameters, batch), np.mean(value - chosen + 0.7 * reward**2), rtol=1e-4)


def test_unbiased_equal_demonstrators_have_the_loss_of_iq_learn(data):
    """As IRLEED with heads at zero starts out."""
    irleed, iq = ALGORITHMS["irleed, low rank"], ALGORITHMS["iq"]
    parameters = init(irleed, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 100)
    np.testing.assert_allclose(irleed.loss(parameters, batch), iq.loss(parameters, batch), rtol=1e-6)


def test_iq_learn_without_a_penalty_is_behaviour_cloning(data):
    """The paper's remark: no dynamics, no difference."""
    iq, bc = SoftQ.iq(penalty=0.0, **SMALL), ALGORITHMS["bc"]
    parameters = init(iq, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    cloned = init(bc, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    cloned = eqx.tree_at(lambda p: p.logits, cloned, parameters.q)
    batch = data.sample(jax.random.key(1), 100)
    np.testing.assert_allclose(iq.loss(parameters, batch), bc.loss(cloned, batch), rtol=1e-5)


def test_relabelled_demonstrators_permute_the_answer(data):
    """Where everyone starts alike, numbers are names and nothing else."""
    order = np.array([2, 0, 1])
    renamed = eqx.tree_at(lambda d: d.demonstrator, data, np.argsort(order)[data.demonstrator].astype(np.int32))
    algorithm = ALGORITHMS["irleed, low rank"]
    plain, other = (run(algorithm, jax.random.key(0), d)[0].parameters for d in (data, renamed))
    np.testing.assert_allclose(other.log_precision, plain.log_precision[order], atol=1e-5)
    np.testing.assert_allclose(other.bias.heads, plain.bias.heads[order], atol=1e-5)


@pytest.mark.parametrize(
    "algorithm",
    [
        SoftQ(hidden=(16,), steps=1500, rate=3e-3, bias_rate=3e-3, precision_rate=1e-2, penalty=0.01, bias_penalty=1.0),
        Ileed(hidden=(16,), steps=1500, rate=3e-3),
    ],
    ids=["irleed", "ileed"],
)
def test_the_order_of_precisions_is_recovered(algorithm, data):
    state, _ = run(algorithm, jax.random.key(0), data)
    found = algorithm.log_precision(state.parameters, data)
    assert list(np.argsort(found)) == list(np.argsort(PRECISION))
    np.testing.assert_allclose(gauge(jnp.asarray(found)), found, atol=1e-5)
    policy = algorithm.policy(state.parameters)
    right = jax.vmap(lambda o: policy.act(jax.random.key(0), o, greedy=True))(data.obs) == (data.obs[:, 0] > 0)
    assert np.mean(right) > 0.9
