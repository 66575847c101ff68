"""The loops: a stream of data sets through a few lanes gives what each gives alone."""

import jax
import numpy as np
import pytest

from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import Soft
from irleed.algorithms.tabular.visitation import tabulate_rollouts
from irleed.algorithms.training import run_stream, run_to_end
from irleed.envs.mdp import paper_gridworld
from irleed.simulation.mdp import simulate_rollouts

DATA_SETS = 7


@pytest.fixture(scope="module")
def mdp():
    return paper_gridworld(3).mdp


@pytest.fixture(scope="module")
def data_sets(mdp):
    """Of two demonstrators each, good and bad ones, so that some fits take longer than others."""

    @jax.jit
    def play(keys, mdp):
        def one(key):
            skill_key, bias_key, play_key = jax.random.split(key, 3)
            precision = jax.random.uniform(skill_key, (2,), float, 0.1, 4.0)
            bias = 0.3 * jax.random.normal(bias_key, (2, mdp.states), float)
            return tabulate_rollouts(mdp, simulate_rollouts(play_key, mdp, Soft(), precision, bias, 10, 20))

        return jax.vmap(one)(keys)

    with jax.enable_x64(True):
        played = jax.tree.map(np.asarray, play(jax.random.split(jax.random.key(3), DATA_SETS), mdp))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], played) for i in range(DATA_SETS)]


@pytest.mark.parametrize("lanes", [1, 3, 10])
def test_a_stream_gives_what_each_data_set_gives_alone(mdp, data_sets, lanes):
    """Whatever the number of lanes, more than there are data sets included."""
    alone = jax.jit(lambda key, *given: run_to_end(Irleed(), key, *given))
    found = dict(run_stream(Irleed(), jax.random.key(0), mdp, iter(data_sets), lanes=lanes, every=2))
    assert sorted(found) == list(range(DATA_SETS))
    steps = set()
    for number, state in found.items():
        single = alone(jax.random.key(0), mdp, data_sets[number])
        for ours, own in zip(jax.tree.leaves(state), jax.tree.leaves(single), strict=True):
            np.testing.assert_allclose(ours, own, rtol=1e-7, atol=1e-7)
        steps.add(int(state.step))
    assert len(steps) > 1  # or no lane ever had to wait for another


def test_an_empty_stream_is_no_work(mdp):
    assert list(run_stream(Irleed(), jax.random.key(0), mdp, iter(()), lanes=4)) == []
