"""Where many policies play and many agents learn at once: an environment on the device, or one on the host."""

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Key, Shaped
from irleed.algorithm import Actions
from irleed.checkpoint import Keeper
from irleed.data.transitions import Transitions
from irleed.envs.cartpole import CartPole
from irleed.envs.host import HostEnv, make_host
from irleed.envs.mujoco_lanes import TASKS
from irleed.envs.step import AbstractEnv, Transition
from irleed.evaluate import Played, play
from irleed.interact import advance_on_device, advance_on_host, begin_on_device, begin_on_host
from irleed.iq.agent import AbstractAgent, AgentState
from irleed.policy import AbstractActor
from irleed.run import PARTS, Progress, in_parts

# From an actor, a key and an observation to an action; a function of a module, so that it is compiled once.
ActorAct = Callable[[Any, Key, Shaped[Array, "..."]], Shaped[Array, "..."]]
MOST_LANES = 4096  # on the host, at a time
HOST_PARTS, LEAST_PART = 20, 1_000  # of a run on the host: new episodes at each, see `HostArena.learn`


def likeliest(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy deems best."""
    return policy.act(key, obs, greedy=True)


def drawn(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy's probabilities say."""
    return policy.act(key, obs)


class AbstractArena(abc.ABC):
    """One environment for P actors (values with a leading axis) or P agents."""

    actions: Actions
    observation_shape: tuple[int, ...]

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    @abc.abstractmethod
    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Played:
        """So many episodes of each, in NumPy's arrays with leading axes P and E."""

    @abc.abstractmethod
    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """Their returns alone."""

    @abc.abstractmethod
    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        keeper: Keeper | None = None,
    ) -> AgentState:
        """A whole run for each key, each with its own data if there are any; kept by `keeper`, if there is one."""


class DeviceArena(AbstractArena):
    """An environment in pure JAX: everything is one compiled program."""

    def __init__(self, env: AbstractEnv) -> None:
        self.env, self.actions, self.observation_shape = env, env.actions, env.observation_shape

    def close(self) -> None:
        """Nothing to let go of."""

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Played:
        """See `AbstractArena.play`."""
        keys = jax.random.split(key, (_count(actors), episodes))
        return jax.tree.map(np.asarray, _play_all(self.env, act, keys, actors))

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractArena.returns`."""
        keys = jax.random.split(key, (_count(actors), episodes))
        return np.asarray(_returns_all(self.env, act, keys, actors))

    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        keeper: Keeper | None = None,
    ) -> AgentState:
        """See `AbstractArena.learn`."""
        start = functools.partial(_begin_all, agent, keys, self.env, data, demonstrators)

        def on(carry: tuple[AgentState, Any], done: int, steps: int) -> tuple[tuple[AgentState, Any], Array]:
            return _advance_all(agent, keys, carry, self.env, data, done, steps)

        part = -(-agent.rounds // PARTS)
        (state, _), _ = in_parts(start, on, len(keys), agent.rounds, part, counted(agent, progress), keeper)
        return state


class HostArena(AbstractArena):
    """A Gymnasium environment, its lanes spread over worker processes; robots of MuJoCo's over threads.

    An episode that has not ended after `limit` steps counts as it stands.
    """

    def __init__(self, env_id: str, workers: int = 0, limit: int = 10_000) -> None:
        self.env_id, self.limit, self._workers = env_id, limit, workers
        self._engine = "mujoco" if env_id in TASKS else "gymnasium"
        self._host = make_host(env_id, 1, self._engine)
        self.actions, self.observation_shape = self._host.actions, self._host.observation_shape

    def play(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Played:
        """See `AbstractArena.play`."""
        parts = []
        for steps in self._batches(key, actors, act, episodes):
            seen = [(seen.obs, seen.next_obs, seen.action, seen.reward, seen.terminated, on) for seen, on in steps]
            parts.append(Played(*(np.stack(column, 1) for column in zip(*seen, strict=True))))
        longest = max(part.action.shape[1] for part in parts)
        whole = jax.tree.map(lambda *leaves: np.concatenate([_until(leaf, longest) for leaf in leaves]), *parts)
        shape = _count(actors), episodes
        return jax.tree.map(lambda leaf: leaf[: shape[0] * shape[1]].reshape(*shape, *leaf.shape[1:]), whole)

    def returns(self, key: Key, actors: Any, act: ActorAct, episodes: int) -> Float[np.ndarray, "P E"]:
        """See `AbstractArena.returns`."""
        parts = [
            sum(np.where(on, seen.reward, 0.0) for seen, on in steps)
            for steps in self._batches(key, actors, act, episodes)
        ]
        return np.concatenate(parts)[: _count(actors) * episodes].reshape(-1, episodes)

    def learn(
        self,
        agent: AbstractAgent,
        keys: Shaped[Array, " P"],
        data: Transitions | None,
        demonstrators: int,
        progress: Progress | None = None,
        keeper: Keeper | None = None,
    ) -> AgentState:
        """See `AbstractArena.learn`.

        What goes on inside an environment cannot be kept. Every part of a run, a twentieth or a thousand rounds, begins
        new episodes by a seed of its own, whether or not the run was stopped before it: that cuts an episode short
        between two steps, each of which is whole.
        """
        env, told = self._lanes(len(keys) * agent.copies), counted(agent, progress)
        start = functools.partial(begin_on_host, agent, keys, env, data, demonstrators)

        def on(state: AgentState, done: int, steps: int) -> tuple[AgentState, Array]:
            env.reset(_seed(jax.random.fold_in(keys[0], done)))
            state, infos = advance_on_host(agent, keys, state, env, data, done, steps, told)
            return state, np.mean([np.asarray(info.loss) for info in infos], 0)

        part = max(-(-agent.rounds // HOST_PARTS), LEAST_PART)
        return in_parts(start, on, len(keys), agent.rounds, part, told, keeper)[0]

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

    def _batches(
        self, key: Key, actors: Any, act: ActorAct, episodes: int
    ) -> Iterator[Iterator[tuple[Transition, Bool[np.ndarray, " L"]]]]:
        """The episodes in batches of lanes, the last one filled up; each batch step by step."""
        who = np.repeat(np.arange(_count(actors)), episodes)
        lanes = min(len(who), MOST_LANES)
        for number, start in enumerate(range(0, len(who), lanes)):
            own = np.resize(who[start : start + lanes], lanes)
            batch = jax.tree.map(lambda leaf, own=own: jnp.asarray(leaf)[own], actors)
            yield self._steps(jax.random.fold_in(key, number), batch, act, lanes)

    def _steps(self, key: Key, actors: Any, act: ActorAct, lanes: int):
        """What happens in every lane, and which lanes are still in their first episode."""
        env = self._lanes(lanes)
        env.reset(_seed(key))
        on = np.ones(lanes, bool)
        for number in range(self.limit):
            seen = env.step(np.asarray(_act_all(act, key, number, actors, env.obs)))
            yield seen, on
            on = on & ~(seen.terminated | seen.truncated)
            if not on.any():
                return


def make_arena(env_id: str, workers: int = 0) -> AbstractArena:
    """The environment of this Gymnasium id; on the device where it is written in JAX, which CartPole-v1 is."""
    return DeviceArena(CartPole()) if env_id == "CartPole-v1" else HostArena(env_id, workers)


def counted(agent: AbstractAgent, progress: Progress | None) -> Progress | None:
    """Progress that is told of steps in the environment, by whoever counts rounds."""
    if progress is None or agent.copies == 1:
        return progress

    def told(done: int, total: int, **figures: float) -> None:
        progress(min(done * agent.copies, agent.steps), min(total * agent.copies, agent.steps), **figures)

    return told


def _count(actors: Any) -> int:
    return jax.tree.leaves(actors)[0].shape[0]


def _seed(key: Key) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))


def _until(leaf: np.ndarray, longest: int) -> np.ndarray:
    """Filled up along time with zeros: steps that are not alive."""
    return np.pad(leaf, [(0, 0), (0, longest - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2))


@jax.jit(static_argnames="act")
def _act_all(act, key, number, actors, obs):
    keys = jax.random.split(jax.random.fold_in(key, number), obs.shape[0])
    return jax.vmap(act)(actors, keys, obs)


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
