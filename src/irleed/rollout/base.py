"""What policies and agents are given to play and to learn in, whatever kind of environment it is."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from irleed._typing import Array, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.training import Progress
from irleed.data.transitions import Transitions
from irleed.envs.step import Actions
from irleed.policies.actor import AbstractActor
from irleed.rollout.evaluation import Played
from irleed.runs.checkpoint import Checkpointer

# From an actor, a key and an observation to an action; a function of a module, so that it is compiled once.
ActorAct = Callable[[Any, Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


def greedy_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy deems best."""
    return policy.act(key, obs, greedy=True)


def sampled_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy's probabilities say."""
    return policy.act(key, obs)


class AbstractBackend(abc.ABC):
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
        checkpointer: Checkpointer | None = None,
    ) -> AgentState:
        """A whole run for each key, each with its own data if there are any, with checkpoints if asked for."""


def counted(agent: AbstractAgent, progress: Progress | None) -> Progress | None:
    """Progress that is told of steps in the environment, by whoever counts rounds."""
    if progress is None or agent.num_envs == 1:
        return progress

    def told(done: int, total: int, **figures: float) -> None:
        progress(min(done * agent.num_envs, agent.steps), min(total * agent.num_envs, agent.steps), **figures)

    return told


def how_many(actors: Any) -> int:
    """Actors along the leading axis."""
    return jax.tree.leaves(actors)[0].shape[0]
