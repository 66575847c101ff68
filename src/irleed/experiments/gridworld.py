"""The paper's first experiment: five demonstrators of uneven quality in a gridworld (Figures 2 and 3).

Every setting (largest precision, accuracy) and seed is one lane of a batched program. A lane draws demonstrators,
records their episodes, fits maximum-entropy IRL and IRLEED to them, and computes the returns of the policies exactly.
This file reads from top to bottom: settings, one lane, the sweep, results.
"""

import functools
import itertools
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Group
from rich.table import Table
from scipy.cluster.vq import kmeans2

from irleed._compute import in_double_precision
from irleed._typing import Array, Bool, Float, Int, Key
from irleed.algorithms.tabular.irleed import Irleed, State
from irleed.algorithms.tabular.paper_protocol import Planned, Published
from irleed.algorithms.tabular.planning import AbstractPlanner, Averaged, Soft, optimal_q_values
from irleed.algorithms.tabular.visitation import Statistics, expected_return, tabulate_rollouts
from irleed.algorithms.training import run_stream, run_to_end
from irleed.analysis.statistics import adjusted_rand_index, mean_and_interval, rank_correlation
from irleed.envs.mdp import Gridworld, paper_gridworld
from irleed.errors import ConfigError
from irleed.experiments import check_least, published_gridworld
from irleed.fit.tabular import SHARPNESS
from irleed.model import gauge
from irleed.model.expertise import INTERVAL
from irleed.policies import boltzmann_probabilities
from irleed.report import figures
from irleed.runs.results import DEMONSTRATED, Results, Row
from irleed.simulation.mdp import sample_demonstrators, simulate_rollouts

MAX_PRECISION = (0.4, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
ACCURACY = (2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 10.0, float("inf"))
DEMONSTRATORS, EPISODES, HORIZON = 5, 40, 100
NAMES = {"maxent": "IRL", "irleed": "IRLEED"}
# Lanes in a batch, by platform and by whether demonstrators are known: enough to keep it busy, few enough for memory.
LANES = {("cpu", "known"): 121, ("cpu", "episode"): 4, ("gpu", "known"): 1210, ("gpu", "episode"): 121}
# The level of precision whose curves are drawn, as in the paper, and the setting whose rewards are.
CURVE_LEVEL, MAP_SETTING = 3.0, (3.0, 3.0)
QUICK = ((1.0, 2.0), (1.0, 4.0), (3.0, 2.0), (3.0, 4.0), (5.0, 2.0), (5.0, 4.0))


@dataclass(frozen=True)
class GridworldConfig:
    """The gridworld experiment: 121 settings of precision and accuracy, IRLEED beside maximum-entropy IRL."""

    out: Path
    """Folder for results.json and the figures."""
    estimator: Literal["map", "published", "both"] = "both"
    """The converged estimate, the paper's protocol step by step, or both on the same data."""
    seeds: int = 100
    """Data sets for each setting."""
    settings: tuple[str, ...] = ()
    """A few settings as precision:accuracy, such as 3:2.5 or 5:inf; all 121 if none is given."""
    planner: Literal["averaged", "soft"] = "averaged"
    """How demonstrators plan: as in the released program, or by the paper's equations."""
    size: int = 7
    """Rows and columns of the grid."""
    slip: float = 0.0
    """Probability of moving at right angles to the chosen direction."""
    demonstrator: Literal["known", "episode"] = "known"
    """Whether the demonstrators of episodes are known, or every episode is its own demonstrator."""
    seed: int = 0
    """The random seed."""
    lanes: int | None = None
    """Lanes computed at a time; by default what suits the platform."""
    quick: bool = False
    """Six settings and ten seeds of the converged estimate, for a first look."""

    def cells(self) -> list[tuple[float, float]]:
        """The settings to run."""
        if self.settings:
            return [_cell(text) for text in self.settings]
        return list(QUICK) if self.quick else [(p, a) for p in MAX_PRECISION for a in ACCURACY]

    @property
    def runs(self) -> int:
        """Data sets for each setting, as they will be."""
        return 10 if self.quick else self.seeds


def check(config: GridworldConfig) -> Gridworld:
    """The world to run in; refuses settings that cannot be run, before any work or any file depends on them."""
    config.cells()
    check_least(config, seeds=1, size=2, lanes=1)
    return paper_gridworld(config.size, config.slip)


def _cell(text: str) -> tuple[float, float]:
    try:
        precision, accuracy = (float(part) for part in text.split(":"))
        if precision > 0 and accuracy > 0 and np.isfinite(precision):
            return precision, accuracy
    except ValueError:
        pass
    raise ConfigError("--settings", got=repr(text), expected="precision:accuracy", remedy="write, say, 3:2.5 or 5:inf")


class MethodResult(eqx.Module):
    """The result of one method on one data set."""

    greedy: Float[Array, ""]  # return of the greedy policy of its reward: the paper's evaluation
    policy: Float[Array, ""]  # return of the policy that users get
    weights: Float[Array, " F"]


class DataSet(eqx.Module):
    """Recorded episodes of five demonstrators, and their true precisions."""

    true_log_precision: Float[Array, " D"]  # in the gauge
    statistics: Statistics
    by_episode: Statistics | None  # the same episodes, each as a demonstrator of its own

    @property
    def known(self) -> Statistics:
        """The statistics that IRLEED is fitted to."""
        return self.statistics if self.by_episode is None else self.by_episode


class Lane(eqx.Module):
    """Results on one data set."""

    demonstrators: Float[Array, ""]  # their mean return
    visits: Float[Array, " S"]
    learnt: dict[str, MethodResult]  # by method and estimator
    true_log_precision: Float[Array, " D"]  # in the gauge
    log_precision: Float[Array, "Q D"] | None  # estimated, with the ends of its interval
    perceived: Float[Array, "D F"] | None  # reward of each demonstrator; only where identities are unknown
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


class Outcome(NamedTuple):
    """Results of all lanes; arrays have leading axes settings, seeds."""

    lanes: Lane
    seconds: float


def play(key: Key, max_precision: Array, accuracy: Array, world: Gridworld, config: GridworldConfig) -> DataSet:
    """Draw demonstrators and record their episodes."""
    skill_key, play_key, _, _ = jax.random.split(key, 4)
    mdp = world.mdp
    skill = sample_demonstrators(
        skill_key, DEMONSTRATORS, mdp.feature_count, max_precision=max_precision, accuracy=accuracy
    )
    rollouts = simulate_rollouts(play_key, mdp, _planner(config), *skill, EPISODES, HORIZON, mdp.without_terminals())
    each = jax.tree.map(lambda x: x.reshape(-1, 1, x.shape[-1]), rollouts)
    return DataSet(
        true_log_precision=gauge(jnp.log(skill.precision)),
        statistics=tabulate_rollouts(mdp, rollouts),
        by_episode=tabulate_rollouts(mdp, each) if config.demonstrator == "episode" else None,
    )


def lane(key: Key, data: DataSet, found: State | None, world: Gridworld, config: GridworldConfig) -> Lane:
    """Fit the remaining methods to one data set, of which IRLEED has `found` a state, and evaluate all of them."""
    _, _, published_key, draw_key = jax.random.split(key, 4)
    mdp, planner, statistics = world.mdp, _planner(config), data.statistics
    plan = mdp.without_terminals()  # as in the paper's protocol, planners ignore that the corners end the episode
    learnt: dict[str, MethodResult] = {}
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
    returns, visits = jnp.mean(statistics.features @ jnp.asarray(mdp.reward)), jnp.mean(statistics.features, 0)
    return Lane(returns, visits, learnt, data.true_log_precision, log_precision, perceived, steps, converged)


def _evaluate(world: Gridworld, plan, weights: Float[Array, " F"]) -> MethodResult:
    """Exact returns in the true world: the chance of ending in a rewarded corner within the horizon."""
    q = optimal_q_values(plan, plan.rewards(weights))
    greedy = jax.nn.one_hot(jnp.argmax(q, -1), world.mdp.actions)
    policy = boltzmann_probabilities(q, SHARPNESS)
    greedy_return, policy_return = (expected_return(world.mdp, each, HORIZON) for each in (greedy, policy))
    return MethodResult(greedy_return, policy_return, weights)


def _irleed(config: GridworldConfig) -> Irleed:
    make = Irleed if config.demonstrator == "known" else Irleed.anonymous
    return make(planner=_planner(config))


def _planner(config: GridworldConfig) -> AbstractPlanner:
    return Averaged() if config.planner == "averaged" else Soft()


@in_double_precision
def sweep(config: GridworldConfig, progress: Callable[[int, int], None]) -> Outcome:
    """Run every lane, in batches."""
    world = check(config)
    cells, seeds = config.cells(), config.runs
    jobs = [(cell, seed) for cell in cells for seed in range(seeds)]
    width = min(len(jobs), config.lanes or LANES[jax.default_backend(), config.demonstrator])
    began = time.perf_counter()
    keys = _keys(config.seed, jobs)
    levels = tuple(np.asarray(column) for column in zip(*(cell for cell, _ in jobs), strict=True))
    pending: dict[int, DataSet] = {}  # recorded, and not yet evaluated

    def data_sets() -> Iterator[Statistics]:
        batch = _batched(functools.partial(play, config=config))
        for numbers in _batches(range(len(jobs)), width):
            rollouts = jax.tree.map(np.asarray, batch(keys[numbers], *(level[numbers] for level in levels), world))
            for number in dict.fromkeys(numbers.tolist()):
                pending[number] = jax.tree.map(operator.itemgetter(number - numbers[0]), rollouts)
                yield pending[number].known

    def found() -> Iterator[tuple[int, State | None]]:
        if config.estimator == "published":
            return ((number, None) for number, _ in enumerate(data_sets()))
        plan = world.mdp.without_terminals()
        return run_stream(_irleed(config), jax.random.key(config.seed), plan, data_sets(), lanes=width)

    evaluate = _batched(functools.partial(lane, config=config))
    done: dict[int, Lane] = {}
    for finished in _batches(found(), width):
        numbers = np.asarray([number for number, _ in finished])
        inputs = [(pending[number], state) for number, state in finished]
        out = evaluate(keys[numbers], *jax.tree.map(lambda *leaves: np.stack(leaves), *inputs), world)
        out = jax.tree.map(np.asarray, out)
        for place, number in enumerate(numbers.tolist()):
            done[number] = jax.tree.map(operator.itemgetter(place), out)
            pending.pop(number, None)
        progress(len(done), len(jobs))
    every = [done[number] for number in range(len(jobs))]
    lanes = jax.tree.map(lambda *leaves: np.stack(leaves).reshape(len(cells), seeds, *leaves[0].shape), *every)
    return Outcome(lanes, time.perf_counter() - began)


def _batched(function: Callable) -> Callable:
    """Over the leading axis of three arguments; the world is one for all."""
    return jax.jit(jax.vmap(function, (0, 0, 0, None)))


def _batches(items: Iterable, width: int) -> Iterator[Any]:
    """Batches of one size, which compile once: the last is filled up with its own last item."""
    items = iter(items)
    while part := list(itertools.islice(items, width)):
        part += part[-1:] * (width - len(part))
        yield np.asarray(part) if isinstance(part[0], int) else part


def _keys(seed: int, jobs: list[tuple[tuple[float, float], int]]) -> jax.Array:
    """A key for each lane; it depends on the setting itself, so that a few settings have the same data as all."""

    def tag(cell):
        bits = (np.float32(level).tobytes() for level in cell)
        return int.from_bytes(next(bits)) ^ int.from_bytes(next(bits)[::-1])

    tags, runs = np.asarray([(tag(cell), run) for cell, run in jobs], np.uint32).T
    first = jax.random.key(seed)
    return jax.vmap(lambda tag, run: jax.random.fold_in(jax.random.fold_in(first, tag), run))(tags, runs)


def write(config: GridworldConfig, outcome: Outcome) -> Results:
    """Write results.json and the figures; returns the results."""
    lanes, cells = outcome.lanes, config.cells()
    described = {"summary": summarise(config, lanes), "paper": _paper_summary()}
    results = Results.of("gridworld", config, _rows(cells, lanes), {"sweep": outcome.seconds}, **described)
    _draw_maps(config, lanes)
    for estimator in _estimators(lanes):
        _draw_improvement(config, lanes, estimator)
    results.write(config.out)
    return results


def summarise(config: GridworldConfig, lanes: Lane) -> dict[str, object]:
    """Means over settings, how they compare with the paper's, and how well precisions are estimated."""
    demonstrators = lanes.demonstrators.mean(1)
    summary: dict[str, object] = {"demonstrators": float(demonstrators.mean())}
    for name, learnt in lanes.learnt.items():
        for kind in ("greedy", "policy"):
            mean = getattr(learnt, kind).mean(1)
            summary[f"{name}_{kind}"] = float(mean.mean())
            summary[f"{name}_{kind}_cells_below_demonstrators"] = int(np.sum(mean < demonstrators - 1e-9))
    for estimator in _estimators(lanes):
        plain, ours = (lanes.learnt[f"{m}_{estimator}"].greedy.mean(1) for m in NAMES)
        summary[f"relative_improvement_{estimator}"] = float(np.mean((ours - plain) / np.maximum(plain, 1e-9)))
        if config.cells() == [(p, a) for p in MAX_PRECISION for a in ACCURACY]:
            known = published_gridworld()
            for name, found, theirs in (("maxent", plain, known.irl), ("irleed", ours, known.irleed)):
                correlation = float(np.corrcoef(found, theirs.ravel())[0, 1])
                summary[f"correlation_with_paper_{name}_{estimator}"] = correlation
    if "irleed_map" in lanes.learnt:
        summary["converged"] = float(lanes.converged.mean())
        summary["newton_steps"] = float(lanes.steps.mean())
    if lanes.log_precision is not None:
        low, middle, high = np.moveaxis(np.asarray(lanes.log_precision), 2, 0)
        ranks = rank_correlation(lanes.true_log_precision, middle)
        inside = (lanes.true_log_precision >= low) & (lanes.true_log_precision <= high)
        summary["precision_rank_correlation"] = float(ranks.mean())
        summary["precision_interval_coverage"] = float(inside.mean())
        summary["precision_interval_median_ratio"] = float(np.exp(np.median(high - low)))
    if lanes.perceived is not None:
        truth = np.repeat(np.arange(DEMONSTRATORS), EPISODES)
        data_sets = lanes.perceived.reshape(-1, *lanes.perceived.shape[2:])
        found = [adjusted_rand_index(truth, _clusters(perceived)) for perceived in data_sets]
        summary["adjusted_rand_index"] = float(np.mean(found))
        summary["adjusted_rand_index_standard_error"] = float(np.std(found) / np.sqrt(len(found)))
    return summary


def tables(results: Results) -> Group:
    """The summary for the terminal, beside the paper's figures, and one row for each level of precision."""
    overview = Table(title="Gridworld: mean return over settings")
    for heading in ("estimator", "IRL", "IRLEED", "improvement", "IRL policy", "IRLEED policy", "demonstrators"):
        overview.add_column(heading, justify="left" if heading == "estimator" else "right")
    summary, known = results.summary, results.paper
    overview.add_row(
        "the paper", f"{known['irl']:.3f}", f"{known['irleed']:.3f}", f"{known['relative_improvement']:.1%}", "", "",
        f"{known['demonstrators']:.3f}",
    )  # fmt: skip
    for estimator in ("published", "map"):
        if f"irleed_{estimator}_greedy" in summary:
            greedy, policy = ([f"{summary[f'{m}_{estimator}_{e}']:.3f}" for m in NAMES] for e in ("greedy", "policy"))
            better = f"{summary[f'relative_improvement_{estimator}']:.1%}"
            overview.add_row(estimator, *greedy, better, *policy, f"{summary['demonstrators']:.3f}")
    return Group(overview, _by_level(results), _precision_table(summary))


def _by_level(results: Results) -> Table:
    greedy = [row for row in results.rows if row.evaluation == "greedy"]
    methods = sorted({(row.method, str(row.estimator)) for row in greedy})
    table = Table(title="Mean return by largest precision (greedy, as the paper evaluates)")
    for heading in ("largest precision", *(f"{NAMES[m]} {e}" for m, e in methods), "paper IRL", "paper IRLEED"):
        table.add_column(heading, justify="right")
    known = published_gridworld()
    for level in sorted({float(row.setting["max_precision"]) for row in greedy}):
        own = [row for row in greedy if row.setting["max_precision"] == level]
        values = [np.mean([row.mean for row in own if (row.method, row.estimator) == each]) for each in methods]
        at = np.flatnonzero(np.isclose(known.max_precision, level))
        beside = [f"{known.irl[at[0]].mean():.3f}", f"{known.irleed[at[0]].mean():.3f}"] if len(at) else ["", ""]
        table.add_row(f"{level:g}", *(f"{value:.3f}" for value in values), *beside)
    return table


def _precision_table(summary: Mapping[str, Any]) -> Table:
    table = Table(title="How well precisions are estimated")
    table.add_column("what")
    table.add_column("value", justify="right")
    for key in (
        "precision_rank_correlation", "precision_interval_coverage", "adjusted_rand_index", "converged", "newton_steps",
    ):  # fmt: skip
        if key in summary:
            table.add_row(key.replace("_", " "), f"{summary[key]:.3f}")
    return table


def _rows(cells: list[tuple[float, float]], lanes: Lane) -> list[Row]:
    rows = []
    for i, (precision, accuracy) in enumerate(cells):
        setting = {"max_precision": precision, "accuracy": accuracy if np.isfinite(accuracy) else "inf"}
        rows.append(Row(setting, DEMONSTRATED, **mean_and_interval(lanes.demonstrators[i])))
        for name, learnt in lanes.learnt.items():
            method, estimator = name.split("_")
            for evaluation in ("greedy", "policy"):
                spread = mean_and_interval(getattr(learnt, evaluation)[i])
                rows.append(Row(setting, method, estimator=estimator, evaluation=evaluation, **spread))
    return rows


def _paper_summary() -> dict[str, float]:
    known = published_gridworld()
    means = {name: float(getattr(known, name).mean()) for name in ("demonstrators", "irl", "irleed")}
    return {**means, "relative_improvement": float(known.improvement.mean())}


def _estimators(lanes: Lane) -> list[str]:
    return sorted({name.split("_")[1] for name in lanes.learnt})


def _clusters(perceived: Float[Array, "D F"]) -> Int[Array, " D"]:
    """Clusters of episodes by their perceived rewards, as many as there were demonstrators."""
    return kmeans2(perceived, DEMONSTRATORS, iter=50, minit="++", seed=0)[1]  # pyright: ignore[reportCallIssue]


def _draw_maps(config: GridworldConfig, lanes: Lane) -> None:
    """Figure 2, for the first seed of one setting."""
    cells = config.cells()
    cell = cells.index(MAP_SETTING) if MAP_SETTING in cells else 0
    estimator = _estimators(lanes)[0]  # the converged estimate where there is one
    maps = {
        "true reward": np.asarray(paper_gridworld(config.size, config.slip).mdp.reward),
        "demonstrations": lanes.visits[cell, 0],
        **{NAMES[m]: lanes.learnt[f"{m}_{estimator}"].weights[cell, 0] for m in ("irleed", "maxent")},
    }
    figures.save(figures.gridworld_maps(config.size, config.size, maps), config.out / "figure2")


def _draw_improvement(config: GridworldConfig, lanes: Lane, estimator: str) -> None:
    """Figure 3 of the settings that were run."""
    cells = config.cells()
    precisions, accuracies = (np.array(sorted(set(column))) for column in zip(*cells, strict=True))
    place = {(p, a): (i, j) for i, p in enumerate(precisions) for j, a in enumerate(accuracies)}

    def spread_out(values):
        grid = np.full((len(precisions), len(accuracies)), np.nan)
        for cell, value in zip(cells, values, strict=True):
            grid[place[cell]] = value
        return grid

    level = CURVE_LEVEL if CURVE_LEVEL in precisions else float(precisions[-1])
    row = int(np.flatnonzero(precisions == level)[0])
    curves = {}
    for kind, label in (("greedy", ""), ("policy", ", policy for users")):
        for method in ("irleed", "maxent") if kind == "greedy" else ("irleed",):
            spreads = [mean_and_interval(x) for x in getattr(lanes.learnt[f"{method}_{estimator}"], kind)]
            low, mean, high = (spread_out([s[k] for s in spreads])[row] for k in ("ci_low", "mean", "ci_high"))
            curves[NAMES[method] + label] = figures.Curve(mean, low, high)
    means = (spread_out(lanes.learnt[f"{m}_{estimator}"].greedy.mean(1)) for m in NAMES)
    dashed = spread_out(lanes.demonstrators.mean(1))[row]
    figure = figures.improvement(precisions, accuracies, *means, level=level, curves=curves, demonstrators=dashed)
    figures.save(figure, config.out / f"figure3_{estimator}")
