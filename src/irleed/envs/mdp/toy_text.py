"""Gymnasium's tabular environments (FrozenLake, CliffWalking, Taxi and their kind) as finite MDPs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from irleed.envs.mdp.model import FiniteMDP
from irleed.errors import SpaceError

FAMILIAR = ("FrozenLake", "CliffWalking", "Taxi")


def from_gymnasium(env_id: str, discount: float, **make_kwargs: Any) -> FiniteMDP:
    """Read a Gymnasium environment that lists its own transitions, as ``P[s][a] = [(p, s', reward, terminated), ...]``.

    Further arguments go to `gymnasium.make`. The reward of a state and action is the expected one; what Gymnasium lists
    for terminal states is kept, but no planner looks at it. A time limit is no part of the MDP.
    """
    env = _make(env_id, make_kwargs)
    try:
        states, actions = _sizes(env_id, env)
        state, action, successor, probability, reward, ended = _transitions(env_id, env, states, actions)
        initial = _initial(env_id, env, states)
    finally:
        env.close()
    expected = np.bincount(state * actions + action, weights=probability * reward, minlength=states * actions)
    return FiniteMDP.from_transitions(
        state,
        action,
        successor,
        probability,
        initial=initial,
        discount=discount,
        terminal=_terminal(env_id, initial, state, successor, ended),
        actions=actions,
        reward=expected.reshape(states, actions),
        where=env_id,
    )


def _make(env_id: str, make_kwargs: dict[str, Any]) -> Any:
    try:
        import gymnasium

        return gymnasium.make(env_id, **make_kwargs).unwrapped
    except Exception as error:  # an environment's own code runs here: it may raise anything
        got = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpaceError(
            f"environment {env_id}",
            got=got,
            expected="a Gymnasium environment that can be made",
            remedy=f"check its name, its arguments and what it needs installed ({_familiar()} work)",
        ) from error


def _sizes(env_id: str, env: Any) -> tuple[int, int]:
    """How many states and actions there are."""
    states, actions = getattr(env.observation_space, "n", None), getattr(env.action_space, "n", None)
    if not hasattr(env, "P") or states is None or actions is None:
        raise _unsuited(env_id, f"spaces {env.observation_space} and {env.action_space}, {_has(env, 'P')}")
    if getattr(env, "fickle_passenger", False):
        raise _unsuited(env_id, "a fickle passenger, whose change of mind is not in P")
    return int(states), int(actions)


def _transitions(env_id: str, env: Any, states: int, actions: int) -> list[np.ndarray]:
    """State, action, successor, probability, reward, terminated; one entry each for what can happen."""
    try:
        entries = [
            (s, a, successor, probability, reward, ended)
            for s, by_action in _items(env.P)
            for a, outcomes in _items(by_action)
            for probability, successor, reward, ended in outcomes
        ]
        columns = [
            np.array(column, kind)
            for column, kind in zip(zip(*entries, strict=True), (int, int, int, float, float, bool), strict=True)
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise _unsuited(env_id, "a P of another form") from error
    sizes = (states, actions, states)
    if any(c.min() < 0 or c.max() >= size for c, size in zip(columns, sizes, strict=False)):
        raise _unsuited(env_id, f"a P that reaches beyond its {states} states and {actions} actions")
    return [column[columns[3] > 0] for column in columns]


def _initial(env_id: str, env: Any, states: int) -> np.ndarray:
    initial = np.asarray(getattr(env, "initial_state_distrib", ()), float)
    if initial.shape != (states,):
        raise _unsuited(env_id, f"{_has(env, 'initial_state_distrib')} for {states} states")
    return initial


def _terminal(
    env_id: str, initial: np.ndarray, state: np.ndarray, successor: np.ndarray, ended: np.ndarray
) -> np.ndarray:
    """States where episodes end. Taxi lists moves that no episode can make: only those that one can make count."""
    passed = _passed(initial > 0, state[~ended], successor[~ended])
    arrived = np.zeros(len(initial), bool)
    arrived[successor[ended & passed[state]]] = True
    both = np.flatnonzero(arrived & passed)
    if len(both):
        raise SpaceError(
            f"environment {env_id}, state {both[0]}",
            got=f"episodes that end there and others that start there or go on ({len(both)} such states)",
            expected="states that are terminal or not",
            remedy="give the ending a state of its own",
        )
    terminal = np.zeros(len(initial), bool)
    terminal[successor[ended]] = True
    return terminal & ~passed


def _passed(start: np.ndarray, state: np.ndarray, successor: np.ndarray) -> np.ndarray:
    """The states that an episode can be in with a step still to come."""
    passed = start
    while True:
        grown = passed.copy()
        grown[successor[passed[state]]] = True
        if np.array_equal(grown, passed):
            return passed
        passed = grown


def _items(table: Any):
    return table.items() if isinstance(table, Mapping) else enumerate(table)


def _has(env: Any, name: str) -> str:
    return f"an attribute {name} of another form" if hasattr(env, name) else f"no attribute {name}"


def _unsuited(env_id: str, got: str) -> SpaceError:
    return SpaceError(
        f"environment {env_id}",
        got=" ".join(got.split()),
        expected="whole-numbered states and actions, transitions P and initial_state_distrib",
        remedy=f"choose a tabular one, such as {_familiar()}, or build a FiniteMDP.from_transitions",
    )


def _familiar() -> str:
    """Some environments that work, by the versions installed."""
    try:
        from gymnasium import registry
    except ImportError:
        return ", ".join(FAMILIAR)
    newest = {registry[env_id].name: env_id for env_id in sorted(registry)}
    return ", ".join(newest[name] for name in FAMILIAR if name in newest)
