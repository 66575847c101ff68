"""Two ways to the same curvature: written out where that can be had, small where it cannot."""

import jax
import numpy as np
import pytest

from irleed.algorithms.tabular.curvature import Probed, Written
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.algorithms.tabular.visitation import Statistics
from irleed.algorithms.training import run_to_end
from irleed.envs.mdp import paper_gridworld

TRUTH = np.array([1.0, 0.3, 3.0])
EXACT = {"step_accuracy": 1e-10, "trace_accuracy": 1e-10, "planner_tolerance": 1e-12, "iterations": 500}


@pytest.fixture(scope="module")
def data(grid, play) -> tuple[np.ndarray, Statistics]:
    """True weights, and the statistics of three demonstrators who pursue them."""
    generator = np.random.default_rng(0)
    weights, bias = generator.normal(size=25), 0.1 * generator.normal(size=(3, 25))
    with jax.enable_x64(True):
        return weights, play(Soft(), 0, grid, grid, TRUTH, bias, weights)


def test_agrees_with_the_exact_estimate(data, grid, run):
    """The same order of precisions, nearly the same weights; and both near the truth."""
    truth, statistics = data
    exact = run(Irleed(), grid, statistics)
    probed = run(Irleed(curvature=Probed(probes=8)), grid, statistics)
    assert np.corrcoef(probed.weights, exact.weights)[0, 1] > 0.98
    assert np.corrcoef(probed.weights, truth)[0, 1] > 0.8
    for estimate in (exact, probed):
        assert list(np.argsort(estimate.demonstrators.precision)) == [1, 0, 2]
        assert estimate.to_gain <= Irleed().tolerance and estimate.step < Irleed().max_steps


@pytest.mark.parametrize("planner", [Soft(), Averaged()])
@pytest.mark.parametrize("learnt", [(True, True), (True, False), (False, True), (False, False)])
def test_the_same_step_and_the_same_evidence(data, grid, run, planner, learnt):
    """Conjugate gradients to the end take Newton's very step; many probes make the traces."""
    statistics = data[1]
    plan = grid if isinstance(planner, Soft) else grid.without_terminals()
    learn = dict(zip(("learn_precision", "learn_bias"), learnt, strict=True))
    state = run(Irleed(planner=planner, max_steps=6), plan, statistics)

    @jax.jit
    def look(state, mdp, statistics):
        algorithm = Irleed(planner=planner, **learn)
        _, slope = algorithm._likelihood(state, mdp, statistics.action_counts)
        gradient = algorithm._gradient(state, slope)
        point = algorithm._point(state, mdp, statistics.action_counts)
        return [way.newton(point, gradient, True) for way in (Written(), Probed(probes=300, **EXACT))]

    (written, evidence), (probed, estimated) = look(state, plan, statistics)
    for ours, exact in zip(probed, written, strict=True):
        np.testing.assert_allclose(ours, exact, atol=1e-6 * max(np.abs(exact).max(), 1e-3))
    np.testing.assert_allclose(estimated.parameters, evidence.parameters, atol=0.05 * evidence.parameters.max())
    np.testing.assert_allclose(estimated.information, evidence.information, atol=0.05)
    np.testing.assert_allclose(estimated.weights_determined, evidence.weights_determined, rtol=0.1)
    if learn["learn_bias"]:
        np.testing.assert_allclose(estimated.bias_determined, evidence.bias_determined, rtol=0.1)


def test_no_square_matrix_of_a_large_world():
    """Ten thousand states, a few steps: the loss falls, and memory stays far below one matrix of states by states."""
    mdp = paper_gridworld(100, slip=0.2).mdp
    generator = np.random.default_rng(0)
    counts = np.zeros((2, mdp.states, mdp.actions))
    for own in counts:
        np.add.at(own, (generator.integers(1, mdp.states - 1, 500), generator.integers(0, 2, 500)), 1.0)
    statistics = Statistics(counts, counts.sum(-1) / 10, np.full(2, 10.0), np.asarray(mdp.initial))
    algorithm = Irleed(curvature=Probed(), max_steps=5)

    def fit(mdp, statistics):
        state = run_to_end(algorithm, jax.random.key(0), mdp, statistics)
        return state, algorithm.judge(jax.random.key(0), state, mdp, statistics)

    program = jax.jit(fit)
    compiled = program.lower(mdp, statistics).compile()
    analysis = compiled.memory_analysis()
    assert (
        analysis.temp_size_in_bytes + analysis.output_size_in_bytes < mdp.states**2
    )  # bytes: an eighth of such a matrix
    state, judged = compiled(mdp, statistics)
    at_random = np.log(mdp.actions) * counts.sum()
    assert state.step == 5 and np.isfinite(state.weights).all()
    assert -np.sum(judged.log_likelihood) < 0.9 * at_random
