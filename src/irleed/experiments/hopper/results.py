"""What the Hopper experiment amounts to: rows, a summary beside the paper's Figure 4, a table and a picture."""

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from irleed._typing import Array, Float
from irleed.experiments import paper
from irleed.experiments.hopper.config import LAST, METHODS, HopperConfig
from irleed.experiments.hopper.data import POLICIES
from irleed.experiments.hopper.protocol import Outcome
from irleed.experiments.statistics import difference, interval
from irleed.report import figures
from irleed.runs.results import DEMONSTRATED, Results, Row, method_name

RIVALS = (
    ("irleed_online", "iq_online"),
    ("irleed_failure_online", "iq_failure_online"),
    ("irleed", "iq"),
    ("irleed", "bc"),
    ("irleed", "ileed"),
)
PUBLISHED = {"irleed_online": "IRLEED", "iq_online": "IQ"}  # the paper's curves


def write(config: HopperConfig, outcome: Outcome) -> Results:
    """Write results.json and the figure; returns the results."""
    described = {"summary": _summary(config, outcome), "curves": _curves(config, outcome), "paper": _published()}
    results = Results.of("hopper", config, _rows(config, outcome), outcome.seconds, **described)
    if any(lanes.returns.shape[-1] > 1 for lanes in outcome.lanes.values()):
        figures.save(_figure(config, outcome), config.out / "curves")
    results.write(config.out)
    return results


def last(returns: Float[Array, "S N E"]) -> Float[np.ndarray, "S N"]:
    """The mean over the last evaluations of every run."""
    return np.asarray(returns, float)[..., -LAST:].mean(-1)


def _rows(config: HopperConfig, outcome: Outcome) -> list[Row]:
    rows = [
        Row({"source": name}, DEMONSTRATED, float(mean)) for name, mean in zip(POLICIES, outcome.returns, strict=True)
    ]
    for name, lanes in outcome.lanes.items():
        for source, values in zip(config.chosen, last(lanes.returns), strict=True):
            (low, high), place = interval(values), {"source": source}
            spread = {"std": float(values.std()), "ci_low": low, "ci_high": high, "seeds": len(values)}
            rows.append(Row(place, name, float(values.mean()), evaluation="greedy", **spread))
    return rows


def _summary(config: HopperConfig, outcome: Outcome) -> dict[str, object]:
    """IRLEED against the others on all three sources, the order of precisions, and what diverged."""
    summary: dict[str, object] = {
        f"diverged_{name}": int(np.sum(lanes.diverged >= 0)) for name, lanes in outcome.lanes.items()
    }
    if "ABC" not in config.chosen:
        return summary
    place = config.chosen.index("ABC")
    found = {name: last(lanes.returns) for name, lanes in outcome.lanes.items()}
    for ours, theirs in RIVALS:
        if ours in found and theirs in found:
            summary[f"{ours}_minus_{theirs}_ABC"] = difference(found[ours][place], found[theirs][place])
    for name in dict.fromkeys(ours for ours, _ in RIVALS):
        if name in found:
            log_precision = np.asarray(outcome.lanes[name].log_precision[place])
            known = log_precision[np.isfinite(log_precision).all(-1)]  # not of runs that diverged
            order = np.argsort(-known, -1)
            summary[f"{name}_order_of_precision_right"] = int(np.sum(np.all(order == np.arange(3), -1)))
            if len(known):
                summary[f"{name}_log_precision"] = known.mean(0).tolist()
            if "A" in config.chosen:
                alone = found[name][config.chosen.index("A")].mean()
                summary[f"{name}_ABC_over_A"] = float(found[name][place].mean() / alone)
    return summary


def _curves(config: HopperConfig, outcome: Outcome) -> dict[str, dict[str, list[float]]]:
    """Mean return over seeds at each evaluation of the online methods."""
    return {
        name: {
            source: np.asarray(values, float).mean(0).round(1).tolist()
            for source, values in zip(config.chosen, lanes.returns, strict=True)
        }
        for name, lanes in outcome.lanes.items()
        if lanes.returns.shape[-1] > 1
    }


def _published() -> dict[str, dict[str, float]]:
    """The paper's means over the last evaluations, by our names."""
    rows = paper.published("hopper_curves")[-LAST:]
    return {
        ours: {
            source: float(np.mean([float(row[f"{source}_{theirs}"]) for row in rows]))
            for source in ("A", "B", "C", "ABC")
        }
        for ours, theirs in PUBLISHED.items()
    }


def tables(results: Results) -> Table:
    """Returns of every method from every source, beside the paper's."""
    sources = list(dict.fromkeys(row.setting["source"] for row in results.rows if row.learnt))
    note = f"mean return over the last {LAST} evaluations, 95 % interval; the paper's in brackets"
    shown = Table(title="Hopper", caption=note, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *map(str, sources)):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    people = {row.setting["source"]: f"{row.mean:.0f}" for row in results.rows if not row.learnt}
    shown.add_row("demonstrator", *(people.get(source, "") for source in sources), end_section=True)
    for method in [name for name in METHODS if any(row.method == name for row in results.rows)]:
        cells = []
        for row in [row for row in results.rows if row.method == method]:
            beside = results.paper.get(method, {}).get(row.setting["source"])
            known = "" if beside is None else f" ({beside:.0f})"
            cells.append(f"{row.mean:.0f}{known}\n\\[{row.ci_low:.0f}, {row.ci_high:.0f}]")
        shown.add_row(method_name(method), *cells)
    return shown


def _figure(config: HopperConfig, outcome: Outcome) -> Figure:
    """Return against steps, a panel for each source, the paper's curves dotted."""
    steps = config.between * (1 + np.arange(max(lanes.returns.shape[-1] for lanes in outcome.lanes.values())))
    published = paper.published("hopper_curves")
    known = np.array([float(row["step"]) for row in published])
    panels: dict[str, dict[str, figures.Curve]] = {}
    dotted: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for place, source in enumerate(config.chosen):
        panels[source], dotted[source] = {}, {}
        for name, lanes in outcome.lanes.items():
            if lanes.returns.shape[-1] == 1:
                continue
            values = np.asarray(lanes.returns[place], float)
            ends = np.array([interval(column) for column in values.T])
            panels[source][method_name(name)] = figures.Curve(values.mean(0), ends[:, 0], ends[:, 1])
            if name in PUBLISHED:
                column = [float(row[f"{source}_{PUBLISHED[name]}"]) for row in published]
                dotted[source][method_name(name)] = known, np.array(column)
    return figures.learning_curves(steps.astype(float), panels, dotted)
