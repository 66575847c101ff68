"""The command line: parse, call, print. Exit status 0: done; 2: the input was wrong, one clear line; 1: our failure."""

import contextlib
import dataclasses
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Annotated, Any, Literal

import tyro
from jax.errors import JaxRuntimeError
from rich.console import Console
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from irleed._io.text import escaped, one_line, say
from irleed.cli import runs
from irleed.cli.data import ExpertCommand, InspectCommand, SimulateCommand
from irleed.cli.demo import Demo
from irleed.cli.doctor import DoctorCommand
from irleed.errors import ConfigError, DivergedError, IrleedError
from irleed.experiments import control, gridworld, hopper, people
from irleed.runs.checkpoint import handled
from irleed.runs.directory import occupied
from irleed.runs.logging import progress_bar


def parsed(settings: Any, arguments: Sequence[str], prog: str, description: str | None = None) -> Any:
    """Settings of a type from command-line arguments; help and errors are printed and end the program."""
    _refuse_empty(arguments)
    registry = ConstructorRegistry()
    registry.struct_rule(_Flowing())
    helping = {"-h", "--help"} & set(arguments)  # other output, such as completions, is not wrapped
    with contextlib.redirect_stdout(_Wrapping(sys.stdout) if helping else sys.stdout):
        config = (tyro.conf.DisallowNone,)  # None is a default, not a value to type
        found = tyro.cli(settings, prog=prog, description=description, args=arguments, registry=registry, config=config)
    seed = getattr(found, "seed", None)
    if seed is not None and abs(seed) >= 1 << 63:
        raise ConfigError("--seed", got=seed, expected="a number of 64 bits", remedy="choose, say, 0")
    return found


# Flags of earlier versions, by command.
RENAMED = {
    "fit": {"--seeds": "--members"},
    "simulate": {"--episodes": "--demonstrations"},
    "expert": {
        "--copies": "--num-envs", "--rate": "--learning-rate", "--batch": "--batch-size", "--random": "--exploration",
    },
}  # fmt: skip


def refuse_renamed(arguments: Sequence[str]) -> None:
    """Refuse renamed flags with their new names."""
    known = RENAMED.get(arguments[0], {}) if arguments else {}
    for word in arguments[1:]:
        flag = word.partition("=")[0]
        if flag in known:
            raise ConfigError(flag, got="a flag of earlier versions", expected=known[flag], remedy="use that")


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty arguments: as a path, they would be the current folder."""
    flag = "the command"
    for word in arguments:
        flag, given, value = word.partition("=") if word.startswith("--") else (flag, True, word)
        if given and not value.strip():
            got, expected = "an empty text", "a name or a value"
            raise ConfigError(flag, got=got, expected=expected, remedy="check what is between the quotes")


class _Flowing:
    """Dataclasses as tyro reads them, except that the lines of a docstring become one paragraph.

    tyro keeps a line break that is followed by an indent, which every break inside a docstring is.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, info: StructTypeInfo) -> StructConstructorSpec | None:
        if self._asked or not dataclasses.is_dataclass(info.type):
            return None
        self._asked = True  # tyro's own rules apply to the inner call
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            self._asked = False
        if not isinstance(found, StructConstructorSpec):
            return None
        return dataclasses.replace(found, fields=tuple(map(_flowing, found.fields)))


def _flowing(field: StructFieldSpec) -> StructFieldSpec:
    helptext: str | Callable[[], str | None] | None = field.helptext

    def paragraph() -> str | None:
        text = helptext() if callable(helptext) else helptext
        return None if text is None else " ".join(text.split())

    return dataclasses.replace(field, helptext=paragraph)


class _Wrapping:
    """A stream that wraps long lines of prose, which tyro does not."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        width = shutil.get_terminal_size().columns
        for line in text.splitlines(keepends=True):
            prose = len(line.rstrip("\n")) > width and line[0].isalpha()
            self._stream.write("\n".join(textwrap.wrap(line, width)) + "\n" * line.endswith("\n") if prose else line)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
