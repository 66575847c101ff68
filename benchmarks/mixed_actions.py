"""Operators of uneven skill with continuous and mixed actions: what IRLEED makes of tasks whose truth is known.

- `grasp`: reach an object, close a gripper that is open or closed, lift. Six operators differ in noise and speed, one
  is off to one side, some slip at the gripper. Success of IRLEED and of cloning.
- `speed`: six operators of a point mass who differ in speed alone, with noise in proportion to it.
- `turn`: five operators of a point mass, one of whom steers 6 degrees to the left.
- `arm`: five operators of two joints that are told angles, one of whom is 6 degrees off in the first.
- `opposite`: five operators of a point mass, one of whom does the opposite of the best action; `stray`: the same with
  two of his episodes among fifty.
- `random`: five operators of a point mass, one of whom acts uniformly at random.
- `few`: five operators of a point mass, of one of whom there are ten transitions.
- `alike`: five operators of a point mass who are equally good.

Prints one line for every seed and a summary. The policy acts by its greedy actions. In tasks with an odd operator, that
is number 2; `without` is the success of a policy that is fitted to the others alone.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import tyro
from scipy.stats import spearmanr

from irleed.algorithms.baselines import BehaviourCloning
from irleed.algorithms.iq import OfflineIrleed
from irleed.analysis.curation import curate
from irleed.data import Demonstrations, Episode
from irleed.fit.networks import fit_networks
from irleed.fit.result import Fit

Task = Literal["grasp", "speed", "turn", "arm", "opposite", "stray", "random", "few", "alike"]
ESTIMATES = ("skill", "skill_low", "skill_high", "precision", "bias", "gain")
SPEEDS = (0.5, 0.7, 0.9, 1.1, 1.4, 1.8)
ODD = 2  # the number of whoever is unlike the others
REACH, GRASP, SLOWS, LIFTED = 0.06, 0.07, 0.15, 0.0  # distances


@dataclass(frozen=True)
class Operator:
    """How somebody changes the best action: noise and turns in proportion to speed, offsets in the action's units."""

    noise: float
    speed: float = 1.0
    turn: float = 0.0  # degrees
    offset: float = 0.0  # in the first entry
    slip: float = 0.0  # how often the gripper does the opposite
    random: bool = False  # acts uniformly at random
    episodes: int | None = None  # of the data set's
    transitions: int | None = None  # of which these come first

    def act(self, generator: np.random.Generator, best: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """What they do instead, within the bounds; the third entry, if there is one, is a gripper's."""
        if self.random:
            return generator.uniform(low, high, best.shape)
        angle, unit = np.radians(self.turn), 0.5 * (high - low)[:2]
        turned = best[:, :2] @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        moved = self.speed * (turned + unit * self.noise * generator.normal(size=turned.shape))
        moved[:, 0] += self.offset
        slips = generator.uniform(size=(len(best), 1)) < self.slip
        return np.clip(np.concatenate([moved, np.where(slips, -1, 1) * best[:, 2:]], 1), low, high)


class PointMass:
    """Go to a goal by velocities."""

    low, high, limit = -np.ones(2), np.ones(2), 60

    def __init__(self, generator: np.random.Generator, count: int):
        self.place, self.goal = generator.uniform(-1, 1, (2, count, 2))
        self.done = np.zeros(count, bool)

    def observe(self) -> np.ndarray:
        return np.concatenate([self.place, self.goal], 1)

    def best(self) -> np.ndarray:
        return towards(self.goal - self.place, 0.45)

    def step(self, action: np.ndarray) -> None:
        self.place = self.place + 0.1 * action
        self.done |= np.linalg.norm(self.place - self.goal, axis=1) < REACH


class Gripper:
    """Two velocities and a gripper: -1 opens, 1 closes. It moves at a limited speed and holds what is near."""

    low, high, limit = -np.ones(3), np.ones(3), 100

    def __init__(self, generator: np.random.Generator, count: int):
        self.place = generator.uniform([-1, 0.3], [1, 1], (count, 2))
        self.thing = generator.uniform([-0.8, -0.8], [0.8, -0.8], (count, 2))
        self.open, self.holds, self.done = np.ones(count), np.zeros(count, bool), np.zeros(count, bool)

    def observe(self) -> np.ndarray:
        return np.concatenate([self.place, self.thing, self.open[:, None], self.holds[:, None]], 1)

    def best(self) -> np.ndarray:
        away = self.thing - self.place
        distance = np.linalg.norm(away, axis=1)
        close = self.holds | (distance < 0.05) | ((self.open < 0.9) & (distance < GRASP))
        moved = np.where(self.holds[:, None], [[0.0, 0.5]], towards(away, 0.5))
        return np.concatenate([moved, np.where(close, 1.0, -1.0)[:, None]], 1)

    def step(self, action: np.ndarray) -> None:
        self.place = self.place + 0.1 * action[:, :2]
        self.open = self.open + np.clip((1 - action[:, 2]) / 2 - self.open, -0.35, 0.35)
        near = np.linalg.norm(self.place - self.thing, axis=1) < GRASP
        self.holds = (self.holds | near) & (self.open < 0.25)
        fallen = np.maximum(self.thing - [[0.0, 0.2]], [[-1.0, -0.8]])
        self.thing = np.where(self.holds[:, None], self.place, fallen)
        self.done |= self.holds & (self.thing[:, 1] > LIFTED)


class Arm:
    """Two joints that are told angles in degrees, towards which they move by at most 8 in a step."""

    low, high, limit = np.full(2, -180.0), np.full(2, 180.0), 50

    def __init__(self, generator: np.random.Generator, count: int):
        self.angle, self.target = generator.uniform([-60, 20], [60, 80], (2, count, 2))
        self.held, self.done = np.zeros(count, int), np.zeros(count, bool)

    def observe(self) -> np.ndarray:
        return np.concatenate([self.angle / 90, hand(self.target)], 1)

    def best(self) -> np.ndarray:
        return self.target

    def step(self, action: np.ndarray) -> None:
        self.angle = self.angle + np.clip(action - self.angle, -8, 8)
        near = np.linalg.norm(hand(self.angle) - hand(self.target), axis=1) < 0.15
        self.held = np.where(near, self.held + 1, 0)
        self.done |= self.held >= 5


def among(others: tuple[Operator, ...], odd: Operator) -> tuple[Operator, ...]:
    """Operators of whom number 2 is odd."""
    return (*others[:ODD], odd, *others[ODD:])


UNEVEN = (Operator(0.05), Operator(0.1), Operator(0.15), Operator(0.25))
TASKS: dict[Task, tuple[type, tuple[Operator, ...]]] = {
    "grasp": (
        Gripper,
        (
            Operator(0.05),
            Operator(0.1, speed=1.3),
            Operator(0.15, speed=0.7),
            Operator(0.25, slip=0.03),
            Operator(0.15, offset=0.12, slip=0.01),
            Operator(0.5, slip=0.1),
        ),
    ),
    "speed": (PointMass, tuple(Operator(0.1, speed=speed) for speed in SPEEDS)),
    "turn": (PointMass, (Operator(0.05), Operator(0.05), Operator(0.05, turn=6), Operator(0.05), Operator(0.05))),
    "arm": (Arm, (Operator(0.01), Operator(0.01), Operator(0.01, offset=6), Operator(0.01), Operator(0.01))),
    "opposite": (PointMass, among(UNEVEN, Operator(0.05, speed=-1))),
    "stray": (PointMass, among(tuple(replace(own, episodes=12) for own in UNEVEN), Operator(0.05, -1, episodes=2))),
    "random": (PointMass, among(UNEVEN, Operator(0.05, random=True))),
    "few": (PointMass, among(UNEVEN, Operator(0.1, transitions=10))),
    "alike": (PointMass, (Operator(0.1),) * 5),
}


@dataclass(frozen=True)
class Settings:
    """What IRLEED makes of operators of uneven skill."""

    tasks: tuple[Task, ...] = get_args(Task)
    """Which tasks."""
    seeds: int = 5
    """Data sets of each."""
    episodes: int = 20
    """Of every operator."""
    rollouts: int = 20
    """Of each policy."""
    members: int = 4
    """Of the ensemble."""
    steps: int = 20_000
    """Updates."""


def towards(away: np.ndarray, speed: float) -> np.ndarray:
    """A velocity that is slower near the end."""
    distance = np.linalg.norm(away, axis=1, keepdims=True)
    return speed * away / np.maximum(distance, 1e-9) * np.minimum(1.0, distance / SLOWS)


def hand(angle: np.ndarray) -> np.ndarray:
    """Where the hand is."""
    first, both = np.radians(angle[:, 0]), np.radians(angle.sum(1))
    return np.stack([np.cos(first) + 0.8 * np.cos(both), np.sin(first) + 0.8 * np.sin(both)], 1)


def demonstrations(task: Task, seed: int, episodes: int) -> Demonstrations:
    """Episodes of every operator of a task."""
    make, operators = TASKS[task]
    generator, found = np.random.default_rng(seed), []
    for number, operator in enumerate(operators):
        count, left = operator.episodes or episodes, operator.transitions or episodes * make.limit
        env = make(generator, count)
        seen, done, over = [env.observe()], [], [env.done.copy()]
        for _ in range(env.limit):
            done.append(operator.act(generator, env.best(), env.low, env.high))
            env.step(done[-1])
            seen.append(env.observe())
            over.append(env.done.copy())
        obs, action = np.float32(np.stack(seen, 1)), np.float32(np.stack(done, 1))
        for episode in range(count):
            last = int(np.argmax(np.array(over)[:, episode])) if env.done[episode] else env.limit
            ended, last = bool(env.done[episode]) and last <= left, min(last, left)
            if last > 0:
                found.append(Episode(obs[episode, : last + 1], action[episode, :last], ended, f"operator {number}"))
            left -= last
    return Demonstrations.from_episodes(found)


def success(task: Task, fit: Fit, seed: int, rollouts: int) -> float:
    """The share of rollouts by greedy actions that reach their goal."""
    env = TASKS[task][0](np.random.default_rng(10_000 + seed), rollouts)
    for _ in range(env.limit):
        env.step(np.asarray(fit.policy.predict(np.float32(env.observe()), deterministic=True)[0], float))
    return float(env.done.mean())


def measured(task: Task, seed: int, settings: Settings) -> dict[str, Any]:
    """The figures of one data set."""
    data, of = demonstrations(task, seed, settings.episodes), {"members": settings.members, "seed": seed}
    fit = fit_networks(data, OfflineIrleed.continuous(steps=settings.steps), **of)
    found, name = fit.expertise, f"operator {ODD}"
    episodes = list(enumerate(np.bincount(data.owner)))
    facts: dict[str, Any] = {"success": success(task, fit, seed, settings.rollouts)}
    facts["best operator"] = max(float(data.terminated[data.demonstrator == who].sum()) / own for who, own in episodes)
    if task == "grasp":
        cloned = fit_networks(data, BehaviourCloning.continuous(steps=settings.steps), **of)
        facts["cloning"] = success(task, cloned, seed, settings.rollouts)
    if task == "speed":
        facts |= {f"{each} with speed": spearman(getattr(found, each), SPEEDS) for each in ("precision", "skill")}
    if task in ("turn", "arm"):
        facts |= {"most biased": int(np.argmax(found.bias)) == ODD, "first": found.ranking[0] == name}
    if task in ("opposite", "stray", "random"):
        others = data.take(np.flatnonzero(data.owner != data.names.index(name)))
        without = fit_networks(others, OfflineIrleed.continuous(steps=settings.steps), **of)
        facts |= {"last": found.ranking[-1] == name, "without": success(task, without, seed, settings.rollouts)}
    if task == "alike":
        facts["effective share"] = curate(data, fit).effective_episodes / data.episodes
    estimates = {name: getattr(found, name) for name in ESTIMATES}
    return facts | {name: np.round(value, 2).tolist() for name, value in estimates.items() if value is not None}


def spearman(found: np.ndarray, truth: tuple[float, ...]) -> float:
    """The rank correlation."""
    return float(spearmanr(found, truth).statistic)


def main(settings: Settings) -> None:
    """Measure and print."""
    for task in settings.tasks:
        rows = []
        for seed in range(settings.seeds):
            rows.append(measured(task, seed, settings))
            print(task, seed, ", ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
        means = {name: np.mean([row[name] for row in rows]) for name in rows[0] if name not in ESTIMATES}
        print(task, "mean", ", ".join(f"{name} {value:.2f}" for name, value in means.items()), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings))
