"""The whole story on a gridworld, in a minute: five uneven demonstrators in; a better policy and a judgement out."""

from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from irleed._compute import in_double_precision
from irleed._io.text import say, shell
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.planning import Averaged
from irleed.algorithms.tabular.visitation import expected_return
from irleed.data import save
from irleed.envs.mdp import Gridworld, paper_gridworld, save_mdp
from irleed.fit.tabular import fit
from irleed.policies.tabular import TabularPolicy
from irleed.report import figures
from irleed.report import figures as style
from irleed.runs import progress
from irleed.runs.directory import prepare
from irleed.simulation.mdp import Truth, simulate

HORIZON = 100


def gridworld(out: Path, seed: int, console: Console) -> None:
    """Simulate, fit IRLEED and maximum-entropy IRL, compare; data, MDP and figures are in the folder afterwards."""
    folder = prepare(out)
    world = paper_gridworld()
    console.print(
        "A 7 x 7 grid; three corners end the episode with reward 1. Five demonstrators, each with a precision and a"
        " biased idea of the reward, play 40 episodes each. Nobody tells us who is good.",
        highlight=False,
    )
    data, truth = simulate(
        seed, world.mdp, planner=Averaged(), max_precision=3.0, accuracy=2.5, endless=True, horizon=HORIZON
    )
    save(data, folder / "demonstrations.npz")
    save_mdp(world.mdp, folder / "mdp.npz", (world.rows, world.columns))
    found = {}
    for name, algorithm in (("IRLEED", Irleed(planner=Averaged())), ("IRL", Irleed.maxent(planner=Averaged()))):
        with progress.shown(Console(stderr=True), name) as callback:
            found[name] = fit(data, world.mdp, algorithm=algorithm, endless=True, progress=callback)
    expertise = found["IRLEED"].expertise
    console.print(expertise.table())
    console.print(_truth(data.names, truth, expertise.ranking))
    returns = {name: exact_return(world, each.policy) for name, each in found.items()}
    earned = np.asarray(data.returns())
    console.print(_returns(np.array([earned[data.owner == i].mean() for i in range(5)]), returns))
    maps = {
        "true reward": np.asarray(world.mdp.reward),
        "demonstrations": np.bincount(np.asarray(data.obs), minlength=world.mdp.states).astype(float),
        **{name: np.asarray(each.weights) for name, each in found.items()},
    }
    style.save(figures.gridworld_maps(world.rows, world.columns, maps), folder / "rewards")
    bars = figures.expertise_bars(data.names, expertise.precision, expertise.precision_low, expertise.precision_high)
    style.save(bars, folder / "expertise")
    files = folder / "demonstrations.npz", "--mdp", folder / "mdp.npz"
    again = shell(["irleed", "fit", *files, "--planner", "averaged", "--endless"])
    say(console, f"wrote the data, the MDP and the figures to {folder}; next, try", f"  {again}")


@in_double_precision
def exact_return(world: Gridworld, policy: TabularPolicy) -> float:
    """The chance of ending in a rewarded corner."""
    return float(jax.jit(expected_return, static_argnums=2)(world.mdp, policy.probabilities, HORIZON))


def _truth(names: tuple[str, ...], truth: Truth, ranking: tuple[str, ...]) -> str:
    order = [names[i] for i in np.argsort(-truth.precision)]
    return f"true order of precision: {', '.join(order)}\n     estimated order: {', '.join(ranking)}"


def _returns(demonstrators: np.ndarray, returns: dict[str, float]) -> Table:
    table = Table(title="Return: how often an episode ends in a rewarded corner")
    table.add_column("who")
    table.add_column("return", justify="right")
    for name, value in (
        ("worst demonstrator", demonstrators.min()),
        ("mean demonstrator", demonstrators.mean()),
        ("best demonstrator", demonstrators.max()),
        ("policy of maximum-entropy IRL", returns["IRL"]),
        ("policy of IRLEED", returns["IRLEED"]),
    ):
        table.add_row(name, f"{value:.3f}")
    return table
