"""Skill of simulated demonstrators beside their true returns, and whether intervals hold the truth.

    python benchmarks/skill.py                              # data sets of `irleed experiment control`
    python benchmarks/skill.py --what intervals --seeds 20  # 5 to 40 demonstrators with 30 to 3,000 transitions each

`returns` prints a row for each data set: Spearman's correlation of skill and of precision with the demonstrators' true
returns, and the return of the policy by greedy actions over that of the best demonstrator. `intervals` draws
demonstrators with very unequal amounts of data and counts how often 90 % intervals hold the truth. The true precision
is the simulator's, relative to the mean; where demonstrators are biased too (LL), and for skill, the truth is a fit
of 6,000 transitions of each.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro
from scipy.stats import spearmanr

import irleed
from irleed.algorithms.iq import OfflineIrleed
from irleed.data.transitions import Transitions
from irleed.experiments.control.protocol import TASKS, play_data
from irleed.fit.consensus import consensus
from irleed.fit.posterior import Posterior
from irleed.rollout import make_backend
from irleed.simulation import CriticDemonstrator, draw_demonstrators, load_critic, to_demonstrations

LEAST, MOST, PLENTY = 30, 3_000, 6_000  # transitions of a demonstrator
LEVEL = 0.9


@dataclass(frozen=True)
class Config:
    """Compare what fits of simulated demonstrators say with the truth."""

    what: Literal["returns", "intervals"] = "returns"
    tasks: tuple[Literal["cartpole", "lunarlander"], ...] = ("cartpole",)
    settings: tuple[str, ...] = ("LL", "LH", "HL")
    seeds: int = 10
    first_seed: int = 100
    members: int = 2
    episodes: int = 20
    """Evaluation episodes of the policy, by greedy actions."""
    out: Path | None = None
    """A file for the rows, as JSON."""


def returns(config: Config, task_name: str, setting: str, seed: int) -> dict[str, object]:
    """One data set of the control experiment."""
    task = TASKS[task_name]
    chosen = tuple(each for each in task.settings if each.name == setting)
    backend = make_backend(task.env_id, 1)
    (data,), truth = play_data(jax.random.key(seed), task, backend, chosen, 1)
    fit = irleed.fit(data, members=config.members, seed=seed)
    earned = irleed.evaluate(fit, backend, episodes=config.episodes, seed=seed)
    found = fit.expertise
    assert found.skill is not None
    return {
        "best": float(truth.max()),
        "policy": earned[0].mean,
        "skill": float(spearmanr(found.skill, truth[0]).statistic),
        "precision": float(spearmanr(found.precision, truth[0]).statistic),
        "seconds": round(fit.seconds, 1),
    }


def intervals(task_name: str, setting: str, seed: int) -> dict[str, object]:
    """One draw of demonstrators: how many intervals hold the truth."""
    task, rng = TASKS[task_name], np.random.default_rng(seed)
    level = next(each for each in task.settings if each.name == setting)
    count = int(rng.integers(5, 41))
    draw_key, play_key, fit_key, truth_key = jax.random.split(jax.random.key(seed), 4)
    kind = level.max_precision, level.bias_scale, count, task.bias
    people = draw_demonstrators(draw_key, load_critic(task.critic), *kind)
    backend = make_backend(task.env_id, 1)
    every = to_demonstrations(backend.play(play_key, people, CriticDemonstrator.act, 60))
    plenty = first_transitions(every, np.full(count, PLENTY))
    few = first_transitions(every, np.exp(rng.uniform(np.log(LEAST), np.log(MOST), count)).astype(int))
    found, more = posterior(fit_key, few), posterior(truth_key, plenty)
    true = np.log(np.asarray(people.precision)) if level.bias_scale == 0 else np.log(more.precision(0.5))
    tail = (1 - LEVEL) / 2
    low, high = (np.log(found.precision(quantile)) for quantile in (tail, 1 - tail))
    skill_low, skill_high = found.skill_interval(LEVEL)
    amount = np.bincount(np.asarray(few.demonstrator))
    held = (low <= true - true.mean()) & (true - true.mean() <= high)
    return {
        "demonstrators": count,
        "precision": int(held.sum()),
        "skill": int(((skill_low <= more.skill) & (more.skill <= skill_high)).sum()),
        "precision with amount": float(spearmanr(np.log(found.precision(0.5)), amount).statistic),
        "skill with amount": float(spearmanr(found.skill, amount).statistic),
        "rank of precision": float(spearmanr(found.precision(0.5), np.asarray(people.precision)).statistic),
        "widths": [float(np.median(high - low)), float(np.median(skill_high - skill_low))],
        "errors": np.round((found.skill - more.skill) / found.deviation, 2).tolist(),
        "amounts": amount.tolist(),
    }


def first_transitions(data: irleed.Demonstrations, most: np.ndarray) -> irleed.Demonstrations:
    """The first transitions of everyone, so many of each."""
    who = np.asarray(data.demonstrator)
    start = np.searchsorted(who, np.arange(data.demonstrators))
    return data.without(np.flatnonzero(np.arange(data.transitions) - start[who] >= most[who]))


def posterior(key: jax.Array, data: irleed.Demonstrations) -> Posterior:
    """What the others' policies say of everyone."""
    rows = np.arange(data.transitions)
    actions = int(np.asarray(data.action).max()) + 1
    return consensus(key, data, Transitions.at(data, rows), rows, OfflineIrleed(), actions).posterior


def main(config: Config) -> None:
    """Print a row for each data set, and the means."""
    rows: list[dict[str, object]] = []
    for task in config.tasks:
        for setting in config.settings:
            own = []
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                row = (
                    returns(config, task, setting, seed) if config.what == "returns" else intervals(task, setting, seed)
                )
                own.append({"task": task, "setting": setting, "seed": seed, **row})
                print(json.dumps(own[-1]), flush=True)
            print(summary(config, task, setting, own), flush=True)
            rows += own
            if config.out is not None:
                config.out.write_text(json.dumps(rows, indent=1))


def summary(config: Config, task: str, setting: str, rows: list[dict[str, object]]) -> str:
    """The means over data sets, or the shares of intervals that hold."""

    def total(name: str) -> float:
        return float(np.sum([row[name] for row in rows]))

    if config.what == "intervals":
        count = total("demonstrators")
        shares = ", ".join(f"{name} {total(name) / count:.3f}" for name in ("precision", "skill"))
        return f"{task} {setting}: {shares} of {count:.0f}"
    ranks = ", ".join(f"{name} {np.nanmean([row[name] for row in rows]):.2f}" for name in ("skill", "precision"))
    return f"{task} {setting}: policy over best {total('policy') / total('best'):.2f}, rank of {ranks}"


if __name__ == "__main__":
    main(tyro.cli(Config))
