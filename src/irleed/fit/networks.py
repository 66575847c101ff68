"""The front door where there is no model of the dynamics: demonstrations in; an ensemble's policy and expertise out."""

import dataclasses
import functools
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Shaped
from irleed.algorithms.base import AbstractOffline, TrainState, initial_state, update_on
from irleed.algorithms.iq import OfflineIrleed
from irleed.algorithms.training import PARTS, Progress, in_parts, train_all
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Resamples, Transitions, are_choices, read_ahead, some_of_everyone, stack
from irleed.envs.step import Actions, Bounds
from irleed.errors import DivergedError
from irleed.fit import vectors
from irleed.fit.consensus import Consensus, consensus, final_learner, situations
from irleed.fit.crossfit import resampled_rows, take_rows
from irleed.fit.defaults import Algorithm, network_algorithm
from irleed.fit.judgement import by_the_others, judge
from irleed.fit.result import Fit, Origin
from irleed.fit.situations import Situations, by_situation
from irleed.fit.validation import Prepared, at_chance, check, needed, prepared, too_large
from irleed.model.expertise import Expertise
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import AbstractBackend, policy_returns
from irleed.rollout.evaluation import demonstrated
from irleed.runs.checkpoint import Checkpointer

MEMBERS = 8
TWO = "of two demonstrators, each is compared with the other alone: skill does not say which of them is right"
EPISODES = 50  # of evaluation, by greedy and by sampled actions


def fit_networks(
    demonstrations: Demonstrations,
    algorithm: Algorithm | None = None,
    *,
    backend: AbstractBackend | None = None,
    members: int = MEMBERS,
    seed: int = 0,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    feature_names: Sequence[str] = (),
) -> Fit:
    r"""Learn from demonstrations by an ensemble of networks trained side by side.

    Every member starts from its own random numbers. The first learns from the data as they are, every other one from
    its own bootstrap resample of each demonstrator's episodes, so that intervals, which are quantiles over the members,
    know how much the data vary as well as the training. Someone with one episode has only the latter. Data that would
    take too much memory are read as they are needed, if the algorithm is offline: the same answer, to rounding, but for
    bias, `log_likelihood` and ILEED's precision, which then come from an even choice of everyone's transitions.

    Outliers, and observations that single precision hardly tells apart, are mended before; ordinary data are taken as
    they are. See `irleed.fit.validation.prepared`.

    In the expertise, precision is the median over members in the gauge; bias the root mean square of what a
    demonstrator adds to the shared values where they acted, over that of the shared values (both relative to their mean
    over actions: what does not depend on the action changes no choice), and for continuous actions how far their mean
    is off, in spreads of the shared policy; `log_likelihood` the members' mean; `weight` the share in the sum of
    precision times transitions. Offline IRLEED with two demonstrators or more has skill and precision by policies
    learnt from the others, and `weight` is each one's share in the training of the policy, see `irleed.fit.consensus`.

    **Arguments:**

    - `algorithm`: IRLEED by default, offline, or online if there is a backend; see `irleed.algorithms`.
      Agents need a backend.
    - `backend`: where agents learn, and where what was learnt is tried; see `irleed.rollout`.
    - `members`: of the ensemble.
    - `progress`: called as the fit proceeds, with the steps done, how many there are and, now and then, `loss=`.
    - `checkpointer`: keeps the run in a folder, and goes on from there; see `irleed.runs.checkpoint`.
    - `feature_names`: of the numbers in an observation, for the names of situations.
    """
    began = time.perf_counter()
    if algorithm is None:
        online, continuous = backend is not None, not are_choices(demonstrations)
        algorithm = network_algorithm(online=online, continuous=continuous)
    actions = check(demonstrations, algorithm, backend, members)
    sample_key, train_key, play_key = jax.random.split(jax.random.key(seed), 3)
    learnt_from = prepared(demonstrations, algorithm, actions, backend)
    seen = learnt_from.data
    chosen = [np.arange(seen.episodes)]
    chosen += [resampled(jax.random.fold_in(sample_key, member), seen) for member in range(1, members)]
    offline = isinstance(algorithm, AbstractOffline)
    large = offline and too_large(seen, members)
    rows = some_of_everyone(seen) if large else np.arange(seen.transitions)
    data = Transitions.at(seen, rows)
    judged, learner = None, algorithm
    if isinstance(algorithm, OfflineIrleed) and judged_by_others(algorithm, seen.demonstrators):
        judge_key, settle_key = jax.random.split(jax.random.fold_in(sample_key, 0))
        judged = consensus(judge_key, seen, data, rows, algorithm, actions)
        if isinstance(actions, int):
            learner = final_learner(settle_key, judged, data, algorithm, actions, seen.demonstrators)
        else:
            learner = vectors.final_learner(judged.posterior, algorithm)
    keys, given = jax.random.split(train_key, members), (actions, seen.demonstrators, progress, checkpointer)
    losses: list[tuple[int, np.ndarray]] = []
    if isinstance(learner, AbstractOffline) and large:
        many = Resamples(seen, _weighed(sample_key, chosen, seen, judged), learner.batch_size)
        state, losses = train_from_disk(learner, keys, many, *given)
    elif judged is not None and isinstance(learner, AbstractOffline):
        often = [np.bincount(own, minlength=seen.episodes)[np.asarray(seen.episode)] for own in chosen]
        weight = judged.weight[np.asarray(data.demonstrator)]
        drawn = [
            resampled_rows(jax.random.fold_in(sample_key, members + number), weight * count, seen.transitions)
            for number, count in enumerate(often)
        ]
        state, losses = train_all(learner, keys, stack([take_rows(data, own) for own in drawn]), *given)
    else:
        many = stack([data, *(Transitions.from_demonstrations(seen.take(own)) for own in chosen[1:])])
        if isinstance(learner, AbstractOffline):
            state, losses = train_all(learner, keys, many, *given)
        else:
            agents, losses = needed(backend).learn(learner, keys, many, *given[1:])
            state = agents.learner
    kept, lost = _sound(algorithm, state)
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], state.parameters)
    policy = EnsemblePolicy(jax.vmap(learner.policy)(parameters), learnt_from.conditioning)
    policy = jax.tree.map(np.asarray, policy)
    expertise = judge(seen.names, learner, parameters, data)
    if isinstance(actions, Bounds) and len(data.demonstrator) == seen.transitions:
        unseen = vectors.held_out(seen, [chosen[member] for member in kept])
        expertise = vectors.judged(expertise, learner, parameters, data, seen.episode, actions, unseen)
    expertise = _counted(expertise, seen)
    expertise = (expertise if judged is None else by_the_others(expertise, judged)).without_few()
    earned = () if backend is None else policy_returns(play_key, backend, policy, EPISODES)
    earned += () if backend is None else demonstrated(demonstrations)
    chance = at_chance(seen, expertise, actions)
    practised = () if judged is None or judged.practice is None else (judged.practice.note,)
    practised += (TWO,) if judged is not None and seen.demonstrators == 2 else ()
    return Fit(
        policy=policy,
        expertise=expertise,
        origin=Origin.of(demonstrations, algorithm, members=members, seed=seed),
        returns=earned,
        history=tuple({"step": step, "loss": float(loss[kept].mean())} for step, loss in losses),
        warnings=(*lost, *learnt_from.warnings, *practised, *chance),
        members=len(kept),
        steps=learner.steps,
        situations=None if judged is None else _situations(judged, learnt_from, data, rows, feature_names),
        episode_skill=None if judged is None else _of_episodes(judged, learnt_from, demonstrations),
        seconds=time.perf_counter() - began + (0.0 if checkpointer is None else checkpointer.earlier),
    )


def resampled(key: Key, data: Demonstrations) -> Int[np.ndarray, " E"]:
    """Numbers of as many episodes of each demonstrator as there are, drawn with replacement."""
    order = np.argsort(data.owner, kind="stable")
    owner, count = data.owner[order], np.bincount(data.owner)
    first = np.cumsum(count) - count
    draw = np.asarray(jax.random.uniform(key, (len(order),), jnp.float32), float)
    return order[first[owner] + (draw * count[owner]).astype(int)]


def judged_by_others(algorithm: OfflineIrleed, demonstrators: int) -> bool:
    """Whether demonstrators are judged by what the others would do; see `irleed.fit.consensus`."""
    learns = algorithm.learns_precision and float(algorithm.temperature) == 1.0  # else values have another scale
    return learns and demonstrators > 1


def _weighed(
    key: Key, chosen: list[Int[np.ndarray, " E"]], data: Demonstrations, judged: Consensus | None
) -> Int[np.ndarray, "P E"]:
    """Episodes of each member, in proportion to their demonstrator's weight."""
    if judged is None:
        return np.stack(chosen)
    often = [judged.weight[data.owner] * np.bincount(own, minlength=data.episodes) for own in chosen]
    drawn = [resampled_rows(jax.random.fold_in(key, number), own, data.episodes) for number, own in enumerate(often)]
    return np.stack([own[np.arange(data.episodes) * len(own) // data.episodes] for own in drawn])


def _of_episodes(judged: Consensus, learnt_from: Prepared, data: Demonstrations) -> Float[np.ndarray, " E"]:
    """The skill in each episode of the data, the mean of its parts; the demonstrator's where nothing is left of it."""
    steps, part_of = learnt_from.data.length, learnt_from.part_of
    length = np.bincount(part_of, steps, data.episodes)
    total = np.bincount(part_of, steps * judged.episode_skill, data.episodes)
    return np.where(length > 0, total / np.maximum(length, 1), judged.posterior.skill[data.owner])


def _situations(
    judged: Consensus, learnt_from: Prepared, data: Transitions, rows: Int[np.ndarray, " N"], names: Sequence[str]
) -> Situations | None:
    """Skill by situation, whose thresholds are in the data's own units."""
    seen, conditioning = learnt_from.data, learnt_from.conditioning
    obs = np.asarray(data.obs) if conditioning is None else conditioning.undone(np.asarray(data.obs))
    columns = judged.realised, judged.possible, judged.shared, np.asarray(data.demonstrator)
    return by_situation(obs, *columns, seen.recordings[np.asarray(seen.episode)[rows]], situations(data.obs), names)


def _counted(found: Expertise, data: Demonstrations) -> Expertise:
    """The same with all transitions counted, where some were looked at."""
    transitions = np.bincount(np.asarray(data.demonstrator), minlength=data.demonstrators).astype(float)
    share = found.precision * transitions
    return dataclasses.replace(found, transitions=transitions, weight=share / share.sum())


def train_from_disk(
    algorithm: AbstractOffline,
    keys: Shaped[Array, " P"],
    data: Resamples,
    actions: Actions,
    demonstrators: int,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
) -> tuple[TrainState, list[tuple[int, np.ndarray]]]:
    """What `train_all` does, with batches that are read ahead: for data that memory would not hold."""
    split = jax.vmap(jax.random.split)(keys)
    given = algorithm, split[:, 0], data.inputs(), actions, demonstrators

    def on(state: TrainState, done: int, steps: int) -> tuple[TrainState, Array]:
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (None, 0))
        losses = []
        for batch in read_ahead(data.sample, fold(split[:, 1], jnp.arange(done, done + steps))):
            state, info = _update_all(algorithm, state, batch)
            losses.append(info.loss)
        return state, np.mean(losses, 0)

    shapes = functools.partial(_init_all.eval_shape, *given)
    part = -(-algorithm.steps // PARTS)
    return in_parts(lambda: _init_all(*given), on, len(keys), algorithm.steps, part, progress, checkpointer, shapes)


@jax.jit(static_argnames=("actions", "demonstrators"), compiler_options={"xla_backend_optimization_level": 0})
def _init_all(algorithm, keys, inputs, actions, demonstrators):
    start = jax.vmap(lambda key, own: initial_state(algorithm.parameters(key, own, actions, demonstrators)))
    return start(keys, inputs)


@jax.jit
def _update_all(algorithm, state, batch):
    own = jax.tree.map(lambda leaf: leaf.reshape(len(state.step), -1, *leaf.shape[1:]), batch)
    return jax.vmap(lambda state, batch: update_on(algorithm, state, batch))(state, own)


def _sound(algorithm: Algorithm, state) -> tuple[Int[np.ndarray, " K"], tuple[str, ...]]:
    """The members with finite parameters, and a warning about the others."""
    finite = [np.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in jax.tree.leaves(state.parameters)]
    step = np.where(np.asarray(state.diverged) >= 0, state.diverged, np.where(np.all(finite, 0), -1, state.step))
    lost, members = np.flatnonzero(step >= 0), len(step)
    if len(lost) == 0:
        return np.arange(members), ()
    places = ", ".join(f"member {member} at step {step[member]}" for member in lost[:MEMBERS])
    said = f"{len(lost)} of {members} members diverged ({places}) with {' '.join(repr(algorithm).split())}"
    if len(lost) == members:
        remedy = "lower the rates, or look for extreme values in the data"
        raise DivergedError("training", got=said, expected="finite losses", remedy=remedy)
    return np.flatnonzero(step < 0), (f"{said}; they are left out of the policy and the intervals",)
