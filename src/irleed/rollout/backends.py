"""Backends that run policies and train agents in parallel, with an environment in pure JAX or one on the host."""

import abc
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import Groups
from irleed._typing import Array, Bool, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.training import (
    PARTS,
    Losses,
    Progress,
    advance_on_device,
    advance_on_host,
    begin_on_device,
    begin_on_host,
    finite_actions,
    in_parts,
)
from irleed.data.transitions import Transitions
from irleed.envs import AbstractEnv, Actions, Bounds, Transition
from irleed.envs.engines import TASKS
from irleed.envs.host import HostEnv, make_host
from irleed.policies import AbstractActor, Policy
from irleed.rollout.evaluation import ReturnEstimate, Trajectory, play
from irleed.runs.checkpoint import Checkpointer

MOST_LANES = 4096  # at a time
HOST_PARTS, LEAST_PART = 20, 1_000  # of a run; each starts new episodes, see `HostBackend.learn`

# The transitions of every lane, step by step, and which lanes are still in their first episode.
Steps = Iterator[tuple[Transition, Bool[np.ndarray, " L"]]]
# Called after each evaluation with the steps done, the policies and their mean returns.
OnEvaluation = Callable[[int, Any, Float[np.ndarray, " P"]], None]
# From an actor, a key and an observation to an action; a function of a module, so that it is compiled once.
ActorAct = Callable[[Any, Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


def greedy_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """The greedy action of a policy."""
    return policy.act(key, obs, greedy=True)


def sampled_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """A sampled action of a policy."""
    return policy.act(key, obs)


def _clipped(greedy: bool) -> ActorAct:
    def act(given: tuple[AbstractActor, Array, Array], key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        policy, low, high = given
        return jnp.clip(policy.act(key, obs, greedy), low, high)

    return act


KINDS: tuple[tuple[str, ActorAct, ActorAct], ...] = (
    ("greedy", greedy_action, _clipped(True)),
    ("sampled", sampled_action, _clipped(False)),
)


class AbstractBackend(abc.ABC):
    """One environment for P actors (values with a leading axis) or P agents."""

    actions: Actions
    observation_shape: tuple[int, ...]

    @abc.abstractmethod
    def close(self) -> None:
        """Release the environments."""

    @abc.abstractmethod
    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Trajectory:
        """Episodes of each actor, as NumPy arrays with leading axes P and E."""

    @abc.abstractmethod
    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """The returns of episodes of each actor."""

    @abc.abstractmethod
    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> tuple[AgentState, Losses]:
        """Train one agent for each key, with its own data if there are any.

        Returns the final states, and after each part of the run the environment steps so far and every agent's mean
        loss.
        """


def policy_returns(
    key: Key, backend: AbstractBackend, policy: Policy, episodes: int
) -> tuple[ReturnEstimate, ReturnEstimate]:
    """Returns of a policy by greedy and by sampled actions, clipped if the backend has other bounds than the policy."""
    actor, bounds = policy.actor, backend.actions
    clips = isinstance(bounds, Bounds) and bounds != policy.actions
    whole = (actor, bounds.low, bounds.high) if isinstance(bounds, Bounds) and clips else actor
    given = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], whole)
    estimates = []
    for number, (name, act, clipped) in enumerate(KINDS):
        returns = backend.returns(jax.random.fold_in(key, number), given, clipped if clips else act, episodes)[0]
        estimates.append(ReturnEstimate.of(f"policy, {name} actions", returns))
    return estimates[0], estimates[1]


def in_steps(agent: AbstractAgent, losses: Losses) -> Losses:
    """Losses by environment steps instead of rounds; a round is one step in each copy of the environment."""
    return [(min(rounds * agent.num_envs, agent.steps), loss) for rounds, loss in losses]


def in_environment_steps(agent: AbstractAgent, progress: Progress | None) -> Progress | None:
    """A progress function that takes rounds and reports environment steps."""
    if progress is None or agent.num_envs == 1:
        return progress

    def report(done: int, total: int, **figures: float) -> None:
        progress(min(done * agent.num_envs, agent.steps), min(total * agent.num_envs, agent.steps), **figures)

    return report


def actor_count(actors: Any) -> int:
    """The number of actors along the leading axis."""
    return jax.tree.leaves(actors)[0].shape[0]


class DeviceBackend(AbstractBackend):
    """An environment in pure JAX."""

    def __init__(self, env: AbstractEnv) -> None:
        self.env, self.actions, self.observation_shape = env, env.actions, env.observation_shape

    def close(self) -> None:
        """Release nothing."""

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Trajectory:
        """See `AbstractBackend.play`."""
        keys = jax.random.split(key, (actor_count(actors), episodes))
        return jax.tree.map(np.asarray, _play_all(self.env, act, keys, actors))

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractBackend.returns`."""
        keys = jax.random.split(key, (actor_count(actors), episodes))
        return np.asarray(_returns_all(self.env, act, keys, actors))

    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> tuple[AgentState, Losses]:
        """See `AbstractBackend.learn`."""
        groups = Groups(len(keys))
        given = list(zip(groups.split(keys), groups.split(data), strict=True))

        def start() -> list[tuple[AgentState, Any]]:
            return [_begin_all(agent, own, self.env, rows, demonstrators) for own, rows in given]

        def on(carries: list[tuple[AgentState, Any]], done: int, steps: int) -> tuple[list, Array]:
            def ahead(carry, of):
                return _advance_all(agent, of[0], carry, self.env, of[1], done, steps)

            return groups.advance(ahead, carries, given)

        part = -(-agent.rounds // PARTS)
        carries, losses = in_parts(
            start, on, len(keys), agent.rounds, part, in_environment_steps(agent, progress), checkpointer
        )
        return groups.join([state for state, _ in carries]), in_steps(agent, losses)


@jax.jit(static_argnames="act")
def _play_all(env, act, keys, actors):
    def one(own, actor):
        return jax.vmap(lambda each: play(each, env, lambda *given: act(actor, *given)))(own)

    return jax.vmap(one)(keys, actors)


@jax.jit(static_argnames="act")
def _returns_all(env, act, keys, actors):
    return _play_all(env, act, keys, actors).total


@jax.jit(static_argnames="demonstrators")
def _begin_all(agent, keys, env, data, demonstrators):
    return jax.vmap(lambda key, own: begin_on_device(agent, key, env, own, demonstrators))(keys, data)


@functools.partial(jax.jit, static_argnames="steps", donate_argnames="carry")  # the replay buffer is written in place
def _advance_all(agent, keys, carry, env, data, done, steps):
    def one(key, own_carry, own):
        return advance_on_device(agent, key, own_carry, env, own, done, steps)

    carry, info = jax.vmap(one)(keys, carry, data)
    return carry, jnp.mean(info.loss, -1)


class HostBackend(AbstractBackend):
    """A Gymnasium environment; lanes are spread over worker processes, those of MuJoCo's robots over threads.

    Episodes are truncated after `limit` steps.
    """

    def __init__(self, env_id: str, workers: int = 0, limit: int = 10_000) -> None:
        self.env_id, self.limit, self._workers = env_id, limit, workers
        self._engine = "mujoco" if env_id in TASKS else "gymnasium"
        self._host = make_host(env_id, 1, self._engine)
        self.actions, self.observation_shape = self._host.actions, self._host.observation_shape

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Trajectory:
        """See `AbstractBackend.play`."""
        parts = []
        for steps in self._batches(key, actors, act, episodes):
            seen = [(seen.obs, seen.next_obs, seen.action, seen.reward, seen.terminated, on) for seen, on in steps]
            parts.append(Trajectory(*(np.stack(column, 1) for column in zip(*seen, strict=True))))
        longest = max(part.action.shape[1] for part in parts)
        filled = [jax.tree.map(lambda leaf: _until(leaf, longest), part) for part in parts]
        return jax.tree.map(lambda *leaves: _gathered(leaves, actor_count(actors), episodes), *filled)

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractBackend.returns`."""
        parts = [
            np.asarray(sum(np.where(on, seen.reward, 0.0) for seen, on in steps))
            for steps in self._batches(key, actors, act, episodes)
        ]
        return _gathered(parts, actor_count(actors), episodes)

    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> tuple[AgentState, Losses]:
        """See `AbstractBackend.learn`.

        The state of a host environment cannot be checkpointed. Every part of a run, a twentieth or a thousand rounds,
        therefore starts new episodes from a seed of its own, resumed or not, so that both give the same result.
        """
        env, report = self._lanes(len(keys) * agent.num_envs), in_environment_steps(agent, progress)
        start = functools.partial(begin_on_host, agent, keys, env, data, demonstrators)

        def on(state: AgentState, done: int, steps: int) -> tuple[AgentState, Array]:
            env.reset(seed_of(jax.random.fold_in(keys[0], done)))
            state, infos = advance_on_host(agent, keys, state, env, data, done, steps, report)
            return state, np.mean([np.asarray(info.loss) for info in infos], 0)

        part = max(-(-agent.rounds // HOST_PARTS), LEAST_PART)
        state, losses = in_parts(start, on, len(keys), agent.rounds, part, report, checkpointer)
        return state, in_steps(agent, losses)

    def close(self) -> None:
        """Release the environments."""
        self._host.close()

    def beside(self, lanes: int) -> HostEnv:
        """A second environment with `lanes` lanes, which the caller closes."""
        return make_host(self.env_id, lanes, self._engine, workers=min(self._workers, lanes))

    def _lanes(self, lanes: int) -> HostEnv:
        """The environment with `lanes` lanes, created again only if their number changes."""
        if self._host.lanes != lanes:
            self._host.close()
            self._host = self.beside(lanes)
        return self._host

    def _batches(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Iterator[Steps]:
        """The steps of each batch of some actors and some episodes of each; see `_at_a_time`."""
        count = actor_count(actors)
        many, together = _at_a_time(count, episodes)
        starts = [start for start in range(0, count, many) for _ in range(0, episodes, together)]
        for number, start in enumerate(starts):
            own = np.minimum(np.arange(start, start + many), count - 1)  # the last batch is padded
            batch = jax.tree.map(lambda leaf, own=own: jnp.asarray(leaf)[own], actors)
            yield self._steps(jax.random.fold_in(key, number), batch, act, many * together)

    def _steps(self, key: Key, actors: Any, act: ActorAct, lanes: int) -> Steps:
        env = self._lanes(lanes)
        env.reset(seed_of(key))
        on = np.ones(lanes, bool)
        for number in range(self.limit):
            seen = env.step(finite_actions(np.asarray(_act_all(act, key, number, actors, env.obs)), self.actions))
            yield seen, on
            over = on & (seen.terminated | seen.truncated)
            on = on & ~over
            if not on.any():
                return
            if over.any():
                env.rest(~on)


def learn_and_evaluate(
    agent: AbstractAgent,
    keys: Shaped[Array, " P"],
    backend: HostBackend,
    play_key: Key,
    data: Transitions | None = None,
    demonstrators: int = 0,
    *,
    every: int,
    episodes: int = 1,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    on_evaluation: OnEvaluation | None = None,
) -> tuple[AgentState, Float[np.ndarray, "P E"]]:
    """Train one agent for each key and, about every `every` steps, evaluate the mean return of its greedy actions.

    New episodes start after each evaluation, so that an interrupted and resumed run gives the same result.
    """
    stretch = -(-agent.rounds // max(1, round(agent.steps / every)))  # in rounds
    count = -(-agent.rounds // stretch)
    with contextlib.closing(backend.beside(len(keys) * agent.num_envs)) as env:

        def start() -> tuple[AgentState, Array]:
            state = begin_on_host(agent, keys, env, data, demonstrators)
            return state, jnp.full((len(keys), count), jnp.nan, jnp.float32)

        def on(carry: tuple[AgentState, Array], done: int, rounds: int) -> tuple[tuple[AgentState, Array], Array]:
            env.reset(done)
            state, infos = advance_on_host(agent, keys, carry[0], env, data, done, rounds)
            policies = jax.vmap(agent.policy)(state.learner.parameters)
            returns = backend.returns(jax.random.fold_in(play_key, done), policies, greedy_action, episodes).mean(1)
            if on_evaluation is not None:
                on_evaluation((done + rounds) * agent.num_envs, policies, returns)
            curve = jnp.asarray(carry[1]).at[:, done // stretch].set(jnp.asarray(returns, jnp.float32))
            return (state, curve), np.asarray(infos[-1].loss)

        report = in_environment_steps(agent, progress)
        (state, curve), _ = in_parts(start, on, len(keys), agent.rounds, stretch, report, checkpointer)
    return state, np.asarray(curve)


def _at_a_time(actors: int, episodes: int) -> tuple[int, int]:
    """The numbers of actors, and of episodes of each, in a batch; the lanes of one actor are adjacent."""
    together = min(episodes, MOST_LANES)
    return min(actors, max(1, MOST_LANES // together)), together


def _gathered(parts: Sequence[np.ndarray], actors: int, episodes: int) -> np.ndarray:
    """Values of the lanes of all batches by actor and episode, without padding."""
    many, together = _at_a_time(actors, episodes)
    rows, columns = -(-actors // many), -(-episodes // together)
    blocks = np.stack(parts).reshape(rows, columns, many, together, *parts[0].shape[1:])
    whole = np.swapaxes(blocks, 1, 2).reshape(rows * many, columns * together, *parts[0].shape[1:])
    return whole[:actors, :episodes]


def seed_of(key: Key) -> int:
    """A whole number from a key, for environments on the host."""
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def _until(leaf: np.ndarray, longest: int) -> np.ndarray:
    """Zeros appended along time: steps that are not alive."""
    return np.pad(leaf, [(0, 0), (0, longest - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))


@jax.jit(static_argnames="act")
def _act_all(act, key, number, actors, obs):
    """Actions of every actor in its own lanes: one batch for each set of parameters."""
    count = actor_count(actors)
    keys = jax.random.split(jax.random.fold_in(key, number), (count, len(obs) // count))
    one = jax.vmap(act, (None, 0, 0))
    chosen = jax.vmap(one)(actors, keys, obs.reshape(*keys.shape, *obs.shape[1:]))
    return chosen.reshape(len(obs), *chosen.shape[2:])
