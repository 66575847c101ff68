"""What a finite MDP is made from, checked: whatever is wrong is one line that says where."""

import numpy as np

from irleed.errors import DataError

ROW_SUM_TOLERANCE = 1e-6

MOST_ROWS = 1 << 22  # pairs of state and action that are always allowed
ROWS_PER_TRANSITION = 8  # more pairs than so many times the transitions cannot all have successors


def mask(terminal, states: int, where: str) -> np.ndarray:
    """Which states are terminal, from flags or a list of them."""
    terminal = np.asarray([] if terminal is None else terminal)
    if terminal.dtype == bool:
        if terminal.shape != (states,):
            raise DataError(
                f"{where}, terminal",
                got=f"shape {terminal.shape}",
                expected=f"[{states}]",
                remedy="give one flag a state, or a list of states",
            )
        return terminal
    flags = np.zeros(states, bool)
    listed = indices(terminal, "terminal", where)
    check_range(listed, states, "terminal state", where)
    flags[listed] = True
    return flags


def indices(values, name: str, where: str) -> np.ndarray:
    """A list of whole numbers."""
    values = np.asarray(values)
    if values.size == 0:
        return np.zeros(0, np.int64)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
        raise DataError(
            f"{where}, {name}",
            got=f"{values.dtype} of shape {values.shape}",
            expected="a list of whole numbers",
            remedy="number states and actions from 0",
        )
    return values.astype(np.int64)


def numbers(values, name: str, where: str) -> np.ndarray:
    """An array of numbers."""
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}, {name}", got="no array of numbers", expected="one", remedy="convert it") from error


def table(values, states: int, actions: int, name: str, where: str) -> np.ndarray | None:
    """Features or rewards: checked for shape and for numbers that are none."""
    if values is None:
        return None
    values = numbers(values, name, where)
    leading = values.shape[: values.ndim - (name == "features")]
    if leading not in ((states,), (states, actions)):
        extra = ", F" if name == "features" else ""
        raise DataError(
            f"{where}, {name}",
            got=f"shape {values.shape}",
            expected=f"[{states}{extra}] or [{states}, {actions}{extra}]",
            remedy="one row a state, or one a state and action",
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise DataError(
            f"{where}, {name}{list(at)}", got=values[at], expected="a finite number", remedy="mend the table"
        )
    return values


def check_range(values: np.ndarray, size: int, name: str, where: str) -> None:
    """Refuse what is no state or action."""
    bad = np.flatnonzero((values < 0) | (values >= size))
    if len(bad):
        raise DataError(
            f"{where}, {name} in row {bad[0]}",
            got=values[bad[0]],
            expected=f"0 to {size - 1}",
            remedy="number them from 0, or declare more",
        )


def check_transitions(state, action, successor, probability, states, actions, where) -> None:
    """Refuse columns that do not belong together, and what is no probability."""
    shapes = [x.shape for x in (state, action, successor, probability)]
    if len(set(shapes)) != 1 or len(state) == 0:
        raise DataError(
            f"{where}, transitions",
            got=f"columns of shapes {', '.join(map(str, shapes))}",
            expected="four of the same length, not empty",
            remedy="give state, action, successor and probability of every transition",
        )
    check_range(state, states, "state", where)
    check_range(action, actions, "action", where)
    if states * actions > max(MOST_ROWS, ROWS_PER_TRANSITION * len(state)):  # before arrays of this size are made
        raise DataError(
            f"{where}, actions",
            got=f"{actions} for {states} states, and {len(state)} transitions",
            expected="successors for every action of every state",
            remedy="number actions from 0, one after the other",
        )
    check_range(successor, states, "successor", where)
    bad = np.flatnonzero(~((probability >= 0) & (probability <= 1 + ROW_SUM_TOLERANCE)))
    if len(bad):
        m = bad[0]
        raise DataError(
            f"{where}, P(s'={successor[m]} | s={state[m]}, a={action[m]})",
            got=probability[m],
            expected="a probability in [0, 1]",
            remedy="mend this entry",
        )


def check_rows(row, value, states, actions, where) -> None:
    """Every (s, a) has successors, and their probabilities sum to one."""
    total = np.bincount(row, weights=value, minlength=states * actions)
    bad = np.flatnonzero(np.abs(total - 1) > ROW_SUM_TOLERANCE)
    if len(bad):
        s, a = divmod(int(bad[0]), actions)
        raise DataError(
            f"{where}, P(. | s={s}, a={a})",
            got=f"a sum of {total[bad[0]]:.6g}",
            expected="1",
            remedy=f"normalise this row ({len(bad)} such rows), or declare the state terminal",
        )


def check_distribution(values: np.ndarray, where: str) -> None:
    """Refuse what does not sum to 1."""
    if values.ndim != 1 or not np.all(values >= 0) or not abs(values.sum() - 1) <= ROW_SUM_TOLERANCE:
        smallest = values.min() if values.size else 0.0
        raise DataError(
            where,
            got=f"shape {values.shape}, smallest {smallest:.6g}, sum {values.sum():.6g}",
            expected="probabilities that sum to 1",
            remedy="normalise it",
        )
