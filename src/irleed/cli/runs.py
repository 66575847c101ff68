"""`irleed fit` makes a run; `irleed evaluate`, `validate`, `report`, `curate` and `export` use one."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from irleed._io.arrays import EXPANSION
from irleed._io.text import cell, name, say
from irleed.algorithms import Irleed
from irleed.algorithms.tabular.paper_protocol import Published
from irleed.analysis.curation import Curation, curate
from irleed.analysis.validation import validate
from irleed.data import ReadOptions
from irleed.errors import ConfigError
from irleed.export import export
from irleed.fit.defaults import Ends, Method, network_algorithm
from irleed.fit.door import fit
from irleed.fit.evaluate import EPISODES, evaluate
from irleed.fit.networks import MEMBERS
from irleed.fit.options import DISCOUNT, OFFLINE, ONLINE, TABULAR, Estimator, MethodName, PlannerName
from irleed.fit.result import Fit
from irleed.fit.settings import settings_of
from irleed.model.expertise import with_interval
from irleed.report import report
from irleed.rollout import ReturnEstimate
from irleed.runs.checkpoint import Stopped
from irleed.runs.directory import REPORT
from irleed.runs.results import METHODS, VALIDATION

LIKELIHOOD = "Log likelihood of the demonstrators' actions on the training data: how well each method describes them."
RUN = tyro.conf.arg(metavar="RUN")
OWN = ("settings", "help_settings", "json")  # flags that are no arguments of `irleed.fit`, or other ones


@dataclass(frozen=True)
class FitCommand:
    """Learn a policy and each demonstrator's skill from demonstrations.

    In a finite MDP, where observations are the numbers of its states, the shared reward as well. Otherwise an ensemble
    of networks learns from the data alone or, with --env, in an environment too.
    """

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder in any known format, see the documentation."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")]
    mdp: Path | None = None
    """The finite MDP that the demonstrations belong to: a file (.npz)."""
    env: str | None = None
    """A Gymnasium id. Networks learn and are evaluated there; where observations are states, its transition table is
    the MDP."""
    out: Path | None = None
    """Folder of the run: checkpoints, metrics, fit.json, policy.safetensors, figures and report.html; nothing is
    written without it."""
    algorithm: MethodName = "irleed"
    """IRLEED. In an MDP, also maximum-entropy IRL, which treats all demonstrators as equal experts. With networks, also
    IQ-Learn; from the data alone ILEED and behaviour cloning; in an environment SQIL."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="NAME=VALUE")
    ] = ()
    """A setting of the algorithm; can be repeated. --help-settings lists them."""
    help_settings: bool = False
    """List the settings of --algorithm with their defaults and meanings, and exit."""
    steps: int | None = None
    """Networks: updates; online also steps of each member in the environment. By default 20,000; online 50,000, or
    500,000 with continuous actions."""
    ends: Ends = "neutral"
    """Networks, IRLEED and IQ-Learn: whether early termination counts as failure, as when a pole falls. On CartPole,
    where it is one, policies are far better for it; on LunarLander, where it is not, they crash. With continuous
    actions for networks that learn in an environment (--env)."""
    members: int = MEMBERS
    """Networks: members of the ensemble that policy and intervals come from."""
    online: bool = True
    """Networks with --env: learn in the environment. With --no-online, learn from the data alone, and only evaluate the
    policy there."""
    clip: bool = False
    """Networks, continuous actions with --env: bring actions that are out of the environment's bounds within them."""
    estimator: Estimator = "map"
    """In an MDP: the converged estimate with intervals; the paper's protocol; or that protocol with the dynamics
    unknown, policies being found by soft Q-learning on sampled transitions."""
    planner: PlannerName = "soft"
    """In an MDP: how demonstrators are assumed to plan, by the paper's equations, or as its released program does."""
    endless: bool = False
    """In an MDP: plan as if terminal states did not end the episode, as the released program does."""
    discount: float = DISCOUNT
    """In an MDP from --env: the discount; a file has its own, and so have networks."""
    demonstrators: int | None = None
    """Nobody knows who acted: group the episodes into so many people first, whoever the data name."""
    baselines: bool = False
    """Fit other methods to the same data as well, and compare. In an MDP, maximum-entropy IRL; with networks, IQ-Learn,
    ILEED and behaviour cloning, as ensembles like this one: with --env their policies are evaluated there too."""
    feature_names: Path | None = None
    """Networks: a file with the names of the numbers in an observation, as a JSON list or one a line; the report names
    situations by them. Those of classic Gymnasium environments are known by --env."""
    seed: int = 0
    """The random seed."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint; start it if there is none."""
    checkpoint_every: float | None = None
    """Networks: seconds between checkpoints; by default at least 10, and as many as keep them to 1 % of the time."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Networks: log to TensorBoard or Weights & Biases as well, besides history.jsonl."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Fit, print, and name what was written."""
        aside = Console(stderr=True)
        given: dict[str, Any] = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        given = {name: value for name, value in given.items() if name not in OWN}
        try:
            found = fit(**given, settings=_pairs(self.settings), progress=True, warn=lambda line: say(aside, line))
        except Stopped as stopped:
            say(aside, f"{stopped}; the same command with --resume continues from there")
            sys.exit(130)
        warn(aside, found)
        if self.json:
            beside = {"baselines": {name: each.summary() for name, each in found.baselines.items()}}
            print(json.dumps({**found.summary(), **(beside if self.baselines else {})}, indent=1))
        else:
            show(console, found, self.algorithm)
        if self.out is not None:
            for line in (f"report: {self.out / REPORT}", f"wrote {self.out}"):
                say(aside if self.json else console, line)


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    """Settings by name from NAME=VALUE."""
    for word in words:
        if "=" not in word:
            expected = "NAME=VALUE, such as penalty=0.1"
            raise ConfigError(f"--set {word}", got="no value", expected=expected, remedy="add the value after =")
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def warn(aside: Console, found: Fit) -> None:
    """Print warnings about a fit and about the baselines."""
    beside = {f"{METHODS[method]}: ": each for method, each in found.baselines.items()}
    for title, each in {"": found, **beside}.items():
        stopped = () if each.converged else ("stopped before convergence; see `history`",)
        for warning in (*stopped, *each.warnings):
            say(aside, f"warning: {title}{warning}")


def show(console: Console, found: Fit, method: str) -> None:
    """Print each demonstrator's skill, the returns where they are known, and the baselines."""
    console.print(found.expertise.table())
    if found.people is not None:
        console.print(found.people.table())
    if found.returns:
        console.print(returns_table(found.returns))
    if found.baselines:
        methods = {method: found, **found.baselines}
        console.print(_side_by_side(methods))
        say(console, LIKELIHOOD)
        if found.returns:
            say(console, highest(compared(methods)))


def text_table(headings: Sequence[str], **style: Any) -> Table:
    """An empty table whose first column is aligned to the left, the others to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, **style)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def returns_table(rows: tuple[ReturnEstimate, ...], limit: int = 30) -> Table:
    """Episode returns, in the order of the rows."""
    table = text_table(("who", "episodes", "return"), title="Return", caption="means with 90 % intervals")
    for row in rows[:limit]:
        table.add_row(cell(row.who), str(row.episodes) if row.episodes else "computed", _amount(row))
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table


def _side_by_side(found: Mapping[str, Fit]) -> Table:
    """Returns of each method's policy, where they are known, and log likelihoods of the demonstrators' actions."""
    known = any(each.returns for each in found.values())
    headings = ("method", *(("return, greedy", "return, sampled") if known else ()), "log likelihood")
    table = text_table(headings, title="Beside other methods")
    for method, each in found.items():
        returns = map(_amount, each.returns[:2])
        mean = np.average(each.expertise.log_likelihood, weights=each.expertise.transitions)
        table.add_row(METHODS[method], *returns, f"{mean:.3f}")
    return table


def _amount(row: ReturnEstimate) -> str:
    """A return, with its interval unless it was computed exactly."""
    return with_interval(row.mean, row.low, row.high) if row.episodes else f"{row.mean:.2f}"


def compared(found: Mapping[str, Fit]) -> tuple[ReturnEstimate, ...]:
    """Returns of the demonstrators, and of each method's policy by its greedy actions."""
    first = next(iter(found.values()))
    policies = (replace(each.returns[0], who=f"policy of {METHODS[m]}") for m, each in found.items() if each.returns)
    return (*first.returns[2:], *policies)


def highest(rows: tuple[ReturnEstimate, ...]) -> str:
    """A sentence with the highest mean return, and those whose intervals overlap with it."""
    best = max(rows, key=lambda row: row.mean)
    near = [name(row.who) for row in rows if row is not best and not row.high < best.low]
    others = f"its interval overlaps with those of {', '.join(near)}" if near else "no other interval reaches it"
    return f"Highest mean return: {name(best.who)}; {others}."


def show_settings(arguments: list[str], console: Console) -> None:
    """Print the settings of the algorithm on a command line, in each of its forms."""
    words = dict(zip(arguments, arguments[1:], strict=False))
    words |= {flag: value for flag, _, value in (word.partition("=") for word in arguments) if value}
    method = words.get("--algorithm", "irleed")
    if method not in METHODS:
        raise ConfigError("--algorithm", got=method, expected=" or ".join(METHODS), remedy="choose one of them")
    for form, algorithm in _forms(method):
        table = Table(title=f"{method} {form}", box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for heading in ("setting", "default", "meaning"):
            table.add_column(heading, no_wrap=heading != "meaning")
        for each in settings_of(algorithm):
            value = ",".join(map(str, each.value)) if isinstance(each.value, tuple) else str(each.value).lower()
            table.add_row(each.name, value, each.meaning)
        console.print(table)
    say(console, "Change one with --set NAME=VALUE, for example --set learning_rate=0.0003 --set hidden=64,64.")


def _forms(method: str) -> Iterator[tuple[str, Any]]:
    """The algorithms behind a method's name, by data and environment."""
    if method in TABULAR:
        yield "in an MDP", Irleed.maxent() if method == "maxent" else Irleed()
        yield "in an MDP, with --estimator published", Published()
    kinds: Any = cast(Method, method)
    for online, methods in ((False, OFFLINE), (True, ONLINE)):
        for continuous in (False, True) if method in methods else ():
            if not (continuous and method == "sqil"):
                form = f"{'in an environment (--env)' if online else 'from the data alone'}, "
                form += "continuous actions" if continuous else "discrete actions"
                yield form, network_algorithm(kinds, continuous=continuous, online=online)


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
    """The data of the run, if they were moved."""
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
    """Weigh episodes by a fit's estimates, and write weights or a filtered copy; the source is not changed."""

    data: tyro.conf.Positional[Path]
    """The demonstrations that were fitted."""
    run_folder: Annotated[Path, tyro.conf.arg(name="run")]
    """The folder of the fit (`irleed fit DATA --out FOLDER`)."""
    out: Path | None = None
    """The file or folder to write, by its suffix. .csv or .parquet: a row of weights for each episode; .npz: the
    episodes to keep; .hdf5: a copy of a robomimic file with the masks irleed_keep and irleed_drop; none: a folder with
    the episodes to keep, of a Minari data set as such, else in the layout of the library imitation."""
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
        """Weigh, write and print."""
        names = ("out", "frames", "share", "other_data", "expansion", "allow_few")
        found = curate(self.data, self.run_folder, **{name: getattr(self, name) for name in names})
        if self.json:
            size = found.effective_episodes
            print(json.dumps({"effective_episodes": size, "episodes": found.rows()}, indent=1))
        else:
            console.print(_curation_table(found))
            share, count = found.effective_episodes, len(found.weight)
            say(console, f"Effective sample size of the weights: {share:.1f} of {count} episodes.")
        for path in (self.out, self.frames):
            if path is not None:
                say(Console(stderr=True) if self.json else console, f"wrote {path}")


def _curation_table(found: Curation, limit: int = 30) -> Table:
    """A row for each demonstrator, those of most weight first."""
    skill = [] if found.skill is None else ["skill"]
    headings = ("demonstrator", "episodes", "kept", *skill, "precision", "bias", "weight")
    table = text_table(headings, title="What to keep", caption="weight 1 is the average transition's")
    rows = []
    for who, demonstrator in enumerate(found.names):
        own = found.owner == who
        weight = float(np.average(found.weight[own], weights=found.steps[own]))
        known = [each[who] for each in (found.skill, found.precision, found.bias) if each is not None]
        counts = cell(demonstrator), str(own.sum()), str(found.keep[own].sum())
        rows.append((weight, (*counts, *(f"{value:.2f}" for value in (*known, weight)))))
    for _, cells in sorted(rows, key=lambda row: -row[0])[:limit]:
        table.add_row(*cells)
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table
