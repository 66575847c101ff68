"""State and action visits of policies and demonstrators: exact, by sampled episodes, and counted from data.

An episode visits its T + 1 states, the last one included, and takes T actions. A terminal state is visited once, on
arrival, and no action is taken there.
"""

from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import in_double_precision
from irleed._typing import Array, Bool, Float, Int, Key, Scalar
from irleed.algorithms.tabular.planning import UNROLLED_ACTIONS, discounted_visits, moving, push_forward
from irleed.data.demonstrations import Demonstrations
from irleed.envs.mdp import FiniteMDP
from irleed.errors import ConfigError, SpaceError

Policy = Float[Array, "S A"]
Visits = tuple[Float[Array, " S"], Float[Array, "S A"]]


class Rollout(eqx.Module):
    """One episode, padded to the horizon: once in a terminal state it stays there, no longer alive."""

    states: Int[Array, " R"]  # R = T + 1: the last one is where the last action led
    actions: Int[Array, " T"]  # undefined where not alive
    alive: Bool[Array, " T"]  # the episode had not terminated when the action was taken


class Statistics(eqx.Module):
    """The sufficient statistics of a data set for tabular methods."""

    action_counts: Float[Array, "D S A"]
    features: Float[Array, "D F"]  # mean of an episode's undiscounted sum, the last state included
    episodes: Float[Array, " D"]  # of each demonstrator
    initial: Float[Array, " S"]  # where episodes start: the mean over demonstrators of each one's own distribution


def rollout(key: Key, mdp: FiniteMDP, policy: Policy, horizon: int) -> Rollout:
    """Sample one episode of at most `horizon` steps. `vmap` over keys for many."""
    start_key, action_key, step_key = jax.random.split(key, 3)
    cumulative = jnp.cumsum(policy, -1)
    cumulative = cumulative / cumulative[:, -1:]  # rounding never selects an action of probability zero

    def step(state: Any, draw: Any):
        uniform, successor_key = draw
        action = _pick(cumulative, state, uniform)
        return mdp.step(successor_key, state, action), (state, action, ~jnp.asarray(mdp.terminal)[state])

    draws = jax.random.uniform(action_key, (horizon,), float), jax.random.split(step_key, horizon)
    last, (states, actions, alive) = jax.lax.scan(step, mdp.reset(start_key), draws)
    return Rollout(states=jnp.append(states, last), actions=actions, alive=alive)


def _pick(cumulative: Float[Array, "S A"], state: Int[Array, ""], uniform: Float[Array, ""]) -> Int[Array, ""]:
    """Inverse transform sampling of an action."""
    actions = cumulative.shape[-1]
    if actions > UNROLLED_ACTIONS:
        return jnp.sum(cumulative[state, :-1] <= uniform, dtype=jnp.int32)
    # Written out by action, this is a few gathers that fuse with the rest of the step.
    passed = ((cumulative[state, a] <= uniform).astype(jnp.int32) for a in range(actions - 1))
    return sum(passed, start=jnp.asarray(0, jnp.int32))


def expected_visits(mdp: FiniteMDP, policy: Policy, *, horizon: int | None = None, tolerance: float = 1e-8) -> Visits:
    """Expected visits to states, and to states with actions: discounted, or plain counts over `horizon` steps."""
    if horizon is None:
        visits = jnp.asarray(discounted_visits(tolerance, mdp, policy, jnp.asarray(mdp.initial)))
        return visits, moving(mdp, visits)[:, None] * policy

    def step(carry: Any, _: None) -> Any:
        before, here = carry
        return (before + here, push_forward(mdp, moving(mdp, here)[:, None] * policy)), None

    start = jnp.zeros(mdp.states, policy.dtype), jnp.asarray(mdp.initial)
    (before, last), _ = jax.lax.scan(step, start, length=horizon)
    return before + last, moving(mdp, before)[:, None] * policy


def expected_features(mdp: FiniteMDP, policy: Policy, *, horizon: int | None = None) -> Float[Array, " F"]:
    """Expected sum of features of an episode: discounted, or plain over `horizon` steps."""
    return mdp.feature_sum(*expected_visits(mdp, policy, horizon=horizon))


def expected_return(mdp: FiniteMDP, policy: Policy, horizon: int | None = None) -> Float[Array, ""]:
    """Expected true return: discounted, or undiscounted over `horizon` steps.

    The discounted return is the value of the start, as planners see it: a state's reward belongs to being there. Over a
    horizon it is the sum over an episode's transitions: a state's reward is paid on arrival, so not for the start.
    """
    if mdp.reward is None:
        raise ConfigError(
            "expected return", got="an MDP without reward", expected="the true one", remedy="give it a reward"
        )
    state_visits, action_visits = expected_visits(mdp, policy, horizon=horizon)
    if mdp.reward.ndim == 2:
        return jnp.sum(action_visits * mdp.reward)
    return (state_visits if horizon is None else state_visits - mdp.initial) @ mdp.reward


def monte_carlo_features(
    key: Key, mdp: FiniteMDP, policy: Policy, episodes: int, horizon: int, *, discount: Scalar = 1.0
) -> Float[Array, " F"]:
    """The mean over sampled episodes of what `expected_features` computes."""
    walk = jax.vmap(lambda episode_key: rollout(episode_key, mdp, policy, horizon))
    state_visits, action_visits = _visits(mdp, walk(jax.random.split(key, episodes)), discount)
    return mdp.feature_sum(state_visits / episodes, action_visits / episodes)


def tabulate_rollouts(mdp: FiniteMDP, rollouts: Rollout) -> Statistics:
    """Statistics of simulated episodes; `rollouts` has leading axes D, E."""
    demonstrators, episodes = rollouts.states.shape[:2]
    state_visits, action_visits = jax.vmap(lambda own: _visits(mdp, own))(rollouts)
    starts = jnp.zeros(mdp.states).at[rollouts.states[..., 0]].add(1.0)
    return Statistics(
        action_counts=action_visits,
        features=jax.vmap(mdp.feature_sum)(state_visits, action_visits) / episodes,
        episodes=jnp.full(demonstrators, episodes, float),
        initial=starts / (demonstrators * episodes),
    )


@in_double_precision
def tabulate(demonstrations: Demonstrations, mdp: FiniteMDP) -> Statistics:
    """Statistics of a data set whose observations are states by number; `SpaceError` where it does not fit the MDP."""
    data = demonstrations
    rows = np.repeat(np.arange(data.episodes), data.length + 1)  # the episode of every observation
    state = _whole(data, np.asarray(data.obs), rows, mdp.states, "observation")
    action = _whole(data, data.action, np.asarray(data.episode), mdp.actions, "action")
    here, there = state[data.row], state[data.row + 1]
    _check_alive(data, mdp, here)
    _check_possible(data, mdp, here, action, there)
    first = state[np.asarray(data.row)[data.start]]
    episodes = np.bincount(data.owner, minlength=data.demonstrators).astype(float)
    action_counts = _histogram(
        data.demonstrator, here * mdp.actions + action, data.demonstrators, mdp.states * mdp.actions
    )
    action_counts = action_counts.reshape(data.demonstrators, mdp.states, mdp.actions)
    state_visits = _histogram(data.owner[rows], state, data.demonstrators, mdp.states)
    starts = _histogram(data.owner, first, data.demonstrators, mdp.states)
    return Statistics(
        action_counts=action_counts,
        features=np.asarray(jax.vmap(mdp.feature_sum)(state_visits, action_counts)) / episodes[:, None],
        episodes=episodes,
        initial=np.mean(starts / episodes[:, None], 0),
    )


def _visits(mdp: FiniteMDP, rollouts: Rollout, discount: Scalar = 1.0) -> Visits:
    """Discounted visits summed over a batch of rollouts."""
    steps = rollouts.actions.shape[-1]
    alive = rollouts.alive.astype(float)
    visited = jnp.concatenate([jnp.ones_like(alive[..., :1]), alive], -1)
    fade = jnp.broadcast_to(jnp.asarray(discount, float) ** jnp.arange(steps + 1, dtype=float), visited.shape)
    acted = jnp.zeros((mdp.states, mdp.actions)).at[rollouts.states[..., :-1], rollouts.actions]
    return jnp.zeros(mdp.states).at[rollouts.states].add(fade * visited), acted.add(fade[..., :-1] * alive)


def _histogram(group: Array, value: np.ndarray, groups: int, values: int) -> np.ndarray:
    """How often each value occurs in each group."""
    counts = np.bincount(np.asarray(group, np.int64) * values + value, minlength=groups * values)
    return counts.astype(float).reshape(groups, values)


def _refuse(
    data: Demonstrations, episode: int, step: int, what: str, *, got: object, expected: object, remedy: str
) -> NoReturn:
    place = f"demonstrator {data.names[data.owner[episode]]!r}, episode {episode}, step {step}{what}"
    raise SpaceError(place, got=got, expected=expected, remedy=remedy)


def _whole(data: Demonstrations, values: Array, episode: np.ndarray, size: int, what: str) -> np.ndarray:
    """The values as whole numbers from 0 to size - 1; `episode` is the one each belongs to."""
    values = np.asarray(values)
    if values.ndim != 1:
        got, expected = f"{what}s of shape {values.shape[1:]}", "one number each"
        _refuse(data, 0, 0, "", got=got, expected=expected, remedy=f"number the {what}s as the MDP does")
    bad = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= size))
    if len(bad):
        step = int(bad[0] - np.searchsorted(episode, episode[bad[0]]))
        got, expected = values[bad[0]].item(), f"a whole number from 0 to {size - 1}"
        remedy = f"number the {what}s as the MDP does, or give the MDP they belong to"
        _refuse(data, int(episode[bad[0]]), step, f", {what}", got=got, expected=expected, remedy=remedy)
    return values.astype(np.int64)


def _place(data: Demonstrations, transition: int) -> tuple[int, int]:
    """Episode and step of a transition."""
    episode = int(data.episode[transition])
    return episode, transition - int(data.start[episode])


def _check_alive(data: Demonstrations, mdp: FiniteMDP, state: np.ndarray) -> None:
    """No action is taken in a terminal state."""
    bad = np.flatnonzero(np.asarray(mdp.terminal)[state])
    if len(bad):
        got, remedy = f"an action in terminal state {state[bad[0]]}", "end the episode on arrival, or use another MDP"
        _refuse(data, *_place(data, int(bad[0])), "", got=got, expected="none", remedy=remedy)


def _check_possible(
    data: Demonstrations, mdp: FiniteMDP, state: np.ndarray, action: np.ndarray, successor: np.ndarray
) -> None:
    """Every transition has a probability above zero."""

    def number(state: Any, action: Any, successor: Any) -> Any:
        return (state.astype(np.int64) * mdp.actions + action) * mdp.states + successor

    known = number(*mdp.transitions()[:3])
    bad = np.flatnonzero(~np.isin(number(state, action, successor), known))
    if len(bad):
        n = int(bad[0])
        within = (known >= number(state[n], action[n], 0)) & (known < number(state[n], action[n] + 1, 0))
        reached = (known[within] % mdp.states).tolist()
        expected = "state " + " or ".join(map(str, reached[:6])) + (" or ..." if len(reached) > 6 else "")
        got = f"state {successor[n]} after action {action[n]} in state {state[n]}"
        remedy = "check the numbering of states and actions, or give the MDP this was recorded in"
        _refuse(data, *_place(data, n), "", got=got, expected=expected, remedy=remedy)
