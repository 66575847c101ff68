"""Conformance: what holds for every algorithm on networks; and identities between them."""

import contextlib
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from loops import update
from scipy.optimize import minimize

from irleed.algorithms.base import advance, cosine_decay, init, train
from irleed.algorithms.baselines import BehaviourCloning, Ileed, Sqil
from irleed.algorithms.experts import SacExpert
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed, SacIrleed
from irleed.data.transitions import Transitions
from irleed.errors import ConfigError
from irleed.model.demonstrators import gauge

pytestmark = pytest.mark.optax

SMALL = {"hidden": (8,), "steps": 30, "batch_size": 8}
RATES = {"learning_rate": 1e-3, "precision_learning_rate": 1e-3, "bias_learning_rate": 1e-3}
IRLEED = {**SMALL, **RATES, "penalty": 5.0}  # not as they are tuned
WITHOUT = {**SMALL, "learning_rate": 1e-3, "penalty": 5.0}
SHORT = {"hidden": (8,), "steps": 2000, "batch_size": 20}
ALGORITHMS = {
    "irleed": OfflineIrleed(**IRLEED),
    "irleed, networks": OfflineIrleed(bias_hidden=(8,), **IRLEED),
    "irleed, published": OfflineIrleed.paper(**SMALL),
    "iq": OfflineIrleed.iq(**WITHOUT),
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
        continuation=np.ones(rows, np.float32),
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
    start = jax.eval_shape(lambda: init(algorithm, keys[0], data, ACTIONS, DEMONSTRATORS))
    after = jax.eval_shape(lambda s: update(algorithm, keys[0], s, data)[0], start)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == jax.tree.map(lambda x: (x.shape, x.dtype), after)
    assert algorithm.log_precision(single.parameters, data).shape == (DEMONSTRATORS,)


def test_what_is_drawn_ahead_is_what_single_steps_draw(data):
    algorithm, key = ALGORITHMS["irleed"], jax.random.key(3)
    state = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS)
    state, _ = jax.jit(lambda s: advance(algorithm, key, s, data, 4))(state)  # from the middle of a run
    ahead, info = jax.jit(lambda s: advance(algorithm, key, s, data, 3))(state)
    step = jax.jit(lambda s: update(algorithm, jax.random.fold_in(key, s.step), s, data))
    for number in range(3):
        state, own = step(state)
        np.testing.assert_allclose(own.loss, info.loss[number], rtol=1e-5)
    assert state.step == ahead.step == 7


@pytest.mark.parametrize("name", ALGORITHMS)
def test_gradients_are_those_of_finite_differences(name, data, check_gradients):
    algorithm = ALGORITHMS[name]
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 20)
    held = parameters.actor.head  # nothing is learnt of it
    check_gradients(lambda moved: algorithm.loss(eqx.tree_at(lambda p: p.actor.head, moved, held), batch), parameters)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_diverging_run_is_told(name, data):
    broken = eqx.tree_at(lambda d: d.obs, data, np.full_like(data.obs, np.nan))
    state, _ = run(ALGORITHMS[name], jax.random.key(0), broken)
    assert state.diverged == 0


def test_learning_rates_decay_to_zero():
    found = [cosine_decay(jnp.asarray(step), 100) for step in (0, 25, 50, 100, 150)]
    np.testing.assert_allclose(found, [1, 0.5 + 0.5**1.5, 0.5, 0, 0], atol=1e-6)


@pytest.mark.parametrize("decay", [True, False])
def test_an_annealed_run_has_come_to_rest(decay, data):
    """What Adam does after the last step changes nothing, unless rates are held."""
    algorithm = BehaviourCloning(**SMALL, anneal_lr=decay)
    state, _ = run(algorithm, jax.random.key(0), data)
    further, _ = jax.jit(update)(algorithm, jax.random.key(1), state, data)
    assert same(state.parameters, further.parameters) == decay and further.step == 31


def test_the_published_rates_are_held():
    assert OfflineIrleed().anneal_lr and not OfflineIrleed.paper().anneal_lr


def test_inputs_are_standardised_and_stay_so(data):
    """As the data are, from the first step to the last."""
    moved = eqx.tree_at(lambda d: d.obs, data, 5 + 100 * data.obs)
    state, _ = run(ALGORITHMS["irleed"], jax.random.key(0), moved)
    for network in (state.parameters.actor.network, state.parameters.bias):
        np.testing.assert_allclose(network.inputs.centre, moved.obs.mean(0), rtol=1e-5)
        np.testing.assert_allclose(network.inputs.spread, moved.obs.std(0), rtol=1e-5)


def test_precision_one_and_bias_nought_is_iq_learn(data):
    """To the bit by both names; and the loss is IQ-Learn's, written out."""
    held = OfflineIrleed(**{**IRLEED, **IQ_LEARN})
    assert same(run(held, jax.random.key(0), data), run(ALGORITHMS["iq"], jax.random.key(0), data))
    algorithm = OfflineIrleed.iq(temperature=0.5, penalty=0.7, **SMALL)
    parameters = init(algorithm, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 50)
    q, ahead = (np.asarray(jax.vmap(parameters.actor.network)(x), float) for x in (batch.obs, batch.next_obs))
    value, after = (0.5 * np.log(np.sum(np.exp(x / 0.5), -1)) for x in (q, ahead))
    chosen = q[np.arange(50), batch.action]
    reward = chosen - 0.99 * np.asarray(batch.continuation) * after
    np.testing.assert_allclose(algorithm.loss(parameters, batch), np.mean(value - chosen + 0.7 * reward**2), rtol=1e-4)


def test_unbiased_equal_demonstrators_have_the_loss_of_iq_learn(data):
    """As IRLEED with linear biases starts out."""
    irleed, iq = ALGORITHMS["irleed"], ALGORITHMS["iq"]
    parameters = init(irleed, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    batch = data.sample(jax.random.key(1), 100)
    np.testing.assert_allclose(irleed.loss(parameters, batch), iq.loss(parameters, batch), rtol=1e-6)


def test_iq_learn_without_a_penalty_is_behaviour_cloning(data):
    """The paper's remark: no dynamics, no difference."""
    iq, bc = OfflineIrleed.iq(penalty=0.0, **SMALL), ALGORITHMS["bc"]
    parameters = init(iq, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    cloned = init(bc, jax.random.key(0), data, ACTIONS, DEMONSTRATORS).parameters
    cloned = eqx.tree_at(lambda p: p.actor, cloned, parameters.actor)
    batch = data.sample(jax.random.key(1), 100)
    np.testing.assert_allclose(iq.loss(parameters, batch), bc.loss(cloned, batch), rtol=1e-5)


def test_failure_avoids_the_ends_that_half_of_the_demonstrations_choose():
    """One place, two actions: stay, or end it. What is learnt is the minimum over the two values."""
    choice = np.tile(np.array([0, 1], np.int32), 20)
    place = np.ones((40, 1), np.float32)
    first, size = place[:1], np.asarray(40, np.int32)
    data = Transitions(place, place, choice, 1 - choice.astype(np.float32), 0 * choice, first, size)

    def objective(q, penalty):
        value = np.logaddexp(*q)
        rewards = q - np.array([0.99 * value, 0.0])
        return value - q.mean() + penalty * np.mean(rewards**2)

    gained = {}
    for algorithm in (OfflineIrleed.iq(**SHORT), OfflineIrleed.failure(**IQ_LEARN, **SHORT)):
        q = train(algorithm, jax.random.key(0), data, 2, 1)[0].parameters.actor.network(place[0])
        best = minimize(objective, np.zeros(2), algorithm.penalty, tol=1e-10).x
        np.testing.assert_allclose(q, best, atol=0.1)
        gained[algorithm.penalty] = float(q[0] - q[1])
    assert gained[200.0] > 2.5 and abs(gained[0.5]) < 1.0


def test_what_biases_have_in_common_is_no_bias(data):
    """The shared policy is everyone's on average, the surer the more, at precision 1; how each is off averages out."""
    algorithm = dataclasses.replace(ALGORITHMS["irleed"], bias_scale=0.7, temperature=0.5)
    parameters, obs = run(algorithm, jax.random.key(0), data)[0].parameters, data.obs[0]
    offsets = jax.random.normal(jax.random.key(1), parameters.bias.offsets.shape)
    moved = offsets, jnp.array([0.3, -1.1, 0.5])
    parameters = eqx.tree_at(lambda p: (p.bias.offsets, p.log_precision), parameters, moved)
    who = jnp.arange(DEMONSTRATORS)
    beta = np.exp(np.asarray(gauge(parameters.log_precision)))
    bias = parameters.bias(jnp.tile(obs, (DEMONSTRATORS, 1)), who)
    values = (np.asarray(parameters.actor.network(obs)) + 0.7 * np.asarray(bias)) / 0.5
    logits = beta[:, None] * values
    for one, own in zip(who, logits, strict=True):
        for action in range(ACTIONS):
            found = algorithm.describe(parameters, obs, jnp.asarray(action), one)
            np.testing.assert_allclose(found.log_prob, jax.nn.log_softmax(own)[action], rtol=1e-4)
    np.testing.assert_allclose(algorithm.policy(parameters)(obs).logits, logits.mean(0) / beta.mean(), rtol=1e-4)
    centred = 0.5 * (values - values.mean(1, keepdims=True))  # in units of Q, for which T is a half
    shared = np.exp(parameters.log_precision) @ centred / np.exp(parameters.log_precision).sum()
    found = [algorithm.describe(parameters, obs, jnp.asarray(0), one) for one in who]
    np.testing.assert_allclose([each.shared for each in found], [np.mean(shared**2)] * DEMONSTRATORS, rtol=1e-4)
    np.testing.assert_allclose([each.bias for each in found], np.mean((centred - shared) ** 2, 1), rtol=1e-4)
    assert max(float(each.bias) for each in found) > 1e-6
    held = dataclasses.replace(algorithm, precision_learning_rate=None)  # precisions that are held count as well
    np.testing.assert_allclose(held.policy(parameters)(obs).logits, logits.mean(0) / beta.mean(), rtol=1e-4)


def test_relabelled_demonstrators_permute_the_answer(data):
    """Where everyone starts alike, numbers are names and nothing else."""
    order = np.array([2, 0, 1])
    renamed = eqx.tree_at(lambda d: d.demonstrator, data, np.argsort(order)[data.demonstrator].astype(np.int32))
    algorithm = ALGORITHMS["irleed"]
    plain, other = (run(algorithm, jax.random.key(0), d)[0].parameters for d in (data, renamed))
    np.testing.assert_allclose(other.log_precision, plain.log_precision[order], atol=1e-5)
    np.testing.assert_allclose(other.bias.weights, plain.bias.weights[order], atol=1e-5)


@pytest.mark.parametrize(
    "algorithm",
    [
        OfflineIrleed(
            hidden=(16,),
            steps=1500,
            learning_rate=3e-3,
            bias_learning_rate=3e-3,
            precision_learning_rate=1e-2,
            penalty=0.01,
            bias_penalty=1.0,
        ),
        Ileed(hidden=(16,), steps=1500, learning_rate=3e-3),
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


@contextlib.contextmanager
def without_checks_of_types():
    """As users run it: in tests, types are checked before the settings are."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


SETTINGS = [
    (OfflineIrleed, {"discount": 1.5}, "0 to 1"),
    (OfflineIrleed, {"learning_rate": -1e-3}, "0 or more"),
    (OfflineIrleed, {"penalty": float("nan")}, "0 or more"),
    (OfflineIrleed, {"batch_size": 0}, "1 or more"),
    (OfflineIrleed, {"hidden": (8, 0)}, "1 or more"),
    (OfflineIrleed, {"activation": "tanh"}, "'elu' or 'relu' or 'norm_relu'"),
    (SacIrleed, {"ends": "fail"}, "'neutral' or 'failure'"),
    (SacIrleed, {"objective": "published"}, "'bounded' or 'paper'"),
    (SacIrleed, {"discount": 1.0}, "below 1"),
    (SacIrleed, {"penalty": 0.0}, "above 0"),
    (SacIrleed, {"tau": 2.0}, "0 to 1"),
    (OnlineIrleed, {"replay_fraction": -0.1}, "0 to 1"),
    (Sqil, {"exploration": 1.1}, "0 to 1"),
    (Ileed, {"embedding": 0}, "1 or more"),
]


@pytest.mark.parametrize(("algorithm", "settings", "expected"), SETTINGS, ids=str)
def test_wrong_settings_are_refused_when_the_algorithm_is_built(algorithm, settings, expected):
    """By the algorithm itself, and where another is made from it; the checks of types in tests are not users'."""
    with without_checks_of_types(), pytest.raises(ConfigError) as caught:
        algorithm(**settings)
    (name,) = settings
    message = str(caught.value)
    assert message.startswith(f"{algorithm.__name__}.{name}: got") and f"expected {expected}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "algorithm", [OfflineIrleed, OnlineIrleed, SacIrleed, BehaviourCloning, Ileed, Sqil, SacExpert]
)
def test_algorithms_have_fewer_than_twenty_settings(algorithm):
    assert len(dataclasses.fields(algorithm)) < 20


def test_settings_can_be_swept_as_arrays():
    """They are leaves: checked where they are numbers, left alone where they are traced."""
    losses = jax.vmap(lambda rate: dataclasses.replace(OfflineIrleed(), learning_rate=rate).learning_rate)
    assert losses(jnp.asarray([1e-3, 1e-2])).shape == (2,)
    with pytest.raises(ConfigError):
        OfflineIrleed(learning_rate=jnp.asarray(-1.0))
