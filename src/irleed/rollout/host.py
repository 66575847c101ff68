"""Backends on the host: an environment of Gymnasium's in many lanes, which step together."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.interaction import advance_on_host, begin_on_host, sound
from irleed.algorithms.training import Losses, Progress, in_parts
from irleed.data.transitions import Transitions
from irleed.envs.engines import TASKS
from irleed.envs.host import HostEnv, make_host
from irleed.envs.step import Transition
from irleed.rollout.base import AbstractBackend, ActorAct, counted, greedy_action, how_many, in_steps
from irleed.rollout.evaluation import Played
from irleed.runs.checkpoint import Checkpointer

MOST_LANES = 4096  # at a time
HOST_PARTS, LEAST_PART = 20, 1_000  # of a run: new episodes at each, see `HostBackend.learn`

# What happens in every lane, step by step, and which lanes are still in their first episode.
Steps = Iterator[tuple[Transition, Bool[np.ndarray, " L"]]]
# Called with the steps done, the policies, and what each earned: for whoever keeps stages of training.
Look = Callable[[int, Any, Float[np.ndarray, " P"]], None]


class HostBackend(AbstractBackend):
    """A Gymnasium environment, its lanes spread over worker processes; robots of MuJoCo's over threads.

    An episode that has not ended after `limit` steps counts as it stands.
    """

    def __init__(self, env_id: str, workers: int = 0, limit: int = 10_000) -> None:
        self.env_id, self.limit, self._workers = env_id, limit, workers
        self._engine = "mujoco" if env_id in TASKS else "gymnasium"
        self._host = make_host(env_id, 1, self._engine)
        self.actions, self.observation_shape = self._host.actions, self._host.observation_shape

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Played:
        """See `AbstractBackend.play`."""
        parts = []
        for steps in self._batches(key, actors, act, episodes):
            seen = [(seen.obs, seen.next_obs, seen.action, seen.reward, seen.terminated, on) for seen, on in steps]
            parts.append(Played(*(np.stack(column, 1) for column in zip(*seen, strict=True))))
        longest = max(part.action.shape[1] for part in parts)
        filled = [jax.tree.map(lambda leaf: _until(leaf, longest), part) for part in parts]
        return jax.tree.map(lambda *leaves: _gathered(leaves, how_many(actors), episodes), *filled)

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractBackend.returns`."""
        parts = [
            np.asarray(sum(np.where(on, seen.reward, 0.0) for seen, on in steps))
            for steps in self._batches(key, actors, act, episodes)
        ]
        return _gathered(parts, how_many(actors), episodes)

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

        What goes on inside an environment cannot be kept. Every part of a run, a twentieth or a thousand rounds, begins
        new episodes by a seed of its own, whether or not the run was stopped before it: that cuts an episode short
        between two steps, each of which is whole.
        """
        env, told = self._lanes(len(keys) * agent.num_envs), counted(agent, progress)
        start = functools.partial(begin_on_host, agent, keys, env, data, demonstrators)

        def on(state: AgentState, done: int, steps: int) -> tuple[AgentState, Array]:
            env.reset(_seed(jax.random.fold_in(keys[0], done)))
            state, infos = advance_on_host(agent, keys, state, env, data, done, steps, told)
            return state, np.mean([np.asarray(info.loss) for info in infos], 0)

        part = max(-(-agent.rounds // HOST_PARTS), LEAST_PART)
        state, losses = in_parts(start, on, len(keys), agent.rounds, part, told, checkpointer)
        return state, in_steps(agent, losses)

    def close(self) -> None:
        """Let go of the environments."""
        self._host.close()

    def beside(self, lanes: int) -> HostEnv:
        """So many lanes of their own, for whoever closes them."""
        return make_host(self.env_id, lanes, self._engine, workers=min(self._workers, lanes))

    def _lanes(self, lanes: int) -> HostEnv:
        """So many lanes, made anew only where there were more or fewer."""
        if self._host.lanes != lanes:
            self._host.close()
            self._host = self.beside(lanes)
        return self._host

    def _batches(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Iterator[Steps]:
        """Some actors and some episodes of each at a time, every batch step by step; see `_at_a_time`."""
        count = how_many(actors)
        many, together = _at_a_time(count, episodes)
        starts = [start for start in range(0, count, many) for _ in range(0, episodes, together)]
        for number, start in enumerate(starts):
            own = np.minimum(np.arange(start, start + many), count - 1)  # the last one fills up
            batch = jax.tree.map(lambda leaf, own=own: jnp.asarray(leaf)[own], actors)
            yield self._steps(jax.random.fold_in(key, number), batch, act, many * together)

    def _steps(self, key: Key, actors: Any, act: ActorAct, lanes: int) -> Steps:
        env = self._lanes(lanes)
        env.reset(_seed(key))
        on = np.ones(lanes, bool)
        for number in range(self.limit):
            seen = env.step(sound(np.asarray(_act_all(act, key, number, actors, env.obs)), self.actions))
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
    look: Look | None = None,
) -> tuple[AgentState, Float[np.ndarray, "P E"]]:
    """A whole run for each key and, about every `every` steps, the mean return of its greedy actions.

    Every stretch between evaluations begins new episodes, so that a run that was stopped ends as it would have.
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
            earned = backend.returns(jax.random.fold_in(play_key, done), policies, greedy_action, episodes).mean(1)
            if look is not None:
                look((done + rounds) * agent.num_envs, policies, earned)
            curve = jnp.asarray(carry[1]).at[:, done // stretch].set(jnp.asarray(earned, jnp.float32))
            return (state, curve), np.asarray(infos[-1].loss)

        told = counted(agent, progress)
        (state, curve), _ = in_parts(start, on, len(keys), agent.rounds, stretch, told, checkpointer)
    return state, np.asarray(curve)


def _at_a_time(actors: int, episodes: int) -> tuple[int, int]:
    """How many actors, and how many episodes of each, are a batch of lanes; one actor's lanes lie side by side."""
    together = min(episodes, MOST_LANES)
    return min(actors, max(1, MOST_LANES // together)), together


def _gathered(parts: Sequence[np.ndarray], actors: int, episodes: int) -> np.ndarray:
    """What batches had in their lanes, by actors and episodes; what only filled up is left out."""
    many, together = _at_a_time(actors, episodes)
    rows, columns = -(-actors // many), -(-episodes // together)
    blocks = np.stack(parts).reshape(rows, columns, many, together, *parts[0].shape[1:])
    whole = np.swapaxes(blocks, 1, 2).reshape(rows * many, columns * together, *parts[0].shape[1:])
    return whole[:actors, :episodes]


def _seed(key: Key) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def _until(leaf: np.ndarray, longest: int) -> np.ndarray:
    """Filled up along time with zeros: steps that are not alive."""
    return np.pad(leaf, [(0, 0), (0, longest - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))


@jax.jit(static_argnames="act")
def _act_all(act, key, number, actors, obs):
    """Every actor in its own lanes, so that its parameters are looked at once for all of them."""
    count = how_many(actors)
    keys = jax.random.split(jax.random.fold_in(key, number), (count, len(obs) // count))
    one = jax.vmap(act, (None, 0, 0))
    chosen = jax.vmap(one)(actors, keys, obs.reshape(*keys.shape, *obs.shape[1:]))
    return chosen.reshape(len(obs), *chosen.shape[2:])
