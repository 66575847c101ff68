"""Speed of IQ-Learn and IRLEED with continuous actions, and of the robots' engines.

    python benchmarks/sac.py                           some minutes
    python benchmarks/sac.py --runs 1 --updates 200    a first look

*updates*: of actor, critics and demonstrators on what was shown and played, sizes as on Hopper, many runs side by side;
beside a plain PyTorch loop of IQ-Learn (`sac_torch.py`), one run at a time, if PyTorch is installed. The ratio is that
of updates a second, all runs taken together. *environments*: steps of Hopper a second with random actions.
Compilation is not counted, and of three measurements of updates the fastest counts; of six for PyTorch, three before
the others and three after.
"""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from irleed._compute import each_run
from irleed.algorithms import agent as agents
from irleed.algorithms.iq import SacIrleed
from irleed.data.transitions import Transitions
from irleed.envs.host import make_host
from irleed.envs.step import Bounds, Transition

OBS, ACTIONS, DEMONSTRATORS, ROWS, LANES, TIMES = 11, 3, 3, 3_000, 120, 3
BOUNDS = Bounds(-np.ones(ACTIONS), np.ones(ACTIONS))
SETTINGS = {"buffer_size": 20_000, "learning_starts": 1}
AGENTS = {"iq": SacIrleed.iq(**SETTINGS), "irleed": SacIrleed(**SETTINGS)}


@dataclass(frozen=True)
class Config:
    """Measure updates and environments, and print tables."""

    runs: tuple[int, ...] = (1, 30)
    """Runs in a batch."""
    updates: int = 500
    """Updates that are timed, in all runs together."""
    environments: bool = True
    """Whether engines are measured too."""


def demonstrations(runs: int) -> Transitions:
    """Anything of the sizes of Hopper, the same for every run."""
    generator = np.random.default_rng(0)
    obs, after = generator.normal(size=(2, ROWS, OBS)).astype(np.float32)
    one = Transitions(
        obs=obs,
        next_obs=after,
        action=generator.uniform(-1, 1, (ROWS, ACTIONS)).astype(np.float32),
        continuation=np.ones(ROWS, np.float32),
        demonstrator=np.arange(ROWS, dtype=np.int32) % DEMONSTRATORS,
        initial=obs[:10],
        size=np.asarray(ROWS, np.int32),
    )
    return jax.tree.map(lambda leaf: np.repeat(leaf[None], runs, 0), one)


def measured(agent: SacIrleed, runs: int, updates: int) -> float:
    """Updates a second, of all runs together."""
    data, flag = demonstrations(runs), np.asarray(False)
    obs, nought = np.zeros(OBS, np.float32), np.asarray(0.0, np.float32)
    example = Transition(obs, np.zeros(ACTIONS, np.float32), nought, flag, flag, obs, flag)

    @jax.jit
    def start(keys, data):
        return jax.vmap(lambda key, own: agents.init(agent, key, example, BOUNDS, own, DEMONSTRATORS))(keys, data)

    @jax.jit(donate_argnums=1)
    def advance(keys, state, data):
        def run(key, state, own):
            def one(state, number):
                return agents.update(agent, jax.random.fold_in(key, number), state, own)[0], None

            return jax.lax.scan(one, state, np.arange(steps))[0]

        return each_run(run)(keys, state, data)

    steps = max(1, updates // runs)
    keys = jax.random.split(jax.random.key(0), runs)
    state, found = jax.block_until_ready(advance(keys, start(keys, data), data)), []
    for _ in range(TIMES):
        began = time.perf_counter()
        state = jax.block_until_ready(advance(keys, state, data))
        found.append(steps * runs / (time.perf_counter() - began))
    return max(found)


def engine(name: str, steps: int = 200) -> float:
    """Steps of Hopper a second."""
    env = make_host("Hopper-v5", LANES, name)
    env.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, LANES, ACTIONS)).astype(np.float32)
    began = time.perf_counter()
    for each in actions:
        env.step(each)
    seconds = time.perf_counter() - began
    env.close()
    return steps * LANES / seconds


def tried(measure: Callable[[], float]) -> float | None:
    """What is measured, or nothing if a library for it is missing."""
    try:
        return measure()
    except Exception as error:  # whatever is missing: the line says so, and the others go on
        Console(stderr=True).print(f"left out: {error}", highlight=False)
        return None


def torch_loop(config: Config) -> float | None:
    """Updates a second of a plain PyTorch loop, if PyTorch is installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    import sac_torch

    count = max(50, config.updates // 5)
    return max(sac_torch.measured(demonstrations(1), OBS, ACTIONS, count) for _ in range(TIMES))


def main(config: Config) -> None:
    """Measure and print."""
    table = Table(title=f"updates a second on {jax.devices()[0].device_kind}")
    for heading in ("algorithm", "program", "runs", "a second", "times PyTorch"):
        table.add_column(heading, justify="right")
    before = torch_loop(config)
    rates = {(name, runs): measured(AGENTS[name], runs, config.updates) for name in AGENTS for runs in config.runs}
    after = torch_loop(config)  # a machine is not equally fast all the time
    torch = None if before is None or after is None else max(before, after)
    if torch is not None:
        table.add_row("iq", "PyTorch", "1", f"{torch:,.0f}", "1.0")
    for (name, runs), rate in rates.items():
        table.add_row(name, "irleed", str(runs), f"{rate:,.0f}", "" if torch is None else f"{rate / torch:.1f}")
    Console().print(table)
    if config.environments:
        table = Table(title=f"steps of Hopper a second, {LANES} lanes")
        table.add_column("engine")
        table.add_column("a second", justify="right")
        for name in ("gymnasium", "mujoco", "envpool"):
            found = tried(lambda name=name: engine(name))
            if found is not None:
                table.add_row(name, f"{found:,.0f}")
        Console().print(table)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
