"""Experts by command: soft-Q critics on the true reward, which simulated demonstrators are made from."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from irleed.arena import AbstractArena, likeliest, make_arena
from irleed.errors import ConfigError, problem
from irleed.experiments.critics import check_choices, check_fit, load_critic, save_critic
from irleed.iq.critic import SoftCritic
from irleed.iq.networks import Mlp
from irleed.report import progress
from irleed.store import prepare

WARM = 5_000  # steps that only fill the memory


@dataclass(frozen=True)
class ExpertCommand:
    """Train soft-Q critics on the true reward of an environment, side by side, and keep the one that plays best."""

    out: Path
    """File for its weights (.safetensors)."""
    env: str = "CartPole-v1"
    """A Gymnasium id with discrete actions."""
    start: Path | None = None
    """A critic to go on from, instead of fresh ones."""
    seeds: int = 4
    """How many to train."""
    steps: int = 100_000
    """Steps in the environment, and updates, of each."""
    hidden: tuple[int, ...] = (128, 128)
    """Sizes of the hidden layers."""
    temperature: float = 0.1
    """Of policy and values, in units of reward."""
    random: float = 0.02
    """Share of random actions while learning."""
    rate: float = 5e-4
    """Learning rate, at the start; it goes down to nought."""
    batch: int = 128
    """Transitions for each update."""
    discount: float = 0.99
    """Of the reward."""
    episodes: int = 100
    """Episodes that each plays to be chosen by, and as many again for the return that is reported."""
    seed: int = 0
    """Where the random numbers start."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes for environments that run on the host."""

    def run(self, console: Console) -> None:
        """Train, choose, save."""
        for name, least in (("seeds", 1), ("steps", WARM + 1), ("batch", 1), ("episodes", 1), ("workers", 0)):
            if getattr(self, name) < least:
                raise ConfigError(
                    problem(f"--{name}", got=getattr(self, name), expected=f"{least} or more", remedy="choose more")
                )
        prepare(self.out.parent)
        arena = make_arena(self.env, self.workers)
        check_choices(arena.actions, self.env)
        learn_key, choice_key, report_key = jax.random.split(jax.random.key(self.seed), 3)
        settings = ("hidden", "steps", "batch", "rate", "discount", "temperature", "random")
        agent = SoftCritic(
            **{name: getattr(self, name) for name in settings},
            capacity=min(self.steps, 200_000),
            warm=WARM,
            start=None if self.start is None else self._started(arena),
        )
        with progress.shown(Console(stderr=True), "expert") as callback:
            learnt = arena.learn(agent, jax.random.split(learn_key, self.seeds), None, 0, callback).learner
        policies = jax.vmap(agent.policy)(learnt.parameters)
        first = arena.returns(choice_key, policies, likeliest, self.episodes).mean(1)
        again = arena.returns(report_key, policies, likeliest, self.episodes)
        arena.close()
        best = int(np.argmax(first))
        save_critic(self.out, jax.tree.map(lambda leaf: leaf[best], learnt.parameters.q))
        table = Table(title=f"greedy returns of {self.seeds} critics in {self.env}", caption=f"kept: number {best}")
        for heading in ("", "to choose by", "again", "diverged at step"):
            table.add_column(heading, justify="right")
        for number in range(self.seeds):
            lost = int(learnt.diverged[number])
            error = again[number].std() / np.sqrt(self.episodes)
            table.add_row(
                str(number),
                f"{first[number]:.1f}",
                f"{again[number].mean():.1f} +- {error:.1f}",
                str(lost) if lost >= 0 else "",
            )
        console.print(table)
        console.print(f"wrote {self.out}", markup=False, highlight=False, soft_wrap=True)

    def _started(self, arena: AbstractArena) -> Mlp:
        critic = load_critic(str(self.start))
        check_fit(critic, str(self.start), arena.observation_shape, arena.actions, self.env)
        return critic
