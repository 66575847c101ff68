"""The estimate by L-BFGS and diagonals: near the exact one where that can be had, small where it cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.envs.gridworld import paper_gridworld
from irleed.run import run_to_end
from irleed.tabular.irleed import Irleed
from irleed.tabular.large import LargeIrleed
from irleed.tabular.planning import Soft
from irleed.tabular.statistics import Statistics

pytestmark = pytest.mark.optax

TRUTH = np.array([1.0, 0.3, 3.0])


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
    exact, large = run(Irleed(), grid, statistics), run(LargeIrleed(), grid, statistics)
    assert np.corrcoef(large.weights, exact.weights)[0, 1] > 0.9
    assert np.corrcoef(large.weights, truth)[0, 1] > 0.8
    for estimate in (exact, large):
        assert list(np.argsort(estimate.demonstrators.precision)) == [1, 0, 2]
    assert large.to_gain <= LargeIrleed().tolerance and large.step < LargeIrleed().max_steps


def test_the_diagonal_is_that_of_the_hessian(data, grid, run):
    """Random signs, many of them: the mean of their products with what the Hessian makes of them."""
    statistics = data[1]
    algorithm = LargeIrleed(probes=400)
    state = algorithm.init(grid, statistics)

    @jax.jit
    def both(state, mdp, statistics):
        loss = algorithm._loss_of(mdp)
        perceived = state.demonstrators.perceived(state.weights)
        hessian = jax.vmap(jax.jacrev(jax.grad(loss)))(perceived, statistics.action_counts)
        return algorithm._diagonal(jax.random.key(0), state, mdp, statistics), jnp.einsum("dff->df", hessian)

    estimated, exact = both(state, grid, statistics)
    np.testing.assert_allclose(estimated, exact, atol=0.25 * np.max(exact))
    assert np.corrcoef(np.ravel(estimated), np.ravel(exact))[0, 1] > 0.98


def test_no_square_matrix_of_a_large_world():
    """Ten thousand states, a few steps: the loss falls, and memory stays far below one matrix of states by states."""
    mdp = paper_gridworld(100, slip=0.2).mdp
    generator = np.random.default_rng(0)
    counts = np.zeros((2, mdp.states, mdp.actions))
    for own in counts:
        np.add.at(own, (generator.integers(1, mdp.states - 1, 500), generator.integers(0, 2, 500)), 1.0)
    statistics = Statistics(counts, counts.sum(-1) / 10, np.full(2, 10.0), np.asarray(mdp.initial))
    algorithm = LargeIrleed(max_steps=3)
    program = jax.jit(lambda *given: run_to_end(algorithm, jax.random.key(0), *given))
    compiled = program.lower(mdp, statistics).compile()
    analysis = compiled.memory_analysis()
    assert (
        analysis.temp_size_in_bytes + analysis.output_size_in_bytes < mdp.states**2
    )  # bytes: an eighth of such a matrix
    state = compiled(mdp, statistics)
    at_random = np.log(mdp.actions) * counts.sum()
    assert state.step == 3 and np.isfinite(state.weights).all()
    assert state.loss < 0.9 * at_random
