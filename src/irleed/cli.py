"""The command line: parse, call, print. Exit status 0: done; 2: the input was wrong, one clear line; 1: our failure."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from irleed.cli_curate import CurateCommand
from irleed.cli_fit import FitCommand, say
from irleed.cli_simulate import SimulateCommand
from irleed.data import Reading, load, summarise
from irleed.demo import Demo
from irleed.errors import DivergedError, IrleedError
from irleed.experiments import control, control_results, gridworld_results
from irleed.experiments.gridworld import GridworldConfig, check, sweep
from irleed.expert import ExpertCommand
from irleed.report import progress
from irleed.store import prepare


@dataclass(frozen=True)
class InspectCommand:
    """Say what is in a file of demonstrations, and what is odd about it."""

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder of any format that is known, see the documentation."""
    reading: Annotated[Reading, tyro.conf.arg(name="")]
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> None:
        """Print the summary."""
        summary = summarise(load(self.data, self.reading))
        if self.json:
            print(json.dumps(summary, indent=1))
            return
        say(console, f"{summary['transitions']} transitions in {summary['episodes']} episodes")
        for part in ("observation", "action"):
            facts = ", ".join(f"{key} {value}" for key, value in summary[part].items() if value is not None)
            say(console, f"{part}: {facts}")
        table = Table()
        for heading in summary["demonstrators"][0]:
            table.add_column(heading.replace("_", " "), justify="left" if heading == "name" else "right")
        for row in summary["demonstrators"]:
            table.add_row(*(_cell(value) for value in row.values()))
        console.print(table)
        for warning in summary["warnings"]:
            say(console, f"note: {warning}")


@dataclass(frozen=True)
class ExperimentCommand:
    """Run one of the paper's experiments; `irleed experiment NAME --help` lists its settings."""

    name: tyro.conf.Positional[Literal["gridworld", "control"]]
    """Which."""

    def run(self, console: Console) -> None:
        """Never reached: `main` parses the settings of the experiment named."""
        raise AssertionError(self.name)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[InspectCommand, tyro.conf.subcommand("inspect")]
    | Annotated[FitCommand, tyro.conf.subcommand("fit")]
    | Annotated[CurateCommand, tyro.conf.subcommand("curate")]
    | Annotated[SimulateCommand, tyro.conf.subcommand("simulate")]
    | Annotated[ExpertCommand, tyro.conf.subcommand("expert")]
    | Annotated[ExperimentCommand, tyro.conf.subcommand("experiment")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `irleed`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    console = Console()
    try:
        if arguments[:2] == ["experiment", "gridworld"]:
            config = tyro.cli(GridworldConfig, prog="irleed experiment gridworld", args=arguments[2:])
            _experiment_gridworld(config, console)
        elif arguments[:2] == ["experiment", "control"]:
            config = tyro.cli(control.ControlConfig, prog="irleed experiment control", args=arguments[2:])
            _experiment_control(config, console)
        else:
            description = "Learn from demonstrators of uneven skill."
            tyro.cli(Command, prog="irleed", description=description, args=arguments).run(console)
    except IrleedError as error:
        print(f"irleed: {_one_line(str(error))}", file=sys.stderr)
        sys.exit(1 if isinstance(error, DivergedError) else 2)
    except KeyboardInterrupt:
        print("irleed: interrupted", file=sys.stderr)
        sys.exit(130)


def _experiment_gridworld(config: GridworldConfig, console: Console) -> None:
    """Run the sweep, write the results, print them beside the paper's."""
    check(config)
    prepare(config.out)
    with progress.shown(Console(stderr=True), "gridworld") as callback:
        lanes, seconds = sweep(config, callback)
    console.print(gridworld_results.tables(gridworld_results.write(config, lanes, seconds)))
    say(console, f"{seconds:.0f} s; wrote {config.out}")


def _experiment_control(config: control.ControlConfig, console: Console) -> None:
    """Learn by every method from the same data, write the results, print them beside the paper's."""
    control.check(config)
    prepare(config.out)
    with progress.shown(Console(stderr=True), "control") as callback:
        outcomes = control.sweep(config, callback)
    for line in control_results.diverged(outcomes):
        say(Console(stderr=True), f"warning: {line}")
    results = control_results.write(config, outcomes)
    console.print(control_results.tables(results))
    say(console, f"{results['seconds']:.0f} s; wrote {config.out}")


def _one_line(text: str) -> str:
    """Whatever a path or a name has in it, the message is one line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else escape(str(value))
