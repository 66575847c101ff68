"""What a gridworld sweep amounts to: rows, a summary beside the paper's figures, tables and pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from scipy.cluster.vq import kmeans2

from irleed._typing import Array, Float, Int
from irleed.analysis.agreement import rank_correlation
from irleed.envs.mdp import paper_gridworld
from irleed.experiments import paper
from irleed.experiments.gridworld.config import ACCURACY, DEMONSTRATORS, EPISODES, MAX_PRECISION, GridworldConfig
from irleed.experiments.gridworld.protocol import Lane, Outcome
from irleed.experiments.statistics import adjusted_rand_index, mean_and_interval
from irleed.report import figures
from irleed.runs.results import DEMONSTRATED, Results, Row

NAMES = {"maxent": "IRL", "irleed": "IRLEED"}
# The level of precision whose curves are drawn, as in the paper, and the setting whose rewards are.
CURVE_LEVEL, MAP_SETTING = 3.0, (3.0, 3.0)


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
    """Means over settings, how they compare with the paper's, and how well the demonstrators were judged."""
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
        if _whole_sweep(config):
            known = paper.gridworld()
            summary[f"correlation_with_paper_maxent_{estimator}"] = _correlation(plain, known.irl.ravel())
            summary[f"correlation_with_paper_irleed_{estimator}"] = _correlation(ours, known.irleed.ravel())
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
            overview.add_row(
                estimator,
                *(f"{summary[f'{m}_{estimator}_greedy']:.3f}" for m in NAMES),
                f"{summary[f'relative_improvement_{estimator}']:.1%}",
                *(f"{summary[f'{m}_{estimator}_policy']:.3f}" for m in NAMES),
                f"{summary['demonstrators']:.3f}",
            )
    return Group(overview, _by_level(results), _judgement(summary))


def _by_level(results: Results) -> Table:
    greedy = [row for row in results.rows if row.evaluation == "greedy"]
    methods = sorted({(row.method, str(row.estimator)) for row in greedy})
    table = Table(title="Mean return by largest precision (greedy, as the paper evaluates)")
    for heading in ("largest precision", *(f"{NAMES[m]} {e}" for m, e in methods), "paper IRL", "paper IRLEED"):
        table.add_column(heading, justify="right")
    known = paper.gridworld()
    for level in sorted({float(row.setting["max_precision"]) for row in greedy}):
        own = [row for row in greedy if row.setting["max_precision"] == level]
        values = [np.mean([row.mean for row in own if (row.method, row.estimator) == each]) for each in methods]
        at = np.flatnonzero(np.isclose(known.max_precision, level))
        beside = [f"{known.irl[at[0]].mean():.3f}", f"{known.irleed[at[0]].mean():.3f}"] if len(at) else ["", ""]
        table.add_row(f"{level:g}", *(f"{value:.3f}" for value in values), *beside)
    return table


def _judgement(summary: Mapping[str, Any]) -> Table:
    table = Table(title="How well the demonstrators were judged")
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
    known = paper.gridworld()
    return {
        "demonstrators": float(known.demonstrators.mean()),
        "irl": float(known.irl.mean()),
        "irleed": float(known.irleed.mean()),
        "relative_improvement": float(known.improvement.mean()),
    }


def _estimators(lanes: Lane) -> list[str]:
    return sorted({name.split("_")[1] for name in lanes.learnt})


def _whole_sweep(config: GridworldConfig) -> bool:
    return config.cells() == [(p, a) for p in MAX_PRECISION for a in ACCURACY]


def _correlation(a: Float[Array, " N"], b: Float[Array, " N"]) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def _clusters(perceived: Float[Array, "D F"]) -> Int[Array, " D"]:
    """Group episodes by what they seem to pursue, into as many groups as there were demonstrators."""
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
    """Figure 3: the settings that were run, the others left blank."""
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
    figure = figures.improvement(
        precisions,
        accuracies,
        *(spread_out(lanes.learnt[f"{m}_{estimator}"].greedy.mean(1)) for m in NAMES),
        level=level,
        curves=curves,
        demonstrators=spread_out(lanes.demonstrators.mean(1))[row],
    )
    figures.save(figure, config.out / f"figure3_{estimator}")
