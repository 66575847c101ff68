"""Training that is stopped by what was held out: several runs side by side, each on its own rows of the same data."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import Groups, each_run
from irleed._typing import Array, Bool, Float, Int, Key, Shaped
from irleed.algorithms.base import AbstractOffline, advance, init
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import COLUMNS, Row, Transitions, stack
from irleed.envs.step import Actions

MOST_ROWS = 30_000  # of a run's data: rows are resampled by their weights, so that this is a matter of memory
MOST_HELD = 4_096  # rows that a run is scored on
EVERY = 200  # updates between looks at the held-out likelihood
PATIENCE = 5  # looks without a gain after which a run has ended
ROWS = 4_096  # evaluated at a time
REPEATS = 2  # of a cross-fit: how much they differ widens intervals
MOST_ALONE, FOLDS = 8, 5  # up to so many demonstrators are left out one by one, more of them by folds
LEAST_EPISODES = 4  # a demonstrator with fewer holds out the end of each episode instead of whole episodes
HELD_OUT = 0.2  # of everyone's data


Learner = TypeVar("Learner", bound=AbstractOffline)
Score = Callable[[Learner, Any, Row], Float[Array, ""]]  # of rows, by a learner and its parameters


class Stopped(eqx.Module):
    """Runs at the step whose held-out score was best."""

    parameters: Any  # leading axis P
    steps: Int[np.ndarray, " P"]
    log_likelihood: Float[np.ndarray, " P"]  # mean over the held-out rows, or another score


def held_out(key: Key, data: Demonstrations) -> Bool[np.ndarray, " N"]:
    """A fifth of each demonstrator's transitions: whole recordings, or the end of each where there are few."""
    recording = data.recordings[np.asarray(data.episode)]
    _, first, recording, length = np.unique(recording, return_index=True, return_inverse=True, return_counts=True)
    owner = np.asarray(data.demonstrator)[first]
    few = np.bincount(owner, minlength=data.demonstrators) < LEAST_EPISODES
    draw = np.asarray(jax.random.uniform(key, (len(length),), jnp.float32))
    out = np.zeros(len(length), bool)
    for who in np.flatnonzero(~few):
        own = np.flatnonzero(owner == who)
        out[own[np.argsort(draw[own], kind="stable")][: max(1, round(HELD_OUT * len(own)))]] = True
    order = np.argsort(recording, kind="stable")
    within = np.empty(data.transitions)
    within[order] = np.arange(data.transitions) - np.repeat(np.cumsum(length) - length, length)
    last = within >= (1 - HELD_OUT) * length[recording]
    return np.where(few[owner][recording], last, out[recording])


def resampled_rows(key: Key, weight: Float[np.ndarray, " N"], most: int) -> Int[np.ndarray, " R"]:
    """Row numbers, each about as often as its weight says: uniform draws from them are weighted draws from the rows."""
    count = min(most, max(1, int((weight > 0).sum())))
    total = np.cumsum(weight, dtype=float)
    offset = float(jax.random.uniform(key, (), jnp.float32))
    places = (np.arange(count) + offset) / count * total[-1]
    return np.minimum(np.searchsorted(total, places, side="right"), len(weight) - 1)


def take_rows(data: Transitions, rows: Int[np.ndarray, " R"]) -> Transitions:
    """These rows of the data."""
    columns = {name: np.asarray(getattr(data, name))[rows] for name in COLUMNS}
    return Transitions(**columns, initial=np.asarray(data.initial), size=np.asarray(len(rows), np.int32))


def parts(columns: Array) -> list[np.ndarray]:
    """Rows in parts of one size, so that what evaluates them is compiled once; the last is filled up with the first."""
    every = np.arange(-(-len(columns) // ROWS) * ROWS) % len(columns)
    return [np.asarray(columns)[part] for part in every.reshape(-1, ROWS)]


def to_equal_lengths(rows: list[Int[np.ndarray, "..."]]) -> list[Int[np.ndarray, "..."]]:
    """As many of each as the longest has, repeated evenly, so that no row only fills up a stack."""
    most = max(map(len, rows))
    return [own[np.arange(most) * len(own) // most] for own in rows]


def cross_fitted(
    key: Key,
    learner: Learner,
    seen: Transitions,
    weight: Float[np.ndarray, " N"],
    held: Bool[np.ndarray, " N"],
    actions: Actions,
    count: int,
    evaluate: Callable[..., tuple[Array, ...]],
    score: "Score[Learner] | None" = None,
    restarts: int = 1,
) -> list[list[np.ndarray]]:
    """Columns about every transition, by a policy that has learnt from other demonstrators alone, for each repetition.

    `evaluate` makes them from the learner, its parameters, observations and actions. Training is stopped by `score`, by
    default the likelihood.
    """
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
        others = (fold[repeat] != number)[who].astype(float)
        others = weight * others if (weight * others * ~held).any() else others  # where nobody else has any weight
        learn_key, held_key = jax.random.split(jax.random.fold_in(rows_key, lane))
        learnt.append(resampled_rows(learn_key, others * ~held, MOST_ROWS))
        scored.append(resampled_rows(held_key, others * held, MOST_HELD))
    stopped = trained_on_rows(learner, train_key, seen, learnt, scored, actions, count, score, restarts)
    places, found = ([[] for _ in fold] for _ in range(2))
    for lane, (repeat, number) in enumerate(lanes):
        own = np.flatnonzero(fold[repeat][who] == number)
        parameters = jax.tree.map(lambda leaf, lane=lane: leaf[lane], stopped.parameters)
        pairs = zip(parts(np.asarray(seen.obs)[own]), parts(np.asarray(seen.action)[own]), strict=True)
        columns = zip(*(evaluate(learner, parameters, *pair) for pair in pairs), strict=True)
        places[repeat].append(own)
        found[repeat].append([np.concatenate([np.asarray(each) for each in column])[: len(own)] for column in columns])
    whole = []
    for own, columns in zip(places, found, strict=True):
        order = np.argsort(np.concatenate(own))
        whole.append([np.concatenate(column)[order].astype(float) for column in zip(*columns, strict=True)])
    return whole


def trained_on_rows(
    learner: Learner,
    key: Key,
    seen: Transitions,
    learnt: list[Int[np.ndarray, "..."]],
    scored: list[Int[np.ndarray, "..."]],
    actions: Actions,
    count: int,
    score: "Score[Learner] | None" = None,
    restarts: int = 1,
) -> Stopped:
    """Train a run on each list of rows until the score of the rows beside it has stopped rising.

    Of several restarts, the one with the best score is kept.
    """
    runs = len(learnt)
    own, apart = (
        stack([take_rows(seen, rows) for rows in restarts * to_equal_lengths(each)]) for each in (learnt, scored)
    )
    keys = jax.random.split(key, restarts * runs)
    found = train_until_held_out(learner, keys, own, apart, actions, count, score or mean_log_prob)
    best = found.log_likelihood.reshape(restarts, runs).argmax(0) * runs + np.arange(runs)
    return jax.tree.map(lambda leaf: leaf[best], found)


def mean_log_prob(algorithm: AbstractOffline, parameters: Any, rows: Row) -> Float[Array, ""]:
    """The mean log likelihood of the rows."""

    def one(obs: Array, action: Array, who: Array) -> Array:
        return algorithm.describe(parameters, obs, action, who).log_prob

    return jnp.mean(jax.vmap(one)(jnp.asarray(rows.obs, jnp.float32), rows.action, rows.demonstrator))


def train_until_held_out(
    algorithm: Learner,
    keys: Shaped[Array, " P"],
    data: Transitions,
    held: Transitions,
    actions: Actions,
    demonstrators: int,
    score: "Score[Learner]" = mean_log_prob,
) -> Stopped:
    """Train a run on each data set of a stack until its score on held-out rows has stopped rising."""
    groups, split = Groups(len(keys)), jax.vmap(jax.random.split)(keys)
    given = list(zip(groups.split(split), groups.split(data), groups.split(held), strict=True))
    states = [_init_all(algorithm, key[:, 0], rows, actions, demonstrators) for key, rows, _ in given]
    steps = min(EVERY, algorithm.steps)
    best = np.full(len(keys), -np.inf)
    when, kept = np.zeros(len(keys), int), [state.parameters for state in states]
    waited = np.zeros(len(keys), int)

    def ahead(state, key, rows, scored):
        return _advance_all(algorithm, key[:, 1], state, rows, scored, steps, score)

    for check in range(1, -(-algorithm.steps // steps) + 1):
        states, found = groups.advance(ahead, states, *zip(*given, strict=True))
        found = np.nan_to_num(np.asarray(found, float), nan=-np.inf)
        better = (found > best) & (waited < PATIENCE)  # whatever other runs still do
        marks = groups.split(better)
        kept = [_chosen(mark, state.parameters, old) for mark, state, old in zip(marks, states, kept, strict=True)]
        when, best = np.where(better, check * steps, when), np.where(better, found, best)
        waited = np.where(better, 0, waited + 1)
        if (waited >= PATIENCE).all():
            break
    return Stopped(jax.tree.map(np.asarray, groups.join(kept)), when, best)


@jax.jit(static_argnames=("actions", "demonstrators"), compiler_options={"xla_backend_optimization_level": 0})
def _init_all(algorithm, keys, data, actions, demonstrators):
    return jax.vmap(lambda key, own: init(algorithm, key, own, actions, demonstrators))(keys, data)


@jax.jit(static_argnames=("steps", "score"))
def _advance_all(algorithm, loop_keys, state, data, held, steps, score):
    def one(key, state, own, scored):
        state, _ = advance(algorithm, key, state, own, steps)
        rows = scored.rows(jnp.arange(scored.obs.shape[0]), jnp.zeros(scored.obs.shape[0], jnp.int32))
        return state, score(algorithm, state.parameters, rows)

    return each_run(one)(loop_keys, state, data, held)


@jax.jit
def _chosen(mark, new, old):
    def leaf(a, b):
        return jnp.where(mark.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, new, old)
