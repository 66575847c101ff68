"""Commands that read or make data: `irleed inspect` summarises a file, `irleed simulate` records demonstrators of known
precision and bias, `irleed expert` trains what they act by."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._io.arrays import EXPANSION
from irleed._io.files import LOCK, locked, write_json, writing
from irleed._io.text import name, say
from irleed._typing import Key
from irleed.algorithms import OfflineIrleed, SacIrleed
from irleed.algorithms.experts import SacExpert, SoftQExpert
from irleed.algorithms.training import Progress
from irleed.data import Demonstrations, ReadOptions, load, save, summarise
from irleed.data.io import write_scores
from irleed.errors import ConfigError
from irleed.experiments import check_least
from irleed.fit.door import PLANNERS, load_world
from irleed.fit.options import DISCOUNT, PlannerName
from irleed.fit.validation import refuse_ignored
from irleed.model import Mlp
from irleed.report import inspection as inspect_page
from irleed.rollout import AbstractBackend, HostBackend, greedy_action, make_backend
from irleed.runs.directory import prepare
from irleed.runs.logging import progress_bar
from irleed.simulation import critics, simulate

HEIGHTS = {True: " ▁▂▃▄▅▆▇█", False: " .:-=+*#@"}  # by whether the terminal has Unicode
HEADINGS = {
    "name": "name", "episodes": "episodes", "transitions": "steps", "mean_length": "length", "mean_return": "return",
    "min_return": "lowest", "max_return": "highest", "terminated": "ended", "truncated": "cut off",
}  # fmt: skip
MOST_ROWS = 24  # entries of a vector that have a line each


@dataclass(frozen=True)
class InspectCommand:
    """Summarise a file of demonstrations, with warnings about unusual data."""

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder in any known format, see the documentation."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")]
    json: bool = False
    """Print JSON instead of tables."""
    html: Path | None = None
    """Write a page with plots to this file as well."""
    scores: Path | None = None
    """Write the scores of episodes to this CSV file as well, for `irleed validate` and `irleed experiment people`."""

    def run(self, console: Console) -> None:
        """Print the summary."""
        summary = summarise(load(self.data, self.reading))
        if self.html is not None:
            inspect_page.write(summary, str(self.data), self.html)
        if self.scores is not None:
            write_scores(self.data, self.scores, self.reading)
        if self.json:
            print(json.dumps(summary, indent=1))
            return
        _show(summary, console)
        for written in filter(None, (self.html, self.scores)):
            say(console, f"wrote {written}")


def _show(summary: Mapping[str, Any], console: Console) -> None:
    """The same as text."""
    say(console, f"{summary['transitions']} transitions in {summary['episodes']} episodes")
    for part in ("observation", "action"):
        keys = ("dtype", "shape", "min", "max", "histogram")
        facts = ", ".join(f"{key} {summary[part][key]}" for key in keys if summary[part].get(key) is not None)
        say(console, f"{part}: {facts}")
    for key in ("length", "returns"):
        if summary[key] is not None:
            _show_spread(console, key, summary[key], f", mean {_cell(float(summary[key]['mean']))}")
    for n, histogram in enumerate((summary["action"]["histograms"] or ())[:MOST_ROWS]):
        ends = {"min": histogram["edges"][0], "max": histogram["edges"][-1], "histogram": histogram}
        _show_spread(console, f"action {n}", ends, "")
    console.print(_people(summary["demonstrators"]))
    alike = summary["repeated"]
    if alike["within"] or alike["between"]:
        repeats = f"{alike['within']} of the same demonstrator, {alike['between']} of another"
        say(console, f"episodes that repeat an earlier one: {repeats} (compared: {alike['compared']})")
    for warning in summary["warnings"]:
        say(console, f"note: {warning}")


def _show_spread(console: Console, title: str, spread: Mapping[str, Any], also: str) -> None:
    """Minimum and maximum, and between them a histogram in one line, in which every non-empty bin is visible."""
    low, high = (_cell(spread[end]) for end in ("min", "max"))
    heights, counts = HEIGHTS[console.encoding.lower().startswith("utf")], spread["histogram"]["counts"]
    bars = "".join(heights[-(-count * (len(heights) - 1) // max(counts))] for count in counts)
    say(console, f"{title}: {low} {bars} {high}{also}")


def _people(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each demonstrator, narrow enough for a terminal."""
    shown = {key: heading for key, heading in HEADINGS.items() if rows[0][key] is not None}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for key, heading in shown.items():
        table.add_column(heading, justify="left" if key == "name" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row[key])) for key in shown))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else name(value)


FOR_MDPS = ("mdp", "discount", "horizon", "accuracy", "planner", "endless", "expansion")
FOR_CRITICS = ("precision", "bias_scale", "names", "workers")


@dataclass(frozen=True)
class SimulateCommand:
    """Simulate demonstrations of demonstrators with known precision and accuracy.

    In a finite MDP they plan; with --critic and --env they act by a trained critic, see `irleed expert`.
    """

    out: Path
    """The file of demonstrations to write (.npz); the truth goes beside it as .truth.json."""
    mdp: Path | None = None
    """The finite MDP that they act in: a file (.npz)."""
    env: str | None = None
    """Or a Gymnasium id such as FrozenLake-v1; with a critic, one of its observations and actions."""
    discount: float = DISCOUNT
    """Discount of the MDP from --env; a file has its own."""
    demonstrators: int = 5
    """Number of demonstrators."""
    demonstrations: int = 40
    """Recorded episodes of each demonstrator."""
    max_precision: float = 5.0
    """Precisions are uniform between 0 and this; with a critic, inf means the largest value always."""
    horizon: int = 100
    """In an MDP: the longest episode."""
    accuracy: float = 4.0
    """In an MDP: biases are Gaussian with this inverse standard deviation; inf: none."""
    planner: PlannerName = "soft"
    """In an MDP: how demonstrators plan."""
    endless: bool = False
    """In an MDP: plan as if terminal states did not end the episode."""
    critic: str | None = None
    """A critic that comes with the package (cartpole, lunarlander, lunarlander_iq), or a file."""
    precision: tuple[float, ...] = ()
    """With a critic: the precision of each demonstrator, in place of --demonstrators and --max-precision."""
    bias_scale: tuple[float, ...] = (0.0,)
    """With a critic: scale of random bias networks; one number for all, or one each."""
    names: tuple[str, ...] = ()
    """With a critic: names of the demonstrators."""
    workers: int = 0
    """With a critic: processes for the environment's lanes; 0: this one."""
    expansion: float = EXPANSION
    """In an MDP: how many times its own size its file may take in memory, as in `irleed fit`."""
    seed: int = 0
    """The random seed."""

    def run(self, console: Console) -> None:
        """Simulate and save."""
        found, truth = self._in_mdp() if self.critic is None else self._by_critic(self.critic)
        prepare(self.out.parent)
        save(found, self.out)
        write_json(self.out.with_suffix(".truth.json"), truth)
        say(console, f"wrote {self.out}: {found.transitions} transitions in {found.episodes} episodes")

    def _in_mdp(self) -> tuple[Demonstrations, dict[str, object]]:
        refuse_ignored((self,), FOR_CRITICS, "in an MDP")
        mdp, _ = load_world(self.mdp, self.env, self.discount, self.expansion)
        settings = ("demonstrators", "demonstrations", "horizon", "max_precision", "accuracy", "endless")
        given = {name: getattr(self, name) for name in settings}
        found, truth = simulate(self.seed, mdp, planner=PLANNERS[self.planner], **given)
        known = {name: getattr(truth, name) for name in ("precision", "bias", "weights")}
        return found, {name: None if values is None else values.tolist() for name, values in known.items()}

    def _by_critic(self, name: str) -> tuple[Demonstrations, dict[str, object]]:
        refuse_ignored((self,), FOR_MDPS, "with a critic")
        if self.precision:
            refuse_ignored((self,), ("demonstrators", "max_precision"), "beside --precision")
        people = len(self.precision) or self.demonstrators
        self._check(people)
        if self.env is None:
            raise ConfigError("--critic", got="no --env", expected="where it plays", remedy="give --env ID")
        critic, backend = critics.load_critic(name), make_backend(self.env, self.workers)
        try:
            critics.check_fit(critic, name, backend.observation_shape, backend.actions, self.env)
            draw_key, play_key = jax.random.split(jax.random.key(self.seed))
            drawn = critics.draw_demonstrators(draw_key, critic, self.max_precision, 0.0, people)
            scale = np.broadcast_to(np.asarray(self.bias_scale, np.float32), people)
            precision = jnp.asarray(self.precision, jnp.float32) if self.precision else drawn.precision
            drawn = eqx.tree_at(lambda d: (d.precision, d.bias_scale), drawn, (precision, jnp.asarray(scale)))
            trajectories = backend.play(play_key, drawn, critics.CriticDemonstrator.act, self.demonstrations)
        finally:
            backend.close()
        known = [None if np.isinf(p) else float(p) for p in np.asarray(precision)]
        truth = {"precision": known, "bias_scale": scale.tolist(), "returns": trajectories.total.mean(1).tolist()}
        found = critics.to_demonstrations(trajectories)
        return dataclasses.replace(found, names=self.names or found.names), truth

    def _check(self, people: int) -> None:
        """Refuse impossible settings before any episode is recorded."""
        check_least(self, demonstrators=1, demonstrations=1, max_precision=0, workers=0)
        for value in self.precision:
            if not value >= 0:
                _refuse("precision", value, "0 or more")
        for setting, allowed in (("bias_scale", (1, people)), ("names", (0, people))):
            if len(getattr(self, setting)) not in allowed:
                _refuse(setting, f"{len(getattr(self, setting))} of them", f"one for each of the {people}")
        if not np.isfinite(self.bias_scale).all():
            _refuse("bias_scale", self.bias_scale, "finite numbers")
        if len(set(self.names)) < len(self.names):
            _refuse("names", ", ".join(self.names), "each once")


def _refuse(setting: str, got: object, expected: str) -> NoReturn:
    flag = f"--{setting.replace('_', '-')}"
    raise ConfigError(flag, got=got, expected=expected, remedy="choose another")


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
    """Learn by inverse soft Q-learning from episodes of this critic or, where actions are continuous, of this policy, a
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
    """With continuous actions: minus the target entropy of each dimension of the action, in nats."""
    stages: int = 0
    """Number of stages of training whose policies are kept as well, beside the file; for continuous actions."""
    episodes: int = 100
    """Evaluation episodes of each expert, by which the best is chosen, and as many again for the return reported."""
    seed: int = 0
    """The random seed."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes for environments that run on the host."""

    def run(self, console: Console) -> None:
        """Check the settings, and train with the file locked."""
        ones = dict.fromkeys(("seeds", "num_envs", "batch_size", "episodes", "demonstrations"), 1)
        check_least(self, steps=LEARNING_STARTS + 1, stages=0, workers=0, **ones)
        prepare(self.out.parent)
        with contextlib.ExitStack() as stack:
            with writing(self.out, REMEDY):
                stack.enter_context(locked(self.out.with_name(f"{LOCK}-{self.out.name}"), f"--out {self.out}"))
            self._train(console)

    def _train(self, console: Console) -> None:
        """Train, evaluate, keep the best."""
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
            estimate = f"{again[number].mean():.1f} +- {error:.1f}"
            table.add_row(str(number), f"{first[number]:.1f}", estimate, str(lost) if lost >= 0 else "")
        console.print(table)
        say(console, f"wrote {self.out}")

    def _trained(self, backend: AbstractBackend, key: Key, progress: Progress) -> critics.Experts:
        if self.start is not None and not (isinstance(backend.actions, int) and self.imitate is None):
            expected = "discrete actions, without --imitate"
            raise ConfigError("--start", got=str(self.start), expected=expected, remedy="leave it out")
        if isinstance(backend, HostBackend) and not isinstance(backend.actions, int):
            return self._policies(backend, key, progress)
        critics.check_choices(backend.actions, self.env)
        if self.imitate is not None:
            settings = {**self._settings("discount"), "penalty": IMITATION_PENALTY, "activation": "elu"}
            shown = self._read(backend, self.imitate)
            learner = OfflineIrleed.iq(**settings)
            return critics.by_imitation(backend, key, shown, self.demonstrations, learner, self.seeds, progress)
        start = None if self.start is None else self._read(backend, str(self.start))
        settings = {**self._settings("discount", "temperature"), "exploration": self.exploration}
        settings |= {"num_envs": self.num_envs, "gradient_steps": self.num_envs, "learning_starts": LEARNING_STARTS}
        agent = SoftQExpert(**settings, buffer_size=min(self.steps, 200_000), start=start)
        return critics.by_reward(backend, jax.random.split(key, self.seeds), agent, progress)

    def _policies(self, backend: HostBackend, key: Key, progress: Progress) -> critics.Experts:
        if self.imitate is None:
            own = {"target_entropy": -self.narrow, "buffer_size": self.steps, "learning_starts": LEARNING_STARTS}
            data, agent = None, SacExpert(**self._settings("discount"), **own)
        else:
            policy = critics.load_teacher(self.imitate)
            critics.check_fit(policy, self.imitate, backend.observation_shape, backend.actions, self.env)
            data = critics.demonstrations_of(
                backend, jax.random.fold_in(key, self.seeds), policy, self.demonstrations, self.seeds
            )
            agent = SacIrleed.iq(**self._settings("discount"), buffer_size=self.steps)
        stages = (
            critics.Stages(self.out.with_name(f"{self.out.stem}_stages"), backend, self.seed) if self.stages else None
        )
        keys = jax.random.split(key, self.seeds)
        return critics.by_actor_critic(backend, keys, agent, progress, stages, self.stages, data)

    def _settings(self, *more: str) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("hidden", "steps", *more)}
        return {**own, "batch_size": self.batch_size, "learning_rate": self.learning_rate}

    def _read(self, backend: AbstractBackend, name: str) -> Mlp:
        critic = critics.load_critic(name)
        critics.check_fit(critic, name, backend.observation_shape, backend.actions, self.env)
        return critic
