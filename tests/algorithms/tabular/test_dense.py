"""Inverses and eigenvectors of small matrices: right, under any nesting of `vmap`, and never waiting for each other."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from irleed.algorithms.tabular.planning import eigenvalues_and_vectors, inverse


def matrices(*shape: int) -> np.ndarray:
    """Well conditioned, not symmetric."""
    return np.random.default_rng(0).normal(size=shape) + 6 * np.eye(shape[-1])


def test_inverse_alone_in_a_batch_and_in_a_batch_of_batches():
    given = matrices(3, 4, 5, 5)
    expected = np.linalg.inv(given)
    np.testing.assert_allclose(jax.jit(inverse)(given[0, 0]), expected[0, 0], rtol=1e-10)
    np.testing.assert_allclose(jax.jit(jax.vmap(inverse))(given[0]), expected[0], rtol=1e-10)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.vmap(inverse)))(given), expected, rtol=1e-10)
    np.testing.assert_allclose(
        jax.jit(jax.vmap(inverse, in_axes=2))(np.moveaxis(given[0], 0, 2)), expected[0], rtol=1e-10
    )
    np.testing.assert_array_equal(jax.jit(inverse)(given[0, 0]), jax.jit(jnp.linalg.inv)(given[0, 0]))


def test_eigenvectors_alone_and_in_a_batch():
    given = matrices(3, 4, 5, 5)
    given = given + np.swapaxes(given, -1, -2)
    for function, part in (
        (eigenvalues_and_vectors, given[0, 0]),
        (jax.vmap(jax.vmap(eigenvalues_and_vectors)), given),
    ):
        value, vector = jax.jit(function)(part)
        np.testing.assert_allclose(value, np.linalg.eigvalsh(part), rtol=1e-10)
        again = np.einsum("...ij,...j,...kj->...ik", vector, value, vector)
        np.testing.assert_allclose(again, part, rtol=1e-9, atol=1e-9)


AT_ONCE = """
import jax, jax.numpy as jnp
from irleed.algorithms.tabular.planning import inverse

jax.config.update("jax_enable_x64", True)

@jax.jit
def loop(batches):  # none of which waits for another
    return jax.lax.scan(lambda carry, _: ([jax.vmap(inverse)(one) for one in carry], None), batches, length=50)[0]

sizes = [2000] + 7 * [500]
batches = [jax.random.normal(jax.random.key(n), (size, 9, 9)) + 8 * jnp.eye(9) for n, size in enumerate(sizes)]
found = loop(batches)
assert all(jnp.allclose(*pair) for pair in zip(found, batches))  # inverted an even number of times
print("done")
"""


def test_batches_at_the_same_time_do_not_wait_for_each_other():
    """Two thousand matrices beside other batches, again and again; `jnp.linalg.inv` alone hangs here on two cores."""
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "done", done.stderr
