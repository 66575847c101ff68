"""What each part of IRLEED with continuous actions is worth, on Hopper by playing from A, B and C together.

    python benchmarks/sac_ablation.py --out runs/ablation                       meant for a GPU
    python benchmarks/sac_ablation.py --out runs/ablation --only default iq     some of it

Every row changes one thing about the default, but for what was published. All seeds of a row are one batch, on the same
demonstrations. A run that was stopped goes on from its last checkpoint when the same command is given again. A figure
is the mean over the last quarter of the evaluations, by likeliest actions, one episode each.
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
from irleed.algorithms.iq.sac import Sac
from irleed.experiments.hopper_data import ENV_ID, POLICIES, Teachers, data_sets, kept_demonstrations
from irleed.experiments.hopper_results import interval
from irleed.rollout import HostArena
from irleed.rollout.trials import learn_and_try
from irleed.runs.checkpoint import Keeper
from irleed.runs.directory import keep, kept, plain

ROWS = {
    "default": Sac(),
    "iq": Sac.iq(),
    "precision of returns": Sac(precision="returns"),
    "precision of actions": Sac(precision="actions"),
    "precision of actions, counted squared": Sac(precision="actions", sharpness=2.0),
    "counted by precision squared": Sac(sharpness=2.0),
    "precision alone": Sac(learn_bias=False),
    "own values": Sac(own_values=True),
    "objective initial": Sac(objective="initial"),
    "objective mixture": Sac(objective="mixture"),
    "objective mixture, penalty on what is shown": Sac(objective="mixture", penalise="shown"),
    "unbounded values": Sac(bounded=False),
    "ends worth nought": Sac(ends="nought"),
    "ends a failure": Sac(ends="failure"),
    "ends a failure, three times as bad": Sac(ends="failure", failure=3.0),
    "one critic": Sac(critics=1),
    "critics without layer norm": Sac(critic_activation="relu"),
    "gradients clipped": Sac(clip=1.0),
    "rates down to nought": Sac(decay=True),
    "published rate of the actor": Sac(actor_rate=3e-5),
    "as published": Sac.paper(copies=8),
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


def row(config: Config, name: str, arena: HostArena) -> dict[str, np.ndarray]:
    """What one row came to, from the folder or anew."""
    sizes: dict[str, Any] = {"hidden": (64, 64), "batch": 128} if config.small else {}
    capacity = min(config.steps, Sac().capacity)
    agent = dataclasses.replace(ROWS[name], steps=config.steps, capacity=capacity, **sizes)
    shared = {key: str(getattr(config, key)) for key in ("source", "teachers", "seeds", "every", "seed")}
    file, fingerprint = config.out / f"{name.replace(' ', '_')}.npz", {**shared, **plain(agent, "agent")}
    found = kept(file, fingerprint)
    if found is None:
        demonstrations = kept_demonstrations(config.out, config.seed, 1_000, config.workers, config.teachers)
        data = data_sets(demonstrations, (config.source,), config.seeds)
        learn_key, play_key = jax.random.split(jax.random.key(config.seed + 1))
        keys = jax.random.split(learn_key, config.seeds)
        with Keeper(file.with_suffix(""), repr(sorted(fingerprint.items()))) as keeper:
            watched = {"every": config.every, "keeper": keeper}
            state, curve = learn_and_try(agent, keys, arena, play_key, data, len(POLICIES), **watched)
            precision = jax.vmap(agent.log_precision)(state.learner.parameters, data)
            lost = np.asarray(state.learner.diverged)
            found = {"curve": curve, "log_precision": np.asarray(precision), "lost": lost}
            keep(file, fingerprint, found)
            keeper.clear()
    return found


def main(config: Config) -> None:
    """Measure and print."""
    config.out.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in config.only if name not in ROWS]
    if unknown:
        raise SystemExit(f"--only {unknown[0]!r}: no such row; there are {', '.join(ROWS)}")
    results = {}
    print("| | return | lowest run | order of precisions right | diverged |\n|---|---|---|---|---|")
    with contextlib.closing(HostArena(ENV_ID, config.workers)) as arena:
        for name in config.only:
            found = row(config, name, arena)
            curve = np.asarray(found["curve"], float)
            ends = curve[:, -max(1, curve.shape[1] // 4) :].mean(1)
            low, high = interval(ends)
            order = (np.argsort(-found["log_precision"], -1) == np.arange(len(POLICIES))).all(-1)
            right = f"{int(order.sum())} of {len(ends)}" if ROWS[name].learn_precision else ""
            lost, mean, least = int((found["lost"] >= 0).sum()), ends.mean(), ends.min()
            print(f"| {name} | {mean:.0f} [{low:.0f}, {high:.0f}] | {least:.0f} | {right} | {lost} |", flush=True)
            figures = {"return": ends, "curve": curve.mean(0), "log_precision": found["log_precision"].mean(0)}
            results[name] = {key: np.round(values.astype(float), 3).tolist() for key, values in figures.items()}
            write_json(config.out / "results.json", {"steps": config.steps, "seed": config.seed, "rows": results})


if __name__ == "__main__":
    main(tyro.cli(Config))
