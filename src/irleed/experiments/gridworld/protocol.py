"""The gridworld experiment: every setting (largest precision, accuracy) and seed is one lane of a batched program.

A lane draws demonstrators, lets them play, fits maximum-entropy IRL and IRLEED to the same episodes, and computes the
returns of what was learnt exactly. This file reads top to bottom: one lane, then the sweep.
"""

import functools
import itertools
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import in_double_precision
from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.tabular.irleed import Irleed, State
from irleed.algorithms.tabular.paper_protocol import Planned, Published
from irleed.algorithms.tabular.planning import AbstractPlanner, Averaged, Soft, optimal_q_values
from irleed.algorithms.tabular.visitation import Statistics, expected_return, tabulate_rollouts
from irleed.algorithms.training import run_stream, run_to_end
from irleed.envs.mdp import Gridworld
from irleed.experiments.gridworld.config import DEMONSTRATORS, EPISODES, HORIZON, GridworldConfig, check
from irleed.fit.tabular import SHARPNESS
from irleed.model.demonstrators import gauge
from irleed.model.expertise import INTERVAL
from irleed.policies.tabular import boltzmann_probabilities
from irleed.simulation.mdp import sample_demonstrators, simulate_rollouts

# Lanes at a time, by platform and by how many demonstrators a lane has: enough to be busy, few enough for the memory.
LANES = {("cpu", "known"): 121, ("cpu", "episode"): 4, ("gpu", "known"): 1210, ("gpu", "episode"): 121}


class Learnt(eqx.Module):
    """What one method got out of one data set."""

    greedy: Float[Array, ""]  # return of the greedy policy of its reward: the paper's evaluation
    policy: Float[Array, ""]  # return of the policy that users get
    weights: Float[Array, " F"]


class DataSet(eqx.Module):
    """What five demonstrators played, and how good they are."""

    true_log_precision: Float[Array, " D"]  # in the gauge
    statistics: Statistics
    by_episode: Statistics | None  # the same episodes, each as a demonstrator of its own

    @property
    def known(self) -> Statistics:
        """What the estimate is told."""
        return self.statistics if self.by_episode is None else self.by_episode


class Lane(eqx.Module):
    """What was learnt from one data set."""

    demonstrators: Float[Array, ""]  # their mean return
    visits: Float[Array, " S"]
    learnt: dict[str, Learnt]  # by method and estimator
    true_log_precision: Float[Array, " D"]  # in the gauge
    log_precision: Float[Array, "Q D"] | None  # estimated, with the ends of its interval
    perceived: Float[Array, "D F"] | None  # what each demonstrator seems to pursue: only where identities are unknown
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


class Outcome(NamedTuple):
    """What came of all lanes; arrays have leading axes settings, seeds."""

    lanes: Lane
    seconds: float


def play(key: Key, max_precision: Array, accuracy: Array, world: Gridworld, config: GridworldConfig) -> DataSet:
    """Draw demonstrators and let them play."""
    skill_key, play_key, _, _ = jax.random.split(key, 4)
    mdp = world.mdp
    skill = sample_demonstrators(
        skill_key, DEMONSTRATORS, mdp.feature_count, max_precision=max_precision, accuracy=accuracy
    )
    played = simulate_rollouts(play_key, mdp, _planner(config), *skill, EPISODES, HORIZON, mdp.without_terminals())
    each = jax.tree.map(lambda x: x.reshape(-1, 1, x.shape[-1]), played)
    return DataSet(
        true_log_precision=gauge(jnp.log(skill.precision)),
        statistics=tabulate_rollouts(mdp, played),
        by_episode=tabulate_rollouts(mdp, each) if config.demonstrator == "episode" else None,
    )


def lane(key: Key, data: DataSet, found: State | None, world: Gridworld, config: GridworldConfig) -> Lane:
    """Learn from one data set by the remaining methods, and see what each has `found`."""
    _, _, published_key, draw_key = jax.random.split(key, 4)
    mdp, planner, statistics = world.mdp, _planner(config), data.statistics
    plan = mdp.without_terminals()  # the protocol: planners do not know that the corners end the episode
    learnt: dict[str, Learnt] = {}
    log_precision, perceived, steps, converged = None, None, jnp.asarray(0), jnp.asarray(True)
    if found is not None:
        pooled = eqx.tree_at(lambda s: s.action_counts, statistics, jnp.sum(statistics.action_counts, 0, keepdims=True))
        plain = run_to_end(Irleed.maxent(planner=planner), key, plan, pooled)
        learnt["maxent_map"] = _evaluate(world, plan, plain.weights)
        irleed = _irleed(config)
        learnt["irleed_map"] = _evaluate(world, plan, found.weights)
        if config.demonstrator == "known":
            draws = irleed.judge(draw_key, found, plan, statistics).log_precision_draws
            tail = (1 - INTERVAL) / 2
            log_precision = jnp.quantile(draws, jnp.asarray([tail, 0.5, 1 - tail]), axis=0)
        else:
            perceived = found.demonstrators.perceived(found.weights)
        steps, converged = found.step, irleed.converged(found)
    if config.estimator != "map":
        protocol = Published(inference=Planned(planner))
        state = run_to_end(protocol, published_key, mdp, statistics)
        learnt["maxent_published"] = _evaluate(world, plan, state.irl_weights)
        learnt["irleed_published"] = _evaluate(world, plan, state.weights)
    return Lane(
        demonstrators=jnp.mean(statistics.features @ jnp.asarray(mdp.reward)),
        visits=jnp.mean(statistics.features, 0),
        learnt=learnt,
        true_log_precision=data.true_log_precision,
        log_precision=log_precision,
        perceived=perceived,
        steps=steps,
        converged=converged,
    )


def _evaluate(world: Gridworld, plan, weights: Float[Array, " F"]) -> Learnt:
    """Exact returns in the true world: the chance of ending in a rewarded corner within the horizon."""
    q = optimal_q_values(plan, plan.rewards(weights))
    greedy = jax.nn.one_hot(jnp.argmax(q, -1), world.mdp.actions)
    policy = boltzmann_probabilities(q, SHARPNESS)
    greedy_return, policy_return = (expected_return(world.mdp, each, HORIZON) for each in (greedy, policy))
    return Learnt(greedy_return, policy_return, weights)


def _irleed(config: GridworldConfig) -> Irleed:
    make = Irleed if config.demonstrator == "known" else Irleed.anonymous
    return make(planner=_planner(config))


def _planner(config: GridworldConfig) -> AbstractPlanner:
    return Averaged() if config.planner == "averaged" else Soft()


@in_double_precision
def sweep(config: GridworldConfig, progress: Callable[[int, int], None]) -> Outcome:
    """Run every lane, so many at a time."""
    world = check(config)
    cells, seeds = config.cells(), config.runs
    jobs = [(cell, seed) for cell in cells for seed in range(seeds)]
    width = min(len(jobs), config.lanes or LANES[jax.default_backend(), config.demonstrator])
    began = time.perf_counter()
    keys = _keys(config.seed, jobs)
    levels = tuple(np.asarray(column) for column in zip(*(cell for cell, _ in jobs), strict=True))
    kept: dict[int, DataSet] = {}  # played, and not yet evaluated

    def data_sets() -> Iterator[Statistics]:
        batch = _batched(functools.partial(play, config=config))
        for numbers in _batches(range(len(jobs)), width):
            played = jax.tree.map(np.asarray, batch(keys[numbers], *(level[numbers] for level in levels), world))
            for number in dict.fromkeys(numbers.tolist()):
                kept[number] = jax.tree.map(operator.itemgetter(number - numbers[0]), played)
                yield kept[number].known

    def found() -> Iterator[tuple[int, State | None]]:
        if config.estimator == "published":
            return ((number, None) for number, _ in enumerate(data_sets()))
        plan = world.mdp.without_terminals()
        return run_stream(_irleed(config), jax.random.key(config.seed), plan, data_sets(), lanes=width)

    evaluate = _batched(functools.partial(lane, config=config))
    done: dict[int, Lane] = {}
    for finished in _batches(found(), width):
        numbers = np.asarray([number for number, _ in finished])
        inputs = [(kept[number], state) for number, state in finished]
        out = evaluate(keys[numbers], *jax.tree.map(lambda *leaves: np.stack(leaves), *inputs), world)
        out = jax.tree.map(np.asarray, out)
        for place, number in enumerate(numbers.tolist()):
            done[number] = jax.tree.map(operator.itemgetter(place), out)
            kept.pop(number, None)
        progress(len(done), len(jobs))
    every = [done[number] for number in range(len(jobs))]
    lanes = jax.tree.map(lambda *leaves: np.stack(leaves).reshape(len(cells), seeds, *leaves[0].shape), *every)
    return Outcome(lanes, time.perf_counter() - began)


def _batched(function: Callable) -> Callable:
    """Over the leading axis of three arguments; the world is one for all."""
    return jax.jit(jax.vmap(function, (0, 0, 0, None)))


def _batches(items: Iterable, width: int) -> Iterator[Any]:
    """So many at a time; the last is filled up with its own last item: one shape, one compilation."""
    items = iter(items)
    while part := list(itertools.islice(items, width)):
        part += part[-1:] * (width - len(part))
        yield np.asarray(part) if isinstance(part[0], int) else part


def _keys(seed: int, jobs: list[tuple[tuple[float, float], int]]) -> jax.Array:
    """Each depends on the setting itself, so that a few settings give the same data as all of them."""

    def tag(cell):
        bits = (np.float32(level).tobytes() for level in cell)
        return int.from_bytes(next(bits)) ^ int.from_bytes(next(bits)[::-1])

    tags, runs = np.asarray([(tag(cell), run) for cell, run in jobs], np.uint32).T
    first = jax.random.key(seed)
    return jax.vmap(lambda tag, run: jax.random.fold_in(jax.random.fold_in(first, tag), run))(tags, runs)
