"""The paper's Figure 4: Hopper, from an expert, from worse policies, and from all of them together.

All seeds and sources of a method are one batch: agents learn in lanes side by side, physics in C++ threads.
This file reads from top to bottom: settings, demonstrations, the sweep, results.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms import AbstractAgent, AbstractOffline, BehaviourCloning, Ileed
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, SacIrleed
from irleed.algorithms.training import train_all
from irleed.analysis.statistics import bootstrap_interval, paired_difference
from irleed.data import Demonstrations, Episode, load, save
from irleed.data.transitions import Transitions, stack
from irleed.envs.host import make_host
from irleed.errors import ConfigError
from irleed.experiments import check_chosen, check_least, check_steps, computed_once, published, results_table
from irleed.policies import EnsemblePolicy
from irleed.report import figures
from irleed.rollout import HostBackend, greedy_action, learn_and_evaluate, sampled_action
from irleed.rollout.backends import seed_of
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import plain
from irleed.runs.results import DEMONSTRATED, Results, Row, method_name
from irleed.simulation import load_teacher

ENV_ID = "Hopper-v5"
POLICIES = ("A", "B", "C")  # an expert, one half trained, one hardly trained
SOURCES = ("A", "B", "C", "ABC")
Teachers = Literal["iq", "sac"]  # stages of IQ-Learn, or of soft actor-critic
Compared = Literal["irleed_online", "iq_online", "irleed", "iq", "ileed", "bc"]
MethodName = Literal[Compared, "irleed_failure_online", "iq_failure_online", "irleed_paper", "iq_paper"]
TABLED: dict[str, Any] = {"activation": "norm_relu"}  # with which the offline figures in the docs were made
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed_online": SacIrleed(),
    "iq_online": SacIrleed.iq(),
    "irleed": OfflineIrleed.continuous(**TABLED),
    "iq": OfflineIrleed.continuous(**TABLED, **IQ_LEARN),
    "ileed": Ileed.continuous(**TABLED),
    "bc": BehaviourCloning.continuous(**TABLED),
    "irleed_failure_online": SacIrleed(ends="failure"),
    "iq_failure_online": SacIrleed.iq(ends="failure"),
    "irleed_paper": SacIrleed.paper(),
    "iq_paper": SacIrleed.paper(**IQ_LEARN),
}
LAST = 20  # evaluations that a figure is the mean of
QUICK: dict[str, Any] = {"hidden": (32, 32), "batch_size": 32}
RIVALS = (
    ("irleed_online", "iq_online"),
    ("irleed_failure_online", "iq_failure_online"),
    ("irleed", "iq"),
    ("irleed", "bc"),
    ("irleed", "ileed"),
)
PUBLISHED = {"irleed_online": "IRLEED", "iq_online": "IQ"}  # the paper's curves


@dataclass(frozen=True)
class HopperConfig:
    """Hopper from policies of several stages of training: IRLEED beside IQ-Learn, and offline ILEED and cloning."""

    out: Path
    """Folder for results.json and the figure. An interrupted run resumes from its parts in the folder."""
    seeds: int = 15
    """Runs for each source and method."""
    sources: tuple[Literal["A", "B", "C", "ABC"], ...] = ("A", "B", "C", "ABC")
    """An expert, a half trained policy, a hardly trained one, and all three."""
    teachers: Teachers = "iq"
    """Stages of IQ-Learn from an expert's steps, as the paper's; or of soft actor-critic on the true reward."""
    methods: tuple[MethodName, ...] = get_args(Compared)
    """Methods to compare. Early termination counts as failure for those with failure in their name; irleed_paper and
    iq_paper have the published settings, and are online too."""
    pairs: int = 1_000
    """Recorded steps of each policy."""
    steps: int = 500_000
    """Environment steps of each online method."""
    offline_steps: int = 20_000
    """Updates of each offline method."""
    every: int = 5_000
    """Steps between evaluations of online methods."""
    episodes: int = 1
    """Episodes of an evaluation, by the greedy actions; offline methods play twenty times as many, once."""
    seed: int = 0
    """The random seed."""
    workers: int = dataclasses.field(default_factory=lambda: os.cpu_count() or 1)
    """Threads of the physics."""
    checkpoint_every: float | None = None
    """Seconds between checkpoints; None: as many as cost 1 % of the time."""
    quick: bool = False
    """Two seeds, A and ABC, small networks, 2,000 steps, for a first look."""

    @property
    def chosen(self) -> tuple[str, ...]:
        """The sources to run."""
        return ("A", "ABC") if self.quick else tuple(name for name in SOURCES if name in self.sources)

    @property
    def runs(self) -> int:
        """Runs for each source, as they will be."""
        return 2 if self.quick else self.seeds

    @property
    def between(self) -> int:
        """Steps between evaluations, as they will be."""
        return 500 if self.quick else self.every

    def method(self, name: str) -> AbstractOffline | AbstractAgent:
        """A method with the number of updates asked for."""
        found = METHODS[name]
        steps = 2_000 if self.quick else self.steps if isinstance(found, AbstractAgent) else self.offline_steps
        changes: dict[str, Any] = {"steps": steps, **(QUICK if self.quick else {})}
        if isinstance(found, AbstractAgent):
            changes |= {"buffer_size": min(steps, found.buffer_size)}
        return dataclasses.replace(found, **changes)

    def fingerprint(self, name: str) -> dict[str, object]:
        """All that a part of the results depends on."""
        names = ("chosen", "runs", "teachers", "pairs", "between", "episodes", "seed")
        return {**{key: str(getattr(self, key)) for key in names}, **plain(self.method(name), "method")}


def check(config: HopperConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    check_least(config, seeds=1, pairs=1, steps=1, offline_steps=1, every=1, episodes=1, workers=1)
    if config.checkpoint_every is not None and not config.checkpoint_every >= 0:
        got, remedy = config.checkpoint_every, "choose a larger number"
        raise ConfigError("--checkpoint-every", got=got, expected="0 seconds or more", remedy=remedy)
    check_steps("--steps", config.steps, SacIrleed().learning_starts)
    check_chosen(config, "sources", "methods")


def demonstrate(key: Key, pairs: int, workers: int = 0, teachers: Teachers = "iq") -> Demonstrations:
    """`pairs` steps of each policy, by sampled actions; the last episode is truncated.

    Sampled, because greedy actions are as consistent of a hardly trained policy as of a fully trained one. On the CPU,
    because accelerators may round differently in every process, which changes whole episodes.
    """
    episodes = []
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for number, name in enumerate(POLICIES):
            env = make_host(ENV_ID, 1, "mujoco", seed=seed_of(jax.random.fold_in(key, number)), workers=workers)
            policy, act_key = policy_of(teachers, name), jax.random.fold_in(key, len(POLICIES) + number)
            episodes += _episodes(env, act_key, policy, name, pairs)
            env.close()
    return Demonstrations.from_episodes(episodes)


def policy_of(teachers: Teachers, name: str) -> EnsemblePolicy:
    """One of the three policies."""
    return load_teacher(f"hopper_{'iq_' if teachers == 'iq' else ''}{name.lower()}")


def kept_demonstrations(
    folder: Path, seed: int, pairs: int, workers: int = 0, teachers: Teachers = "iq"
) -> Demonstrations:
    """Those of a folder, made and written there if it has none, so that a resumed run learns from the same."""
    path = folder / f"demonstrations_{teachers}_{seed}_{pairs}.npz"
    if not path.exists():
        save(demonstrate(jax.random.split(jax.random.key(seed))[0], pairs, workers, teachers), path)
    return load(path)


def _episodes(env, key: Key, policy: EnsemblePolicy, name: str, pairs: int) -> list[Episode]:
    act = jax.jit(lambda own, obs: sampled_action(policy.actor, own, obs[0])[None])
    steps = [env.step(np.asarray(act(jax.random.fold_in(key, number), env.obs))) for number in range(pairs)]
    over = [bool(step.terminated[0] | step.truncated[0]) for step in steps]
    ends = [number + 1 for number, each in enumerate(over) if each or number == pairs - 1]
    return [_episode(steps[start:end], name) for start, end in zip([0, *ends], ends, strict=False)]


def _episode(steps: list, name: str) -> Episode:
    return Episode(
        obs=np.stack([*(step.obs[0] for step in steps), steps[-1].next_obs[0]]),
        action=np.stack([step.action[0] for step in steps]),
        demonstrator=name,
        terminated=bool(steps[-1].terminated[0]),
        reward=np.array([float(step.reward[0]) for step in steps]),
    )


def data_sets(data: Demonstrations, sources: tuple[str, ...], seeds: int) -> Transitions:
    """The transitions of its policies for every source and seed, stacked; demonstrators are numbered as they are."""
    whole = Transitions.from_demonstrations(data)
    own = [_of(whole, np.array([POLICIES.index(name) for name in source])) for source in sources]
    return stack([each for each in own for _ in range(seeds)])


def _of(whole: Transitions, numbers: Int[np.ndarray, " M"]) -> Transitions:
    """The transitions of some demonstrators, each of whom has first observations of their own."""
    rows = np.flatnonzero(np.isin(whole.demonstrator, numbers))
    columns = {name: np.asarray(getattr(whole, name))[rows] for name in ("obs", "next_obs", "action", "continuation")}
    return Transitions(
        **columns,
        demonstrator=np.asarray(whole.demonstrator)[rows],
        initial=columns["obs"][np.r_[True, ~_follows(columns)]],
        size=np.asarray(len(rows), np.int32),
    )


def _follows(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Whether each row but the first continues the episode of the row before."""
    return (columns["obs"][1:] == columns["next_obs"][:-1]).all(-1)


class Lanes(eqx.Module):
    """Results of one method; axes sources and seeds."""

    returns: Float[Array, "S N E"]  # mean return of each evaluation; offline methods have one
    log_precision: Float[Array, "S N D"]
    diverged: Int[Array, "S N"]  # step at which the loss was not finite; -1: none


@dataclass(frozen=True)
class Outcome:
    """Results of the sweep."""

    returns: Float[np.ndarray, " D"]  # mean returns of the demonstrators in the data
    lanes: dict[str, Lanes]
    seconds: dict[str, float]


def sweep(config: HopperConfig, progress: Callable[..., None]) -> Outcome:
    """Every method; parts that an earlier run with the same settings left in the folder are reused."""
    check(config)
    learn_key = jax.random.split(jax.random.key(config.seed))[1]
    data = kept_demonstrations(config.out, config.seed, config.pairs, config.workers, config.teachers)
    returns = np.asarray(data.returns())
    own = np.array([returns[data.owner == number].mean() for number in range(len(POLICIES))])
    outcome = Outcome(own, {}, {})
    names = tuple(dict.fromkeys(config.methods))
    with contextlib.closing(HostBackend(ENV_ID, config.workers)) as backend:
        for number, name in enumerate(names):

            def report(done: int, total: int, number: int = number, **figures: float) -> None:
                progress(number * total + done, len(names) * total, **figures)

            outcome.lanes[name], outcome.seconds[name] = _part(config, learn_key, backend, name, data, report)
    return outcome


def _part(
    config: HopperConfig, key: Key, backend: HostBackend, name: str, data: Demonstrations, progress: Callable[..., None]
) -> tuple[Lanes, float]:
    """One method, from the folder or computed, and the seconds it took."""
    method, stacked = config.method(name), data_sets(data, config.chosen, config.runs)

    def learn(checkpointer: Checkpointer) -> dict[str, np.ndarray]:
        """Train on every data set, and evaluate: offline methods at the end, online ones on the way as well."""
        train_key, play_key = jax.random.split(key)
        keys, people = jax.random.split(train_key, len(stacked.size)), len(POLICIES)
        if isinstance(method, AbstractOffline):
            state, _ = train_all(method, keys, stacked, backend.actions, people, progress, checkpointer)
            policies = jax.vmap(method.policy)(state.parameters)
            returns = backend.returns(play_key, policies, greedy_action, LAST * config.episodes).mean(1)[:, None]
        else:
            watched: dict[str, Any] = {"every": config.between, "episodes": config.episodes}
            watched |= {"progress": progress, "checkpointer": checkpointer}
            agents, returns = learn_and_evaluate(method, keys, backend, play_key, stacked, people, **watched)
            state = agents.learner
        log_precision = jax.vmap(method.log_precision)(state.parameters, stacked)
        found = {"returns": np.asarray(returns, np.float32), "log_precision": log_precision, "diverged": state.diverged}
        return {field: np.asarray(values) for field, values in found.items()}

    file, shape = config.out / "parts" / f"{name}.npz", (len(config.chosen), config.runs)
    arrays, seconds = computed_once(file, config.fingerprint(name), learn, config.checkpoint_every)
    return Lanes(**{field: values.reshape(*shape, *values.shape[1:]) for field, values in arrays.items()}), seconds


def write(config: HopperConfig, outcome: Outcome) -> Results:
    """Write results.json and the figure; returns the results."""
    described = {"summary": _summary(config, outcome), "curves": _curves(config, outcome), "paper": _published()}
    results = Results.of("hopper", config, _rows(config, outcome), outcome.seconds, **described)
    if any(lanes.returns.shape[-1] > 1 for lanes in outcome.lanes.values()):
        figures.save(_figure(config, outcome), config.out / "curves")
    results.write(config.out)
    return results


def last(returns: Float[Array, "S N E"]) -> Float[np.ndarray, "S N"]:
    """The mean over the last evaluations of every run."""
    return np.asarray(returns, float)[..., -LAST:].mean(-1)


def _rows(config: HopperConfig, outcome: Outcome) -> list[Row]:
    rows = [
        Row({"source": name}, DEMONSTRATED, float(mean)) for name, mean in zip(POLICIES, outcome.returns, strict=True)
    ]
    for name, lanes in outcome.lanes.items():
        for source, values in zip(config.chosen, last(lanes.returns), strict=True):
            (low, high), place = bootstrap_interval(values), {"source": source}
            spread = {"std": float(values.std()), "ci_low": low, "ci_high": high, "seeds": len(values)}
            rows.append(Row(place, name, float(values.mean()), evaluation="greedy", **spread))
    return rows


def _summary(config: HopperConfig, outcome: Outcome) -> dict[str, object]:
    """IRLEED against the others on all three sources, the order of precisions, and diverged runs."""
    summary: dict[str, object] = {
        f"diverged_{name}": int(np.sum(lanes.diverged >= 0)) for name, lanes in outcome.lanes.items()
    }
    if "ABC" not in config.chosen:
        return summary
    place = config.chosen.index("ABC")
    found = {name: last(lanes.returns) for name, lanes in outcome.lanes.items()}
    for ours, theirs in RIVALS:
        if ours in found and theirs in found:
            summary[f"{ours}_minus_{theirs}_ABC"] = paired_difference(found[ours][place], found[theirs][place])
    for name in dict.fromkeys(ours for ours, _ in RIVALS):
        if name in found:
            log_precision = np.asarray(outcome.lanes[name].log_precision[place])
            known = log_precision[np.isfinite(log_precision).all(-1)]  # not of runs that diverged
            order = np.argsort(-known, -1)
            summary[f"{name}_order_of_precision_right"] = int(np.sum(np.all(order == np.arange(3), -1)))
            if len(known):
                summary[f"{name}_log_precision"] = known.mean(0).tolist()
            if "A" in config.chosen:
                alone = found[name][config.chosen.index("A")].mean()
                summary[f"{name}_ABC_over_A"] = float(found[name][place].mean() / alone)
    return summary


def _curves(config: HopperConfig, outcome: Outcome) -> dict[str, dict[str, list[float]]]:
    """Mean return over seeds at each evaluation of the online methods."""
    online = {name: lanes for name, lanes in outcome.lanes.items() if lanes.returns.shape[-1] > 1}
    means = {name: np.asarray(lanes.returns, float).mean(1).round(1).tolist() for name, lanes in online.items()}
    return {name: dict(zip(config.chosen, curves, strict=True)) for name, curves in means.items()}


def _published() -> dict[str, dict[str, float]]:
    """The paper's means over the last evaluations, by our names."""
    rows = published("hopper_curves")[-LAST:]
    means = {name: float(np.mean([float(row[name]) for row in rows])) for name in rows[0]}
    return {ours: {source: means[f"{source}_{theirs}"] for source in SOURCES} for ours, theirs in PUBLISHED.items()}


def tables(results: Results) -> Table:
    """Returns of every method from every source, beside the paper's."""
    sources = list(dict.fromkeys(row.setting["source"] for row in results.rows if row.learnt))
    note = f"mean return over the last {LAST} evaluations, 95 % interval; the paper's in brackets"
    shown = results_table("Hopper", note, sources)
    people = {row.setting["source"]: f"{row.mean:.0f}" for row in results.rows if not row.learnt}
    shown.add_row("demonstrator", *(people.get(source, "") for source in sources), end_section=True)
    for method in [name for name in METHODS if any(row.method == name for row in results.rows)]:
        cells = []
        for row in [row for row in results.rows if row.method == method]:
            beside = results.paper.get(method, {}).get(row.setting["source"])
            known = "" if beside is None else f" ({beside:.0f})"
            cells.append(f"{row.mean:.0f}{known}\n\\[{row.ci_low:.0f}, {row.ci_high:.0f}]")
        shown.add_row(method_name(method), *cells)
    return shown


def _figure(config: HopperConfig, outcome: Outcome) -> Figure:
    """Return against steps, a panel for each source, the paper's curves dotted."""
    steps = config.between * (1 + np.arange(max(lanes.returns.shape[-1] for lanes in outcome.lanes.values())))
    theirs = published("hopper_curves")
    known = np.array([float(row["step"]) for row in theirs])
    panels: dict[str, dict[str, figures.Curve]] = {}
    dotted: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for place, source in enumerate(config.chosen):
        panels[source], dotted[source] = {}, {}
        for name, lanes in outcome.lanes.items():
            if lanes.returns.shape[-1] == 1:
                continue
            values = np.asarray(lanes.returns[place], float)
            ends = np.array([bootstrap_interval(column) for column in values.T])
            panels[source][method_name(name)] = figures.Curve(values.mean(0), ends[:, 0], ends[:, 1])
            if name in PUBLISHED:
                column = [float(row[f"{source}_{PUBLISHED[name]}"]) for row in theirs]
                dotted[source][method_name(name)] = known, np.array(column)
    return figures.learning_curves(steps.astype(float), panels, dotted)
