"""What the control experiment amounts to: rows, a summary beside the paper's Table 1, a table and a picture."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from irleed._typing import Array, Float
from irleed.experiments import paper
from irleed.experiments.control import ControlConfig, DataSets, Lane
from irleed.experiments.gridworld_results import rank_correlation
from irleed.report import figures
from irleed.store import write_json

RESAMPLES = 10_000
NAMES = {"irleed": "IRLEED", "iq": "IQ-Learn", "ileed": "ILEED", "bc": "behaviour cloning"}


def write(config: ControlConfig, data: DataSets, found: dict[str, Lane], seconds: float) -> dict[str, object]:
    """Write results.json and the figure; returns the results."""
    best = np.asarray(data.returns).max(-1)
    rows: list[dict[str, object]] = []
    for i, setting in enumerate(config.chosen):
        place = {"setting": {"precision": setting.name[0], "accuracy": setting.name[1]}}
        own = np.asarray(data.returns[i])
        rows.append({**place, "method": "demonstrators", "best": float(best[i].mean()), "mean": float(own.mean())})
        for name, lanes in found.items():
            for kind in ("greedy", "sampled"):
                spread = _relative(getattr(lanes, kind)[i], best[i])
                rows.append({**place, "method": name, "evaluation": kind, **spread})
    results = {
        "experiment": "control",
        "config": {key: str(v) if isinstance(v, Path) else v for key, v in dataclasses.asdict(config).items()},
        "rows": rows,
        "summary": _summary(config, data, found),
        "paper": _published(),
        "seconds": round(seconds, 1),
        "device": jax.devices()[0].device_kind,
    }
    write_json(config.out / "results.json", results)
    figures.save(_figure(config, rows), config.out / "returns")
    return results


def table(results: dict) -> Table:
    """Returns relative to the best demonstrator's, beside the paper's."""
    methods = list(dict.fromkeys(row["method"] for row in results["rows"] if row["method"] in NAMES))
    title = (
        "CartPole, offline: greedy return relative to the best demonstrator (95 % interval); the paper's in brackets"
    )
    shown = Table(title=title)
    for heading in ("precision, accuracy", "best", "mean / best", *(NAMES[m] for m in methods)):
        shown.add_column(heading, justify="right")
    for row in results["rows"]:
        if row["method"] != "demonstrators":
            continue
        name = row["setting"]["precision"] + row["setting"]["accuracy"]
        known = results["paper"][name]
        cells = [f"{row['best']:.0f} ({known['best']:.0f})", f"{row['mean'] / row['best']:.2f} ({known['mean']:.2f})"]
        for method in methods:
            own = next(r for r in results["rows"] if r["setting"] == row["setting"] and _greedy(r, method))
            beside = f" ({known[method]:.2f})" if method in known else ""
            cells.append(f"{own['relative']:.2f} [{own['ci_low']:.2f}, {own['ci_high']:.2f}]{beside}")
        shown.add_row(name, *(cell.replace("[", "\\[") for cell in cells))
    return shown


def _greedy(row: dict, method: str) -> bool:
    return row["method"] == method and row["evaluation"] == "greedy"


def _relative(values: Float[Array, " N"], best: Float[Array, " N"]) -> dict[str, float | int]:
    """Mean return, and relative to the mean best demonstrator with a 95 % bootstrap interval over seeds."""
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    ratio = np.asarray(values)[drawn].mean(1) / best[drawn].mean(1)
    low, high = np.quantile(ratio, [0.025, 0.975])
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "relative": float(values.mean() / best.mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "seeds": len(values),
    }


def _summary(config: ControlConfig, data: DataSets, found: dict[str, Lane]) -> dict[str, object]:
    """How IRLEED compares with the others on the same data, how precisions rank, and what diverged."""
    summary: dict[str, object] = {
        f"diverged_{name}": int(np.sum(np.asarray(lanes.diverged) >= 0)) for name, lanes in found.items()
    }
    if "irleed" not in found:
        return summary
    drawn = np.random.default_rng(0).integers(0, config.runs, (RESAMPLES, config.runs))
    for i, setting in enumerate(config.chosen):
        for name in found.keys() - {"irleed"}:
            difference = np.asarray(found["irleed"].greedy[i] - found[name].greedy[i])
            low, high = np.quantile(difference[drawn].mean(1), [0.025, 0.975])
            summary[f"irleed_minus_{name}_{setting.name}"] = [float(low), float(difference.mean()), float(high)]
        if setting.name != "HH":  # where all demonstrators are one
            differ = np.ptp(data.returns[i], axis=-1) > 0  # where all have the same return, there is no order
            ranks = rank_correlation(data.returns[i][differ], found["irleed"].log_precision[i][differ])
            if len(ranks):
                summary[f"precision_rank_correlation_{setting.name}"] = float(np.mean(ranks))
    return dict(sorted(summary.items()))


def _published() -> dict[str, dict[str, float]]:
    columns = {"best": "best_return", "mean": "mean", "irleed": "irleed_offline", "iq": "iq_offline"}
    columns["ileed"] = "ileed_offline"
    return {
        row["precision"] + row["accuracy"]: {ours: float(row[theirs]) for ours, theirs in columns.items()}
        for row in paper.published("table1_control")
        if row["env"] == "cartpole"
    }


def _figure(config: ControlConfig, rows: list[dict]) -> Figure:
    """Greedy returns of every method in every setting, relative to the best demonstrator."""
    methods = list(dict.fromkeys(row["method"] for row in rows if row["method"] in NAMES))
    series = {}
    for method in methods:
        own = [row for row in rows if row["method"] == method and row["evaluation"] == "greedy"]
        mean, low, high = (np.array([row[key] for row in own]) for key in ("relative", "ci_low", "ci_high"))
        series[NAMES[method]] = figures.Curve(mean, low, high)
    return figures.relative_returns([setting.name for setting in config.chosen], series)
