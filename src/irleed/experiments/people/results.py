"""What the experiment with real demonstrators amounts to: rows, a summary, a table and a picture."""

import numpy as np
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from irleed._typing import Float
from irleed.analysis.agreement import agreement
from irleed.analysis.validation import said
from irleed.experiments.people.config import PeopleConfig
from irleed.experiments.people.data import Part
from irleed.experiments.people.protocol import Outcome
from irleed.report import figures
from irleed.report.validation import scatter
from irleed.runs.results import Agreement, Results, Row, cell

# What a method says of demonstrators, besides its own weights and biases: of a policy that learns nothing about them,
# the likelihood of their actions.
SHOWN = {
    "irleed": ("skill", "precision", "log_likelihood"),
    "ileed": ("precision",),
    "bc": ("log_likelihood",),
    "iq": ("log_likelihood",),
}
TRIVIAL, SCORE = "trivial", "score"  # methods of rows about what is counted, and about the score of the first part
MEASURE = "Spearman with the score of the rest"
Found = dict[tuple[str, str], Agreement]  # by method and estimator


def write(config: PeopleConfig, outcome: Outcome) -> Results:
    """Write results.json and the figure; returns the results."""
    found = {part.name: _agreements(part, outcome) for part in outcome.parts}
    rows = [row for part in outcome.parts for row in _rows(part, found[part.name])]
    warnings = tuple(f"{part.name}: {note}" for part in outcome.parts for note in part.notes)
    described = {"summary": _summary(outcome, found), "paper": {}, "warnings": warnings, "measure": MEASURE}
    results = Results.of("people", config, rows, outcome.seconds, **described)
    figures.save(_figure(outcome, found), config.out / "scatter")
    results.write(config.out)
    return results


def _columns(part: Part, outcome: Outcome) -> dict[tuple[str, str], Float[np.ndarray, " D"]]:
    """Every estimate and statistic of a file's demonstrators, by method and estimator."""
    columns = {
        (method, name.replace("_", " ")): values[name]
        for (file, method), values in outcome.estimates.items()
        for name in SHOWN[method]
        if file == part.name and name in values
    }
    columns |= {(TRIVIAL, name): np.asarray(values, float) for name, values in part.trivial.items()}
    return columns if part.first_score is None else columns | {(SCORE, "of the first part"): part.first_score}


def _agreements(part: Part, outcome: Outcome) -> Found:
    return {
        key: agreement(f"{key[0]} {key[1]}", values, part.score, part.given, trivial=key[0] == TRIVIAL)
        for key, values in _columns(part, outcome).items()
    }


def _rows(part: Part, found: Found) -> list[Row]:
    """Rank correlations, and partial ones; none where they are not defined."""
    rows = []
    for (method, estimator), each in found.items():
        kinds = {
            "rank": (each.spearman, each.low, each.high),
            "partial": (each.partial, each.partial_low, each.partial_high),
        }
        for kind, (value, low, high) in kinds.items():
            if value is not None:
                place = {"env": part.name, "correlation": kind}
                rows.append(Row(place, method, value, ci_low=low, ci_high=high, estimator=estimator))
    return rows


def _summary(outcome: Outcome, found: dict[str, Found]) -> dict[str, object]:
    """Who and what was compared, and what the first estimate adds to the best trivial statistic."""
    summary: dict[str, object] = {}
    for part in outcome.parts:
        columns, own = _columns(part, outcome), found[part.name]
        summary[f"{part.name} people"] = int(np.isfinite(part.score).sum())
        summary[f"{part.name} split"], summary[f"{part.name} score"] = part.split, part.column
        lead = next((key for key in own if key[0] not in (TRIVIAL, SCORE)), None)
        if lead is not None:
            counted = {f"{TRIVIAL} {name}": values for name, values in part.trivial.items()}
            others = tuple(each for key, each in own.items() if key[0] == TRIVIAL)
            summary[f"{part.name}"] = said(own[lead], others, columns[lead], counted, part.score)
        missing = [f"{each.name}: {each.reason}" for each in own.values() if each.reason is not None]
        if missing:
            summary[f"{part.name} not defined"] = "; ".join(missing)
    return summary


def tables(results: Results) -> Table:
    """Rank correlations of every method with the score of the rest, a column for each file."""
    files = list(dict.fromkeys(str(row.setting["env"]) for row in results.rows))
    caption = "Spearman with the score of the rest, 95 % bootstrap interval over people; below it, partial correlation"
    shown = Table(title="People", caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *files):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=bool(heading))
    by_place = {(row.setting["env"], row.name, row.setting["correlation"]): row for row in results.rows}
    for name in dict.fromkeys(row.name for row in results.rows):
        cells = []
        for file in files:
            pair = [by_place.get((file, name, kind)) for kind in ("rank", "partial")]
            cells.append("\n".join("" if row is None else cell(row.mean, row.ci_low, row.ci_high) for row in pair))
        shown.add_row(name, *cells)
    return shown


def _figure(outcome: Outcome, found: dict[str, Found]) -> Figure:
    """The score of the rest against the first method's estimates, and against the best trivial statistic."""
    panels, titles = {}, {}
    for part in outcome.parts:
        columns, own = _columns(part, outcome), found[part.name]
        known = {key: each for key, each in own.items() if each.spearman is not None}
        counted = [key for key in known if key[0] == TRIVIAL]
        best = max(counted, key=lambda key: abs(known[key].spearman or 0.0), default=None)
        chosen = [key for key in known if key[0] not in (TRIVIAL, SCORE)][:2] + ([] if best is None else [best])
        for key in chosen:
            title = f"{part.name}\n{known[key].name}"
            panels[title] = columns[key], part.score
            titles[title] = f"Spearman {known[key].spearman:.2f}"
    return scatter((), panels, titles, "score of the rest")
