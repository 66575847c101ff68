"""What policies and agents are given to play and to learn in, whatever kind of environment it is."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Key, Shaped
from irleed.algorithms.agent import AbstractAgent, AgentState
from irleed.algorithms.training import Losses, Progress
from irleed.data.transitions import Transitions
from irleed.envs.step import Actions, Bounds
from irleed.policies.actor import AbstractActor
from irleed.policies.base import Policy
from irleed.rollout.evaluation import Played, ReturnEstimate
from irleed.runs.checkpoint import Checkpointer

# From an actor, a key and an observation to an action; a function of a module, so that it is compiled once.
ActorAct = Callable[[Any, Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


def greedy_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy deems best."""
    return policy.act(key, obs, greedy=True)


def sampled_action(policy: AbstractActor, key: Key, obs: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Act as a policy's probabilities say."""
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
    ) -> tuple[AgentState, Losses]:
        """A whole run for each key, each with its own data if there are any, with checkpoints if asked for.

        Also every run's mean loss after each part, beside the steps in the environment done by then.
        """


def policy_returns(
    key: Key, backend: AbstractBackend, policy: Policy, episodes: int
) -> tuple[ReturnEstimate, ReturnEstimate]:
    """Returns of a policy by greedy and by sampled actions, clipped where the backend's bounds are not the policy's."""
    actor, bounds = policy.actor, backend.actions
    clips = isinstance(bounds, Bounds) and bounds != policy.actions
    whole = (actor, bounds.low, bounds.high) if isinstance(bounds, Bounds) and clips else actor
    given = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], whole)
    greedy, sampled = (
        ReturnEstimate.of(
            f"policy, {name} actions",
            backend.returns(jax.random.fold_in(key, number), given, clipped if clips else act, episodes)[0],
        )
        for number, (name, act, clipped) in enumerate(KINDS)
    )
    return greedy, sampled


def in_steps(agent: AbstractAgent, losses: Losses) -> Losses:
    """Losses by steps in the environment, of which a round has one in every copy."""
    return [(min(rounds * agent.num_envs, agent.steps), loss) for rounds, loss in losses]


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
