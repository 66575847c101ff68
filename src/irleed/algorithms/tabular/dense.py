"""The inverse of small dense matrices, safe and quick under `vmap` on every platform."""

import jax
import jax.numpy as jnp

from irleed._typing import Array, Float


@jax.custom_batching.custom_vmap
def inverse(matrix: Float[Array, "S S"]) -> Float[Array, "S S"]:
    """The inverse of one matrix; a batch is inverted one by one on the CPU and at once elsewhere.

    On the CPU a batched LAPACK call shares work with the very threads it runs on; two such calls at a time can wait for
    each other for ever. One by one is as fast for small matrices and cannot.
    """
    return jnp.linalg.inv(matrix)


@inverse.def_vmap
def _(axis_size, in_batched, matrix):
    batch = jax.lax.platform_dependent(
        matrix, cpu=lambda m: jax.lax.map(inverse, m), default=lambda m: jax.vmap(jnp.linalg.inv)(m)
    )
    return batch, True


@jax.custom_batching.custom_vmap
def eigenvalues_and_vectors(matrix: Float[Array, "S S"]) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
    """Eigenvalues and eigenvectors (as columns) of one symmetric matrix; batched as `inverse` is."""
    return tuple(jnp.linalg.eigh(matrix))


@eigenvalues_and_vectors.def_vmap
def _(axis_size, in_batched, matrix):
    batch = jax.lax.platform_dependent(
        matrix,
        cpu=lambda m: jax.lax.map(eigenvalues_and_vectors, m),
        default=lambda m: jax.vmap(lambda one: tuple(jnp.linalg.eigh(one)))(m),
    )
    return batch, (True, True)
