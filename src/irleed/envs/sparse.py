"""A sparse matrix whose product with a vector is a few gathers: fast on CPU and GPU, any sparsity.

Rows are padded to a common number of slots ``K``; the few rows that hold many more entries spill over into a short
coordinate list (the layout known as HYB). Memory grows with the number of entries, not with rows times columns.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int

# Up to this many slots the sum over slots is written out, which XLA turns into one fast loop; beyond, it is scanned.
UNROLLED_SLOTS = 16


class SparseMatrix(eqx.Module):
    """An ``R x C`` matrix by rows: `K` padded slots per row, and what does not fit as coordinates."""

    column: Int[Array, "K R"]
    value: Float[Array, "K R"]
    spill_row: Int[Array, " M"]
    spill_column: Int[Array, " M"]
    spill_value: Float[Array, " M"]

    @classmethod
    def from_coordinates(cls, row: np.ndarray, column: np.ndarray, value: np.ndarray, rows: int) -> "SparseMatrix":
        """Build from entries sorted by `row`; padding is chosen so that the whole takes the least memory."""
        count = np.bincount(row, minlength=rows)
        position = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        slots = _cheapest_slots(count)
        padded = position < slots
        columns = np.zeros((slots, rows), np.int32)
        values = np.zeros((slots, rows))
        columns[position[padded], row[padded]] = column[padded]
        values[position[padded], row[padded]] = value[padded]
        return cls(
            column=columns,
            value=values,
            spill_row=row[~padded].astype(np.int32),
            spill_column=column[~padded].astype(np.int32),
            spill_value=value[~padded],
        )

    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and value of every entry, sorted: what `from_coordinates` takes."""
        slot, row = np.nonzero(np.asarray(self.value))
        row = np.concatenate([row, self.spill_row])
        column = np.concatenate([np.asarray(self.column)[slot, row[: len(slot)]], self.spill_column])
        value = np.concatenate([np.asarray(self.value)[slot, row[: len(slot)]], self.spill_value])
        order = np.lexsort((column, row))
        return row[order], column[order], value[order]

    def product(self, vector: Float[Array, " C"]) -> Float[Array, " R"]:
        """Matrix times vector."""
        total = _sum_over_slots(self.column, self.value, jnp.asarray(vector))
        if self.spill_row.shape[0] == 0:
            return total
        spilled = self.spill_value * vector[self.spill_column]
        return total.at[self.spill_row].add(spilled)

    def dense(self, columns: int) -> Float[Array, "R C"]:
        """The matrix written out; for small ones only."""
        rows = jnp.arange(self.column.shape[1])
        matrix = jnp.zeros((self.column.shape[1], columns), self.value.dtype)
        matrix = matrix.at[rows, self.column].add(self.value)
        return matrix.at[self.spill_row, self.spill_column].add(self.spill_value)


def _sum_over_slots(
    column: Int[Array, "K R"], value: Float[Array, "K R"], vector: Float[jax.Array, " C"]
) -> Float[jax.Array, " R"]:
    def term(index, weight):
        return weight * vector.at[index].get(mode="promise_in_bounds")

    if column.shape[0] <= UNROLLED_SLOTS:
        return sum(
            (term(column[k], value[k]) for k in range(column.shape[0])),
            start=jnp.zeros(column.shape[1:], vector.dtype),
        )
    start = jnp.zeros(column.shape[1:], vector.dtype)
    return jax.lax.scan(lambda total, slot: (total + term(*slot), None), start, (column, value))[0]


def _cheapest_slots(count: np.ndarray) -> int:
    """Slots per row that minimise 12 bytes a padded slot plus 16 bytes a spilled entry."""
    rows_with = np.bincount(count)  # rows_with[k]: rows with exactly k entries
    slots = np.arange(len(rows_with))
    at_least = rows_with[::-1].cumsum()[::-1]  # rows with k entries or more
    kept = np.concatenate([[0], at_least[1:].cumsum()])
    spilled = count.sum() - kept
    # A spilled entry also costs a scatter, some ten times a gather.
    return int(slots[np.argmin(12 * slots * len(count) + 160 * spilled)])
