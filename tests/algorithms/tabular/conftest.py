"""Simulated demonstrators in a 5 x 5 grid, and the compiled programs that more than one test runs on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.tabular.irleed import Irleed, State
from irleed.algorithms.tabular.planning import Soft
from irleed.algorithms.tabular.posterior import Judgement
from irleed.algorithms.tabular.visitation import Statistics, tabulate_rollouts
from irleed.algorithms.training import run_to_end
from irleed.envs.mdp import FiniteMDP, paper_gridworld
from irleed.model.demonstrators import gauge
from irleed.simulation.mdp import simulate_rollouts

DATA_SETS = 40  # and one more, in which nobody has seen the last demonstrator act
DEMONSTRATORS, HORIZON = 3, 30


class Batch(NamedTuple):
    """Data sets along the leading axis, what they were made from, and what was learnt from all of them at once."""

    true_log_precision: Any  # in the gauge
    statistics: Statistics
    state: State
    judgement: Judgement

    def lane(self, number: int) -> "Batch":
        return jax.tree.map(lambda leaf: leaf[number], self)


@pytest.fixture(scope="session")
def grid() -> FiniteMDP:
    """Slippery, with three goals."""
    return paper_gridworld(5, slip=0.2).mdp


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    """``run(algorithm, mdp, statistics)``: an estimate run to its end, compiled once for each kind of problem."""
    compiled = jax.jit(lambda algorithm, *given: run_to_end(algorithm, jax.random.key(0), *given))
    return lambda *given: jax.tree.map(np.asarray, compiled(*given))


@pytest.fixture(scope="session")
def play() -> Callable[..., Statistics]:
    """``play(planner, seed, mdp, plan_mdp, precision, bias, weights)``: statistics of sixty episodes each, compiled."""

    @jax.jit
    def compiled(planner, key, mdp, planned, precision, bias, weights):
        rollouts = simulate_rollouts(key, mdp, planner, precision, bias, 60, HORIZON, planned, weights)
        return tabulate_rollouts(mdp, rollouts)

    return lambda planner, seed, *given: jax.tree.map(np.asarray, compiled(planner, jax.random.key(seed), *given))


@pytest.fixture(scope="session")
def batch(grid) -> Batch:
    """Small data sets of demonstrators sampled at random, and the estimates: one program."""

    @jax.jit
    def everything(keys, seen, mdp):
        def one(key, seen):
            play_key, precision_key, bias_key, weights_key, draw_key = jax.random.split(key, 5)
            log_precision = jax.random.normal(precision_key, (DEMONSTRATORS,), float)
            bias = 0.3 * jax.random.normal(bias_key, (DEMONSTRATORS, mdp.states), float)
            weights = jax.random.normal(weights_key, (mdp.states,), float)
            played = simulate_rollouts(
                play_key, mdp, Soft(), jnp.exp(log_precision), bias, 20, HORIZON, weights=weights
            )
            whole = tabulate_rollouts(mdp, played)
            statistics = Statistics(
                whole.action_counts * seen[:, None, None], whole.features, whole.episodes, whole.initial
            )
            state = run_to_end(Irleed(), key, mdp, statistics)
            return Batch(gauge(log_precision), statistics, state, Irleed().judge(draw_key, state, mdp, statistics))

        return jax.vmap(one)(keys, seen)

    seen = np.ones((DATA_SETS + 1, DEMONSTRATORS))
    seen[DATA_SETS, -1] = 0.0
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        keys = jax.random.split(jax.random.key(0), DATA_SETS + 1)
        return jax.tree.map(np.asarray, everything(keys, seen, grid))
