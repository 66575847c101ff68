r"""Each demonstrator judged by what the others would do.

A network memorises whom it has learnt from, and takes for an expert whoever is alone somewhere. So nobody is judged by
a policy that has learnt from them. `irleed.fit.agreement` says how discrete actions are compared with what the others
would do, `irleed.fit.vectors` how vectors are.

To agree with others is not all of skill. Where people improve with practice, skill also counts how far they have come
along what improves; see `irleed.fit.practice`.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from scipy.cluster.vq import kmeans2, vq

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, stack
from irleed.envs.step import Actions, Bounds
from irleed.fit import posterior as statistics
from irleed.fit import vectors
from irleed.fit.agreement import agreement
from irleed.fit.crossfit import (
    MOST_HELD,
    MOST_ROWS,
    REPEATS,
    held_out,
    resampled_rows,
    take_rows,
    train_until_held_out,
)
from irleed.fit.practice import Practice, practice

LEAST_STEPS = 5_000  # of the shared policy's training
MOST_MEDIANS = 3.0  # transitions of one demonstrator in the shared policy, in those of the median one
LEAST_SKILL = 0.1  # that a demonstrator counts in the shared policy with, at least
OPPOSITE_SKILL = 0.01  # the same of one who surely does the opposite of the others
SITUATIONS, MOST_FEATURES = 32, 64  # groups of observations, by so many numbers
MOST_SITUATED, MOST_NUMBERS = 10_000, 1 << 24  # observations that groups are found by, and numbers in memory


class Consensus(eqx.Module):
    """The others' judgement of D demonstrators and of their E episodes."""

    posterior: statistics.Posterior
    weight: Float[np.ndarray, " D"]  # of each one's transitions in the training of the shared policy
    episode_skill: Float[np.ndarray, " E"]
    held: Bool[np.ndarray, " N"]  # out, to stop the training
    realised: Float[np.ndarray, " N"]  # of each transition: how much better than usual its action is, by the others
    possible: Float[np.ndarray, " N"]  # the best action's
    shared: Float[np.ndarray, " N"]  # its weight in the judgement of its demonstrator
    practice: Practice | None  # what the order in which people did things says besides


def consensus(
    key: Key,
    data: Demonstrations,
    seen: Transitions,
    rows: Int[np.ndarray, " N"],
    algorithm: OfflineIrleed,
    actions: Actions,
    progress: Callable[[float], None] = lambda share: None,
) -> Consensus:
    """Judge everyone by what the others would do.

    **Arguments:**

    - `seen`, `rows`: the transitions to look at, and their numbers in the data.
    - `algorithm`: whose values are learnt, with precision 1 and bias 0.
    - `progress`: called with the share of the work that is done.
    """
    held_key, judge_key = jax.random.split(key)
    who, episode = np.asarray(seen.demonstrator), np.asarray(data.episode)[rows]
    count, held = data.demonstrators, held_out(held_key, data)[rows]
    groups = data.recordings[episode], situations(seen.obs)
    learner = dataclasses.replace(algorithm, **IQ_LEARN, anneal_lr=False)
    if isinstance(actions, Bounds):
        measured, shared = vectors.agreement(judge_key, learner, seen, held, groups, actions, count, progress)
        realised, possible = np.mean([(each.realised, each.possible) for each in measured], 0)
    else:
        measured, (realised, possible) = agreement(judge_key, learner, seen, held, actions, count, progress)
        shared = np.ones(len(who))
    found = [statistics.evidence(each, shared, who, groups, count) for each in measured]
    agreed, practised = statistics.posterior(found), practice(data)
    together = agreed if practised is None else practised.beside(agreed)
    weight = _policy_weight(together) * _capped(who, count)
    parts, room = np.mean([(each.realised * shared, each.possible * shared) for each in measured], 0)
    of_episodes = _of_episodes(parts, room, episode, data, together.skill)
    return Consensus(together, weight, of_episodes, held, realised, possible, shared, practised)


def _policy_weight(found: statistics.Posterior) -> Float[np.ndarray, " D"]:
    """The square of skill less its deviation; hardly anything for those who surely do the opposite of the others."""
    least = np.where(found.skill + found.deviation < 0, OPPOSITE_SKILL, LEAST_SKILL)
    return np.maximum(found.skill - found.deviation, least) ** 2


def _capped(who: Int[np.ndarray, " N"], count: int) -> Float[np.ndarray, " D"]:
    """A factor by which nobody counts for more than a few times as many transitions as the median demonstrator has."""
    number = np.bincount(who, minlength=count)
    return np.minimum(1.0, MOST_MEDIANS * np.median(number) / np.maximum(number, 1))


def situations(obs: Array) -> Int[np.ndarray, " N"]:
    """Which group of similar observations each one belongs to (k-means of standardised numbers)."""
    rng, flat = np.random.default_rng(0), np.asarray(obs).reshape(len(obs), -1)
    at_once = max(SITUATIONS, MOST_NUMBERS // flat.shape[1])
    count = min(len(flat), MOST_SITUATED, at_once)
    some = flat[np.sort(rng.choice(len(flat), count, replace=False))].astype(float)
    middle, spread = some.mean(0), some.std(0)
    varies = np.flatnonzero(spread > 1e-9 * np.abs(middle) + 1e-12)
    if not varies.size:
        return np.zeros(len(flat), int)
    features = min(varies.size, MOST_FEATURES)
    turned = np.eye(features) if features == varies.size else rng.normal(size=(varies.size, features))

    def described(rows: np.ndarray) -> np.ndarray:
        return np.clip((rows[:, varies] - middle[varies]) / spread[varies], -5, 5) @ turned

    points = described(some)
    distinct = len(np.unique(points, axis=0))
    centres, _ = kmeans2(points, min(SITUATIONS, distinct), minit="++", rng=rng)
    parts = (flat[first : first + at_once] for first in range(0, len(flat), at_once))
    return np.concatenate([vq(described(part), centres)[0] for part in parts])


def _of_episodes(
    realised: Float[np.ndarray, " N"],
    possible: Float[np.ndarray, " N"],
    episode: Int[np.ndarray, " N"],
    data: Demonstrations,
    skill: Float[np.ndarray, " D"],
) -> Float[np.ndarray, " E"]:
    """The skill in each episode, drawn towards its demonstrator's as if by half of an average episode more."""
    room = np.bincount(episode, possible, data.episodes)
    average = np.bincount(data.owner, room, data.demonstrators) / np.bincount(data.owner, minlength=data.demonstrators)
    extra = 0.5 * average[data.owner] + 1e-12
    found = (np.bincount(episode, realised, data.episodes) + extra * skill[data.owner]) / (room + extra)
    return np.clip(found, -1.0, 1.0)


def final_learner(
    key: Key, judged: Consensus, seen: Transitions, algorithm: OfflineIrleed, actions: int, count: int
) -> OfflineIrleed:
    """The algorithm with precisions held as judged, for as many steps as episodes held out call for.

    Biases are learnt only if they make held-out actions more probable. Training to the best step at a constant learning
    rate takes about twice as many steps while it decays to zero. There are at least `LEAST_STEPS`: where data are few,
    the likelihood of single actions is best long before the policy can do the task.
    """
    log_precision = np.log(judged.posterior.precision(0.5)).astype(np.float32)
    held = {"held_log_precision": log_precision, "precision_learning_rate": None, "anneal_lr": False}
    rows_key, *train_keys = jax.random.split(key, 3)
    learn_key, held_key = jax.random.split(rows_key)
    weight = judged.weight[np.asarray(seen.demonstrator)]
    learnt = resampled_rows(learn_key, weight * ~judged.held, MOST_ROWS)
    scored = resampled_rows(held_key, weight * judged.held, MOST_HELD)
    given = [stack([take_rows(seen, rows)] * REPEATS) for rows in (learnt, scored)]
    candidates = [
        dataclasses.replace(algorithm, **held, bias_learning_rate=rate)
        for rate in dict.fromkeys((None, algorithm.bias_learning_rate))
    ]
    tried = [
        train_until_held_out(each, jax.random.split(train_key, REPEATS), given[0], given[1], actions, count)
        for each, train_key in zip(candidates, train_keys, strict=False)
    ]
    best = int(np.argmax([each.log_likelihood.mean() for each in tried]))
    found = int(tried[best].steps.max()) or algorithm.steps  # 0: no likelihood was a number
    steps = min(max(2 * found, LEAST_STEPS), algorithm.steps) if algorithm.anneal_lr else found
    return dataclasses.replace(candidates[best], anneal_lr=algorithm.anneal_lr, steps=steps)
