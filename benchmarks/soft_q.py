"""Speed of IRLEED and IQ-Learn with networks, of the environments, and of agents that do both.

    python benchmarks/soft_q.py                        everything, some minutes
    python benchmarks/soft_q.py --quick                a few small measurements
    python benchmarks/soft_q.py --only updates         one section
    python benchmarks/soft_q.py --only updates --runs 30 --updates 20000

*updates*: offline training on 5,000 transitions of CartPole with three demonstrators, many runs side by side, beside a
plain PyTorch loop of the same algorithm (`soft_q_torch.py`), one run at a time; the ratio is that of updates a second,
all runs taken together. *environments*: steps a second with random actions. *agents*: online IRLEED in CartPole on the
device; a step acts, moves the environment and updates the networks. Compilation is not counted, and of repeated
measurements the fastest counts. *CPU s*, of this process, beside *run s* shows what share of the cores it had.
"""

import functools
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from irleed.algorithms.base import init
from irleed.algorithms.iq import OfflineIrleed, OnlineIrleed
from irleed.algorithms.training import train_all
from irleed.data.transitions import Transitions
from irleed.envs.host import make_host
from irleed.envs.jax import CartPole
from irleed.errors import ConfigError
from irleed.rollout import DeviceBackend

Section = Literal["updates", "environments", "agents"]
Row = dict[str, Any]
ACTIONS, DEMONSTRATORS, TRANSITIONS, EPISODES = 2, 3, 5_000, 15
ALGORITHMS = {"irleed": OfflineIrleed(), "iq": OfflineIrleed.iq()}
TOLERANCE = 1e-4  # between the losses of the two programs
HOSTS = "gymnasium CartPole-v1", "gymnasium LunarLander-v3", "envpool CartPole-v1", "envpool LunarLander-v3", "ale pong"
HOST_LANES = 32
COLUMNS = "algorithm program engine environment runs lanes workers compile_s run_s CPU_s a_second times_PyTorch".split()
FORMATS = {"compile_s": ".1f", "run_s": ".3g", "CPU_s": ".3g", "a_second": ",.0f", "times_PyTorch": ".1f"}


@dataclass(frozen=True)
class Config:
    """Measure networks, environments and agents, and print tables."""

    only: Section | None = None
    """One section; by default all."""
    runs: tuple[int, ...] = (1, 30, 120)
    """Runs trained side by side; agents take those up to 30."""
    updates: int = 10_000
    """Updates of each run; an agent has a fifth as many steps."""
    lanes: tuple[int, ...] = (1, 128, 1024)
    """Lanes of CartPole on the device."""
    workers: int = os.cpu_count() or 1
    """Processes for the lanes of Gymnasium's environments."""
    seconds: float = 3.0
    """Repeat each measurement for so long."""
    quick: bool = False
    """2,000 updates of 1 and 30 runs, half a second for each measurement."""
    json: Path | None = None
    """Write the measurements to this file, too."""


def fastest(runs: Sequence[Callable[[], Any]], seconds: float) -> list[Row]:
    """Seconds of the fastest repetition of each, by the clock and of the processors; in turns, under the same load."""
    taken: list[list[tuple[float, float]]] = [[] for _ in runs]
    for run in runs:  # memory that is used for the first time is slow
        jax.block_until_ready(run())
    began = time.perf_counter()
    while not taken[0] or time.perf_counter() - began < seconds * len(runs):
        for run, own in zip(runs, taken, strict=True):
            clock, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            own.append((time.perf_counter() - clock, time.process_time() - cpu))
    return [dict(zip(("run_s", "CPU_s"), min(own), strict=True)) for own in taken]


def compiled(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[[], Any], float]:
    """A function ready to run, and the seconds that compiling it took."""
    began = time.perf_counter()
    ready = jax.jit(function).lower(*arguments).compile()
    return lambda: ready(*arguments), time.perf_counter() - began


def play(key, count: int):
    """So many steps of CartPole in one lane, with random actions."""
    env = CartPole()

    def one(place, key):
        return env.step(key, place, jax.random.randint(key, (), 0, ACTIONS, jnp.int32))

    return jax.lax.scan(one, env.reset(key), jax.random.split(key, count))[1]


@jax.jit
def make_data(key) -> Transitions:
    """Transitions of demonstrators who all play at random: what is in them makes no difference to the time."""
    seen = play(key, TRANSITIONS)
    return Transitions(
        obs=seen.obs,
        next_obs=seen.next_obs,
        action=seen.action,
        continuation=jnp.where(seen.terminated, 0.0, 1.0).astype(jnp.float32),
        demonstrator=jnp.arange(TRANSITIONS, dtype=jnp.int32) * DEMONSTRATORS // TRANSITIONS,
        initial=seen.obs[:EPISODES],
        size=jnp.asarray(TRANSITIONS, jnp.int32),
    )


def batch_of(runs: int) -> tuple[Any, Transitions]:
    """Keys and data sets, one for each run."""
    keys = jax.random.split(jax.random.key(0), runs)
    return keys, jax.block_until_ready(jax.vmap(make_data)(keys))


def updates(config: Config, note: Callable[[str], None]) -> list[Row]:
    """Offline training, in JAX and in PyTorch."""
    rows: list[Row] = []
    for name, settings in ALGORITHMS.items():
        algorithm = replace(settings, steps=config.updates)

        own, programs = [], []
        loop = _torch_loop(name, algorithm, note)
        if loop is not None:
            own.append({"algorithm": name, "program": "PyTorch", "runs": 1})
            programs.append(loop)
        for runs in config.runs:
            programs.append(functools.partial(train_all, algorithm, *batch_of(runs), ACTIONS, DEMONSTRATORS))
            own.append({"algorithm": name, "program": "irleed", "runs": runs})
        note(f"{name}: measuring")
        for row, found in zip(own, fastest(programs, config.seconds), strict=True):
            row |= found | {"a_second": row["runs"] * config.updates / found["run_s"]}
            row["times_PyTorch"] = None if loop is None else row["a_second"] / own[0]["a_second"]
        rows += own
    return rows


def _torch_loop(name: str, algorithm: OfflineIrleed, note: Callable[[str], None]) -> Callable[[], Any] | None:
    """The loop in PyTorch, where there is one; stops where the two programs have different losses."""
    if importlib.util.find_spec("torch") is None:
        return note("PyTorch is not installed, so there is nothing to compare with: pip install torch")
    import soft_q_torch

    sizes = ACTIONS, DEMONSTRATORS
    data = jax.tree.map(np.asarray, make_data(jax.random.key(0)))
    batch = data.sample(jax.random.key(1), algorithm.batch_size)
    start = init(algorithm, jax.random.key(2), data, *sizes).parameters
    start = replace(start, log_precision=jnp.linspace(-0.5, 1.0, DEMONSTRATORS))
    ours, theirs = float(algorithm.loss(start, batch)), soft_q_torch.loss_of(algorithm, start, data, batch, *sizes)
    if abs(ours - theirs) > TOLERANCE * max(1.0, abs(ours)):
        raise SystemExit(f"{name}: on the same weights and batch the loss is {ours} in JAX and {theirs} in PyTorch")
    rates = soft_q_torch.choose_threads(algorithm, data, *sizes)
    tried = " and ".join(f"{rate:,.0f} with {threads}" for threads, rate in rates.items())
    note(f"{name}: the losses agree, {ours:.6f} and {theirs:.6f}")
    note(f"{name}: PyTorch's updates a second by threads, {tried}; the faster is used")
    return functools.partial(soft_q_torch.trainer(algorithm, data, *sizes), algorithm.steps)


def environments(config: Config, note: Callable[[str], None]) -> list[Row]:
    """Steps a second with random actions."""
    rows: list[Row] = []
    for lanes in config.lanes:
        note(f"CartPole on the device, {lanes} lanes")
        row = {"engine": "JAX", "environment": "CartPole", "lanes": lanes}
        keys = jax.random.split(jax.random.key(0), lanes)
        program, row["compile_s"] = compiled(jax.vmap(lambda key: play(key, 500).next_obs.sum(0)), keys)
        rows.append(row | _rate(program, config.seconds, 500 * lanes))
    for engine, env_id in (host.split() for host in HOSTS):
        for workers in (None, config.workers) if engine == "gymnasium" else (None,):
            note(f"{env_id} by {engine}, {HOST_LANES} lanes, {workers or 'no'} workers")
            row = {"engine": engine, "environment": env_id, "lanes": HOST_LANES, "workers": workers}
            try:
                env = make_host(env_id, HOST_LANES, engine, workers=workers or 0)
            except ConfigError as error:  # not installed
                note(f"left out: {error}")
                continue
            drawn = np.random.default_rng(0).integers(0, env.actions, (64, HOST_LANES), np.int32)
            row |= _rate(lambda env=env, drawn=drawn: [env.step(each) for each in drawn], config.seconds, drawn.size)
            rows.append(row)
            env.close()
    return rows


def agents(config: Config, note: Callable[[str], None]) -> list[Row]:
    """Online IRLEED with CartPole on the device."""
    rows: list[Row] = []
    steps = config.updates // 5
    agent, backend = OnlineIrleed(steps=steps, learning_starts=min(500, steps // 2)), DeviceBackend(CartPole())

    for runs in (runs for runs in config.runs if runs <= 30):
        note(f"online, {runs} runs")
        program = functools.partial(backend.learn, agent, *batch_of(runs), DEMONSTRATORS)
        rows.append({"runs": runs} | _rate(program, config.seconds, runs * steps))
    return rows


def _rate(program: Callable[[], Any], seconds: float, count: int) -> Row:
    (found,) = fastest([program], seconds)
    return found | {"a_second": count / found["run_s"]}


def table(section: str, rows: list[Row]) -> Table:
    """What was measured in one section."""
    found = Table(title=f"{section} ({jax.devices()[0].device_kind}, {os.cpu_count()} cores)")
    shown = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    for key in shown:
        found.add_column(key.replace("_", " "), justify="left" if isinstance(rows[0].get(key), str) else "right")
    for row in rows:
        found.add_row(*("" if row.get(key) is None else format(row[key], FORMATS.get(key, "")) for key in shown))
    return found


def main(config: Config) -> int:
    """Measure, print, write."""
    if config.quick:
        config = replace(config, runs=(1, 30), updates=2_000, lanes=(1, 128), seconds=0.5)
    console = Console(width=None if sys.stdout.isatty() else 140)
    note = Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print
    measure = {"updates": updates, "environments": environments, "agents": agents}
    rows = {name: measure[name](config, note) for name in ([config.only] if config.only else measure)}
    for section, own in rows.items():
        console.print(table(section, own))
    if config.json is not None:
        machine = {"cores": os.cpu_count(), "device": jax.devices()[0].device_kind, "machine": platform.machine()}
        config.json.write_text(json.dumps({**machine, "jax": jax.__version__, **rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, description=__doc__)))
