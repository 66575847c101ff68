"""Simulated demonstrators in a 5 x 5 grid, and the compiled programs that more than one test runs on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.demonstrator import gauge
from irleed.envs.gridworld import paper_gridworld
from irleed.envs.mdp import FiniteMDP
from irleed.run import run_to_end
from irleed.simulate import simulate_rollouts
from irleed.tabular.intervals import Judgement
from irleed.tabular.irleed import Irleed, State
from irleed.tabular.planning import AbstractPlanner, Soft
from irleed.tabular.statistics import Statistics, tabulate_rollouts

DATA_SETS, DEMONSTRATORS = 40, 3


class Batch(NamedTuple):
    """Data sets along the leading axis, what they were made from, and what was learnt from all of them at once."""

    true_log_precision: np.ndarray  # in the gauge
    statistics: Statistics
    state: State
    judgement: Judgement


def play(
    key, mdp: FiniteMDP, planner: AbstractPlanner, planned: FiniteMDP, precision, bias, weights, episodes: int
) -> Statistics:
    """The statistics of so many episodes of each demonstrator."""
    return tabulate_rollouts(mdp, simulate_rollouts(key, mdp, planner, precision, bias, episodes, 30, planned, weights))


def lane(tree: Any, number: int) -> Any:
    """One lane of a batch."""
    return jax.tree.map(lambda leaf: leaf[number], tree)


@pytest.fixture(scope="session")
def grid() -> FiniteMDP:
    """Slippery, with three goals."""
    return paper_gridworld(5, slip=0.2).mdp


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """``run(algorithm, mdp, statistics)``: an estimate run to its end, compiled once for each kind of problem."""
    compiled = jax.jit(lambda algorithm, *given: run_to_end(algorithm, jax.random.key(0), *given))
    return lambda algorithm, *given: jax.tree.map(np.asarray, compiled(algorithm, *given))


@pytest.fixture(scope="session")
def judge() -> Callable[..., Judgement]:
    """``judge(algorithm, state, mdp, statistics)``, compiled."""
    compiled = jax.jit(lambda algorithm, *given: algorithm.judge(jax.random.key(1), *given))
    return lambda *given: jax.tree.map(np.asarray, compiled(*given))


@pytest.fixture(scope="session")
def batch(grid) -> Batch:
    """Forty small data sets of demonstrators drawn at random, and the estimates: one program."""

    @jax.jit
    def everything(keys, mdp):
        def one(key):
            play_key, precision_key, bias_key, weights_key, draw_key = jax.random.split(key, 5)
            log_precision = jax.random.normal(precision_key, (DEMONSTRATORS,), float)
            bias = 0.3 * jax.random.normal(bias_key, (DEMONSTRATORS, mdp.states), float)
            weights = jax.random.normal(weights_key, (mdp.states,), float)
            statistics = play(play_key, mdp, Soft(), mdp, jnp.exp(log_precision), bias, weights, 20)
            state = run_to_end(Irleed(), key, mdp, statistics)
            judgement = Irleed().judge(draw_key, state, mdp, statistics)
            return Batch(gauge(log_precision), statistics, state, judgement)

        return jax.vmap(one)(keys)

    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        return jax.tree.map(np.asarray, everything(jax.random.split(jax.random.key(0), DATA_SETS), grid))
