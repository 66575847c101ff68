"""The sparse matrix is the matrix: whatever its sparsity, its product is NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irleed.envs.mdp.model
from irleed.envs.mdp import SparseMatrix


def random_matrix(seed: int, rows: int, columns: int, density: float, full_rows: int) -> np.ndarray:
    """Mostly empty, but with a few full rows, which are the ones that spill."""
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(rows, columns)) * (generator.random((rows, columns)) < density)
    matrix[generator.permutation(rows)[:full_rows]] = generator.normal(size=(min(full_rows, rows), columns))
    return matrix


def sparse(matrix: np.ndarray) -> SparseMatrix:
    row, column = np.nonzero(matrix)
    return SparseMatrix.from_coordinates(row, column, matrix[row, column], len(matrix))


matrices = st.builds(
    random_matrix,
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 30]),
    st.sampled_from([1, 50]),
    st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    st.integers(0, 2),
)


@settings(max_examples=12)
@given(matrices, st.integers(0, 2**32 - 1))
def test_product_and_dense_are_numpys(matrix, seed):
    vector = np.random.default_rng(seed).normal(size=matrix.shape[1])
    on_device = jax.device_put(sparse(matrix))
    np.testing.assert_allclose(on_device.product(jnp.asarray(vector)), matrix @ vector, atol=1e-12)
    np.testing.assert_array_equal(on_device.dense(matrix.shape[1]), matrix)


@given(matrices)
def test_coordinates_give_back_every_entry(matrix):
    row, column, value = sparse(matrix).coordinates()
    np.testing.assert_array_equal(np.stack([row, column]), np.nonzero(matrix))
    np.testing.assert_array_equal(value, matrix[row, column])


def test_full_rows_spill_instead_of_widening_all():
    matrix = sparse(random_matrix(0, rows=400, columns=300, density=0.003, full_rows=1))
    assert matrix.column.shape[0] <= 4
    assert len(matrix.spill_row) > 250


@pytest.mark.parametrize("unrolled", [0, 16])
def test_scanned_and_unrolled_sums_agree(monkeypatch, unrolled):
    monkeypatch.setattr(irleed.envs.mdp.model, "UNROLLED_SLOTS", unrolled)
    matrix = random_matrix(1, rows=8, columns=9, density=0.9, full_rows=0)
    vector = np.linspace(-1, 1, 9)
    product = jax.jit(lambda matrix, vector: matrix.product(vector))(sparse(matrix), vector)
    np.testing.assert_allclose(product, matrix @ vector, atol=1e-12)


def test_product_follows_the_vector_and_has_its_derivative():
    matrix = random_matrix(2, rows=30, columns=20, density=0.05, full_rows=1)
    weight = np.linspace(0, 1, 30)
    held = jax.device_put(sparse(matrix))
    slope = jax.grad(lambda vector: jnp.asarray(weight) @ held.product(vector))(jnp.ones(20))
    np.testing.assert_allclose(slope, matrix.T @ weight, atol=1e-12)
