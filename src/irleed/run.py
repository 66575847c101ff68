"""The loop: updates on the device until an algorithm says it has finished."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from irleed._typing import Key
from irleed.envs.mdp import FiniteMDP
from irleed.tabular.statistics import Statistics

# Called with the number of updates done and the most there can be.
Progress = Callable[[int, int], None]


def run_to_end(algorithm: Any, key: Key, mdp: FiniteMDP, statistics: Statistics) -> Any:
    """Run `algorithm` to its end inside a traced function; `vmap` it for many seeds and settings."""
    return _advance(algorithm, key, algorithm.init(mdp, statistics), mdp, statistics, algorithm.max_steps)[0]


def run(
    algorithm: Any,
    key: Key,
    mdp: FiniteMDP,
    statistics: Statistics,
    *,
    every: int = 5,
    progress: Progress | None = None,
) -> tuple[Any, list[dict[str, int | float]]]:
    """Run `algorithm` to its end from the host, `every` so many updates at a time; returns its state and history."""
    state = _init(algorithm, mdp, statistics)
    history: list[dict[str, int | float]] = []
    while not bool(algorithm.finished(state)):
        state, info = _advance_jitted(algorithm, key, state, mdp, statistics, jnp.asarray(every))
        history.append({"step": int(state.step), **{name: float(value) for name, value in vars(info).items()}})
        if progress is not None:
            progress(int(state.step), algorithm.max_steps)
    return state, history


def _advance(algorithm, key, state, mdp, statistics, steps):
    """At most `steps` updates, fewer if the algorithm finishes; the key of an update depends on its number alone."""
    last = state.step + steps

    def going(carry):
        state, _ = carry
        return ~algorithm.finished(state) & (state.step < last)

    def update(carry):
        state, _ = carry
        return algorithm.update(jax.random.fold_in(key, state.step), state, mdp, statistics)

    shapes = jax.eval_shape(lambda s: algorithm.update(key, s, mdp, statistics)[1], state)
    info = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), shapes)
    return jax.lax.while_loop(going, update, (state, info))


_advance_jitted = jax.jit(_advance)


@jax.jit
def _init(algorithm, mdp, statistics):
    return algorithm.init(mdp, statistics)
