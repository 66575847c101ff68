"""Speed and memory of the tabular estimators: `map`, the converged one, and `published`, the paper's protocol.

    python benchmarks/tabular.py                 every section but the last
    python benchmarks/tabular.py --quick         a few small measurements, about a minute
    python benchmarks/tabular.py --only states   one section
    python benchmarks/tabular.py --only large    one fit of a 300 x 300 gridworld, from data to answer

Every measurement is a process of its own, so that its peak memory is its own; compilation is timed apart. The column
*grows* is the ratio of the running time to that of the first row of the same kind.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

# JAX is imported in the measuring processes alone: a new process inherits the peak memory of the one that starts it.

Method = Literal["map", "published"]
Planner = Literal["soft", "averaged"]
Section = Literal["fits", "states", "demonstrators", "seeds", "large"]
SECTIONS: tuple[Section, ...] = ("fits", "states", "demonstrators", "seeds")
GRIDS = ((7, 7), (20, 20), (50, 50), (100, 100), (300, 300), (250, 400))
SLIP = 0.2


@dataclass(frozen=True)
class Config:
    """Measure the tabular estimators and print a table."""

    only: Section | None = None
    """One section; by default all but `large`."""
    planner: Planner | None = None
    """By default `averaged` for fits, demonstrators and seeds, both for states, `soft` for large."""
    quick: bool = False
    """A few small measurements, about a minute."""
    json: Path | None = None
    """Write the measurements to this file, too."""
    timeout: int = 1800
    """Seconds after which a measurement is given up."""


@dataclass(frozen=True)
class Spec:
    """One measurement."""

    section: Section
    method: Method
    planner: Planner
    rows: int = 7
    columns: int = 7
    slip: float = 0.0
    demonstrators: int = 5
    episodes: int = 40
    horizon: int = 100
    lanes: int = 1
    seeds: bool = False  # lanes are seeds of one setting, rather than settings
    steps: int | None = None  # so many, or to the end
    seconds: float = 3.0  # repeat the run for so long


def plan(config: Config) -> list[Spec]:
    """The measurements to make."""
    sections = SECTIONS if config.only is None else (config.only,)
    return [spec for section in sections for spec in MEASUREMENTS[section](config)]


def _fits(config: Config) -> list[Spec]:
    sizes: dict[Method, tuple[int, ...]] = {"map": (1, 16, 121), "published": (1, 16, 121)}
    if config.quick:
        sizes = {"map": (1, 16), "published": (1,)}
    planner = config.planner or "averaged"
    return [Spec("fits", method, planner, lanes=lanes) for method, batch in sizes.items() for lanes in batch]


def _states(config: Config) -> list[Spec]:
    planners: tuple[Planner, ...] = (config.planner,) if config.planner else ("soft", "averaged")
    specs = []
    for planner in planners:
        for rows, columns in ((7, 7), (50, 50)) if config.quick else GRIDS:
            shape = Spec("states", "map", planner, rows, columns, SLIP, demonstrators=10, episodes=20, steps=5)
            specs.append(shape)
            if not config.quick:
                specs.append(replace(shape, method="published"))
    return sorted(specs, key=lambda spec: (spec.method, spec.planner))


def _demonstrators(config: Config) -> list[Spec]:
    counts = (5, 20) if config.quick else (5, 20, 100, 1000)
    planner = config.planner or "averaged"
    specs = [Spec("demonstrators", "map", planner, demonstrators=count) for count in counts]
    if not config.quick:
        specs += [Spec("demonstrators", "published", planner, demonstrators=count, steps=10) for count in counts]
    return specs


def _seeds(config: Config) -> list[Spec]:
    methods: tuple[Method, ...] = ("map",) if config.quick else ("map", "published")
    counts = (10,) if config.quick else (1, 10, 100)
    planner = config.planner or "averaged"
    return [Spec("seeds", method, planner, lanes=count, seeds=True) for method in methods for count in counts]


def _large(config: Config) -> list[Spec]:
    size = 50 if config.quick else 300
    return [Spec("large", "map", config.planner or "soft", size, size, SLIP, 10, episodes=20, horizon=200)]


MEASUREMENTS = {
    "fits": _fits,
    "states": _states,
    "demonstrators": _demonstrators,
    "seeds": _seeds,
    "large": _large,
}


# ---- in the measuring process -------------------------------------------------------------------------------------


def measure(spec: Spec) -> dict[str, Any]:
    """Make one measurement."""
    import jax

    with jax.enable_x64(True):
        found = _whole_fit(spec) if spec.section == "large" else _repeated_run(spec)
    device = jax.devices()[0]
    in_use = (device.memory_stats() or {}).get("peak_bytes_in_use")
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resident = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        **asdict(spec),
        "states": spec.rows * spec.columns,
        **found,
        "peak_mb": resident / 2**20,
        "cpu_s": usage.ru_utime + usage.ru_stime,  # of the whole process: beside the clock's, it shows a busy machine
        "device_peak_mb": None if in_use is None else in_use / 2**20,
        "device": device.device_kind,
    }


def _repeated_run(spec: Spec) -> dict[str, Any]:
    """Run an estimator on simulated data, again and again, compiled beforehand."""
    import jax

    from irleed.algorithms.training import run_to_end

    mdp, planned, keys, statistics = _data(spec)
    algorithm = _algorithm(spec, mdp)

    def every_lane(keys, mdp, statistics):
        def one(key, own):
            return run_to_end(algorithm, key, mdp, own).step

        if spec.lanes == 1:  # as a user has it: a batch, even of one, computes both sides of every condition
            return one(keys[0], jax.tree.map(lambda leaf: leaf[0], statistics))[None]
        return jax.vmap(one)(keys, statistics)

    began = time.perf_counter()
    compiled = jax.jit(every_lane).lower(keys, planned, statistics).compile()
    compile_s = time.perf_counter() - began
    seconds: list[float] = []
    while not seconds or sum(seconds) + seconds[-1] < spec.seconds:
        began = time.perf_counter()
        taken = jax.block_until_ready(compiled(keys, planned, statistics))
        seconds.append(time.perf_counter() - began)
    fastest = min(seconds)
    return {
        "compile_s": compile_s,
        "run_s": fastest,
        "repeats": len(seconds),
        "mean_steps": float(taken.mean()),
        "most_steps": int(taken.max()),
        "s_per_step": fastest / int(taken.max()),
        "fits_per_s": None if spec.steps else spec.lanes / fastest,
    }


def _whole_fit(spec: Spec) -> dict[str, Any]:
    """From a data set to the answer, as a user has it."""
    import numpy as np
    from scipy.stats import spearmanr

    from irleed.fit.defaults import tabular_algorithm
    from irleed.fit.tabular import fit
    from irleed.simulation.mdp import simulate

    mdp, planner = _world(spec).mdp, _planner(spec)
    plays = {"demonstrators": spec.demonstrators, "demonstrations": spec.episodes, "horizon": spec.horizon}
    data, truth = simulate(0, mdp, planner=planner, **plays)
    watch = _CompileWatch()
    found = fit(data, mdp, algorithm=tabular_algorithm(mdp, planner), progress=_tell)
    steps = int(found.history[-1]["step"])
    return {
        "compile_s": watch.seconds,
        "run_s": found.seconds - watch.seconds,
        "repeats": 1,
        "mean_steps": float(steps),
        "most_steps": steps,
        "s_per_step": (found.seconds - watch.seconds) / steps,
        "fits_per_s": None,
        "converged": found.converged,
        "rank_correlation": float(spearmanr(truth.precision, found.expertise.precision).statistic),
        "weights_correlation": float(np.corrcoef(truth.weights, found.weights)[0, 1]),
    }


def _data(spec: Spec):
    """An MDP, what demonstrators and estimators plan with, and a data set for each lane."""
    import jax
    import jax.numpy as jnp

    from irleed.algorithms.tabular.visitation import tabulate_rollouts
    from irleed.experiments.gridworld import ACCURACY, MAX_PRECISION
    from irleed.simulation.mdp import sample_demonstrators, simulate_rollouts

    mdp = _world(spec).mdp
    cells = [(p, a) for p in MAX_PRECISION for a in ACCURACY]
    chosen = [(3.0, 3.0) if spec.seeds or spec.lanes == 1 else cells[i * 121 // spec.lanes] for i in range(spec.lanes)]
    planned = mdp.without_terminals()  # as in the gridworld experiment

    def one(key, max_precision, accuracy, mdp, planned):
        skill_key, play_key = jax.random.split(key)
        skill = sample_demonstrators(
            skill_key, spec.demonstrators, mdp.feature_count, max_precision=max_precision, accuracy=accuracy
        )
        played = simulate_rollouts(play_key, mdp, _planner(spec), *skill, spec.episodes, spec.horizon, planned)
        return tabulate_rollouts(mdp, played)

    keys = jax.random.split(jax.random.key(0), spec.lanes)
    precision, accuracy = (jnp.asarray(column) for column in zip(*chosen, strict=True))
    statistics = jax.jit(jax.vmap(one, (0, 0, 0, None, None)))(keys, precision, accuracy, mdp, planned)
    return mdp, planned if spec.method == "map" else mdp, keys, jax.block_until_ready(statistics)


def _world(spec: Spec):
    from irleed.envs.mdp import gridworld

    corners = (0, spec.columns - 1, spec.rows * spec.columns - 1)
    return gridworld(spec.rows, spec.columns, goals=dict.fromkeys(corners, 1.0), slip=spec.slip)


def _planner(spec: Spec):
    from irleed.algorithms.tabular.planning import Averaged, Soft

    return Soft() if spec.planner == "soft" else Averaged()


def _algorithm(spec: Spec, mdp):
    """The estimator, limited to a number of steps where the measurement is."""
    from irleed.algorithms.tabular.paper_protocol import Planned, Published
    from irleed.fit.defaults import tabular_algorithm

    planner = _planner(spec)
    if spec.method == "published":
        inference = Planned(planner)
        if spec.steps is None:
            return Published(inference=inference)
        return Published(inference=inference, inner_steps=spec.steps - 1, outer_rounds=1)
    algorithm = tabular_algorithm(mdp, planner)
    return algorithm if spec.steps is None else replace(algorithm, max_steps=spec.steps)


def _tell(step: int, most: int) -> None:
    print(f"step {step} of at most {most}", file=sys.stderr, flush=True)


class _CompileWatch:
    """Adds up the seconds spent on tracing, lowering and compiling in this process."""

    def __init__(self) -> None:
        import jax

        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += seconds


# ---- in the program ------------------------------------------------------------------------------------------------


def measure_apart(spec: Spec, timeout: int) -> dict[str, Any]:
    """Make one measurement in a process of its own; where it fails, say how."""
    told = None if spec.section == "large" else subprocess.PIPE
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--measure"],
            input=json.dumps(asdict(spec)),
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {**asdict(spec), "states": spec.rows * spec.columns, "failed": f"over {timeout} s"}
    if done.returncode:
        last = (done.stderr or "see above").strip().splitlines()[-1]
        return {**asdict(spec), "states": spec.rows * spec.columns, "failed": f"exit {done.returncode}: {last}"}
    return json.loads(done.stdout.splitlines()[-1])


def table(section: str, rows: list[dict[str, Any]]) -> Table:
    """What was measured in one section."""
    title = Table(title=f"{section} ({next((row['device'] for row in rows if 'device' in row), 'no device')})")
    shown = {
        "method": lambda row: row["method"],
        "planner": lambda row: row["planner"],
        "states": lambda row: f"{row['states']:,}",
        "demonstrators": lambda row: f"{row['demonstrators']:,}",
        "seeds" if section == "seeds" else "lanes": lambda row: str(row["lanes"]),
        "compile s": lambda row: f"{row['compile_s']:.1f}",
        "run s": lambda row: f"{row['run_s']:.3g}",
        "grows": lambda row: f"{row['run_s'] / first(row):.2f}",
        "steps": lambda row: f"{row['mean_steps']:.1f}",
        "s a step": lambda row: f"{row['s_per_step']:.3g}",
        "fits a s": lambda row: f"{row['fits_per_s']:.3g}" if row["fits_per_s"] else "",
        "peak MB": lambda row: f"{row['peak_mb']:,.0f}",
        "on the device": lambda row: f"{row['device_peak_mb']:,.0f}" if row["device_peak_mb"] else "",
        "ranks": lambda row: f"{row['rank_correlation']:.2f}" if "rank_correlation" in row else "",
    }

    def first(row):
        return next(r["run_s"] for r in rows if "run_s" in r and _kind(r) == _kind(row))

    for heading in shown:
        title.add_column(heading, justify="left" if heading in ("method", "planner") else "right")
    for row in rows:
        columns = list(shown.values())
        if "failed" in row:
            title.add_row(*(show(row) for show in columns[:5]), row["failed"])
        else:
            title.add_row(*(show(row) for show in columns))
    return title


def _kind(row: dict[str, Any]) -> tuple[str, str]:
    return row["method"], row["planner"]


def main(config: Config) -> int:
    """Measure, print, write."""
    console, note = Console(width=None if sys.stdout.isatty() else 160), Console(stderr=True)
    rows: list[dict[str, Any]] = []
    specs = plan(config)
    for number, spec in enumerate(specs):
        size = f"{spec.rows} x {spec.columns}, {spec.demonstrators} demonstrators, {spec.lanes} lanes"
        note.print(f"{number + 1} of {len(specs)}: {spec.section}, {spec.method}, {spec.planner}, {size}")
        rows.append(measure_apart(spec, config.timeout))
    for section in dict.fromkeys(spec.section for spec in specs):
        console.print(table(section, [row for row in rows if row["section"] == section]))
    if config.json is not None:
        config.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure(Spec(**json.loads(sys.stdin.read())))))
    else:
        sys.exit(main(tyro.cli(Config, description=__doc__)))
