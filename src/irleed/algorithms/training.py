"""The training loops: tabular algorithms, algorithms on networks in parts, agents on the device and on the host.

`in_parts` is the loop over the parts of a run, between which it reports progress and is checkpointed; `train_all` and
the backends of `irleed.rollout` use it.

Both loops of agents derive the keys of a round from its number alone and call act, update and observe in that order, so
that the same environment gives the same run in either. The update comes between the action and its result: on the host,
the device learns while the environments step.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import Groups, each_run
from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.algorithms import agent as agents
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.base import AbstractOffline, TrainInfo, TrainState, advance, init
from irleed.algorithms.tabular.visitation import Statistics
from irleed.data.transitions import Transitions
from irleed.envs.mdp import FiniteMDP
from irleed.envs.step import AbstractEnv, Actions, Transition
from irleed.runs.checkpoint import Checkpointer

# Called with the updates done, the maximum number of updates, and metrics by keyword, such as the loss.
Progress = Callable[..., None]
Losses = list[tuple[int, Float[np.ndarray, " P"]]]  # after each part the step, and every run's mean loss
PARTS = 100  # of the training of networks; after each, progress is reported and a run can be checkpointed


def run_to_end(algorithm: Any, key: Key, mdp: FiniteMDP, statistics: Statistics) -> Any:
    """Run a tabular algorithm to convergence inside a traced function; `vmap` it over seeds and settings."""
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
    """Run a tabular algorithm to convergence, `every` updates per call of the device; returns state and history."""
    state = _init(algorithm, mdp, statistics)
    history: list[dict[str, int | float]] = []
    while not bool(algorithm.finished(state)):
        state, info = _advance_jitted(algorithm, key, state, mdp, statistics, jnp.asarray(every))
        history.append({"step": int(state.step), **{name: float(value) for name, value in vars(info).items()}})
        if progress is not None:
            progress(int(state.step), algorithm.max_steps)
    return state, history


def run_stream(
    algorithm: Any,
    key: Key,
    mdp: FiniteMDP,
    data_sets: Iterable[Statistics],
    *,
    lanes: int,
    every: int = 4,
) -> Iterator[tuple[int, Any]]:
    """Run a tabular algorithm on many data sets, `lanes` in parallel; yields (number, state) as each converges.

    A lane that has converged takes the next data set: no lane waits for the slowest of a batch. The key of a data set
    depends on its number alone. Inputs and outputs are NumPy arrays.
    """
    queue = enumerate(data_sets)
    waiting = [entry for entry in (next(queue, None) for _ in range(lanes)) if entry is not None]
    if not waiting:
        return
    numbers = [number for number, _ in waiting] + [-1] * (lanes - len(waiting))
    padded = [statistics for _, statistics in waiting] + [waiting[0][1]] * (lanes - len(waiting))
    statistics = jax.tree.map(lambda *leaves: np.stack(leaves), *padded)
    fresh = jax.tree.map(np.asarray, _init(algorithm, mdp, waiting[0][1]))
    states = jax.tree.map(lambda leaf: np.stack([leaf] * lanes), fresh)
    while any(number >= 0 for number in numbers):
        at = np.maximum(numbers, 0), jnp.asarray(every)
        states, finished = _advance_lanes(algorithm, key, at[0], states, mdp, statistics, at[1])
        states = jax.tree.map(np.array, states)  # copies, to be written to
        for lane in np.flatnonzero(np.asarray(finished)).tolist():
            if numbers[lane] < 0:
                continue
            yield numbers[lane], jax.tree.map(lambda leaf, lane=lane: leaf[lane].copy(), states)
            numbers[lane], own = next(queue, (-1, None))
            if own is not None:
                _put(statistics, own, lane)
                _put(states, fresh, lane)


def train_all(
    algorithm: AbstractOffline,
    keys: Shaped[Array, " P"],
    data: Transitions,
    actions: Actions,
    demonstrators: int,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
) -> tuple[TrainState, Losses]:
    """`irleed.algorithms.base.train` for every key and data set of a stack, in parallel and in parts.

    Returns the states, and after each part the step and every run's mean loss.
    """
    split, groups = jax.vmap(jax.random.split)(keys), Groups(len(keys))
    given = list(zip(groups.split(split), groups.split(data), strict=True))

    def start(make: Callable[..., TrainState]) -> list[TrainState]:
        return [make(algorithm, own[:, 0], rows, actions, demonstrators) for own, rows in given]

    def on(states: list[TrainState], done: int, steps: int) -> tuple[list[TrainState], Array]:
        def ahead(state: Any, of: Any) -> Any:
            return _advance_all(algorithm, of[0][:, 1], state, of[1], steps)

        return groups.advance(ahead, states, given)

    part, begin = -(-algorithm.steps // PARTS), functools.partial(start, _init_all)
    shapes = functools.partial(start, _init_all.eval_shape)
    states, losses = in_parts(begin, on, len(keys), algorithm.steps, part, progress, checkpointer, shapes)
    return groups.join(states), losses


def in_parts(
    start: Callable[[], Any],
    advance: Callable[[Any, int, int], tuple[Any, Array]],
    runs: int,
    steps: int,
    part: int,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    shapes: Callable[[], Any] | None = None,
) -> tuple[Any, Losses]:
    """Several runs in parallel, `part` steps at a time, from the start or from the last checkpoint.

    `advance(state, done, steps)` returns the state `steps` later and every run's mean loss. Parts do not depend on
    interruptions, so that a resumed run is the same, bit for bit. `shapes()` has the shapes of `start()` where that
    cannot be traced.
    """
    ends = [min(done + part, steps) for done in range(0, steps, part)]
    losses, done = np.full((len(ends), runs), np.nan, np.float32), 0
    kept = (
        None
        if checkpointer is None
        else checkpointer.restore((jax.eval_shape(start) if shapes is None else shapes(), losses))
    )
    if kept is None:
        state = start()
    else:
        (state, losses), done = kept
        if progress is not None:
            progress(done, steps)
    for number, end in enumerate(ends):
        if end <= done:
            continue
        state, loss = advance(state, done, end - done)
        losses[number], done = np.asarray(loss), end
        sound = losses[number][np.isfinite(losses[number])]
        figures = {"loss": float(sound.mean()) if len(sound) else np.nan}
        if progress is not None:
            progress(done, steps, **figures)
        if checkpointer is not None:
            checkpointer.save((state, losses), done, steps, figures)
    return state, list(zip(ends, losses, strict=True))


# The program runs once: optimising it would take longer than training on a small task.
@jax.jit(static_argnames=("actions", "demonstrators"), compiler_options={"xla_backend_optimization_level": 0})
def _init_all(algorithm: Any, keys: Any, data: Any, actions: Actions, demonstrators: int):
    return jax.vmap(lambda key, own: init(algorithm, key, own, actions, demonstrators))(keys, data)


@jax.jit(static_argnames="steps")
def _advance_all(algorithm: Any, loop_keys: Any, state: Any, data: Any, steps: Any):
    def one(key: Any, state: Any, own: Any):
        return advance(algorithm, key, state, own, steps)

    state, info = each_run(one)(loop_keys, state, data)
    return state, jnp.mean(info.loss, -1)


def _put(batch: Any, one: Any, lane: int) -> None:
    for leaf, own in zip(jax.tree.leaves(batch), jax.tree.leaves(one), strict=True):
        leaf[lane] = own


@jax.jit
def _advance_lanes(
    algorithm: Any, key: Any, numbers: Any, states: Any, mdp: FiniteMDP, statistics: Statistics, steps: Any
):
    def one(number: Any, state: Any, own: Any):
        state, _ = _advance(algorithm, jax.random.fold_in(key, number), state, mdp, own, steps)
        return state, algorithm.finished(state)

    return jax.vmap(one)(numbers, states, statistics)


def _advance(algorithm: Any, key: Any, state: Any, mdp: FiniteMDP, statistics: Statistics, steps: Any):
    """At most `steps` updates, fewer on convergence; the key of an update depends on its number alone."""
    last = state.step + steps

    def going(carry: Any):
        state, _ = carry
        return ~algorithm.finished(state) & (state.step < last)

    @jax.jit  # traced once, for its shapes and for the loop
    def update(state: Any):
        return algorithm.update(jax.random.fold_in(key, state.step), state, mdp, statistics)

    info = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), jax.eval_shape(update, state)[1])
    return jax.lax.while_loop(going, lambda carry: update(carry[0]), (state, info))


_advance_jitted = jax.jit(_advance)


@jax.jit
def _init(algorithm: Any, mdp: FiniteMDP, statistics: Statistics):
    return algorithm.init(mdp, statistics)


@runtime_checkable
class Lanes(Protocol):
    """The interface of an environment on the host with L lanes; see `irleed.envs.host.HostEnv`."""

    actions: Actions

    @property
    def obs(self) -> Shaped[np.ndarray, "L *obs"]:
        """The current observations."""
        ...

    def step(self, actions: Shaped[Array, "..."], /) -> Transition:
        """Take an action in every lane."""
        ...


def begin_on_device(
    agent: AbstractAgent, key: Key, env: AbstractEnv[Any], data: Transitions | None = None, demonstrators: int = 0
) -> tuple[AgentState, Any]:
    """Agent and environment before the first step."""
    init_key, reset_key, _ = jax.random.split(key, 3)
    starts = jax.vmap(env.reset)(jax.random.split(reset_key, agent.num_envs))
    start = jax.tree.map(lambda leaf: leaf[0], starts)
    _, example = env.step(reset_key, start, example_action(env.actions))
    return agents.init(agent, init_key, example, env.actions, data, demonstrators), starts


def advance_on_device(
    agent: AbstractAgent,
    key: Key,
    carry: tuple[AgentState, Any],
    env: AbstractEnv[Any],
    data: Transitions | None,
    done: Int[Array, ""] | int,
    rounds: int,
) -> tuple[tuple[AgentState, Any], TrainInfo]:
    """`rounds` more rounds of agent and environments; a run in several parts equals the whole run."""
    loop_key = jax.random.split(key, 3)[2]

    def one(carry: Any, number: Any) -> Any:
        state, places = carry
        act_key, env_key, update_key = round_keys(loop_key, number)
        action = agents.act(agent, act_key, state, jax.vmap(env.observe)(places))
        state, info = agents.update(agent, update_key, state, data)
        places, seen = jax.vmap(env.step)(jax.random.split(env_key, agent.num_envs), places, action)
        return (agents.observe(state, seen), places), info

    return jax.lax.scan(one, carry, done + jnp.arange(rounds))


def begin_on_host(
    agent: AbstractAgent, keys: Shaped[Array, " P"], env: Lanes, data: Transitions | None = None, demonstrators: int = 0
) -> AgentState:
    """The agents before the first round."""
    init_keys, example = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 0], _example(env.obs[0], env.actions)
    start = jax.vmap(lambda key, own: agents.init(agent, key, example, env.actions, own, demonstrators))
    return jax.jit(start)(init_keys, data)


def advance_on_host(
    agent: AbstractAgent,
    keys: Shaped[Array, " P"],
    state: AgentState,
    env: Lanes,
    data: Transitions | None,
    done: int,
    rounds: int,
    progress: Callable[..., None] | None = None,
) -> tuple[AgentState, list[TrainInfo]]:
    """`rounds` more rounds from the current state of the environment, and the info of each; `state` is donated.

    Progress is reported every 100 rounds, except after the last, which the caller reports with metrics.
    """
    loop_keys = jax.vmap(lambda key: jax.random.split(key, 3))(keys)[:, 2]
    data = jax.device_put(data)  # once: a transfer at every round would take longer than the update
    action, infos = _act(agent, loop_keys, state, env.obs, done), []
    for number in range(done, done + rounds):
        state, info = _update(agent, loop_keys, state, data, number)
        chosen = finite_actions(np.asarray(action).reshape(len(env.obs), *action.shape[2:]), env.actions)
        seen = env.step(chosen)  # while the device learns
        state, action = _observe(agent, loop_keys, state, seen, env.obs, number + 1)
        infos.append(info)
        if progress is not None and (number + 1) % 100 == 0 and number + 1 < done + rounds:
            jax.block_until_ready(action)
            progress(number + 1, agent.rounds)
    return state, infos


def finite_actions(chosen: Shaped[np.ndarray, "L ..."], actions: Actions) -> Shaped[np.ndarray, "L ..."]:
    """Actions, with non-finite ones of a diverged policy replaced by the middle of the bounds.

    So the other runs continue; a diverged one is reported at the end.
    """
    if isinstance(actions, int):
        return chosen
    return np.where(np.isfinite(chosen), chosen, ((actions.low + actions.high) / 2).astype(chosen.dtype))


def round_keys(loop_key: Key, number: Int[Array, ""] | int) -> tuple[Key, Key, Key]:
    """Keys of a round: to act, for the environment, to update."""
    act_key, env_key, update_key = jax.random.split(jax.random.fold_in(loop_key, number), 3)
    return act_key, env_key, update_key


def example_action(actions: Actions) -> Shaped[Array, "..."]:
    """An arbitrary valid action."""
    return jnp.asarray(0, jnp.int32) if isinstance(actions, int) else jnp.asarray(actions.low)


def _example(obs: Shaped[np.ndarray, "*obs"], actions: Actions) -> Transition:
    flag, zero = jnp.asarray(False), jnp.asarray(0.0, jnp.float32)
    return Transition(obs, example_action(actions), zero, flag, flag, obs, flag)


def _by_run(runs: int, lanes: Any) -> Any:
    """Split a leading axis of lanes, adjacent for each run, into runs and copies of the environment."""
    return jax.tree.map(lambda leaf: leaf.reshape(runs, -1, *leaf.shape[1:]), lanes)


def _acted(agent: AbstractAgent, loop_keys: Any, state: Any, obs: Any, number: Any):
    def one(key: Any, *own: Any):
        return agents.act(agent, round_keys(key, number)[0], *own)

    return each_run(one)(loop_keys, state, _by_run(len(loop_keys), obs))


_act = jax.jit(_acted)


@functools.partial(jax.jit, donate_argnums=2)  # the state is updated in place
def _update(agent: AbstractAgent, loop_keys: Any, state: Any, data: Any, number: Any):
    def one(key: Any, *own: Any):
        return agents.update(agent, round_keys(key, number)[2], *own)

    return each_run(one)(loop_keys, state, data)


@functools.partial(jax.jit, donate_argnums=2)  # the replay buffer is written to in place
def _observe(agent: AbstractAgent, loop_keys: Any, state: Any, seen: Any, obs: Any, number: Any):
    """Observe, and act for the next round."""
    state = jax.vmap(agents.observe)(state, _by_run(len(loop_keys), seen))
    return state, _acted(agent, loop_keys, state, obs, number)
