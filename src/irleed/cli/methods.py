"""What commands that train networks share: methods by name, a run that is kept, and methods side by side."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from irleed._io.text import cell, name, say
from irleed.cli.run import Keeping
from irleed.data import Demonstrations
from irleed.fit.defaults import Algorithm
from irleed.fit.networks import NetworkFit, fit_networks
from irleed.fit.result import AbstractFit
from irleed.fit.validation import check
from irleed.model.expertise import with_interval
from irleed.report.compare import METHODS
from irleed.rollout import AbstractBackend
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs import progress
from irleed.runs.directory import fingerprint, open_run, plain

LIKELIHOOD = "Log likelihood: of what demonstrators did, on the data that all learnt from; how well they are described."
OFFLINE, ONLINE = ("irleed", "iq", "ileed", "bc"), ("irleed", "iq", "sqil")


def trained(
    folder: Path | None,
    algorithm: Algorithm,
    data: Demonstrations,
    backend: AbstractBackend | None,
    *,
    members: int,
    seed: int,
    env: str | None,
    keeping: Keeping,
    title: str,
    aside: Console,
    held: contextlib.ExitStack,
) -> NetworkFit:
    """A run, with its progress told aside; kept in the folder, if there is one, and gone on with as `keeping` says.

    The folder stays locked until `held` is closed: the answer is yet to be written.
    """
    check(data, algorithm, backend, members)
    with contextlib.ExitStack() as stack:
        checkpointer = None
        if folder is not None:
            config = {**plain(algorithm, "algorithm"), "seeds": members, "seed": seed, "env": env}
            kept = held.enter_context(open_run(folder, config, fingerprint(data), resume=keeping.resume))
            checkpointer = stack.enter_context(keeping.checkpointer(kept, config, lambda text: say(aside, text)))
        callback = stack.enter_context(progress.shown(aside, title))
        return fit_networks(
            data, algorithm, backend=backend, members=members, seed=seed, progress=callback, checkpointer=checkpointer
        )


def returns_table(rows: tuple[ReturnEstimate, ...], limit: int = 30) -> Table:
    """What was earned, in the order of the rows."""
    table = Table(title="Return", caption="means with 90 % intervals", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("who", "episodes", "return"):
        table.add_column(heading, justify="left" if heading == "who" else "right", no_wrap=True)
    for row in rows[:limit]:
        table.add_row(cell(row.who), str(row.episodes) if row.episodes else "computed", _amount(row))
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table


def show_beside(console: Console, found: Mapping[str, AbstractFit]) -> None:
    """Methods by name, the one that was asked for first."""
    console.print(_side_by_side(found))
    say(console, LIKELIHOOD)
    rows = everyone(found)
    if rows:
        say(console, highest(rows))


def _side_by_side(found: Mapping[str, AbstractFit]) -> Table:
    """What policies earn, where that is known, and how well methods describe the demonstrators."""
    tried = any(each.returns for each in found.values())
    table = Table(title="Beside other methods", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in (*(("return, greedy", "return, sampled") if tried else ()), "log likelihood"):
        table.add_column(heading, justify="right", no_wrap=True)
    for method, each in found.items():
        returns = map(_amount, each.returns[:2])
        mean = np.average(each.expertise.log_likelihood, weights=each.expertise.transitions)
        table.add_row(METHODS[method], *returns, f"{mean:.3f}")
    return table


def _amount(row: ReturnEstimate) -> str:
    """With its interval, if it was not computed."""
    return with_interval(row.mean, row.low, row.high) if row.episodes else f"{row.mean:.2f}"


def everyone(found: Mapping[str, AbstractFit]) -> tuple[ReturnEstimate, ...]:
    """What the demonstrators earned, and each method's policy by its greedy actions."""
    first = next(iter(found.values()))
    policies = (replace(each.returns[0], who=f"policy of {METHODS[m]}") for m, each in found.items() if each.returns)
    return (*first.returns[2:], *policies)


def highest(rows: tuple[ReturnEstimate, ...]) -> str:
    """Who earned most, and whom the intervals do not tell apart from that."""
    best = max(rows, key=lambda row: row.mean)
    near = [name(row.who) for row in rows if row is not best and not row.high < best.low]
    told = f"not told apart from it by the intervals: {', '.join(near)}" if near else "no other interval reaches it"
    return f"Highest mean return: {name(best.who)}; {told}."
