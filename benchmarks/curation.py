"""What cloning gains from `irleed curate` on simulated mixtures: of all episodes, of those kept, or by their weights.

IRLEED is fitted to every data set, and its judgement weighs the episodes. Behaviour cloning then learns from all of
them, from those of most weight with half or three quarters of the transitions, and from transitions drawn in proportion
to the weights. No reward is looked at before the clones play. In the gridworld a clone is a table of frequencies and
its return is computed; its greedy action is replaced by any other one time in twenty, as it may walk in circles.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from irleed._compute import in_double_precision
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.iq import OfflineIrleed
from irleed.algorithms.tabular.planning import Averaged
from irleed.algorithms.tabular.visitation import expected_return
from irleed.algorithms.training import train_all
from irleed.analysis.curation import Assessment, weigh
from irleed.data import Demonstrations, ReadOptions
from irleed.data.transitions import Transitions, stack
from irleed.envs.jax import CartPole
from irleed.envs.mdp import paper_gridworld
from irleed.experiments.control.protocol import DEMONSTRATORS, TASKS, learn, play_data
from irleed.experiments.hopper import ENV_ID, POLICIES, demonstrate
from irleed.fit.defaults import tabular_algorithm
from irleed.fit.judgement import judge
from irleed.fit.tabular import fit
from irleed.model.expertise import Expertise
from irleed.policies.base import Policy
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import DeviceBackend, HostBackend, greedy_action, sampled_action
from irleed.simulation.mdp import simulate

WAYS = ("all", "half", "three quarters", "by weight")
GRIDS = {"LL": (1.0, 2.0), "LH": (1.0, float("inf")), "HL": (5.0, 2.0)}  # largest precision, accuracy
DRAWN = 16_384  # transitions that stand for weights
Returns = dict[str, np.ndarray]  # by way: a row for each setting, a column for each data set


@dataclass(frozen=True)
class Config:
    """Fit, curate, clone, and print a row for each setting and way."""

    tasks: tuple[Literal["cartpole", "gridworld", "hopper"], ...] = ("cartpole", "gridworld", "hopper")
    """Where the demonstrators acted."""
    seeds: int = 48
    """Data sets for each setting; of Hopper a sixth as many."""
    steps: int = 10_000
    """Updates of IRLEED and of cloning."""
    seed: int = 2000
    """Where the random numbers start."""


def weights(data: Demonstrations, policy: Policy, found: Expertise) -> dict[str, np.ndarray]:
    """By way, of every episode."""
    bias = np.nan_to_num(np.asarray(found.bias))
    run = Assessment(policy, data.names, np.asarray(found.precision), bias, ReadOptions())
    half, most = (weigh(data, run, share, allow_few=True) for share in (0.5, 0.75))
    every = np.ones(data.episodes)
    return dict(zip(WAYS, (every, half.keep.astype(float), most.keep.astype(float), half.weight), strict=True))


def chosen(data: Demonstrations, weight: np.ndarray) -> Transitions:
    """As many transitions for every way, each in proportion to the weight of its episode."""
    ends = np.cumsum(weight[np.asarray(data.episode)])
    rows = np.searchsorted(ends, (np.arange(DRAWN) + 0.5) / DRAWN * ends[-1])
    return Transitions.at(data, rows)


def cartpole(config: Config) -> tuple[tuple[str, ...], dict[str, Returns]]:
    """Three demonstrators drawn around a critic, five episodes each."""
    backend, task, irleed = DeviceBackend(CartPole()), TASKS["cartpole"], OfflineIrleed(steps=config.steps)
    settings = task.settings[:3]
    data_key, fit_key, clone_key = jax.random.split(jax.random.key(config.seed), 3)
    data, _ = play_data(data_key, task, backend, settings, config.seeds)
    rows = [Transitions.from_demonstrations(own) for own in data]
    keys = jax.random.split(fit_key, len(data))
    parameters = train_all(irleed, keys, stack(rows), backend.actions, DEMONSTRATORS)[0].parameters
    weighed = []
    for lane, (own, transitions) in enumerate(zip(data, rows, strict=True)):
        one = jax.tree.map(lambda leaf, lane=lane: np.asarray(leaf[lane : lane + 1]), parameters)
        policy = EnsemblePolicy(jax.tree.map(np.asarray, jax.vmap(irleed.policy)(one)))
        weighed.append(weights(own, policy, judge(own.names, irleed, one, transitions)))
    found: dict[str, Returns] = {"likeliest": {}, "drawn": {}}
    for way in WAYS:
        many = stack([chosen(own, weight[way]) for own, weight in zip(data, weighed, strict=True)])
        clones = learn(clone_key, backend, BehaviourCloning(steps=config.steps), many)
        found["likeliest"][way] = np.asarray(clones.greedy).reshape(len(settings), -1)
        found["drawn"][way] = np.asarray(clones.sampled).reshape(len(settings), -1)
    return tuple(setting.name for setting in settings), found


def hopper(config: Config) -> tuple[tuple[str, ...], dict[str, Returns]]:
    """Three policies of several stages of training, 1,000 steps each."""
    irleed, cloning = OfflineIrleed.continuous(steps=config.steps), BehaviourCloning.continuous(steps=config.steps)
    count = max(2, config.seeds // 6)
    earned: dict[str, list[np.ndarray]] = {"likeliest": [], "drawn": []}
    with contextlib.closing(HostBackend(ENV_ID)) as backend:
        for number in range(count):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), number), 4)
            data = demonstrate(keys[0], 1_000)
            rows = Transitions.from_demonstrations(data)
            state, _ = train_all(irleed, keys[1:2], stack([rows]), backend.actions, len(POLICIES))
            parameters = jax.tree.map(np.asarray, state.parameters)
            policy = jax.tree.map(np.asarray, EnsemblePolicy(jax.vmap(irleed.policy)(parameters)))
            weighed = weights(data, policy, judge(data.names, irleed, parameters, rows))
            many = stack([chosen(data, weighed[way]) for way in WAYS])
            state, _ = train_all(cloning, jnp.repeat(keys[2:3], len(WAYS)), many, backend.actions, len(POLICIES))
            clones = jax.vmap(cloning.policy)(state.parameters)
            for kind, act in (("likeliest", greedy_action), ("drawn", sampled_action)):
                earned[kind].append(backend.returns(keys[3], clones, act, 20).mean(1))
    return ("ABC",), {
        kind: {way: np.array([each[place] for each in own])[None] for place, way in enumerate(WAYS)}
        for kind, own in earned.items()
    }


def gridworld(config: Config) -> tuple[tuple[str, ...], dict[str, Returns]]:
    """Five demonstrators in the paper's gridworld, 40 episodes each."""
    mdp, planner = paper_gridworld().mdp, Averaged()
    value = in_double_precision(lambda policy: float(expected_return(mdp, jnp.asarray(policy))))
    found = {kind: {way: np.zeros((len(GRIDS), config.seeds)) for way in WAYS} for kind in ("likeliest", "drawn")}
    for row, (precision, accuracy) in enumerate(GRIDS.values()):
        for number in range(config.seeds):
            key = jax.random.fold_in(jax.random.key(config.seed), number)
            data, _ = simulate(key, mdp, planner=planner, max_precision=precision, accuracy=accuracy, endless=True)
            fitted = fit(data, mdp, algorithm=tabular_algorithm(mdp, planner), endless=True)
            for way, weight in weights(data, fitted.policy, fitted.expertise).items():
                count = np.full(fitted.policy.probabilities.shape, 0.25)
                own = (weight / np.average(weight, weights=data.length))[np.asarray(data.episode)]
                np.add.at(count, (np.asarray(data.observation), np.asarray(data.action)), own)
                often, best = count / count.sum(1, keepdims=True), np.eye(count.shape[1])[count.argmax(1)]
                found["drawn"][way][row, number] = value(often)
                found["likeliest"][way][row, number] = value(0.95 * best + 0.05 / count.shape[1])
    return tuple(GRIDS), found


RUNS: dict[str, Callable[[Config], tuple[tuple[str, ...], dict[str, Returns]]]] = {
    "cartpole": cartpole,
    "gridworld": gridworld,
    "hopper": hopper,
}


def main(config: Config) -> None:
    """Measure and print."""
    for task in config.tasks:
        settings, found = RUNS[task](config)
        for kind, returns in found.items():
            for row, name in enumerate(settings):
                every = returns["all"][row]
                said = [f"all {every.mean():.4g}"]
                for way in WAYS[1:]:
                    gain = returns[way][row] - every
                    error = gain.std(ddof=1) / np.sqrt(len(gain))
                    said.append(f"{way} {returns[way][row].mean():.4g} {gain.mean():+.3g} ({error:.2g})")
                print(f"{task} {name}, {kind} actions, {len(every)} data sets: {'; '.join(said)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Config))
