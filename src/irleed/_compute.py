"""How compiled programs run: in double precision where that is needed, and spread over the cores of a CPU."""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def in_double_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with 64-bit types enabled, whatever the caller's setting."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


MAPS, MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")  # of Linux


def drop_programs() -> None:
    """Forget compiled programs if their memory maps come near the limit of a process.

    Every compiled program keeps some maps. Beyond the limit (65,530 by default) LLVM ends the process: in loops over
    twenty data sets of different shapes, for example.
    """
    try:
        limit, maps = int(MOST_MAPS.read_text()), MAPS.read_bytes().count(b"\n")
    except (OSError, ValueError):
        return  # another system
    if maps > limit // 2:
        jax.clear_caches()


TOGETHER = 3  # runs in a group, at most: with three to five, networks of 64 and 64 units are fastest
LARGE = 100_000  # parameters of a run from which on its matrix products keep all cores busy


def each_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap(function)`; a single run is computed without its axis.

    On a CPU, networks of 256 units train up to 1.5 times as fast without it.
    """

    def every(*arguments: Any) -> Any:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        found = function(*jax.tree.map(lambda leaf: leaf[0], arguments))
        return jax.tree.map(lambda leaf: leaf[None], found)

    return every


def one_by_one(function: Callable[..., Any], parameters: Any) -> Callable[..., Any]:
    """`function` of one run's arrays; under `vmap` on a CPU and with many parameters, runs are computed one by one.

    As a batch, thirty runs with networks of 256 units train at 0.7 times the speed: they do not fit into the cache.
    """
    if jax.default_backend() != "cpu" or sum(leaf.size for leaf in jax.tree.leaves(parameters)) < LARGE:
        return function
    return jax.custom_batching.sequential_vmap(function)


class Groups:
    """Runs 0 to `runs` - 1 in groups of equal size, so that a program is compiled once.

    The size, and so the results, depend on the number of runs alone, not on the number of cores.
    """

    def __init__(self, runs: int) -> None:
        pairs = -(-runs // (2 * TOGETHER))  # of groups: an even number of them, for an even number of cores
        count = 2 * pairs if jax.default_backend() == "cpu" and runs > 1 else 1
        self._runs, self._size = runs, -(-runs // count)

    def split(self, tree: Any) -> list[Any]:
        """Arrays with the runs as leading axis, by group, on the device; the last one is padded with the first runs."""
        if self._size == self._runs:
            return [jax.device_put(tree)]
        every = np.arange(0, self._runs, self._size)[:, None] + np.arange(self._size)
        leaves, structure = jax.tree.flatten(tree)
        leaves = [leaf if is_key(leaf) else np.asarray(leaf) for leaf in leaves]
        parts = [[jnp.asarray(_take_rows(leaf, rows)) for leaf in leaves] for rows in every % self._runs]
        return [jax.tree.unflatten(structure, part) for part in parts]

    def join(self, trees: Sequence[Any]) -> Any:
        """The inverse of `split`."""
        if len(trees) == 1:
            return trees[0]
        return jax.tree.map(lambda *leaves: _joined(leaves)[: self._runs], *trees)

    def map(self, function: Callable[..., Any], *groups: Sequence[Any]) -> list[Any]:
        """`function` of each group, each on a core; waits for the results."""
        given = list(zip(*groups, strict=True))
        if len(given) == 1:
            return [jax.block_until_ready(function(*given[0]))]
        with ThreadPoolExecutor(min(len(given), os.cpu_count() or 1)) as pool:
            ahead = [pool.submit(lambda own: jax.block_until_ready(function(*own)), own) for own in given]
            try:
                return [each.result() for each in ahead]
            except BaseException:  # a failure or an interrupt: groups that have not started are cancelled
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def advance(
        self, function: Callable[..., tuple[Any, Any]], states: Sequence[Any], *groups: Sequence[Any]
    ) -> tuple[list[Any], Any]:
        """`function(state, ...)` of each group returns its next state and an output; only outputs are joined."""
        found = self.map(function, states, *groups)
        return [state for state, _ in found], self.join([finding for _, finding in found])


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a random key, or an array of them."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _take_rows(leaf: Any, rows: np.ndarray) -> Any:
    """Rows of an array; neighbours are not copied."""
    return leaf[rows[0] : rows[-1] + 1] if rows[-1] >= rows[0] else leaf[rows]


def _joined(leaves: Sequence[Any]) -> Any:
    return (jnp if is_key(leaves[0]) else np).concatenate(leaves)
