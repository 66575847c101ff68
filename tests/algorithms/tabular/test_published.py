"""The Lemma's gradients are those of the likelihood, and the published protocol does what it says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from irleed.algorithms.tabular.paper_protocol import Published, gradients
from irleed.algorithms.tabular.planning import Averaged, Soft, optimal_q_values
from irleed.algorithms.tabular.visitation import (
    Statistics,
    expected_features,
    expected_return,
    expected_visits,
    rollout,
    tabulate_rollouts,
)
from irleed.algorithms.training import run_to_end
from irleed.envs.mdp import FiniteMDP, gridworld, paper_gridworld
from irleed.model.demonstrators import boltzmann
from irleed.simulation.mdp import sample_demonstrators, simulate_rollouts

SOFT = Soft(tolerance=1e-12)


def policy_of(mdp: FiniteMDP, u) -> jax.Array:
    return jax.nn.softmax(SOFT.q_values(mdp, mdp.rewards(u)))


def starting(mdp: FiniteMDP, initial) -> FiniteMDP:
    return eqx.tree_at(lambda mdp: mdp.initial, mdp, initial)


def log_likelihood(parameters, mdp: FiniteMDP, counts) -> jax.Array:
    """The discounted log-likelihood of discounted action counts."""
    weights, precision, bias = parameters

    def one(precision, bias, count):
        return jnp.sum(count * boltzmann(SOFT.q_values(mdp, mdp.rewards(precision * (weights + bias)))))

    return jnp.sum(jax.vmap(one)(precision, bias, counts))


def check_lemma(mdp: FiniteMDP, counts, empirical, initial) -> None:
    """Lemma = automatic differentiation = finite differences, for two demonstrators who start from `initial`."""
    generator = np.random.default_rng(5)
    size = mdp.feature_count
    parameters = (generator.normal(size=size), np.array([0.5, 2.0]), 0.5 * generator.normal(size=(2, size)))

    @jax.jit
    def lemma(parameters, mdp, empirical, initial):
        weights, precision, bias = parameters
        perceived = precision[:, None] * (weights[None] + bias)
        expected = [expected_features(starting(mdp, initial[i]), policy_of(mdp, perceived[i])) for i in range(2)]
        found = gradients(weights, precision, bias, empirical, jnp.stack(expected))
        return found.weights, found.precision, found.bias

    value_and_gradient = jax.jit(jax.value_and_grad(log_likelihood))
    found = lemma(parameters, mdp, empirical, initial)
    automatic = value_and_gradient(parameters, mdp, counts)[1]
    for which, (by_lemma, by_machine) in enumerate(zip(found, automatic, strict=True)):
        np.testing.assert_allclose(by_lemma, by_machine, atol=1e-7)
        direction = generator.normal(size=by_lemma.shape)
        ends = []
        for way in (1e-5, -1e-5):
            moved = [x + way * direction if i == which else x for i, x in enumerate(parameters)]
            ends.append(value_and_gradient(tuple(moved), mdp, counts)[0])
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-5, np.vdot(by_lemma, direction), rtol=1e-5, atol=1e-6)


def test_gradients_on_complete_episodes():
    """Deterministic dynamics: the log-likelihood of step t counts by discount^t, episodes run until they end."""
    features = np.random.default_rng(0).normal(size=(6, 3))
    mdp = gridworld(2, 3, goals={5: 1.0}, discount=0.7, features=features).mdp
    play = jax.vmap(lambda key, mdp: rollout(key, mdp, jnp.full((6, 4), 0.25), 400), in_axes=(0, None))
    played = jax.tree.map(np.asarray, jax.jit(play)(jax.random.split(jax.random.key(1), 2 * 6), mdp))
    assert not played.alive[:, -1].any()
    counts, visits, initial = np.zeros((2, 6, 4)), np.zeros((2, 6)), np.zeros((2, 6))
    for episode in range(12):
        states, length = played.states[episode], played.alive[episode].sum()
        fade, own = mdp.discount ** np.arange(length + 1), episode // 6
        np.add.at(counts[own], (states[:length], played.actions[episode, :length]), fade[:-1] / 6)
        np.add.at(visits[own], states[: length + 1], fade / 6)
        initial[own, states[0]] += 1 / 6
    check_lemma(mdp, counts, visits @ features, initial)


@pytest.mark.parametrize("by_action", [False, True])
def test_gradients_on_exact_occupancies(random_mdp, by_action):
    """Stochastic dynamics: the discounted occupancies of some other policy stand for infinitely many episodes."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=(5, 3, 2) if by_action else (5, 2))
    mdp = random_mdp(3, features=features)
    exact = jax.jit(lambda mdp, policy: (expected_visits(mdp, policy), expected_features(mdp, policy)))
    parts = [exact(mdp, policy) for policy in generator.dirichlet(np.ones(3), (2, 5))]
    counts, empirical = np.stack([visits[1] for visits, _ in parts]), np.stack([features for _, features in parts])
    check_lemma(mdp, counts, empirical, np.stack([mdp.initial] * 2))


def test_shares_weigh_demonstrators_in_the_weights_gradient_alone():
    generator = np.random.default_rng(0)
    given = generator.normal(size=4), np.array([1.0, 2.0]), *generator.normal(size=(3, 2, 4))
    plain, shared = gradients(*given), gradients(*given, share=np.array([0.25, 0.75]))
    np.testing.assert_allclose(shared.weights, 0.25 * plain.bias[0] + 0.75 * plain.bias[1])
    np.testing.assert_allclose(plain.weights, plain.bias[0] + plain.bias[1])
    np.testing.assert_array_equal(shared.bias, plain.bias)
    np.testing.assert_array_equal(shared.precision, plain.precision)


def test_maximum_entropy_irl_is_as_good_as_its_average_teacher():
    """The paper's second Proposition: its policy's features, and so its return, are the demonstrators' mean."""
    mdp = gridworld(3, 4, goals={11: 1.0}, slip=0.2, discount=0.8).mdp

    @jax.jit
    def teach(key, mdp):
        precision, bias = sample_demonstrators(key, 4, 12, max_precision=10.0, accuracy=4.0)
        policies = jax.vmap(lambda p, b: policy_of(mdp, p * (mdp.reward + b)))(precision, bias)
        return jax.vmap(lambda policy: (expected_visits(mdp, policy), expected_return(mdp, policy)))(policies)

    (visits, counts), returns = jax.tree.map(np.asarray, teach(jax.random.key(0), mdp))

    def loss(weights, mdp, counts):
        return -log_likelihood((weights, jnp.ones(1), jnp.zeros((1, 12))), mdp, counts)

    slope = jax.jit(jax.value_and_grad(loss))
    fit = scipy.optimize.minimize(
        lambda w: tuple(map(np.asarray, slope(w, mdp, counts.mean(0, keepdims=True)))),
        np.zeros(12), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9},
    )  # fmt: skip

    @jax.jit
    def evaluate(mdp, weights):
        policy, best = policy_of(mdp, weights), jnp.argmax(optimal_q_values(mdp, mdp.reward), -1)
        greedy = jax.nn.one_hot(best, mdp.actions, dtype=policy.dtype)
        return expected_features(mdp, policy), expected_return(mdp, policy), expected_return(mdp, greedy)

    features, achieved, best = evaluate(mdp, fit.x)
    np.testing.assert_allclose(features, visits.mean(0), atol=1e-5)
    np.testing.assert_allclose(achieved, returns.mean(), atol=1e-5)
    assert achieved < returns.max() < best


# A small world and few episodes: what is tested is the order of steps, not the figures.
SMALL = Published(episodes=10, horizon=15, inner_steps=6)


@pytest.fixture(scope="module")
def data() -> tuple[FiniteMDP, Statistics]:
    """Three demonstrators of the paper's kind in a 4 x 4 grid."""
    with jax.enable_x64(True):
        mdp = paper_gridworld(4).mdp

        @jax.jit
        def play(key, mdp):
            skill_key, play_key = jax.random.split(key)
            skill = sample_demonstrators(skill_key, 3, 16, max_precision=3.0, accuracy=3.0)
            played = simulate_rollouts(play_key, mdp, Averaged(), *skill, 10, 15, mdp.without_terminals())
            return tabulate_rollouts(mdp, played)

        return mdp, jax.tree.map(np.asarray, play(jax.random.key(0), mdp))


run = jax.jit(lambda key, *given: run_to_end(given[0], key, *given[1:]))


def test_the_first_round_is_plain_irl(data):
    """Held at precision 1 and bias 0, the weights of the first round are the same; so are those of one round alone."""
    held = eqx.tree_at(lambda p: (p.precision_rate, p.bias_rate), SMALL, (0.0, 0.0))
    alone = Published(episodes=10, horizon=15, inner_steps=6, outer_rounds=1)
    free, plain, single = (run(jax.random.key(1), way, *data) for way in (SMALL, held, alone))
    np.testing.assert_array_equal(free.irl_weights, plain.irl_weights)
    np.testing.assert_array_equal(free.irl_weights, single.weights)
    np.testing.assert_array_equal(plain.precision, 1)
    np.testing.assert_array_equal(plain.bias, 0)
    assert np.all(free.weights != plain.weights) and np.all(free.precision != 1) and np.all(free.bias != 0)


def test_steps_and_rounds(data):
    """Six steps of the weights in each round, then one of the rest, at rates that fall with the rounds."""
    mdp, statistics = data
    update = jax.jit(SMALL.update)
    state = SMALL.init(mdp, statistics)
    np.testing.assert_array_equal(state.weights, 0.1)
    states, infos = [state], []
    while not SMALL.finished(state):
        state, info = update(jax.random.fold_in(jax.random.key(0), state.step), state, mdp, statistics)
        states.append(state)
        infos.append(info)
    assert len(states) - 1 == SMALL.max_steps == 14
    assert jax.tree.map(jax.typeof, states[0]) == jax.tree.map(jax.typeof, states[1])  # so that it is traced once
    for number, (before, after) in enumerate(zip(states[:-1], states[1:], strict=True)):
        outer, inner = divmod(number, 7)
        if inner < 6:
            np.testing.assert_array_equal(before.bias, after.bias)
            np.testing.assert_array_equal(before.precision, after.precision)
            turn = np.max(np.abs(np.log(np.asarray(after.weights / before.weights))))
            np.testing.assert_allclose(turn, 0.2 / (1 + inner) * infos[number].feature_error, rtol=1e-9)
        else:  # what the bias moved by gives the differences of features, these give the precision's step
            np.testing.assert_array_equal(before.weights, after.weights)
            difference = (after.bias - before.bias) / (0.1 / (1 + outer)) / before.precision[:, None]
            slope = np.sum((np.asarray(before.weights) + np.asarray(before.bias)) * difference, -1)
            expected = before.precision * np.exp(0.05 / (1 + outer) * slope)
            np.testing.assert_allclose(after.precision, expected, rtol=1e-9)
    again = run(jax.random.key(0), SMALL, mdp, statistics)
    np.testing.assert_allclose(again.weights, states[-1].weights, rtol=1e-9)


def test_a_round_ends_when_the_weights_settle(data):
    loose = eqx.tree_at(lambda p: p.tolerance, SMALL, np.inf)
    assert run(jax.random.key(0), loose, *data).step == 4  # one step each of the weights, and of the rest


def test_a_lane_of_a_batch_is_the_single_run(data):
    """Over seeds and a setting; and the same key gives the same bytes, another one others."""
    mdp, statistics = data
    keys, rates = jax.random.split(jax.random.key(3), 3), np.array([0.2, 0.1, 0.3])
    settings = eqx.tree_at(lambda p: p.weights_rate, SMALL, rates)
    axes = eqx.tree_at(lambda p: p.weights_rate, jax.tree.map(lambda _: None, SMALL), 0, is_leaf=lambda x: x is None)
    batch = jax.jit(jax.vmap(lambda key, *given: run_to_end(given[0], key, *given[1:]), in_axes=(0, axes, None, None)))
    lanes = batch(keys, settings, mdp, statistics)
    for lane, (key, rate) in enumerate(zip(keys, rates, strict=True)):
        single = run(key, eqx.tree_at(lambda p: p.weights_rate, SMALL, float(rate)), mdp, statistics)
        for part, whole in zip(jax.tree.leaves(single), jax.tree.leaves(lanes), strict=True):
            np.testing.assert_allclose(whole[lane], part, rtol=1e-9)
    again = batch(keys, settings, mdp, statistics)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(lanes), jax.tree.leaves(again), strict=True))
    assert not np.array_equal(lanes.weights[0], lanes.weights[1])
