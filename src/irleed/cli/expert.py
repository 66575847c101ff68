"""Experts by command, trained on the true reward: what simulated demonstrators are made from."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._io.files import LOCK, locked, writing
from irleed._io.text import name, say
from irleed._typing import Key
from irleed.algorithms.experts import SacExpert, SoftQExpert
from irleed.algorithms.iq import OfflineIrleed, SacIrleed
from irleed.algorithms.training import Progress
from irleed.errors import ConfigError
from irleed.model.networks import Mlp
from irleed.rollout import AbstractBackend, HostBackend, greedy_action, make_backend
from irleed.runs.directory import prepare
from irleed.runs.logging import progress_bar
from irleed.simulation import policies
from irleed.simulation.critics import check_choices, check_fit, load_critic
from irleed.simulation.experts import Experts, Stages, by_actor_critic, by_imitation, by_reward, shown_by
from irleed.simulation.policies import teacher

REMEDY = "choose another --out, or make room there"
LEARNING_STARTS = 5_000  # steps that only fill the replay buffer
IMITATION_PENALTY = 0.005  # the published one, 0.5, in units of the published temperature, 0.01


@dataclass(frozen=True)
class ExpertCommand:
    """Train experts on the true reward of an environment, side by side, and keep the one with the highest return.

    Where actions are choices, an expert is a soft-Q critic; else a policy, by soft actor-critic.
    """

    out: Path
    """File for its weights (.safetensors)."""
    env: str = "CartPole-v1"
    """A Gymnasium id."""
    start: Path | None = None
    """A critic to start from, instead of fresh ones; for discrete actions."""
    imitate: str | None = None
    """Learn by inverse soft Q-learning from the play of this critic or, where actions are continuous, of this policy, a
    file or one that comes with the package, instead of the reward: how the paper's demonstrators were made."""
    demonstrations: int = 200
    """Recorded episodes to imitate."""
    seeds: int = 4
    """Independent experts to train, of which the best is kept."""
    steps: int = 100_000
    """Steps in the environment of each; for discrete actions, as many updates."""
    num_envs: int = 1
    """Copies of the environment that each expert acts in side by side, with as many updates a step: faster; for
    discrete actions."""
    hidden: tuple[int, ...] = (128, 128)
    """Sizes of the hidden layers."""
    temperature: float = 0.1
    """Of policy and values, in units of reward; for discrete actions."""
    exploration: float = 0.02
    """Share of uniformly random actions while learning; for discrete actions."""
    learning_rate: float = 5e-4
    """Initial learning rate; cosine decay to zero, except where a policy is imitated."""
    batch_size: int = 128
    """Transitions for each update."""
    discount: float = 0.99
    """Discount of the reward."""
    narrow: float = 1.0
    """How narrow policies of continuous actions are: minus the entropy of each action, in nats."""
    stages: int = 0
    """Keep the policies at so many stages of training as well, beside the file; for continuous actions."""
    episodes: int = 100
    """Evaluation episodes of each expert, by which the best is chosen, and as many again for the return reported."""
    seed: int = 0
    """The random seed."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes for environments that run on the host."""

    def run(self, console: Console) -> None:
        """Check the settings, and train with the file locked."""
        least = {
            "seeds": 1,
            "steps": LEARNING_STARTS + 1,
            "num_envs": 1,
            "batch_size": 1,
            "episodes": 1,
            "demonstrations": 1,
            "stages": 0,
            "workers": 0,
        }
        for setting, low in least.items():
            if getattr(self, setting) < low:
                got, expected = getattr(self, setting), f"{low} or more"
                raise ConfigError(f"--{setting.replace('_', '-')}", got=got, expected=expected, remedy="choose more")
        prepare(self.out.parent)
        with contextlib.ExitStack() as stack:
            with writing(self.out, REMEDY):
                stack.enter_context(locked(self.out.with_name(f"{LOCK}-{self.out.name}"), f"--out {self.out}"))
            self._train(console)

    def _train(self, console: Console) -> None:
        """Train, try, keep the best."""
        learn_key, choice_key, report_key = jax.random.split(jax.random.key(self.seed), 3)
        with contextlib.closing(make_backend(self.env, self.workers)) as backend:
            with progress_bar(Console(stderr=True), "expert") as callback:
                experts = self._trained(backend, learn_key, callback)
            first = backend.returns(choice_key, experts.policies, greedy_action, self.episodes).mean(1)
            again = backend.returns(report_key, experts.policies, greedy_action, self.episodes)
        best = int(np.argmax(first))
        with writing(self.out, REMEDY):
            experts.save(self.out, best)
        title = Text(f"greedy returns of {self.seeds} experts in {name(self.env)}", "table.title")
        table = Table(title=title, caption=f"kept: number {best}")
        for heading in ("", "to choose by", "again", "diverged at step"):
            table.add_column(heading, justify="right")
        for number in range(self.seeds):
            lost = int(experts.diverged[number])
            error = again[number].std() / np.sqrt(self.episodes)
            table.add_row(
                str(number),
                f"{first[number]:.1f}",
                f"{again[number].mean():.1f} +- {error:.1f}",
                str(lost) if lost >= 0 else "",
            )
        console.print(table)
        say(console, f"wrote {self.out}")

    def _trained(self, backend: AbstractBackend, key: Key, told: Progress) -> Experts:
        if self.start is not None and not (isinstance(backend.actions, int) and self.imitate is None):
            expected = "discrete actions, and nobody to imitate"
            raise ConfigError("--start", got=str(self.start), expected=expected, remedy="leave it out")
        if isinstance(backend, HostBackend) and not isinstance(backend.actions, int):
            return self._policies(backend, key, told)
        check_choices(backend.actions, self.env)
        if self.imitate is not None:
            settings = {**self._settings("discount"), "penalty": IMITATION_PENALTY, "activation": "elu"}
            shown = self._read(backend, self.imitate)
            return by_imitation(
                backend, key, shown, self.demonstrations, OfflineIrleed.iq(**settings), self.seeds, told
            )
        start = None if self.start is None else self._read(backend, str(self.start))
        settings = {**self._settings("discount", "temperature"), "exploration": self.exploration}
        settings |= {"num_envs": self.num_envs, "gradient_steps": self.num_envs, "learning_starts": LEARNING_STARTS}
        agent = SoftQExpert(**settings, buffer_size=min(self.steps, 200_000), start=start)
        return by_reward(backend, jax.random.split(key, self.seeds), agent, told)

    def _policies(self, backend: HostBackend, key: Key, told: Progress) -> Experts:
        if self.imitate is None:
            own = {"target_entropy": -self.narrow, "buffer_size": self.steps, "learning_starts": LEARNING_STARTS}
            data, agent = None, SacExpert(**self._settings("discount"), **own)
        else:
            policy = teacher(self.imitate)
            policies.check_fit(policy, self.imitate, backend.observation_shape, backend.actions, self.env)
            data = shown_by(backend, jax.random.fold_in(key, self.seeds), policy, self.demonstrations, self.seeds)
            agent = SacIrleed.iq(**self._settings("discount"), buffer_size=self.steps)
        stages = Stages(self.out.with_name(f"{self.out.stem}_stages"), backend, self.seed) if self.stages else None
        keys = jax.random.split(key, self.seeds)
        return by_actor_critic(backend, keys, agent, told, stages, self.stages, data)

    def _settings(self, *more: str) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("hidden", "steps", *more)}
        return {**own, "batch_size": self.batch_size, "learning_rate": self.learning_rate}

    def _read(self, backend: AbstractBackend, name: str) -> Mlp:
        critic = load_critic(name)
        check_fit(critic, name, backend.observation_shape, backend.actions, self.env)
        return critic
