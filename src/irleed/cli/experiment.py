"""The command `irleed experiment`: the paper's experiments, each with settings of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from rich.console import Console

from irleed._io.text import say
from irleed.experiments import control, gridworld, hopper
from irleed.runs import progress
from irleed.runs.directory import occupied


@dataclass(frozen=True)
class ExperimentCommand:
    """Run one of the paper's experiments; `irleed experiment NAME --help` lists its settings."""

    name: tyro.conf.Positional[Literal["gridworld", "control", "hopper"]]
    """Which."""

    def run(self, console: Console) -> None:
        """Never reached: `main` parses the settings of the experiment named."""
        raise AssertionError(self.name)


def _experiment_gridworld(config: gridworld.GridworldConfig, console: Console) -> None:
    """Run the sweep, write the results, print them beside the paper's."""
    gridworld.check(config)
    with occupied(config.out):
        with progress.shown(Console(stderr=True), "gridworld") as callback:
            lanes, seconds = gridworld.sweep(config, callback)
        results = gridworld.write(config, lanes, seconds)
    console.print(gridworld.tables(results))
    say(console, f"{seconds:.0f} s; wrote {config.out}")


def _experiment_control(config: control.ControlConfig, console: Console) -> None:
    """Learn by every method from the same data, write the results, print them beside the paper's."""
    control.check(config)
    with occupied(config.out):
        with progress.shown(Console(stderr=True), "control") as callback:
            outcomes = control.sweep(config, callback)
        for line in control.diverged(outcomes):
            say(Console(stderr=True), f"warning: {line}")
        results = control.write(config, outcomes)
    console.print(control.tables(results))
    say(console, f"{results['seconds']:.0f} s; wrote {config.out}")


def _experiment_hopper(config: hopper.HopperConfig, console: Console) -> None:
    """Learn by every method from every source, write the results, print them beside the paper's."""
    hopper.check(config)
    with occupied(config.out):
        with progress.shown(Console(stderr=True), "hopper") as callback:
            outcome = hopper.sweep(config, callback)
        results = hopper.write(config, outcome)
    console.print(hopper.tables(results))
    say(console, f"{results['seconds']:.0f} s; wrote {config.out}")


EXPERIMENTS: dict[str, tuple[Any, Callable[[Any, Console], None]]] = {
    "gridworld": (gridworld.GridworldConfig, _experiment_gridworld),
    "control": (control.ControlConfig, _experiment_control),
    "hopper": (hopper.HopperConfig, _experiment_hopper),
}
