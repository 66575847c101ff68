"""Finite MDPs with sparse transition tables, and the checks of their inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.data.validation import refuse
from irleed.errors import DataError

# Up to this many slots the sum over slots is written out, which XLA turns into one fast loop; beyond, it is scanned.
UNROLLED_SLOTS = 16


class SparseMatrix(eqx.Module):
    """An ``R x C`` matrix by rows: `K` padded slots per row, and further entries as coordinates."""

    column: Int[Array, "K R"]
    value: Float[Array, "K R"]
    spill_row: Int[Array, " M"]
    spill_column: Int[Array, " M"]
    spill_value: Float[Array, " M"]

    @classmethod
    def from_coordinates(cls, row: np.ndarray, column: np.ndarray, value: np.ndarray, rows: int) -> "SparseMatrix":
        """Build from entries sorted by `row`; padding is chosen to minimise memory."""
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
        """Row, column and value of every entry, sorted: the input of `from_coordinates`."""
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
            (term(column[k], value[k]) for k in range(column.shape[0])), start=jnp.zeros(column.shape[1:], vector.dtype)
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


class FiniteMDP(eqx.Module):
    """States, actions, dynamics, initial distribution, discount and features; and the true reward, if known.

    A *terminal* state absorbs: its state features are collected once, on arrival, and nothing follows. Build one with
    `from_transitions`, `from_dense`, `gridworld` or `from_gymnasium`, which validate their inputs.
    """

    forward: SparseMatrix  # rows (s, a), columns s': the dynamics
    backward: SparseMatrix  # its transpose
    cumulative: Float[Array, " M"]  # row + cumulative probability of each entry, for sampling by bisection
    outcome: Int[Array, " M"]  # the successor of each entry
    initial: Float[Array, " S"]
    terminal: Bool[Array, " S"]
    discount: float | Float[Array, ""]
    features: Float[Array, "S F"] | Float[Array, "S A F"] | None  # None: one indicator per state
    reward: (
        Float[Array, " S"] | Float[Array, "S A"] | None
    )  # the true reward: for simulation and evaluation, never for learning
    actions: int = eqx.field(static=True)

    @property
    def states(self) -> int:
        """Number of states, S."""
        return self.initial.shape[0]

    @property
    def feature_count(self) -> int:
        """Number of features, F."""
        return self.states if self.features is None else self.features.shape[-1]

    @classmethod
    def from_transitions(
        cls,
        state,
        action,
        successor,
        probability,
        *,
        initial,
        discount: float,
        terminal=None,
        actions: int | None = None,
        features=None,
        reward=None,
        where: str = "MDP",
    ) -> "FiniteMDP":
        """Build from a list of transitions; entries of the same (s, a, s') add up.

        `terminal` is a mask or a list of states. Terminal states need no transitions; those given for them are kept, so
        that `without_terminals` can use them.
        """
        initial = _numbers(initial, "initial distribution", where)
        _check_distribution(initial, f"{where}, initial distribution")
        states = len(initial)
        terminal = _mask(terminal, states, where)
        columns = {"state": state, "action": action, "successor": successor}
        state, action, successor = (_indices(values, name, where) for name, values in columns.items())
        probability = _numbers(probability, "probability", where)
        actions = int(action.max(initial=-1)) + 1 if actions is None else actions
        _check_transitions(state, action, successor, probability, states, actions, where)
        if not 0 < discount < 1:
            refuse(f"{where}, discount", discount, "a number in (0, 1)", "choose, say, 0.9")
        keep = probability > 0
        row, column, value = _merge(
            state[keep] * actions + action[keep], successor[keep], probability[keep], states, actions, terminal
        )
        _check_rows(row, value, states, actions, where)
        transposed = np.lexsort((row, column))
        cumulative = np.cumsum(value)
        first = np.searchsorted(row, np.arange(states * actions))
        before = np.concatenate([[0.0], cumulative])[first]
        last = np.append(row[1:] != row[:-1], True) if len(row) else np.zeros(0, bool)
        within = np.where(last, 1.0, np.minimum(cumulative - before[row], 1.0))
        return cls(
            forward=SparseMatrix.from_coordinates(row, column, value, states * actions),
            backward=SparseMatrix.from_coordinates(column[transposed], row[transposed], value[transposed], states),
            cumulative=row + within,
            outcome=column.astype(np.int32),
            initial=initial,
            terminal=terminal,
            discount=float(discount),
            features=_table(features, states, actions, "features", where),
            reward=_table(reward, states, actions, "reward", where),
            actions=actions,
        )

    @classmethod
    def from_dense(cls, transitions, **rest) -> "FiniteMDP":
        """Build from a dense array ``P[s, a, s']``; the other arguments are those of `from_transitions`."""
        where = rest.get("where", "MDP")
        transitions = _numbers(transitions, "transitions", where)
        if transitions.ndim != 3 or transitions.shape[0] != transitions.shape[2]:
            remedy = "index it as P[state, action, successor]"
            refuse(f"{where}, transitions", f"shape {transitions.shape}", "[S, A, S]", remedy)
        state, action, successor = np.nonzero(transitions != 0)  # NaN counts as nonzero, and is reported
        probability, actions = transitions[state, action, successor], transitions.shape[1]
        return cls.from_transitions(state, action, successor, probability, actions=actions, **rest)

    def transitions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """State, action, successor and probability of every possible transition: the input of `from_transitions`."""
        row, column, value = self.forward.coordinates()
        return row // self.actions, row % self.actions, column, value

    def rewards(self, weights: Float[Array, " F"]) -> Float[Array, " S"] | Float[Array, "S A"]:
        """The reward table of `weights`: ``theta . f`` for every state (and action)."""
        return weights if self.features is None else self.features @ weights

    def feature_sum(self, state_visits: Float[Array, " S"], action_visits: Float[Array, "S A"]) -> Float[Array, " F"]:
        """Features summed over visits: the transpose of `rewards`."""
        if self.features is None:
            return state_visits
        if self.features.ndim == 2:
            return state_visits @ self.features
        return jnp.einsum("sa,saf->f", action_visits, self.features)

    def without_terminals(self) -> "FiniteMDP":
        """The same MDP without absorbing states, as the released gridworld program plans with."""
        return eqx.tree_at(lambda mdp: mdp.terminal, self, np.zeros(self.states, bool))

    def reset(self, key: Key) -> Int[Array, ""]:
        """Draw an initial state."""
        cumulative = jnp.cumsum(self.initial)
        return _bisect(cumulative, cumulative[-1] * jax.random.uniform(key, dtype=float))

    def step(self, key: Key, state: Int[Array, ""], action: Int[Array, ""]) -> Int[Array, ""]:
        """Draw a successor; a terminal state is its own."""
        row = state * self.actions + action
        if self.cumulative.shape[0] == self.states * self.actions:  # one outcome each: nothing to draw
            reached = self.outcome[row]
        else:
            start = jnp.asarray(row, float)
            # Rounding must not carry the position beyond this row's last entry.
            position = jnp.minimum(start + jax.random.uniform(key, dtype=float), jnp.nextafter(start + 1, start))
            reached = self.outcome[_bisect(self.cumulative, position)]
        return jnp.where(self.terminal[state], jnp.asarray(state, jnp.int32), reached)


def _bisect(cumulative: Float[Array, " M"], position: Float[Array, ""]) -> Int[Array, ""]:
    """Index of the first entry above `position`."""
    index = jnp.searchsorted(cumulative, position, side="right").astype(jnp.int32)
    return jnp.minimum(index, cumulative.shape[0] - 1)


def _merge(row, column, value, states, actions, terminal):
    """Sort by (row, column), add up repeated entries, and give terminal states without successors a self-loop."""
    own = np.flatnonzero(terminal)
    bare = (own[:, None] * actions + np.arange(actions)).ravel()
    bare = bare[~np.isin(bare, row)]
    row = np.concatenate([row, bare])
    column = np.concatenate([column, bare // actions])
    value = np.concatenate([value, np.ones(len(bare))])
    entry, index = np.unique(row * states + column, return_inverse=True)
    return entry // states, entry % states, np.bincount(index, weights=value, minlength=len(entry))


ROW_SUM_TOLERANCE = 1e-6

MOST_ROWS = 1 << 22  # pairs of state and action that are always allowed
ROWS_PER_TRANSITION = 8  # more pairs than so many times the transitions cannot all have successors


def _mask(terminal, states: int, where: str) -> np.ndarray:
    """Which states are terminal, from flags or a list of them."""
    terminal = np.asarray([] if terminal is None else terminal)
    if terminal.dtype == bool:
        if terminal.shape != (states,):
            remedy = "give one flag a state, or a list of states"
            refuse(f"{where}, terminal", f"shape {terminal.shape}", f"[{states}]", remedy)
        return terminal
    flags = np.zeros(states, bool)
    listed = _indices(terminal, "terminal", where)
    _check_range(listed, states, "terminal state", where)
    flags[listed] = True
    return flags


def _indices(values, name: str, where: str) -> np.ndarray:
    """A list of whole numbers."""
    values = np.asarray(values)
    if values.size == 0:
        return np.zeros(0, np.int64)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        got, remedy = f"{values.dtype} of shape {values.shape}", "number states and actions from 0"
        refuse(f"{where}, {name}", got, "a list of whole numbers", remedy)
    return values.astype(np.int64)


def _numbers(values, name: str, where: str) -> np.ndarray:
    """An array of numbers."""
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}, {name}", got="no array of numbers", expected="one", remedy="convert it") from error


def _table(values, states: int, actions: int, name: str, where: str) -> np.ndarray | None:
    """Features or rewards, of the right shape and finite."""
    if values is None:
        return None
    values = _numbers(values, name, where)
    leading = values.shape[: values.ndim - (name == "features")]
    if leading not in ((states,), (states, actions)):
        extra = ", F" if name == "features" else ""
        expected = f"[{states}{extra}] or [{states}, {actions}{extra}]"
        remedy = "one row a state, or one a state and action"
        refuse(f"{where}, {name}", f"shape {values.shape}", expected, remedy)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        refuse(f"{where}, {name}{list(at)}", values[at], "a finite number", "fix the table")
    return values


def _check_range(values: np.ndarray, size: int, name: str, where: str) -> None:
    bad = np.flatnonzero((values < 0) | (values >= size))
    if len(bad):
        remedy = "number them from 0, or declare more"
        refuse(f"{where}, {name} in row {bad[0]}", values[bad[0]], f"0 to {size - 1}", remedy)


def _check_transitions(state, action, successor, probability, states, actions, where) -> None:
    """Columns have equal lengths, entries are in range, and probabilities are from 0 to 1."""
    shapes = [x.shape for x in (state, action, successor, probability)]
    if len(set(shapes)) != 1 or len(state) == 0:
        got = f"columns of shapes {', '.join(map(str, shapes))}"
        remedy = "give state, action, successor and probability of every transition"
        refuse(f"{where}, transitions", got, "four of the same length, not empty", remedy)
    _check_range(state, states, "state", where)
    _check_range(action, actions, "action", where)
    if states * actions > max(MOST_ROWS, ROWS_PER_TRANSITION * len(state)):  # before arrays of this size are made
        got, expected = f"{actions} for {states} states, and {len(state)} transitions", "successors for every action"
        refuse(f"{where}, actions", got, f"{expected} of every state", "number actions from 0, one after the other")
    _check_range(successor, states, "successor", where)
    bad = np.flatnonzero(~((probability >= 0) & (probability <= 1 + ROW_SUM_TOLERANCE)))
    if len(bad):
        m = bad[0]
        place = f"{where}, P(s'={successor[m]} | s={state[m]}, a={action[m]})"
        refuse(place, probability[m], "a probability in [0, 1]", "fix this entry")


def _check_rows(row, value, states, actions, where) -> None:
    """Every (s, a) has successors, and their probabilities sum to one."""
    total = np.bincount(row, weights=value, minlength=states * actions)
    bad = np.flatnonzero(np.abs(total - 1) > ROW_SUM_TOLERANCE)
    if len(bad):
        s, a = divmod(int(bad[0]), actions)
        remedy = f"normalise this row ({len(bad)} such rows), or declare the state terminal"
        refuse(f"{where}, P(. | s={s}, a={a})", f"a sum of {total[bad[0]]:.6g}", "1", remedy)


def _check_distribution(values: np.ndarray, where: str) -> None:
    if values.ndim != 1 or not np.all(values >= 0) or not abs(values.sum() - 1) <= ROW_SUM_TOLERANCE:
        smallest = values.min() if values.size else 0.0
        got = f"shape {values.shape}, smallest {smallest:.6g}, sum {values.sum():.6g}"
        refuse(where, got, "probabilities that sum to 1", "normalise it")
