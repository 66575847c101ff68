"""What each part of IRLEED with continuous actions is worth, on Hopper by playing from A, B and C together.

    python benchmarks/sac_ablation.py --out runs/ablation                       meant for a GPU
    python benchmarks/sac_ablation.py --out runs/ablation --only default iq     some of it

Every row changes one thing about the default, but for what was published. Variants that were
worse and are no longer there have their results in docs/results/hopper. All seeds of a row are one batch, on the same
demonstrations. A run that was stopped goes on from its last checkpoint when the same command is given again. A figure
is the mean over the last quarter of the evaluations, by greedy actions, one episode each.
"""

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from irleed._io.files import write_json
from irleed.algorithms.iq import SacIrleed
from irleed.analysis.statistics import bootstrap_interval
from irleed.experiments.hopper import ENV_ID, POLICIES, Teachers, data_sets, kept_demonstrations
from irleed.rollout import HostBackend
from irleed.rollout.backends import learn_and_evaluate
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept, plain

ROWS = {
    "default": SacIrleed(),
    "iq": SacIrleed.iq(),
    "precision alone": SacIrleed(bias_learning_rate=None),
    "early termination counts as failure": SacIrleed(ends="failure"),
    "the paper's objective": SacIrleed(objective="paper"),
    "the paper's learning rate of the actor": SacIrleed(actor_learning_rate=3e-5),
    "as published": SacIrleed.paper(num_envs=8),
}


@dataclass(frozen=True)
class Config:
    """Run every row, and print a table."""

    out: Path
    """Folder for what each row came to."""
    only: tuple[str, ...] = tuple(ROWS)
    """Rows to run."""
    source: str = "ABC"
    """Whom to learn from."""
    teachers: Teachers = "iq"
    """Stages of IQ-Learn, or of soft actor-critic."""
    seeds: int = 5
    """Runs for each row."""
    steps: int = 200_000
    """In the environment."""
    every: int = 10_000
    """Steps between evaluations."""
    seed: int = 7
    """Where the random numbers start; the reported runs are another one's."""
    small: bool = False
    """Networks of 64 units and batches of 128, for a CPU."""
    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    """Threads of the physics."""


def row(config: Config, name: str, backend: HostBackend) -> dict[str, np.ndarray]:
    """What one row came to, from the folder or anew."""
    sizes: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128} if config.small else {}
    buffer_size = min(config.steps, SacIrleed().buffer_size)
    agent = dataclasses.replace(ROWS[name], steps=config.steps, buffer_size=buffer_size, **sizes)
    shared = {key: str(getattr(config, key)) for key in ("source", "teachers", "seeds", "every", "seed")}
    file, fingerprint = config.out / f"{name.replace(' ', '_')}.npz", {**shared, **plain(agent, "agent")}
    found = kept(file, fingerprint)
    if found is None:
        demonstrations = kept_demonstrations(config.out, config.seed, 1_000, config.workers, config.teachers)
        data = data_sets(demonstrations, (config.source,), config.seeds)
        learn_key, play_key = jax.random.split(jax.random.key(config.seed + 1))
        keys = jax.random.split(learn_key, config.seeds)
        with Checkpointer(file.with_suffix(""), repr(sorted(fingerprint.items()))) as checkpointer:
            watched = {"every": config.every, "checkpointer": checkpointer}
            state, curve = learn_and_evaluate(agent, keys, backend, play_key, data, len(POLICIES), **watched)
            precision = jax.vmap(agent.log_precision)(state.learner.parameters, data)
            lost = np.asarray(state.learner.diverged)
            found = {"curve": curve, "log_precision": np.asarray(precision), "lost": lost}
            keep(file, fingerprint, found)
            checkpointer.clear()
    return found


def main(config: Config) -> None:
    """Measure and print."""
    config.out.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in config.only if name not in ROWS]
    if unknown:
        raise SystemExit(f"--only {unknown[0]!r}: no such row; there are {', '.join(ROWS)}")
    results = {}
    print("| | return | lowest run | order of precisions right | diverged |\n|---|---|---|---|---|")
    with contextlib.closing(HostBackend(ENV_ID, config.workers)) as backend:
        for name in config.only:
            found = row(config, name, backend)
            curve = np.asarray(found["curve"], float)
            ends = curve[:, -max(1, curve.shape[1] // 4) :].mean(1)
            low, high = bootstrap_interval(ends)
            order = (np.argsort(-found["log_precision"], -1) == np.arange(len(POLICIES))).all(-1)
            right = f"{int(order.sum())} of {len(ends)}" if ROWS[name].learn_precision else ""
            lost, mean, least = int((found["lost"] >= 0).sum()), ends.mean(), ends.min()
            print(f"| {name} | {mean:.0f} [{low:.0f}, {high:.0f}] | {least:.0f} | {right} | {lost} |", flush=True)
            figures = {"return": ends, "curve": curve.mean(0), "log_precision": found["log_precision"].mean(0)}
            results[name] = {key: np.round(values.astype(float), 3).tolist() for key, values in figures.items()}
            write_json(config.out / "results.json", {"steps": config.steps, "seed": config.seed, "rows": results})


if __name__ == "__main__":
    main(tyro.cli(Config))
