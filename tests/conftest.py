"""Strict arithmetic for every test, double precision for tabular ones, small random MDPs, gradients of networks."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from hypothesis import settings

from irleed.data.transitions import Inputs
from irleed.envs.mdp import FiniteMDP

jax.config.update("jax_numpy_rank_promotion", "raise")
# The same examples in every run: a failure is one of the code, not of the day.
settings.register_profile("irleed", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("irleed")

FASTER_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false"  # half the time
HERE = Path(__file__).parent
DOUBLE_PRECISION = (("envs",), ("algorithms", "tabular"))  # folders whose tests run with 64-bit types


def pytest_configure(config):
    """Most tests run large programs a few times, and compiling takes longer; slow ones are compiled as for users."""
    if "not slow" not in config.option.markexpr:
        return
    jax.config.update("jax_disable_most_optimizations", True)
    if jax.__version_info__ < (0, 11):  # a process ends at a flag that it does not know, and later ones may not
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FASTER_TO_COMPILE}"


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory):
    """A program that is traced again, by another test or another run of a command, is not compiled again."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Programs of a module are let go of after it: thousands in one process take more maps of memory than there are."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def arithmetic(request):
    """No silent change of type; 64-bit types for the tests of MDPs only, as networks stay in single precision."""
    parts = request.node.path.relative_to(HERE).parts
    double = any(parts[: len(folder)] == folder for folder in DOUBLE_PRECISION)
    promotion = "standard" if request.node.get_closest_marker("optax") else "strict"
    with jax.enable_x64(double), jax.numpy_dtype_promotion(promotion):
        yield


@pytest.fixture(scope="session")
def random_mdp():
    """A function that makes a random MDP: ``random_mdp(seed, states=5, actions=3, successors=3, ...)``."""
    return _random_mdp


def _random_mdp(
    seed: int,
    states: int = 5,
    actions: int = 3,
    successors: int = 3,
    terminals: int = 1,
    discount: float = 0.8,
    **tables,
) -> FiniteMDP:
    generator = np.random.default_rng(seed)
    transitions = np.zeros((states, actions, states))
    for row in transitions.reshape(-1, states):
        reached = generator.choice(states, min(successors, states), replace=False)
        row[reached] = generator.dirichlet(np.ones(len(reached)))
    terminal = np.zeros(states, bool)
    terminal[generator.choice(states, terminals, replace=False)] = True
    initial = generator.dirichlet(np.ones(states)) * ~terminal
    initial /= initial.sum()
    return FiniteMDP.from_dense(transitions, initial=initial, terminal=terminal, discount=discount, **tables)


@pytest.fixture(scope="session")
def check_gradients():
    """A function of a loss and its parameters: are gradients those of finite differences? In double precision."""
    return _check_gradients


def _check_gradients(loss, parameters) -> None:
    """How inputs are standardised is no parameter, though networks carry it: it is held where it is."""
    with jax.enable_x64(True):
        start = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), parameters)

        def held(changed):
            def keep(new, old):
                return old if isinstance(old, Inputs) else jnp.asarray(new)

            return loss(jax.tree.map(keep, changed, start, is_leaf=lambda part: isinstance(part, Inputs)))

        jax.test_util.check_grads(jax.jit(held), [start], order=1, modes=["rev"], rtol=1e-3)
