"""The converged estimate: its special cases, its symmetries, its stationarity, and what it recovers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from irleed.algorithms.tabular.curvature import fisher_information
from irleed.algorithms.tabular.irleed import Irleed, negative_log_likelihood
from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.model.demonstrators import Demonstrators, Prior, gauge

PLANNERS = {"soft": Soft(tolerance=1e-12), "averaged": Averaged(tolerance=1e-12)}


class Reference:
    """Maximum-entropy IRL of pooled counts in plain NumPy: dense dynamics, derivatives by a linear solve."""

    def __init__(self, kind: str, mdp, counts: np.ndarray, prior: float):
        self.kind, self.mdp, self.counts, self.prior = kind, mdp, counts, prior
        state, action, successor, probability = mdp.transitions()
        self.dynamics = np.zeros((mdp.states, mdp.actions, mdp.states))
        np.add.at(self.dynamics, (state, action, successor), probability)

    def values(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Q, and its derivative with respect to the weights."""
        mdp, own = self.mdp, np.eye(self.mdp.states)
        if self.kind == "averaged":
            derivative = own[:, None] / mdp.discount + self.dynamics @ self.ahead(np.full((25, 4), 0.25))
            return derivative @ weights, derivative
        value, before = np.zeros(mdp.states), np.ones(mdp.states)
        while np.abs(value - before).max() > 1e-13:
            q = weights[:, None] + mdp.discount * self.dynamics @ value
            before, value = value, np.where(mdp.terminal, weights + np.log(4) / (1 - mdp.discount), log_sum_exp(q))
        policy = np.exp(q - log_sum_exp(q)[:, None])
        return q, own[:, None] + mdp.discount * self.dynamics @ self.ahead(policy)

    def ahead(self, policy: np.ndarray) -> np.ndarray:
        """Discounted visits to come, from every state."""
        step = np.einsum("sa,sat->st", policy * ~self.mdp.terminal[:, None], self.dynamics)
        return np.linalg.inv(np.eye(self.mdp.states) - self.mdp.discount * step)

    def loss(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        q, derivative = self.values(weights)
        log_policy = q - log_sum_exp(q)[:, None]
        pull = self.counts - self.counts.sum(-1, keepdims=True) * np.exp(log_policy)
        value = -np.sum(self.counts * log_policy) + 0.5 * self.prior * weights @ weights
        return value, -np.einsum("sa,saf->f", pull, derivative) + self.prior * weights

    def fit(self) -> np.ndarray:
        start = scipy.optimize.minimize(self.loss, np.zeros(self.mdp.states), jac=True, method="BFGS").x
        polished = scipy.optimize.root(lambda weights: self.loss(weights)[1], start, tol=1e-12)
        assert np.abs(self.loss(polished.x)[1]).max() < 1e-8
        return polished.x


def log_sum_exp(q: np.ndarray) -> np.ndarray:
    return np.logaddexp.reduce(q, -1)


def planned(mdp, kind: str):
    """The released program's planner goes with its protocol, in which no state ends the episode."""
    return mdp.without_terminals() if kind == "averaged" else mdp


@pytest.mark.parametrize("kind", PLANNERS)
def test_precision_one_and_bias_nought_is_maximum_entropy_irl(kind, batch, grid, run):
    """The same as an independent fit of the pooled counts, in weights and policy; and by both names, to the bit."""
    statistics, plan = batch.lane(0).statistics, planned(grid, kind)
    settings = {"planner": PLANNERS[kind], "tolerance": 1e-20, "max_steps": 200}
    state = run(Irleed.maxent(**settings), plan, statistics)
    np.testing.assert_array_equal(state.demonstrators.precision, 1)
    np.testing.assert_array_equal(state.demonstrators.bias, 0)
    reference = Reference(kind, plan, statistics.action_counts.sum(0), prior=1e-3)
    weights = reference.fit()
    np.testing.assert_allclose(state.weights - state.weights.mean(), weights - weights.mean(), atol=1e-4)
    policy = jax.nn.softmax(reference.values(np.asarray(state.weights))[0])
    np.testing.assert_allclose(policy, jax.nn.softmax(reference.values(weights)[0]), atol=1e-6)
    held = Irleed(learn_precision=False, learn_bias=False, evidence=False, prior=Prior(weights=1e-3), **settings)
    assert same_bytes(run(held, plan, statistics), state)


@pytest.mark.parametrize("kind", PLANNERS)
def test_expected_curvature(kind, grid, batch):
    """The Fisher information is the Hessian of the counts that its policy leads to expect; and never negative."""
    planner, plan = PLANNERS[kind], planned(grid, kind)
    first = batch.lane(0)
    u, count = first.state.demonstrators.perceived(first.state.weights)[0], first.statistics.action_counts[0]

    @jax.jit
    def both(u, count, mdp):
        policy = jax.nn.softmax(planner.q_values(mdp, mdp.rewards(u)))
        expected = policy * jnp.sum(count, -1, keepdims=True)
        hessian = jax.jacrev(jax.grad(lambda u: negative_log_likelihood(planner, mdp, expected[None], u[None])))
        return fisher_information(planner, mdp, count, u), hessian(u)

    information, hessian = both(u, count, plan)
    np.testing.assert_allclose(information, hessian, atol=1e-7 * np.abs(hessian).max())
    assert np.linalg.eigvalsh(information).min() > -1e-9 * np.abs(information).max()


def test_relabelled_demonstrators_permute_the_answer(batch, grid, run):
    order = np.array([2, 0, 1])
    statistics = batch.lane(1).statistics
    relabelled = eqx.tree_at(lambda s: s.action_counts, statistics, statistics.action_counts[order])
    plain, other = run(Irleed(), grid, statistics), run(Irleed(), grid, relabelled)
    np.testing.assert_allclose(other.weights, plain.weights, atol=1e-8)
    np.testing.assert_allclose(other.demonstrators.log_precision, plain.demonstrators.log_precision[order], atol=1e-8)
    np.testing.assert_allclose(other.demonstrators.bias, plain.demonstrators.bias[order], atol=1e-8)
    assert plain.step == other.step


def test_a_lane_of_a_batch_is_the_single_run_and_the_same_again(batch, grid, run):
    for number in (0, 7):
        lane = batch.lane(number)
        single = run(Irleed(), grid, lane.statistics)
        for part, whole in zip(jax.tree.leaves(single), jax.tree.leaves(lane.state), strict=True):
            np.testing.assert_allclose(whole, part, rtol=1e-8, atol=1e-8)
        assert same_bytes(run(Irleed(), grid, lane.statistics), single)
    assert not np.array_equal(batch.state.weights[0], batch.state.weights[7])


def test_every_data_set_converges(batch):
    """Within the steps there are, in the gauge, with numbers throughout."""
    assert np.all(batch.state.to_gain <= Irleed().tolerance)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(batch.state))
    np.testing.assert_allclose(batch.state.demonstrators.log_precision.sum(-1), 0, atol=1e-9)


def test_nothing_pulls_at_the_end(batch, grid, run):
    """The gradient by automatic differentiation, terms of the evidence as they came out, is as good as zero."""
    statistics = batch.lane(0).statistics
    state = run(Irleed(tolerance=1e-8), grid, statistics)

    @jax.jit
    def gradient(weights, demonstrators, mdp, counts, volume, widths):
        def objective(weights, demonstrators):
            loss = negative_log_likelihood(Soft(), mdp, counts, demonstrators.perceived(weights))
            prior = Prior(bias=widths[0], weights=widths[1])
            return loss + prior.penalty(weights, demonstrators) + jnp.vdot(volume, gauge(demonstrators.log_precision))

        return jax.grad(objective, argnums=(0, 1))(weights, demonstrators)

    widths = state.bias_prior.inverse, state.weight_prior.inverse
    fixed = grid, statistics.action_counts, state.volume, widths
    at_start = gradient(jnp.zeros(25), Demonstrators.unbiased(3, 25), *fixed)
    at_end = gradient(state.weights, state.demonstrators, *fixed)
    assert state.to_gain <= 1e-8 and np.abs(at_start[0]).max() > 1
    np.testing.assert_allclose(at_end[0], 0, atol=1e-3)
    np.testing.assert_allclose(at_end[1].log_precision, 0, atol=1e-3)
    np.testing.assert_allclose(at_end[1].bias / widths[0], 0, atol=1e-5)


@pytest.mark.parametrize("kind", PLANNERS)
def test_known_precisions_and_weights_are_recovered(kind, grid, run, play):
    """Three demonstrators a factor of three apart, sixty episodes each."""
    generator, plan = np.random.default_rng(0), planned(grid, kind)
    planner = Soft() if kind == "soft" else Averaged()
    truth = np.array([1.0, 0.3, 3.0])
    weights, bias = generator.normal(size=25), 0.1 * generator.normal(size=(3, 25))
    statistics = play(planner, 0, grid, plan, truth, bias, weights)
    state = run(Irleed(planner=planner), plan, statistics)
    found = np.asarray(state.demonstrators.precision)
    assert list(np.argsort(found)) == [1, 0, 2]
    np.testing.assert_allclose(np.log(found), np.log(truth), atol=0.6)
    assert np.corrcoef(state.weights, weights)[0, 1] > 0.85


def same_bytes(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)
