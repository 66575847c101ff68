"""The command `irleed demo`: four uneven demonstrators who balance a pole; who is how good, and what to learn of them.

The data come with the package: `docs/getting-started.md` says how they were made, and a test makes them again.
"""

import contextlib
import json
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._io.files import writing
from irleed._io.text import cell, say, shell
from irleed.cli.methods import OFFLINE, everyone, highest, trained
from irleed.cli.run import Keeping
from irleed.data import Demonstrations, ReadOptions, load, save
from irleed.envs.jax import CartPole
from irleed.experiments import demo
from irleed.fit.defaults import Ends, Method, network_algorithm
from irleed.fit.networks import MEMBERS, NetworkFit
from irleed.fit.result import write
from irleed.model.expertise import Expertise, with_interval
from irleed.report import compare, page
from irleed.rollout import DeviceBackend
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.directory import occupied, prepare

STEPS = 4_000  # a fifth of the usual, chosen for the time it takes alone
BUNDLED, DATA = "cartpole", "demonstrations.npz"
METHODS = {method: compare.METHODS[method] for method in OFFLINE}
ENDS: dict[str, Ends] = {"irleed": "failure", "iq": "failure"}  # the others have no such setting


@dataclass(frozen=True)
class Demo:
    """Four demonstrators of uneven skill balance a pole: who is how good, and what four methods learn from them."""

    out: Path = Path("irleed-demo")
    """Folder for the data, a run of each method, and the report."""
    seed: int | None = None
    """Where the random numbers of the training start, 0 by default; in the gridworld, which demonstrators, 4."""
    gridworld: bool = False
    """Five demonstrators in a gridworld instead, where the reward itself is learnt."""

    def run(self, console: Console) -> None:
        """One story or the other."""
        with occupied(self.out):
            if self.gridworld:
                demo.gridworld(self.out, 4 if self.seed is None else self.seed, console)
            else:
                cartpole(self.out, 0 if self.seed is None else self.seed, console)


def cartpole(out: Path, seed: int, console: Console, *, members: int = MEMBERS, steps: int = STEPS) -> None:
    """Fit every method to the bundled data, let the policies play, compare, and write it all down."""
    folder = prepare(out)
    data, truth = bundled()
    with writing(folder):
        save(data, folder / DATA)
    say(
        console,
        "CartPole: keep a pole upright, for 500 steps at most. Four simulated demonstrators played 5 episodes each,",
        "and nobody tells who is good. A fallen pole is a failure: IRLEED and IQ-Learn are told so (--ends failure),",
        "ILEED and cloning have no use for it. Rewards are in the file to compare with; nothing learns from them.",
    )
    found = {method: fitted(folder, method, data, seed, members, steps) for method in METHODS}
    earned = found["irleed"].returns[2:]
    console.print(_expertise(found["irleed"].expertise, truth, earned))
    say(console, *held(found["irleed"].expertise, truth["precision"]))
    rows = everyone(found)
    console.print(_comparison(rows))
    say(console, highest(rows))
    page.write([folder / method for method in METHODS], folder / "report.html")
    say(console, *_next(folder))


def bundled() -> tuple[Demonstrations, dict[str, Any]]:
    """The demonstrations that come with the package, and what is true of those who made them."""
    own = files("irleed") / "data" / "bundled"
    with as_file(own / f"{BUNDLED}.npz") as path:
        return load(path), json.loads((own / f"{BUNDLED}.truth.json").read_text(encoding="utf-8"))


def fitted(folder: Path, method: str, data: Demonstrations, seed: int, members: int, steps: int) -> NetworkFit:
    """One method's run, kept as `irleed fit` keeps it; what the folder has of it already is gone on with."""
    aside, folder, title = Console(stderr=True), folder / method, METHODS[method]
    algorithm = network_algorithm(cast(Method, method), ends=ENDS.get(method, "neutral"), steps=steps)
    settings = {"members": members, "seed": seed, "env": None, "keeping": Keeping(resume=True)}
    typed = {"algorithm": method, "ends": ENDS.get(method, "neutral"), "seeds": members, "steps": steps, "seed": seed}
    said = {name: str(value) for name, value in {"data": folder.parent / DATA, **typed}.items()}
    with contextlib.ExitStack() as locked:
        settings |= {"title": title, "aside": aside, "held": locked}
        found = trained(folder, algorithm, data, DeviceBackend(CartPole()), **settings)
        for warning in found.warnings:
            say(aside, f"warning: {title}: {warning}")
        with writing(folder):
            write(folder, found, said | {"reading": asdict(ReadOptions())}, data)
    return found


def in_gauge(precision: list[float]) -> np.ndarray:
    """True precisions in the unit of the estimated ones: their geometric mean is 1."""
    return np.asarray(precision) / np.exp(np.mean(np.log(precision)))


def _expertise(expertise: Expertise, truth: dict[str, Any], earned: tuple[ReturnEstimate, ...]) -> Table:
    """What IRLEED says of everyone, the most precise first, beside what is true."""
    caption = "90 % intervals; precision 1 is the average; true bias: its scale"
    headings = ("demonstrator", "precision", "true\nprecision", "bias", "true\nbias", "mean\nreturn")
    table = _table("Who is how good, by IRLEED", caption, headings)
    true = in_gauge(truth["precision"])
    for name in expertise.ranking:
        i = expertise.names.index(name)
        table.add_row(
            cell(name),
            with_interval(expertise.precision[i], expertise.precision_low[i], expertise.precision_high[i]),
            f"{true[i]:.2f}",
            with_interval(expertise.bias[i], expertise.bias_low[i], expertise.bias_high[i]),
            f"{truth['bias_scale'][i]:.0f}",
            f"{earned[i].mean:.0f}",
        )
    return table


def held(expertise: Expertise, precision: list[float]) -> tuple[str, str]:
    """Whether order and intervals are right."""
    true = in_gauge(precision)
    order = ", ".join(expertise.names[i] for i in np.argsort(-true, kind="stable"))
    inside = int(np.sum((expertise.precision_low <= true) & (true <= expertise.precision_high)))
    said = "that found here" if order == ", ".join(expertise.ranking) else "not that found here"
    return (
        f"The true order of precision is {order}: {said}. {inside} of {len(true)} intervals hold the true value:",
        "they say how much data and training vary, not how far training falls short.",
    )


def _comparison(rows: tuple[ReturnEstimate, ...]) -> Table:
    caption = "90 % intervals; policies by greedy actions"
    table = _table("Return: steps that the pole stays up", caption, ("who", "episodes", "return"))
    for row in rows:
        interval = "" if np.isnan(row.low) else f" [{row.low:.0f}, {row.high:.0f}]"
        table.add_row(cell(row.who), str(row.episodes), Text(f"{row.mean:.0f}{interval}"))
    return table


def _table(title: str, caption: str, headings: tuple[str, ...]) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _next(folder: Path) -> tuple[str, ...]:
    data = folder / DATA
    return (
        f"wrote {folder / 'report.html'}, the page to open: the four methods compared, then each in detail;",
        "beside it the data and a run folder for each method. Next, try",
        f"  {shell(['irleed', 'inspect', data])}",
        f"  {shell(['irleed', 'fit', data, '--ends', 'failure', '--out', 'runs/poles'])}   # the same in full",
        "  irleed demo --gridworld   # where the reward itself can be looked at",
    )
