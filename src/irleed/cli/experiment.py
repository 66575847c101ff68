"""The command `irleed experiment`: the paper's experiments and one with people, each with settings of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal

import tyro
from rich.console import Console

from irleed._io.text import say
from irleed.experiments import control, gridworld, hopper, people
from irleed.runs.directory import occupied
from irleed.runs.logging import progress_bar


@dataclass(frozen=True)
class ExperimentCommand:
    """Run one of the experiments; `irleed experiment NAME --help` lists its settings."""

    name: tyro.conf.Positional[Literal["gridworld", "control", "hopper", "people"]]
    """Which."""

    def run(self, console: Console) -> None:
        """Never reached: `main` parses the settings of the experiment named."""
        raise AssertionError(self.name)


def _run(experiment: ModuleType, config: Any, console: Console) -> None:
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


EXPERIMENTS: dict[str, tuple[Any, Callable[[Any, Console], None]]] = {
    "gridworld": (gridworld.GridworldConfig, partial(_run, gridworld)),
    "control": (control.ControlConfig, partial(_run, control)),
    "hopper": (hopper.HopperConfig, partial(_run, hopper)),
    "people": (people.PeopleConfig, partial(_run, people)),
}
