"""Results of the control experiment: rows, a summary beside the paper's Table 1, tables and figures."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Group
from rich.table import Table
from scipy.stats import trim_mean

from irleed._typing import Array, Float
from irleed.algorithms import AbstractAgent
from irleed.analysis.statistics import bootstrap_interval, paired_difference, rank_correlation
from irleed.experiments import published, results_table
from irleed.experiments.control.protocol import METHODS, ORACLES, ControlConfig, Outcome
from irleed.report import figures
from irleed.runs.results import DEMONSTRATED, Results, Row, method_name


def write(config: ControlConfig, outcomes: list[Outcome]) -> Results:
    """Write results.json and the figures; returns the results."""
    rows = [row for outcome in outcomes for row in _rows(config, outcome)]
    seconds = {f"{o.task.name}_{part}": value for o in outcomes for part, value in o.seconds.items()}
    summary = {f"{o.task.name}_{key}": v for o in outcomes for key, v in _summary(config, o).items()}
    described = {"summary": summary, "paper": _published(), "warnings": tuple(diverged(outcomes))}
    results = Results.of("control", config, rows, seconds, **described)
    for outcome in outcomes:
        own = [row for row in rows if row.setting["env"] == outcome.task.name]
        figures.save(_figure(config, outcome, own), config.out / f"returns_{outcome.task.name}")
    results.write(config.out)
    return results


def _rows(config: ControlConfig, outcome: Outcome) -> list[Row]:
    rows: list[Row] = []
    for i, setting in enumerate(config.chosen(outcome.task)):
        place = {"env": outcome.task.name, "precision": setting.name[0], "accuracy": setting.name[1]}
        own = outcome.returns[i]
        best = own.max(-1)
        rows.append(Row(place, DEMONSTRATED, float(own.mean()), best=float(best.mean())))
        for name, lanes in outcome.lanes.items():
            for kind in ("greedy", "sampled"):
                rows.append(Row(place, name, evaluation=kind, **_spread(getattr(lanes, kind)[i], best)))
    return rows


def tables(results: Results) -> Group:
    """Returns relative to the best demonstrator's, beside the paper's: a table for each task, offline and online."""
    shown = []
    for env in dict.fromkeys(str(row.setting["env"]) for row in results.rows):
        own = [row for row in results.rows if row.setting["env"] == env]
        there = [name for name in METHODS if any(row.method == name for row in own)]
        for title, online in (("offline", False), ("online", True)):
            methods = [name for name in there if _online(name) == online]
            if methods:
                shown.append(_table(f"{env}, {title}", own, methods, results.paper[env]))
    return Group(*shown)


def _table(title: str, rows: list[Row], methods: list[str], published: dict) -> Table:
    note = "greedy return over the best demonstrator's, 95 % interval; the paper's in brackets"
    people = [(row, row.best or 1.0) for row in rows if not row.learnt]
    names = [f"{row.setting['precision']}{row.setting['accuracy']}" for row, _ in people]
    known = [published[name] for name in names]
    shown = results_table(title, note, names)
    best = [f"{own:.0f} ({theirs['best']:.0f})" for (_, own), theirs in zip(people, known, strict=True)]
    mean = [f"{row.mean / own:.2f} ({theirs['mean']:.2f})" for (row, own), theirs in zip(people, known, strict=True)]
    shown.add_row("best demonstrator", *best)
    shown.add_row("mean / best", *mean, end_section=True)
    for method in methods:
        cells = []
        for row, own in zip([row for row in rows if _greedy(row, method)], known, strict=True):
            beside = f" ({own[method]:.2f})" if method in own else ""
            cells.append(f"{row.relative:.2f}{beside}\n\\[{row.relative_low:.2f}, {row.relative_high:.2f}]")
        shown.add_row(method_name(method), *cells)
    return shown


def _online(method: str) -> bool:
    return isinstance(METHODS[method], AbstractAgent)


def _greedy(row: Row, method: str) -> bool:
    return row.method == method and row.evaluation == "greedy"


def _spread(values: Float[Array, " N"], best: Float[Array, " N"]) -> dict[str, Any]:
    """Mean return, and relative to the mean best demonstrator; with 95 % bootstrap intervals over seeds."""
    (low, high), (relative_low, relative_high) = bootstrap_interval(values), bootstrap_interval(values, best)
    absolute = {"mean": float(values.mean()), "std": float(values.std()), "ci_low": low, "ci_high": high}
    relative = {"relative": float(values.mean() / best.mean()), "relative_low": relative_low}
    relative |= {"relative_high": relative_high, "interquartile_mean": float(trim_mean(values, 0.25))}
    return {**absolute, "seeds": len(values), **relative}


def _summary(config: ControlConfig, outcome: Outcome) -> dict[str, object]:
    """Differences between IRLEED and the others on the same data, rank correlations of precision, diverged runs."""
    summary: dict[str, object] = {
        f"diverged_{name}": int(np.sum(lanes.diverged >= 0)) for name, lanes in outcome.lanes.items()
    }
    baselines = [name for name in outcome.lanes if name not in ORACLES and not name.startswith("irleed")]
    for ours in [name for name in outcome.lanes if name.startswith("irleed")]:
        others = [name for name in baselines if _online(name) == _online(ours)]
        summary.update(_differences(config, outcome, ours, others))
        summary.update(_ranks(config, outcome, ours))
    return dict(sorted(summary.items()))


def _differences(config: ControlConfig, outcome: Outcome, ours: str, others: list[str]) -> dict[str, list[float]]:
    """Low, mean and high of the paired differences in greedy return."""
    greedy = {name: lanes.greedy for name, lanes in outcome.lanes.items()}
    return {
        f"{ours}_minus_{name}_{setting.name}": paired_difference(greedy[ours][i], greedy[name][i])
        for i, setting in enumerate(config.chosen(outcome.task))
        for name in others
    }


def _ranks(config: ControlConfig, outcome: Outcome, ours: str) -> dict[str, float]:
    """Rank correlation of precision with true returns, where demonstrators differ in both."""
    found = {}
    for i, setting in enumerate(config.chosen(outcome.task)):
        if setting.name == "HH":  # where all demonstrators are the same
            continue
        returns, found_in = outcome.returns[i], np.asarray(outcome.lanes[ours].log_precision[i])
        differ = (np.ptp(returns, axis=-1) > 0) & (np.ptp(found_in, axis=-1) > 0)  # not where a run diverged
        ranks = rank_correlation(returns[differ], found_in[differ])
        if len(ranks):
            found[f"{ours}_precision_rank_correlation_{setting.name}"] = float(np.mean(ranks))
    return found


def diverged(outcomes: list[Outcome]) -> list[str]:
    """A line for every method with diverged runs: how many, and the first of them with its step."""
    lines = []
    for outcome in outcomes:
        for name, lanes in outcome.lanes.items():
            lost = np.argwhere(lanes.diverged >= 0)
            if len(lost):
                setting, seed = lost[0]
                where = f"the first in setting {setting}, data set {seed}, step {lanes.diverged[setting, seed]}"
                runs = f"{outcome.task.name}, {name}: {len(lost)} runs diverged"
                lines.append(f"{runs}, {where}; the averages have them in")
    return lines


def _published() -> dict[str, dict[str, dict[str, float]]]:
    columns = {"best": "best_return", "mean": "mean", "irleed": "irleed_offline", "iq": "iq_offline"}
    columns |= {"ileed": "ileed_offline", "irleed_online": "irleed_online", "iq_online": "iq_online"}
    columns |= {name: columns[name.replace("_failure", "")] for name in METHODS if "_failure" in name}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in published("table1_control"):
        values = {ours: float(row[theirs]) for ours, theirs in columns.items()}
        found.setdefault(str(row["env"]), {})[f"{row['precision']}{row['accuracy']}"] = values
    return found


def _figure(config: ControlConfig, outcome: Outcome, rows: list[Row]) -> Figure:
    """Greedy returns of every method in every setting, relative to the best demonstrator."""
    series = {}
    for method in outcome.lanes:
        own = [row for row in rows if _greedy(row, method)]
        mean, low, high = (
            np.array([getattr(row, key) for row in own]) for key in ("relative", "relative_low", "relative_high")
        )
        series[method_name(method)] = figures.Curve(mean, low, high)
    return figures.relative_returns([setting.name for setting in config.chosen(outcome.task)], series)
