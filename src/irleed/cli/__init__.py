"""The command line: parse, call, print. Exit status 0: done; 2: the input was wrong, one clear line; 1: our failure."""

import os
import sys
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Annotated, Any, Literal

import tyro
from jax.errors import JaxRuntimeError
from rich.console import Console

from irleed._io.text import escaped, one_line, say
from irleed.cli import runs
from irleed.cli.demo import Demo
from irleed.cli.doctor import DoctorCommand
from irleed.cli.inspect import InspectCommand
from irleed.cli.parsing import parsed, refuse_renamed
from irleed.cli.simulate import ExpertCommand, SimulateCommand
from irleed.errors import DivergedError, IrleedError
from irleed.experiments import control, gridworld, hopper, people
from irleed.runs.checkpoint import handled
from irleed.runs.directory import occupied
from irleed.runs.logging import progress_bar

EXPERIMENTS: dict[str, tuple[ModuleType, Any]] = {
    "gridworld": (gridworld, gridworld.GridworldConfig),
    "control": (control, control.ControlConfig),
    "hopper": (hopper, hopper.HopperConfig),
    "people": (people, people.PeopleConfig),
}


@dataclass(frozen=True)
class ExperimentCommand:
    """Run one of the experiments; `irleed experiment NAME --help` lists its settings."""

    name: tyro.conf.Positional[Literal["gridworld", "control", "hopper", "people"]]
    """The experiment."""

    def run(self, console: Console) -> None:
        """Never reached: `main` parses the settings of the experiment named."""
        raise AssertionError(self.name)


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[InspectCommand, tyro.conf.subcommand("inspect")]
    | Annotated[runs.FitCommand, tyro.conf.subcommand("fit")]
    | Annotated[runs.EvaluateCommand, tyro.conf.subcommand("evaluate")]
    | Annotated[runs.ValidateCommand, tyro.conf.subcommand("validate")]
    | Annotated[runs.ReportCommand, tyro.conf.subcommand("report")]
    | Annotated[runs.CurateCommand, tyro.conf.subcommand("curate")]
    | Annotated[runs.ExportCommand, tyro.conf.subcommand("export")]
    | Annotated[SimulateCommand, tyro.conf.subcommand("simulate")]
    | Annotated[ExpertCommand, tyro.conf.subcommand("expert")]
    | Annotated[DoctorCommand, tyro.conf.subcommand("doctor")]
    | Annotated[ExperimentCommand, tyro.conf.subcommand("experiment")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command `irleed`."""
    try:
        try:
            with handled(interrupt):
                _main(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def interrupt(number: int, frame: FrameType | None) -> None:
    """End a command as Ctrl-C does: partial files are removed, and locks are released."""
    raise KeyboardInterrupt


def _main(arguments: list[str]) -> None:
    console = Console()
    try:
        refuse_renamed(arguments)
        if arguments[:1] == ["experiment"] and arguments[1:2] and arguments[1] in EXPERIMENTS:
            experiment, config = EXPERIMENTS[arguments[1]]
            config = parsed(config, arguments[2:], f"irleed experiment {arguments[1]}")
            run_experiment(experiment, config, console)
        elif arguments[:1] == ["fit"] and "--help-settings" in arguments:
            runs.show_settings(arguments, console)
        else:
            parsed(Command, arguments, "irleed", "Learn from demonstrators of uneven skill.").run(console)
    except IrleedError as error:
        print(f"irleed: {escaped(error)}", file=sys.stderr)
        sys.exit(1 if isinstance(error, DivergedError) else 2)
    except (MemoryError, JaxRuntimeError) as error:
        if isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(f"irleed: out of memory ({one_line(error)}); choose smaller numbers or less data", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("irleed: interrupted", file=sys.stderr)
        sys.exit(130)


def run_experiment(experiment: ModuleType, config: Any, console: Console) -> None:
    """Run the sweep, write the results, print them beside the paper's."""
    experiment.check(config)
    with occupied(config.out):
        with progress_bar(Console(stderr=True), experiment.__name__.rpartition(".")[2]) as callback:
            outcome = experiment.sweep(config, callback)
        results = experiment.write(config, outcome)
    for warning in results.warnings:
        say(Console(stderr=True), f"warning: {warning}")
    console.print(experiment.tables(results))
    say(console, f"{results.seconds:.0f} s; wrote {config.out}")
