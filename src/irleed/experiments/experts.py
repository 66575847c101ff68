"""Experts, several side by side: what simulated demonstrators are made from."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from irleed._typing import Array, Int, Key, Shaped
from irleed.arena import AbstractArena, HostArena, drawn
from irleed.data.transitions import Transitions, stack
from irleed.evaluate import Played
from irleed.experiments.critics import save_critic
from irleed.experiments.stages import Stages, one_of
from irleed.iq.critic import SoftCritic
from irleed.iq.gaussian_ensemble import GaussianEnsemble
from irleed.iq.networks import Mlp
from irleed.iq.sac import Sac
from irleed.iq.sac_expert import SacExpert
from irleed.iq.soft_q import SoftQ
from irleed.policy import AbstractActor
from irleed.run import Progress, train_all
from irleed.simulate_critic import CriticDemonstrator, draw_demonstrators, to_demonstrations
from irleed.trials import learn_and_try

STAGE_EPISODES = 5


class Experts(NamedTuple):
    """Policies along a leading axis, where each diverged (-1: nowhere), and how to write one of them to a file."""

    policies: AbstractActor
    diverged: Int[Array, " P"]
    save: Callable[[Path, int], None]


def by_reward(arena: AbstractArena, keys: Shaped[Array, " P"], agent: SoftCritic, told: Progress) -> Experts:
    """Soft Q-learning on the true reward."""
    learnt = arena.learn(agent, keys, None, 0, told).learner
    return _critics(jax.vmap(agent.policy)(learnt.parameters), learnt.diverged, learnt.parameters.q)


def by_imitation(
    arena: AbstractArena, key: Key, critic: Mlp, episodes: int, learner: SoftQ, seeds: int, told: Progress
) -> Experts:
    """Inverse soft Q-learning from the play of a critic: how the critics of the paper's demonstrators were made.

    Values are in natural scale, in which a precision of 1 is the expert's own. Critics see observations standardised;
    so will the biases of demonstrators that are made from them.
    """
    play_key, learn_key = jax.random.split(key)
    expert = draw_demonstrators(play_key, critic, np.inf, 0.0, 1)
    played = arena.play(play_key, expert, CriticDemonstrator.act, episodes)
    learn_keys = jax.random.split(learn_key, seeds)
    state, _ = train_all(learner, learn_keys, _copies(played, seeds), arena.actions, 1, told)
    return _critics(jax.vmap(learner.policy)(state.parameters), state.diverged, state.parameters.q)


def by_actor_critic(
    arena: HostArena,
    keys: Shaped[Array, " P"],
    agent: SacExpert | Sac,
    told: Progress,
    stages: Stages | None = None,
    count: int = 1,
    data: Transitions | None = None,
) -> Experts:
    """Soft actor-critic on the true reward, or from data; so many stages are kept, if there is a place for them."""
    demonstrators = 0 if data is None else 1
    if stages is None:
        learnt = arena.learn(agent, keys, data, demonstrators, told).learner
    else:
        watched = {"every": -(-agent.steps // count), "episodes": STAGE_EPISODES, "look": stages.keep}
        learnt = learn_and_try(agent, keys, arena, keys[0], data, demonstrators, progress=told, **watched)[0].learner
    policies = jax.vmap(agent.policy)(learnt.parameters)
    return Experts(policies, learnt.diverged, lambda path, number: one_of(policies, number).save(path))


def shown_by(arena: HostArena, key: Key, policy: GaussianEnsemble, episodes: int, seeds: int) -> Transitions:
    """So many episodes of a policy by drawn actions, the same for every run."""
    played = arena.play(key, jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy.actor), drawn, episodes)
    return _copies(played, seeds)


def _copies(played: Played, seeds: int) -> Transitions:
    return stack([Transitions.from_demonstrations(to_demonstrations(played))] * seeds)


def _critics(policies: AbstractActor, diverged: Int[Array, " P"], critics: Mlp) -> Experts:
    def save(path: Path, number: int) -> None:
        save_critic(path, jax.tree.map(lambda leaf: leaf[number], critics))

    return Experts(policies, diverged, save)
