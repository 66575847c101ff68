"""What policies and agents are given to play and to learn in, whatever kind of environment it is."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from irleed._typing import Array, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.base import Actions
from irleed.algorithms.training import Progress
from irleed.data.transitions import Transitions
from irleed.policies.base import AbstractActor
from irleed.rollout.evaluation import Played
from irleed.runs.checkpoint import Keeper

# From an actor, a key and an observation to an action; a function of a module, so that it is compiled once.
ActorAct = Callable[[Any, Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


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


def counted(agent: AbstractAgent, progress: Progress | None) -> Progress | None:
    """Progress that is told of steps in the environment, by whoever counts rounds."""
    if progress is None or agent.copies == 1:
        return progress

    def told(done: int, total: int, **figures: float) -> None:
        progress(min(done * agent.copies, agent.steps), min(total * agent.copies, agent.steps), **figures)

    return told


def how_many(actors: Any) -> int:
    """Actors along the leading axis."""
    return jax.tree.leaves(actors)[0].shape[0]
