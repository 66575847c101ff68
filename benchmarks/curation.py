"""What cloning gains from `irleed curate`, on simulated CartPole data: all episodes, or the half of most weight.

IRLEED is fitted to every data set; its judgement says which episodes to keep; behaviour cloning learns from all, and
from these. No reward is looked at before the clones play.
"""

from dataclasses import dataclass

import jax
import numpy as np
import tyro

from irleed.arena import DeviceArena
from irleed.baselines.bc import BehaviourCloning
from irleed.curate import Run, curate
from irleed.data import Demonstrations, Reading
from irleed.data.transitions import Transitions, stack
from irleed.envs.cartpole import CartPole
from irleed.experiments.control import Lanes, learn, train_stack
from irleed.experiments.control_data import TASKS, play_data
from irleed.iq.ensemble import NetworkPolicy
from irleed.iq.judge import judge
from irleed.iq.soft_q import SoftQ


@dataclass(frozen=True)
class Config:
    """Fit, curate, clone, and print a row for each setting."""

    seeds: int = 16
    """Data sets for each setting."""
    steps: int = 10_000
    """Updates of IRLEED and of cloning."""
    share: float = 0.5
    """Of the transitions to keep."""
    seed: int = 300
    """Where the random numbers start."""


def kept(data: list[Demonstrations], config: Config, actions: int, key: jax.Array) -> list[Demonstrations]:
    """The episodes of most weight of every data set, by a fit of its own."""
    irleed, keys = SoftQ(steps=config.steps), jax.random.split(key, len(data))
    rows = [Transitions.from_demonstrations(own) for own in data]
    parameters = train_stack(irleed, keys, stack(rows), actions).parameters
    chosen = []
    for lane, (own, transitions) in enumerate(zip(data, rows, strict=True)):
        one = jax.tree.map(lambda leaf, lane=lane: np.asarray(leaf[lane : lane + 1]), parameters)
        found = judge(own.names, irleed, one, transitions)
        policy = NetworkPolicy(jax.tree.map(np.asarray, jax.vmap(irleed.policy)(one)))
        run = Run(policy, own.names, np.asarray(found.precision), np.asarray(found.bias), Reading())
        chosen.append(own.take(np.flatnonzero(curate(own, run, config.share).keep)))
    return chosen


def main(config: Config) -> None:
    """Measure and print."""
    arena, task = DeviceArena(CartPole()), TASKS["cartpole"]
    settings = task.settings[:3]
    data_key, fit_key, clone_key = jax.random.split(jax.random.key(config.seed), 3)
    data, returns = play_data(data_key, task, arena, settings, config.seeds)
    clones: dict[str, Lanes] = {}
    for name, own in {"all": data, "kept": kept(data, config, arena.actions, fit_key)}.items():
        rows = stack([Transitions.from_demonstrations(each) for each in own])
        clones[name] = learn(clone_key, arena, BehaviourCloning(steps=config.steps), rows)
    print("return of the clone   all   kept   difference (standard error)")
    for kind in ("greedy", "sampled"):
        every, some = (np.asarray(getattr(clones[name], kind)).reshape(3, -1) for name in ("all", "kept"))
        for i, setting in enumerate(settings):
            gain = some[i] - every[i]
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            best = returns.reshape(3, config.seeds, -1)[i].max(-1).mean()
            print(
                f"{kind:8} {setting.name}, best demonstrator {best:.0f}: "
                f"{every[i].mean():.0f} {some[i].mean():.0f} {gain.mean():+.0f} ({error:.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main(tyro.cli(Config))
