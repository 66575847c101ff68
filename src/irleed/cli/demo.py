"""The command `irleed demo`: every method on data of four uneven demonstrators of CartPole, or IRLEED in a gridworld.

The CartPole data come with the package: `docs/getting-started.md` says how they were made, and a test reproduces them.
"""

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._compute import in_double_precision
from irleed._io.files import writing
from irleed._io.text import cell, say, shell
from irleed.algorithms.tabular.planning import Averaged
from irleed.algorithms.tabular.visitation import expected_return
from irleed.cli.runs import compared, highest, text_table
from irleed.data import Demonstrations, load, save
from irleed.envs.jax import CartPole
from irleed.envs.mdp import Gridworld, paper_gridworld, save_mdp
from irleed.fit.defaults import Ends, Method
from irleed.fit.door import fit
from irleed.fit.networks import MEMBERS
from irleed.fit.options import OFFLINE, MethodName
from irleed.fit.result import Fit
from irleed.model.expertise import Expertise, with_interval
from irleed.policies import TabularPolicy
from irleed.report import figures, report
from irleed.rollout import ReturnEstimate
from irleed.runs.directory import REPORT, occupied, prepare
from irleed.runs.logging import progress_bar
from irleed.runs.results import METHODS
from irleed.simulation import simulate

STEPS = 4_000  # a fifth of the usual, chosen for the time it takes alone
BUNDLED, DATA = "cartpole", "demonstrations.npz"
ENDS: dict[str, Ends] = {"irleed": "failure", "iq": "failure"}  # the others have no such setting
HORIZON = 100  # steps of an episode in the gridworld


@dataclass(frozen=True)
class Demo:
    """Four demonstrators of uneven skill balance a pole: the skill of each, and what four methods learn."""

    out: Path = Path("irleed-demo")
    """Folder for the data, a run of each method, and the report."""
    seed: int | None = None
    """The random seed of the training, 0 by default; in the gridworld, of the demonstrators, 4."""
    gridworld: bool = False
    """Five demonstrators in a gridworld instead, where the reward itself is learnt."""

    def run(self, console: Console) -> None:
        """Run the demonstration that was chosen."""
        with occupied(self.out):
            if self.gridworld:
                in_gridworld(self.out, 4 if self.seed is None else self.seed, console)
            else:
                cartpole(self.out, 0 if self.seed is None else self.seed, console)


def cartpole(out: Path, seed: int, console: Console, *, members: int = MEMBERS, steps: int = STEPS) -> None:
    """Fit every method to the bundled data, evaluate and compare the policies, and write the report."""
    folder = prepare(out)
    data, truth = bundled()
    with writing(folder):
        save(data, folder / DATA)
    say(
        console,
        "CartPole: keep a pole upright, for 500 steps at most. Four simulated demonstrators recorded 5 episodes each;",
        "how good each of them is, is not in the data. Early termination, a fallen pole, counts as failure for IRLEED",
        "and IQ-Learn (--ends failure); ILEED and cloning have no such setting. No method learns from the rewards.",
    )
    found = {method: fitted(folder, method, seed, members, steps) for method in OFFLINE}
    console.print(_expertise(found["irleed"].expertise, truth, found["irleed"].returns[2:]))
    say(console, *against_truth(found["irleed"].expertise, truth["precision"]))
    rows = compared(found)
    console.print(_comparison(rows))
    say(console, highest(rows))
    report([folder / method for method in OFFLINE], folder / REPORT)
    say(console, *_next(folder))


def bundled() -> tuple[Demonstrations, dict[str, Any]]:
    """The demonstrations that come with the package, and the true skill of their demonstrators."""
    own = files("irleed") / "data" / "bundled"
    with as_file(own / f"{BUNDLED}.npz") as path:
        return load(path), json.loads((own / f"{BUNDLED}.truth.json").read_text(encoding="utf-8"))


def fitted(folder: Path, method: str, seed: int, members: int, steps: int) -> Fit:
    """One method's run, learned offline and evaluated in CartPole; resumed if the folder has it already."""
    aside, title = Console(stderr=True), METHODS[method]
    settings = {"ends": ENDS.get(method, "neutral"), "members": members, "steps": steps, "seed": seed}
    settings |= {"env": CartPole(), "online": False, "out": folder / method, "resume": True}
    with progress_bar(aside, title) as callback:
        given = {**settings, "progress": callback, "warn": lambda line: say(aside, line)}
        found = fit(folder / DATA, algorithm=cast(Method, method), **given)
    for warning in found.warnings:
        say(aside, f"warning: {title}: {warning}")
    return found


def to_gauge(precision: list[float]) -> np.ndarray:
    """True precisions in the gauge of the estimates: their geometric mean is 1."""
    return np.asarray(precision) / np.exp(np.mean(np.log(precision)))


def _expertise(expertise: Expertise, truth: dict[str, Any], returns: tuple[ReturnEstimate, ...]) -> Table:
    """IRLEED's estimates in the order of the ranking, and the true values."""
    caption = "90 % intervals; precision 1 is the average; true bias: its scale"
    caption += "\nskill 1 is what the others would do, 0 random" if expertise.skill is not None else ""
    skill = expertise.skill_and_ends
    headings = ("demonstrator", "precision", "true\nprecision", "bias", "true\nbias", "mean\nreturn")
    if skill is not None:  # in 80 columns
        headings = ("demonstrator", "skill", "precision", "true", "bias", "true", "return")
    table = text_table(headings, title="Each demonstrator's skill, by IRLEED", caption=caption, padding=(0, 1, 0, 0))
    true = to_gauge(truth["precision"])
    for name in expertise.ranking:
        i = expertise.names.index(name)
        precision = with_interval(expertise.precision[i], expertise.precision_low[i], expertise.precision_high[i])
        bias = with_interval(expertise.bias[i], expertise.bias_low[i], expertise.bias_high[i])
        known = [precision, f"{true[i]:.2f}", bias]
        if skill is not None:
            known = [with_interval(*(each[i] for each in skill)), *known[:2], f"{expertise.bias[i]:.2f}"]
        table.add_row(cell(name), *known, f"{truth['bias_scale'][i]:.0f}", f"{returns[i].mean:.0f}")
    return table


def against_truth(expertise: Expertise, precision: list[float]) -> tuple[str, str]:
    """Whether the order of precisions and their intervals agree with the truth."""
    true = to_gauge(precision)
    order = ", ".join(expertise.names[i] for i in np.argsort(-true, kind="stable"))
    inside = int(np.sum((expertise.precision_low <= true) & (true <= expertise.precision_high)))
    found = [expertise.names[i] for i in np.argsort(-np.asarray(expertise.precision), kind="stable")]
    verdict = "that found here" if order == ", ".join(found) else "not that found here"
    return (
        f"The true order of precision is {order}: {verdict}. {inside} of {len(true)} intervals hold the true value:",
        "they say how much data and training vary, not how far training falls short.",
    )


def _comparison(rows: tuple[ReturnEstimate, ...]) -> Table:
    caption = "90 % intervals; policies by greedy actions"
    style = {"title": "Return: steps that the pole stays up", "caption": caption, "padding": (0, 1, 0, 0)}
    table = text_table(("who", "episodes", "return"), **style)
    for row in rows:
        interval = "" if np.isnan(row.low) else f" [{row.low:.0f}, {row.high:.0f}]"
        table.add_row(cell(row.who), str(row.episodes), Text(f"{row.mean:.0f}{interval}"))
    return table


def _next(folder: Path) -> tuple[str, ...]:
    data = folder / DATA
    return (
        f"wrote {folder / REPORT}, the page to open: the four methods compared, then each in detail;",
        "beside it the data and a run folder for each method. Next, try",
        f"  {shell(['irleed', 'inspect', data])}",
        f"  {shell(['irleed', 'fit', data, '--ends', 'failure', '--out', 'runs/poles'])}   # the same in full",
        "  irleed demo --gridworld   # where the reward itself can be looked at",
    )


def in_gridworld(out: Path, seed: int, console: Console) -> None:
    """Simulate, fit IRLEED and maximum-entropy IRL, and compare; writes data, MDP and figures to the folder."""
    folder = prepare(out)
    world = paper_gridworld()
    console.print(
        "A 7 x 7 grid; three corners end the episode with reward 1. Five demonstrators, each with a precision and a"
        " biased idea of the reward, record 40 episodes each. How good each of them is, is not in the data.",
        highlight=False,
    )
    data, truth = simulate(
        seed, world.mdp, planner=Averaged(), max_precision=3.0, accuracy=2.5, endless=True, horizon=HORIZON
    )
    save(data, folder / DATA)
    save_mdp(world.mdp, folder / "mdp.npz", (world.rows, world.columns))
    found = {}
    settings = {"planner": "averaged", "endless": True}
    methods: dict[str, MethodName] = {"IRLEED": "irleed", "IRL": "maxent"}
    for name, method in methods.items():
        with progress_bar(Console(stderr=True), name) as callback:
            found[name] = fit(data, world.mdp, algorithm=method, **settings, progress=callback)
    expertise = found["IRLEED"].expertise
    console.print(expertise.table())
    order = ", ".join(data.names[i] for i in np.argsort(-truth.precision))
    console.print(f"true order of precision: {order}\n     estimated order: {', '.join(expertise.ranking)}")
    returns = {name: exact_return(world, each.policy) for name, each in found.items()}
    own = np.asarray(data.returns())
    console.print(_returns(np.array([own[data.owner == i].mean() for i in range(5)]), returns))
    maps = {
        "true reward": np.asarray(world.mdp.reward),
        "demonstrations": np.bincount(np.asarray(data.obs), minlength=world.mdp.states).astype(float),
        **{name: np.asarray(each.weights) for name, each in found.items()},
    }
    figures.save(figures.gridworld_maps(world.rows, world.columns, maps), folder / "rewards")
    bars = figures.expertise_bars(data.names, expertise.precision, expertise.precision_low, expertise.precision_high)
    figures.save(bars, folder / "expertise")
    files = folder / DATA, "--mdp", folder / "mdp.npz"
    again = shell(["irleed", "fit", *files, "--planner", "averaged", "--endless"])
    say(console, f"wrote the data, the MDP and the figures to {folder}; next, try", f"  {again}")


@in_double_precision
def exact_return(world: Gridworld, policy: TabularPolicy) -> float:
    """The probability of ending in a rewarded corner."""
    return float(jax.jit(expected_return, static_argnums=2)(world.mdp, policy.probabilities, HORIZON))


def _returns(demonstrators: np.ndarray, returns: dict[str, float]) -> Table:
    table = Table(title="Return: how often an episode ends in a rewarded corner")
    table.add_column("who")
    table.add_column("return", justify="right")
    for which, of in (("worst", np.min), ("mean", np.mean), ("best", np.max)):
        table.add_row(f"{which} demonstrator", f"{of(demonstrators):.3f}")
    for method, called in (("IRL", "maximum-entropy IRL"), ("IRLEED", "IRLEED")):
        table.add_row(f"policy of {called}", f"{returns[method]:.3f}")
    return table
