"""The command line: parse, call, print. Exit status 0: done; 2: the input was wrong, one clear line; 1: our failure."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from irleed.data import load, save, summarise
from irleed.demo import Demo
from irleed.envs.mdp import FiniteMDP
from irleed.envs.mdp_files import load_mdp
from irleed.envs.toy_text import from_gymnasium
from irleed.errors import ConfigError, IrleedError, problem
from irleed.experiments import control, control_results, gridworld_results
from irleed.experiments.gridworld import GridworldConfig, check, sweep
from irleed.fit import Fit, fit, suitable
from irleed.report import figures, progress
from irleed.simulate import simulate
from irleed.store import prepare, write_json
from irleed.tabular.irleed import Irleed
from irleed.tabular.online import SoftQLearning
from irleed.tabular.planning import Averaged, Soft
from irleed.tabular.published import Planned, Published
from irleed.tabular.statistics import tabulate

PlannerName = Literal["soft", "averaged"]
PLANNERS = {"soft": Soft(), "averaged": Averaged()}


@dataclass(frozen=True)
class InspectCommand:
    """Say what is in a file of demonstrations, and what is odd about it."""

    data: tyro.conf.Positional[Path]
    """A file of demonstrations (.npz)."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> None:
        """Print the summary."""
        summary = summarise(load(self.data))
        if self.json:
            print(json.dumps(summary, indent=1))
            return
        _say(console, f"{summary['transitions']} transitions in {summary['episodes']} episodes")
        for part in ("observation", "action"):
            facts = ", ".join(f"{key} {value}" for key, value in summary[part].items() if value is not None)
            _say(console, f"{part}: {facts}")
        table = Table()
        for heading in summary["demonstrators"][0]:
            table.add_column(heading.replace("_", " "), justify="left" if heading == "name" else "right")
        for row in summary["demonstrators"]:
            table.add_row(*(_cell(value) for value in row.values()))
        console.print(table)
        for warning in summary["warnings"]:
            _say(console, f"note: {warning}")


@dataclass(frozen=True)
class Source:
    """The finite MDP that demonstrations belong to: a file, or an environment of Gymnasium with a transition table."""

    mdp: Path | None = None
    """A file with the MDP (.npz)."""
    env: str | None = None
    """Or a Gymnasium id such as FrozenLake-v1."""
    discount: float = 0.95
    """Discount for --env; a file has its own."""

    def load(self) -> tuple[FiniteMDP, tuple[int, int] | None]:
        """The MDP, and the shape of its grid if it has one."""
        if self.env is not None and self.mdp is None:
            return from_gymnasium(self.env, self.discount), None
        if self.mdp is not None and self.env is None:
            return load_mdp(self.mdp)
        got = "neither" if self.mdp is None else "both"
        raise ConfigError(problem("the MDP", got=got, expected="--mdp FILE or --env ID", remedy="give one of them"))


@dataclass(frozen=True)
class FitCommand:
    """Learn a policy, the shared reward and everyone's expertise from demonstrations in a finite MDP."""

    data: tyro.conf.Positional[Path]
    """A file of demonstrations (.npz)."""
    source: Annotated[Source, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder for fit.json, policy.safetensors and the figures; nothing is written without it."""
    algorithm: Literal["irleed", "maxent"] = "irleed"
    """IRLEED, or maximum-entropy IRL, which takes all demonstrators for equal experts."""
    estimator: Literal["map", "published", "online"] = "map"
    """The converged estimate with intervals; the paper's protocol; or that protocol with the dynamics unknown, policies
    being found by soft Q-learning on sampled transitions."""
    planner: PlannerName = "soft"
    """How demonstrators are supposed to plan: by the paper's equations, or as its released program does."""
    endless: bool = False
    """Plan as if terminal states did not end the episode, as the released program does."""
    demonstrator: Literal["data", "episode"] = "data"
    """Who demonstrated: what the data say, or every episode its own demonstrator when nobody knows."""
    seed: int = 0
    """Seed of the draws that the intervals are made of."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Fit, print, and write what was asked for."""
        demonstrations = load(self.data)
        mdp, shape = self.source.load()
        tabulate(demonstrations, mdp)  # data that do not belong to the MDP are refused before anything is written
        folder = None if self.out is None else prepare(self.out)
        if self.demonstrator == "episode":
            demonstrations = demonstrations.by_episode()
        algorithm = self._algorithm(mdp, int(demonstrations.length.max()))
        with progress.shown(Console(stderr=True), "fit") as callback:
            found = fit(
                demonstrations, mdp, algorithm=algorithm, endless=self.endless, seed=self.seed, progress=callback
            )
        if not found.converged:
            _say(Console(stderr=True), "warning: stopped before convergence; see `history`")
        if self.json:
            print(json.dumps(found.summary(), indent=1))
        else:
            console.print(found.expertise.table())
        if folder is not None:
            _write_fit(folder, self, found, shape)
            _say(Console(stderr=True) if self.json else console, f"wrote {folder}")

    def _algorithm(self, mdp: FiniteMDP, horizon: int) -> Irleed | Published:
        planner, maxent = PLANNERS[self.planner], self.algorithm == "maxent"
        if self.estimator == "map":
            return suitable(mdp, planner, maxent=maxent, anonymous=self.demonstrator == "episode")
        online = self.estimator == "online"
        inference = SoftQLearning() if online else Planned(planner, endless=self.endless)
        return Published(inference=inference, horizon=horizon, outer_rounds=1 if maxent else 2)


@dataclass(frozen=True)
class SimulateCommand:
    """Make demonstrations from demonstrators of known precision and accuracy."""

    source: Annotated[Source, tyro.conf.arg(name="")]
    out: Path
    """The file of demonstrations to write (.npz); the truth goes beside it as .truth.json."""
    demonstrators: int = 5
    """How many."""
    episodes: int = 40
    """Episodes of each."""
    horizon: int = 100
    """Longest episode."""
    max_precision: float = 5.0
    """Precisions are uniform between 0 and this."""
    accuracy: float = 4.0
    """Biases are Gaussian with this inverse standard deviation; inf: none."""
    planner: PlannerName = "soft"
    """How demonstrators plan."""
    endless: bool = False
    """Plan as if terminal states did not end the episode."""
    seed: int = 0
    """Where the random numbers start."""

    def run(self, console: Console) -> None:
        """Simulate and save."""
        mdp, _ = self.source.load()
        settings = ("demonstrators", "episodes", "horizon", "max_precision", "accuracy", "endless")
        demonstrations, truth = simulate(
            self.seed, mdp, planner=PLANNERS[self.planner], **{name: getattr(self, name) for name in settings}
        )
        prepare(self.out.parent)
        save(demonstrations, self.out)
        known = {name: getattr(truth, name) for name in ("precision", "bias", "weights")}
        plain = {name: None if values is None else values.tolist() for name, values in known.items()}
        write_json(self.out.with_suffix(".truth.json"), plain)
        _say(
            console,
            f"wrote {self.out}: {demonstrations.transitions} transitions in {demonstrations.episodes} episodes",
        )


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
    | Annotated[SimulateCommand, tyro.conf.subcommand("simulate")]
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
        sys.exit(2)
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
    _say(console, f"{seconds:.0f} s; wrote {config.out}")


def _experiment_control(config: control.ControlConfig, console: Console) -> None:
    """Learn by every method from the same data, write the results, print them beside the paper's."""
    control.check(config)
    prepare(config.out)
    with progress.shown(Console(stderr=True), "control") as callback:
        outcomes = control.sweep(config, callback)
    for line in control_results.diverged(outcomes):
        _say(Console(stderr=True), f"warning: {line}")
    results = control_results.write(config, outcomes)
    console.print(control_results.tables(results))
    _say(console, f"{results['seconds']:.0f} s; wrote {config.out}")


def _write_fit(folder: Path, command: FitCommand, found: Fit, shape: tuple[int, int] | None) -> None:
    """The answer as JSON, the policy, and the pictures: expertise, and reward and biases as maps of a grid."""
    settings = {key: str(value) for key, value in dataclasses.asdict(command).items()}
    write_json(folder / "fit.json", {"config": settings, **found.summary(), "bias": np.asarray(found.bias).tolist()})
    found.policy.save(folder / "policy.safetensors")
    names, expertise = found.expertise.names, found.expertise
    bars = figures.expertise_bars(names, expertise.precision, expertise.precision_low, expertise.precision_high)
    figures.save(bars, folder / "expertise")
    if shape is not None and np.prod(shape) == len(found.weights):
        maps = {"shared reward": found.weights, **{f"bias of {n}": b for n, b in zip(names, found.bias, strict=True)}}
        figures.save(figures.gridworld_maps(*shape, dict(list(maps.items())[:8])), folder / "maps")


def _say(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colours, no line breaks in the middle of a path."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _one_line(text: str) -> str:
    """Whatever a path or a name has in it, the message is one line."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else escape(str(value))
