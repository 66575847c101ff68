r"""Each demonstrator judged by what the others would do, where the others have been.

A network memorises whom it has learnt from, and takes for an expert whoever is alone somewhere. So nobody is judged
by a policy that has learnt from them. For a demonstrator (or one fold of many) a policy is learnt from all others,
stopped by the likelihood of episodes that it has not seen. By its values $Q$, with $A(s, a) = Q(s, a) - \bar Q(s)$ the
advantage over a random action,

- skill is $\sum A(s_t, a_t) / \sum \max_a A(s_t, a)$: the share of the advantage within reach that a demonstrator
  realises. 1: what the others would do, always; 0: as good as random actions; below: the opposite.
- precision is the $\beta_i$ of $\exp(\beta_i Q)$ (Eq. 5) that makes their actions most probable.

A consensus is one of people, not of transitions. In every state, whoever has been there has one vote: a transition
counts by the inverse of the probability $p(i|s)$ that a classifier gives its demonstrator, within limits. And a
demonstrator is judged where at least some of the others have been: by the effective number of others,
$K(s) = 1 / \sum_{j \ne i} p(j|s)^2$. Two more rounds weigh everyone's votes by their skill less its deviation: whose
skill is uncertain has little to say.

Where actions are vectors, `irleed.fit.vectors` says what is compared, and who has how many votes.

To agree with others is not all of skill. Where people improve with practice, skill also counts how far they have come
along what improves; see `irleed.fit.practice`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.cluster.vq import kmeans2, vq

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, stack
from irleed.envs.step import Actions, Bounds
from irleed.fit import posterior as statistics
from irleed.fit import vectors
from irleed.fit.crossfit import (
    MOST_HELD,
    MOST_ROWS,
    ROWS,
    held_out,
    of_one_length,
    resampled_rows,
    taken,
    train_until_held_out,
)
from irleed.fit.practice import Practice, practice

ROUNDS, REPEATS = 3, 2
MOST_ALONE, FOLDS = 8, 5  # up to so many demonstrators are left out one by one, more of them by folds
MOST_VOTES = 50.0  # of a transition, in those of the average one
LEAST_SAY = 0.1  # skill of a demonstrator for their say, at least
LEAST_SHARED = 1e-6  # weight of a transition where no other has been, or one alone
SITUATIONS, MOST_FEATURES = 32, 64  # groups of observations, by so many numbers
MOST_SITUATED, MOST_NUMBERS = 10_000, 1 << 24  # observations that groups are found by, and numbers in memory
PRESENCE = {"hidden": (64, 64), "steps": 4_000, "batch_size": 128, "anneal_lr": False, "learning_rate": 2e-3}


class Judge(NamedTuple):
    """What is made of the actions of those whom a policy has not learnt from."""

    see: Callable[..., Any]  # columns of rows, by an algorithm, parameters, observations and actions
    measured: Callable[..., statistics.Measured]  # from these columns of all rows
    say: Callable[[statistics.Posterior], Float[np.ndarray, " D"]]  # of each in the next round


class Consensus(eqx.Module):
    """The others' judgement of D demonstrators and of their E episodes."""

    posterior: statistics.Posterior
    say: Float[np.ndarray, " D"]  # the weight of each one's transitions in the shared policy
    episode_skill: Float[np.ndarray, " E"]
    held: Bool[np.ndarray, " N"]  # out, to stop the training
    realised: Float[np.ndarray, " N"]  # of each transition: its advantage over a random action, by the others' values
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
    held_key, presence_key, *round_keys = jax.random.split(key, 2 + ROUNDS)
    who, episode = np.asarray(seen.demonstrator), np.asarray(data.episode)[rows]
    count = data.demonstrators
    held = held_out(held_key, data)[rows]
    recording = data.recordings[episode]
    situation = situations(seen.obs)
    judge = Judge(_by_the_others, statistics.Measured, _say)
    if isinstance(actions, Bounds):
        votes, shared = vectors.presence(situation, who, count)
        judge = Judge(vectors.seen, vectors.Measure(shared, who, recording, count), vectors.say)
    else:
        votes, shared = _presence(presence_key, seen, held, count)
    progress(0.15)
    learner = dataclasses.replace(algorithm, **IQ_LEARN, anneal_lr=False)
    groups = recording, situation
    say, found, measured = np.ones(count), [], []
    for number, round_key in enumerate(round_keys):
        measured = _cross_fitted(round_key, learner, seen, votes * say[who], held, count, actions, judge)
        found = [statistics.evidence(each, shared, who, groups, count) for each in measured]
        say = judge.say(statistics.posterior(found))
        progress(0.15 + 0.85 * (number + 1) / ROUNDS)
    agreed, practised = statistics.posterior(found), practice(data)
    together = agreed if practised is None else practised.beside(agreed)
    say = _say(together)
    realised = np.mean([each.realised for each in measured], 0)
    possible = np.mean([each.possible for each in measured], 0)
    of_episodes = _of_episodes(realised * shared, possible * shared, episode, data, together.skill)
    return Consensus(together, say, of_episodes, held, realised, possible, shared, practised)


def _say(found: statistics.Posterior) -> Float[np.ndarray, " D"]:
    return np.maximum(found.skill - found.deviation, LEAST_SAY) ** 2


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

    centres, _ = kmeans2(described(some), min(SITUATIONS, count), minit="++", rng=rng)
    parts = (flat[first : first + at_once] for first in range(0, len(flat), at_once))
    return np.concatenate([vq(described(part), centres)[0] for part in parts])


def _presence(
    key: Key, seen: Transitions, held: Bool[np.ndarray, " N"], count: int
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Votes of each transition, and its weight in the judgement of its own demonstrator: where others have been."""
    who = np.asarray(seen.demonstrator)
    if count < 2:
        return np.ones(len(who)), np.ones(len(who))
    train_key, learn_key, held_key = jax.random.split(key, 3)
    own = 1 / np.bincount(who, minlength=count)[who]
    classes = eqx.tree_at(lambda t: t.action, seen, who)
    algorithm = BehaviourCloning(**PRESENCE)
    learnt = stack([taken(classes, resampled_rows(learn_key, own * ~held, MOST_ROWS))])
    scored = stack([taken(classes, resampled_rows(held_key, own * held, MOST_HELD))])
    stopped = train_until_held_out(algorithm, train_key[None], learnt, scored, count, count)
    parameters = jax.tree.map(lambda leaf: leaf[0], stopped.parameters)
    at_own, others = np.concatenate(
        [np.stack(_whose(algorithm, parameters, *part), 1) for part in _parts(np.asarray(seen.obs), who)]
    )[: len(who)].T
    effective = np.clip((others - 1) / max(count - 2, 1), 0, 1) if count > 2 else 1.0
    votes = np.minimum(1 / np.maximum(at_own * count, 1e-6), MOST_VOTES) * own
    return votes, LEAST_SHARED + (1 - at_own) * effective**2


def _parts(obs: np.ndarray, who: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows in parts of one size, the last one filled up."""
    every = np.arange(-(-len(who) // ROWS) * ROWS) % len(who)
    return [(np.asarray(obs[part]), who[part]) for part in every.reshape(-1, ROWS)]


@jax.jit
def _whose(algorithm, parameters, obs, who):
    """The probability of each row's own demonstrator, and the effective number of others."""
    chance = jax.nn.softmax(algorithm.policy(parameters).batch(jnp.asarray(obs, jnp.float32)).logits)
    own = jnp.take_along_axis(chance, who[:, None], 1)[:, 0]
    rest = chance * (1 - jax.nn.one_hot(who, chance.shape[1], dtype=chance.dtype))
    return own, jnp.sum(rest, 1) ** 2 / jnp.maximum(jnp.sum(rest**2, 1), 1e-20)


def _cross_fitted(
    key: Key,
    learner: OfflineIrleed,
    seen: Transitions,
    weight: Float[np.ndarray, " N"],
    held: Bool[np.ndarray, " N"],
    count: int,
    actions: Actions,
    judge: Judge,
) -> list[statistics.Measured]:
    """Of every transition, by a policy that has learnt from others alone: what it realises, could, and likelihoods."""
    fold_key, rows_key, train_key = jax.random.split(key, 3)
    who = np.asarray(seen.demonstrator)
    folds = count if count <= MOST_ALONE else FOLDS
    lanes, fold = [], []
    for repeat in range(REPEATS):
        order = np.asarray(jax.random.permutation(jax.random.fold_in(fold_key, repeat), count))
        fold.append(np.argsort(order, kind="stable") % folds)
        lanes += [(repeat, number) for number in range(folds)]
    learnt, scored = [], []
    for lane, (repeat, number) in enumerate(lanes):
        others = weight * (fold[repeat] != number)[who]
        learn_key, held_key = jax.random.split(jax.random.fold_in(rows_key, lane))
        learnt.append(resampled_rows(learn_key, others * ~held, MOST_ROWS))
        scored.append(resampled_rows(held_key, others * held, MOST_HELD))
    given = [stack([taken(seen, rows) for rows in of_one_length(each)]) for each in (learnt, scored)]
    stopped = train_until_held_out(learner, jax.random.split(train_key, len(lanes)), given[0], given[1], actions, count)
    places, found = ([[] for _ in fold] for _ in range(2))
    for lane, (repeat, number) in enumerate(lanes):
        own = np.flatnonzero(fold[repeat][who] == number)
        parameters = jax.tree.map(lambda leaf, lane=lane: leaf[lane], stopped.parameters)
        parts = _parts(np.asarray(seen.obs)[own], np.asarray(seen.action)[own])
        columns = zip(*(judge.see(learner, parameters, *part) for part in parts), strict=True)
        places[repeat].append(own)
        found[repeat].append([np.concatenate([np.asarray(each) for each in column])[: len(own)] for column in columns])
    measured = []
    for own, columns in zip(places, found, strict=True):
        order = np.argsort(np.concatenate(own))
        whole = [np.concatenate(column)[order].astype(float) for column in zip(*columns, strict=True)]
        measured.append(judge.measured(*whole))
    return measured


@jax.jit
def _by_the_others(learner, parameters, obs, action):
    policy = learner.policy(parameters).batch(jnp.asarray(obs, jnp.float32))
    values = policy.logits
    mean = jnp.mean(values, -1)
    grid = jnp.asarray(statistics.GRID, jnp.float32)

    def curve(log_precision):
        own = policy.as_demonstrator(jnp.full_like(mean, log_precision), jnp.zeros_like(values))
        return own.log_prob(action)

    return policy.logit(action) - mean, jnp.max(values, -1) - mean, jax.vmap(curve)(grid).T


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
    return (np.bincount(episode, realised, data.episodes) + extra * skill[data.owner]) / (room + extra)


def settled(
    key: Key, judged: Consensus, seen: Transitions, algorithm: OfflineIrleed, actions: int, count: int
) -> OfflineIrleed:
    """The algorithm with precisions held as judged, for as many steps as episodes held out call for.

    Biases are learnt only if they make held-out actions more probable. Training to the best step at a constant learning
    rate takes about twice as many steps while it decays to zero.
    """
    log_precision = np.log(judged.posterior.precision(0.5)).astype(np.float32)
    held = {"held_log_precision": log_precision, "precision_learning_rate": None, "anneal_lr": False}
    rows_key, *train_keys = jax.random.split(key, 3)
    learn_key, held_key = jax.random.split(rows_key)
    weight = judged.say[np.asarray(seen.demonstrator)]
    learnt = resampled_rows(learn_key, weight * ~judged.held, MOST_ROWS)
    scored = resampled_rows(held_key, weight * judged.held, MOST_HELD)
    given = [stack([taken(seen, rows)] * REPEATS) for rows in (learnt, scored)]
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
    steps = min(2 * found, algorithm.steps) if algorithm.anneal_lr else found
    return dataclasses.replace(candidates[best], anneal_lr=algorithm.anneal_lr, steps=steps)
