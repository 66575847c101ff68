"""The command line: parse, call, print. Exit status 0: done; 2: the input was wrong, one clear line; 1: our failure."""

import os
import sys
from types import FrameType
from typing import Annotated

import tyro
from jax.errors import JaxRuntimeError
from rich.console import Console

from irleed._io.text import escaped, one_line
from irleed.cli.demo import Demo
from irleed.cli.doctor import DoctorCommand
from irleed.cli.experiment import EXPERIMENTS, ExperimentCommand
from irleed.cli.expert import ExpertCommand
from irleed.cli.fit import FitCommand, show_settings
from irleed.cli.inspect import InspectCommand
from irleed.cli.parsing import parsed, refuse_renamed
from irleed.cli.runs import CurateCommand, EvaluateCommand, ExportCommand, ReportCommand, ValidateCommand
from irleed.cli.simulate import SimulateCommand
from irleed.errors import DivergedError, IrleedError
from irleed.runs.checkpoint import handled

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[InspectCommand, tyro.conf.subcommand("inspect")]
    | Annotated[FitCommand, tyro.conf.subcommand("fit")]
    | Annotated[EvaluateCommand, tyro.conf.subcommand("evaluate")]
    | Annotated[ValidateCommand, tyro.conf.subcommand("validate")]
    | Annotated[ReportCommand, tyro.conf.subcommand("report")]
    | Annotated[CurateCommand, tyro.conf.subcommand("curate")]
    | Annotated[ExportCommand, tyro.conf.subcommand("export")]
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
    except BrokenPipeError:  # whoever reads what is printed has seen enough, as `head` does: no more, also at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def interrupt(number: int, frame: FrameType | None) -> None:
    """End a command as Ctrl-C does: what is half written is removed, and locks are released."""
    raise KeyboardInterrupt


def _main(arguments: list[str]) -> None:
    console = Console()
    try:
        refuse_renamed(arguments)
        if arguments[:1] == ["experiment"] and arguments[1:2] and arguments[1] in EXPERIMENTS:
            settings, run = EXPERIMENTS[arguments[1]]
            run(parsed(settings, arguments[2:], f"irleed experiment {arguments[1]}"), console)
        elif arguments[:1] == ["fit"] and "--help-settings" in arguments:
            show_settings(arguments, console)
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
