"""Training of experts, by reward or by imitation, and what is kept of the stages of training."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.algorithms.experts import SacExpert, SoftQExpert
from irleed.algorithms.iq import OfflineIrleed, SacIrleed
from irleed.algorithms.training import Progress, train_all
from irleed.data.transitions import Transitions, stack
from irleed.model.networks import Mlp
from irleed.policies.actor import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import AbstractBackend, HostBackend, sampled_action
from irleed.rollout.evaluation import Played
from irleed.rollout.host import learn_and_evaluate
from irleed.runs.directory import prepare
from irleed.simulation.critics import CriticDemonstrator, draw_demonstrators, save_critic, to_demonstrations

EPISODES = 5  # by sampled actions, for the table


class Stages:
    """A folder with one file a stage and run, and a table of them all."""

    def __init__(self, folder: Path, backend: HostBackend, seed: int) -> None:
        self._folder, self._backend, self._key = folder, backend, jax.random.fold_in(jax.random.key(seed), 1)
        prepare(folder)
        with (folder / "stages.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(("file", "run", "steps", "greedy", "drawn"))

    def keep(self, steps: int, policies: Actor, earned: Float[np.ndarray, " P"]) -> None:
        """The policies of all runs after so many steps."""
        by_chance = self._backend.returns(
            jax.random.fold_in(self._key, steps), policies, sampled_action, EPISODES
        ).mean(1)
        with (self._folder / "stages.csv").open("a", newline="", encoding="utf-8") as file:
            for number, (greedy, chance) in enumerate(zip(earned, by_chance, strict=True)):
                name = f"{number}_{steps}.safetensors"
                one_of(policies, number).save(self._folder / name)
                csv.writer(file).writerow((name, number, steps, round(float(greedy), 1), round(float(chance), 1)))


def one_of(policies: Actor, number: int) -> EnsemblePolicy:
    """One of several policies, as what is saved."""
    return EnsemblePolicy(jax.tree.map(lambda leaf: jnp.asarray(leaf)[number][None], policies))


STAGE_EPISODES = 5


class Experts(NamedTuple):
    """Policies along a leading axis, where each diverged (-1: nowhere), and how to write one of them to a file."""

    policies: Actor
    diverged: Int[Array, " P"]
    save: Callable[[Path, int], None]


def by_reward(backend: AbstractBackend, keys: Shaped[Array, " P"], agent: SoftQExpert, told: Progress) -> Experts:
    """Soft Q-learning on the true reward."""
    learnt = backend.learn(agent, keys, None, 0, told)[0].learner
    return _critics(jax.vmap(agent.policy)(learnt.parameters), learnt.diverged, learnt.parameters.actor.network)


def by_imitation(
    backend: AbstractBackend, key: Key, critic: Mlp, episodes: int, learner: OfflineIrleed, seeds: int, told: Progress
) -> Experts:
    """Inverse soft Q-learning from the play of a critic: how the critics of the paper's demonstrators were made.

    Values are in natural scale, in which a precision of 1 is the expert's own. Critics see observations standardised;
    so will the biases of demonstrators that are made from them.
    """
    play_key, learn_key = jax.random.split(key)
    expert = draw_demonstrators(play_key, critic, np.inf, 0.0, 1)
    played = backend.play(play_key, expert, CriticDemonstrator.act, episodes)
    learn_keys = jax.random.split(learn_key, seeds)
    state, _ = train_all(learner, learn_keys, _copies(played, seeds), backend.actions, 1, told)
    return _critics(jax.vmap(learner.policy)(state.parameters), state.diverged, state.parameters.actor.network)


def by_actor_critic(
    backend: HostBackend,
    keys: Shaped[Array, " P"],
    agent: SacExpert | SacIrleed,
    told: Progress,
    stages: Stages | None = None,
    count: int = 1,
    data: Transitions | None = None,
) -> Experts:
    """Soft actor-critic on the true reward, or from data; so many stages are kept, if there is a place for them."""
    demonstrators = 0 if data is None else 1
    if stages is None:
        learnt = backend.learn(agent, keys, data, demonstrators, told)[0].learner
    else:
        watched = {"every": -(-agent.steps // count), "episodes": STAGE_EPISODES, "look": stages.keep}
        learnt = learn_and_evaluate(agent, keys, backend, keys[0], data, demonstrators, progress=told, **watched)[
            0
        ].learner
    policies = jax.vmap(agent.policy)(learnt.parameters)
    return Experts(policies, learnt.diverged, lambda path, number: one_of(policies, number).save(path))


def shown_by(backend: HostBackend, key: Key, policy: EnsemblePolicy, episodes: int, seeds: int) -> Transitions:
    """So many episodes of a policy by sampled actions, the same for every run."""
    played = backend.play(
        key, jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy.actor), sampled_action, episodes
    )
    return _copies(played, seeds)


def _copies(played: Played, seeds: int) -> Transitions:
    return stack([Transitions.from_demonstrations(to_demonstrations(played))] * seeds)


def _critics(policies: Actor, diverged: Int[Array, " P"], critics: Mlp) -> Experts:
    def save(path: Path, number: int) -> None:
        save_critic(path, jax.tree.map(lambda leaf: leaf[number], critics))

    return Experts(policies, diverged, save)
