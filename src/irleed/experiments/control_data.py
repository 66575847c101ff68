"""The tasks of the control experiment, and the demonstrations in them."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Key
from irleed.arena import AbstractArena
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, stack
from irleed.experiments.critics import load_critic
from irleed.simulate_critic import CriticDemonstrator, draw_demonstrators, to_demonstrations

DEMONSTRATORS, EPISODES = 3, 5
MANY_EPISODES = 30  # of each demonstrator, for their true returns


@dataclass(frozen=True)
class Setting:
    """How good the demonstrators are."""

    name: str
    max_precision: float
    bias_scale: float


@dataclass(frozen=True)
class Task:
    """An environment, the critic of its demonstrators, and these in four settings: precision, then accuracy."""

    name: str
    env_id: str
    critic: str
    settings: tuple[Setting, ...]


def four_settings(max_precision: float, bias_scale: float) -> tuple[Setting, ...]:
    """Low precision is drawn below a limit, high precision takes the largest value; low accuracy is a scaled bias."""
    return (
        Setting("LL", max_precision, bias_scale),
        Setting("LH", max_precision, 0.0),
        Setting("HL", float("inf"), bias_scale),
        Setting("HH", float("inf"), 0.0),
    )


# Limits of precision and scales of bias are those that bring the demonstrators nearest to the paper's best and mean
# returns: chosen by these alone, before anything was learnt from them.
TASKS = {
    "cartpole": Task("cartpole", "CartPole-v1", "cartpole", four_settings(1.0, 30.0)),
    "lunarlander": Task("lunarlander", "LunarLander-v3", "lunarlander_iq", four_settings(0.3, 40.0)),
}


class DataSets(eqx.Module):
    """Data with a leading axis of settings times seeds, and how good the demonstrators really are."""

    transitions: Transitions
    best: Transitions  # of the third of the episodes with the highest returns
    returns: Float[Array, "L D"]


def make_data(
    key: Key, task: Task, arena: AbstractArena, settings: tuple[Setting, ...], seeds: int, every: int
) -> DataSets:
    """Draw demonstrators and let them play, every setting and seed at once."""
    own, returns = play_data(key, task, arena, settings, seeds)
    return DataSets(
        transitions=stack([Transitions.from_demonstrations(data, every) for data in own]),
        best=stack([Transitions.from_demonstrations(best_third(data), every) for data in own]),
        returns=returns,
    )


def play_data(
    key: Key, task: Task, arena: AbstractArena, settings: tuple[Setting, ...], seeds: int
) -> tuple[list[Demonstrations], Float[np.ndarray, "L D"]]:
    """What demonstrators of every setting and seed did, and how good they really are."""
    draw_key, play_key, truth_key = jax.random.split(key, 3)
    critic = load_critic(task.critic)
    numbers = [[setting.name for setting in task.settings].index(setting.name) for setting in settings]
    keys = jnp.concatenate([jax.random.split(jax.random.fold_in(draw_key, n), seeds) for n in numbers])
    level = (jnp.repeat(jnp.asarray([s.max_precision for s in settings], jnp.float32), seeds),)
    level += (jnp.repeat(jnp.asarray([s.bias_scale for s in settings], jnp.float32), seeds),)
    people = jax.vmap(lambda own, beta, alpha: draw_demonstrators(own, critic, beta, alpha, DEMONSTRATORS))(
        keys, *level
    )
    people = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), people)
    played = arena.play(play_key, people, CriticDemonstrator.act, EPISODES)
    played = jax.tree.map(lambda leaf: leaf.reshape(-1, DEMONSTRATORS, *leaf.shape[1:]), played)
    own = [
        to_demonstrations(jax.tree.map(lambda leaf, lane=lane: leaf[lane], played))
        for lane in range(len(settings) * seeds)
    ]
    truth = arena.returns(truth_key, people, CriticDemonstrator.act, MANY_EPISODES).mean(1)
    return own, truth.reshape(-1, DEMONSTRATORS).astype(np.float32)


def best_third(data: Demonstrations) -> Demonstrations:
    """The third of the episodes with the highest returns, whoever they are from: what an oracle would keep."""
    returns = data.returns()
    if returns is None:
        raise ValueError("simulated data have rewards")
    count = max(1, data.episodes // 3)
    return data.take(np.sort(np.argsort(-returns, kind="stable")[:count]))
