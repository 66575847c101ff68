"""Commands about a run that is there: `irleed evaluate`, `validate`, `report`, `curate` and `export`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from irleed._io.arrays import EXPANSION
from irleed._io.text import cell, say
from irleed.analysis.curation import Curation, curate
from irleed.analysis.validation import validate
from irleed.cli.fit import returns_table
from irleed.export import export
from irleed.fit.evaluate import EPISODES, evaluate
from irleed.report.page import report
from irleed.runs.results import VALIDATION

RUN = tyro.conf.arg(metavar="RUN")


@dataclass(frozen=True)
class EvaluateCommand:
    """Evaluate the policy of a run in an environment: episode returns by greedy and by sampled actions."""

    run_folder: tyro.conf.Positional[Annotated[Path, RUN]]
    """The folder of the fit (`irleed fit DATA --out RUN`), offline or online, of networks or tables."""
    env: str
    """A Gymnasium id."""
    episodes: int = EPISODES
    """Evaluation episodes, by greedy and again by sampled actions."""
    seed: int = 0
    """The random seed."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Evaluate and print."""
        rows = evaluate(self.run_folder, self.env, episodes=self.episodes, seed=self.seed)
        if self.json:
            print(json.dumps({"env": self.env, "returns": [row.plain() for row in rows]}, indent=1))
        else:
            console.print(returns_table(rows))


@dataclass(frozen=True)
class ValidateCommand:
    """Compare each demonstrator's skill, precision, ... with scores that you have, beside trivial statistics.

    Rank correlations with 95 % bootstrap intervals over people; scores are used for nothing else.
    """

    run_folder: tyro.conf.Positional[Annotated[Path, RUN]]
    """The folder of the fit (`irleed fit DATA --out RUN`)."""
    scores: Path
    """A CSV file with a column demonstrator, perhaps episode (its number in the data) or episode_of_demonstrator
    (counted for each from 0), and a score."""
    score: str | None = None
    """Column of the score; by default score, return, success or reward."""
    data: Path | None = None
    """The data of the run, where they are not where they were."""
    out: Path | None = None
    """Folder for validation.json and the plot (validation.png, .pdf); by default the run's, whose report then has a
    section about it."""
    expansion: float = EXPANSION
    """How many times its own size a file of the data may take in memory, as in `irleed fit`."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Compare, write and print."""
        out = self.run_folder if self.out is None else self.out
        found = validate(
            self.run_folder, self.scores, score=self.score, data=self.data, out=out, expansion=self.expansion
        )
        aside = Console(stderr=True)
        for note in found.notes:
            say(aside, f"note: {note}")
        if self.json:
            print(json.dumps(found.plain(), indent=1))
        else:
            if any(each.spearman is not None for each in (*found.estimates, *found.episodes, *found.trivial)):
                console.print(found.table())
            say(console, found.said)
        say(aside if self.json else console, f"wrote {out / VALIDATION}")


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML page about a run, or a comparison of several; it needs no network to be read."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders made by `irleed fit --out` or `irleed experiment --out`."""
    out: Path | None = None
    """The page to write; by default, of one run, report.html in its folder."""

    def run(self, console: Console) -> None:
        """Write, and say where."""
        say(console, f"wrote {report(self.runs, self.out)}")


@dataclass(frozen=True)
class ExportCommand:
    """Write a run's policy to a folder of its own, with a model card; loading it runs no code."""

    run_folder: tyro.conf.Positional[Annotated[Path, RUN]]
    """The folder of the fit (`irleed fit DATA --out RUN`)."""
    out: Path
    """A new folder, for policy.safetensors, policy.json (how to compute with it) and README.md (the model card)."""
    onnx: bool = False
    """Write policy.onnx as well, for machines without JAX; needs the extra `export`."""

    def run(self, console: Console) -> None:
        """Write, and say where."""
        say(console, f"wrote {export(self.run_folder, self.out, onnx=self.onnx)}")


@dataclass(frozen=True)
class CurateCommand:
    """Weigh episodes by what a fit says of them, and write weights or a filtered copy; the source stays as it is."""

    data: tyro.conf.Positional[Path]
    """The demonstrations that were fitted."""
    run_folder: Annotated[Path, tyro.conf.arg(name="run")]
    """The folder of the fit (`irleed fit DATA --out FOLDER`)."""
    out: Path | None = None
    """What to write, by its ending. .csv or .parquet: a row of weights for each episode; .npz: the episodes to keep;
    .hdf5: a copy of a robomimic file with the masks irleed_keep and irleed_drop; none: a folder with the episodes to
    keep, of a Minari data set as such, else in the layout of the library imitation."""
    frames: Path | None = None
    """Of a LeRobot folder: also write a new Parquet file with the index and the weight of every frame."""
    share: float = 0.5
    """Episodes of most weight are kept until they have this share of all transitions."""
    other_data: bool = False
    """Weigh data that the run was not fitted to: new episodes of the same demonstrators."""
    expansion: float = EXPANSION
    """How many times its own size a file of the data may take in memory, as in `irleed fit`."""
    allow_few: bool = False
    """Accept weights whose effective sample size is below 10 and below a tenth of the episodes."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Weigh, write what was asked for, and print."""
        names = ("out", "frames", "share", "other_data", "expansion", "allow_few")
        found = curate(self.data, self.run_folder, **{name: getattr(self, name) for name in names})
        if self.json:
            size = found.effective_episodes
            print(json.dumps({"effective_episodes": size, "episodes": found.rows()}, indent=1))
        else:
            console.print(_table(found))
            share, count = found.effective_episodes, len(found.weight)
            say(console, f"Effective sample size of the weights: {share:.1f} of {count} episodes.")
        for path in (self.out, self.frames):
            if path is not None:
                say(Console(stderr=True) if self.json else console, f"wrote {path}")


def _table(found: Curation, limit: int = 30) -> Table:
    """A row for each demonstrator, those of most weight first."""
    table = Table(title="What to keep", box=SIMPLE_HEAD, pad_edge=False, caption="weight 1 is the average transition's")
    skill = [] if found.skill is None else ["skill"]
    for heading in ("demonstrator", "episodes", "kept", *skill, "precision", "bias", "weight"):
        table.add_column(heading, justify="left" if heading == "demonstrator" else "right", no_wrap=True)
    rows = []
    for who, name in enumerate(found.names):
        own = found.owner == who
        weight = float(np.average(found.weight[own], weights=found.steps[own]))
        judged = [*([] if found.skill is None else [found.skill[who]]), found.precision[who], found.bias[who], weight]
        cells = (cell(name), str(own.sum()), str(found.keep[own].sum()), *(f"{value:.2f}" for value in judged))
        rows.append((weight, cells))
    for _, cells in sorted(rows, key=lambda row: -row[0])[:limit]:
        table.add_row(*cells)
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table
