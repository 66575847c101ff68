"""Who is ranked last, and what the policy earns, if one demonstrator consistently does the opposite of the others.

    python benchmarks/outsider.py                                    # five demonstrators, two tasks, ten seeds
    python benchmarks/outsider.py --settings one_of_three two_of_seven --seeds 3

Demonstrators follow a heuristic (push in the direction of the velocity) with a share of random actions; outsiders do
the opposite, always. A row for each data set, then the means. Two cores need about a minute for a data set.
"""

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
import tyro  # noqa: E402

import irleed  # noqa: E402
from irleed.rollout import HostBackend  # noqa: E402


def mountain_car(obs: np.ndarray) -> int:
    """Accelerate in the direction of the velocity."""
    return 2 if obs[1] >= 0 else 0


def acrobot(obs: np.ndarray) -> int:
    """Swing against the velocity of the first joint."""
    return 2 if obs[4] < 0 else 0


TASKS: dict[str, tuple[str, Callable[[np.ndarray], int]]] = {
    "mountain_car": ("MountainCar-v0", mountain_car),
    "acrobot": ("Acrobot-v1", acrobot),
}
# Of each demonstrator: the share of random actions, or None for the opposite; and how many episodes.
SETTINGS: dict[str, list[tuple[float | None, int]]] = {
    "one_of_five": [(0.0, 10), (0.2, 10), (0.5, 10), (0.8, 10), (None, 10)],
    "two_episodes": [(0.0, 12), (0.2, 12), (0.5, 12), (0.8, 12), (None, 2)],
    "one_of_three": [(0.0, 10), (0.5, 10), (None, 10)],
    "two_of_seven": [(0.0, 10), (0.2, 10), (0.4, 10), (0.5, 10), (0.8, 10), (None, 10), (None, 10)],
}


@dataclass(frozen=True)
class Config:
    """Fit data sets with outsiders in them, and print skill and returns."""

    tasks: tuple[str, ...] = ("mountain_car", "acrobot")
    settings: tuple[str, ...] = ("one_of_five",)
    seeds: int = 10
    first_seed: int = 10
    members: int = 2
    episodes: int = 20
    """Evaluation episodes of the policy, by greedy actions."""
    out: Path | None = None
    """A file for the rows, as JSON."""


def demonstrate(task: str, people: list[tuple[float | None, int]], seed: int) -> irleed.Demonstrations:
    """Episodes of everyone."""
    env_id, heuristic = TASKS[task]
    env, rng, episodes = gym.make(env_id), np.random.default_rng(seed), []
    for who, (random, count) in enumerate(people):
        for _ in range(count):
            obs, actions, rewards, ended = [env.reset(seed=int(rng.integers(2**31)))[0]], [], [], False
            while not ended:
                action = heuristic(obs[-1]) if random is None or rng.random() >= random else int(rng.integers(3))
                actions.append(2 - action if random is None else action)
                after, reward, terminated, truncated, _ = env.step(actions[-1])
                obs.append(after)
                rewards.append(float(reward))
                ended = terminated or truncated
            name = f"{who}: opposite" if random is None else f"{who}: {random:.0%} random"
            given = np.asarray(obs, np.float32), np.asarray(actions), bool(terminated), name, np.asarray(rewards)
            episodes.append(irleed.Episode(*given))
    env.close()
    return irleed.Demonstrations.from_episodes(episodes)


@functools.cache
def backend(task: str) -> HostBackend:
    """Where policies are evaluated."""
    return HostBackend(TASKS[task][0])


def row(task: str, setting: str, seed: int, config: Config) -> dict[str, object]:
    """One data set."""
    people = SETTINGS[setting]
    data = demonstrate(task, people, seed)
    fit = irleed.fit(data, members=config.members, seed=seed)
    returns = data.returns()
    assert returns is not None
    best = max(float(returns[data.owner == who].mean()) for who in range(len(people)))
    earned = irleed.evaluate(fit, backend(task), episodes=config.episodes, seed=seed)
    outsiders = [name for name in data.names if name.endswith("opposite")]
    curated = irleed.curate(data, fit)
    kept = sum(int(curated.keep[data.owner == data.names.index(name)].sum()) for name in outsiders)
    return {
        "task": task,
        "setting": setting,
        "seed": seed,
        "best": best,
        "policy": earned[0].mean,
        "skill": dict(zip(data.names, np.round(np.asarray(fit.expertise.skill), 3).tolist(), strict=True)),
        "last": set(fit.expertise.ranking[-len(outsiders) :]) == set(outsiders),
        "kept": kept,
        "seconds": round(fit.seconds, 1),
    }


def main(config: Config) -> None:
    """Print a row for each data set, and the means."""
    rows = []
    for task in config.tasks:
        for setting in config.settings:
            found = [row(task, setting, config.first_seed + n, config) for n in range(config.seeds)]
            rows += found
            for each in found:
                print(json.dumps(each), flush=True)
            mean = {name: np.mean([each[name] for each in found]) for name in ("best", "policy", "last", "kept")}
            print(f"{task}, {setting}: " + ", ".join(f"{name} {value:.2f}" for name, value in mean.items()), flush=True)
            if config.out is not None:
                config.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Config))
