"""The command `irleed fit`: in a finite MDP where there is one, with networks where there is none."""

import contextlib
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from irleed.arena import HostArena
from irleed.baselines.bc import BehaviourCloning
from irleed.baselines.ileed import Ileed
from irleed.baselines.ileed_gaussian import GaussianIleed
from irleed.baselines.sqil import Sqil
from irleed.checkpoint import Stopped, writing
from irleed.cli.run import Keeping
from irleed.data import Demonstrations, Reading, load
from irleed.data.transitions import are_choices
from irleed.door import of_states
from irleed.envs.mdp import FiniteMDP
from irleed.envs.mdp_files import load_mdp
from irleed.envs.toy_text import from_gymnasium
from irleed.errors import ConfigError, problem
from irleed.evaluate import Earned
from irleed.expertise import with_interval
from irleed.fit import Fit, fit, suitable
from irleed.fit_checks import Algorithm, check, clipped
from irleed.fit_networks import MEMBERS, NetworkFit, fit_networks
from irleed.fit_networks import suitable as suitable_networks
from irleed.iq.gaussian_q import GaussianQ
from irleed.report import progress
from irleed.result import write
from irleed.store import fingerprint, open_run, plain
from irleed.tabular.irleed import Irleed
from irleed.tabular.online import SoftQLearning
from irleed.tabular.planning import Averaged, Soft
from irleed.tabular.published import Planned, Published
from irleed.tabular.statistics import tabulate

PlannerName = Literal["soft", "averaged"]
PLANNERS = {"soft": Soft(), "averaged": Averaged()}
TABULAR, OFFLINE, ONLINE = ("irleed", "maxent"), ("irleed", "iq", "ileed", "bc"), ("irleed", "iq", "sqil")
FOR_MDPS, FOR_NETWORKS = ("estimator", "planner", "endless", "discount"), ("seeds", "steps", "ends", "clip")
LASTING = ("checkpoint_every", "log")  # settings of runs that take long enough to be kept on the way


@dataclass(frozen=True)
class Source:
    """The finite MDP that demonstrations belong to: a file, or an environment of Gymnasium with a transition table."""

    mdp: Path | None = None
    """A file with the MDP (.npz)."""
    env: str | None = None
    """Or a Gymnasium id such as FrozenLake-v1."""
    discount: float = 0.95
    """Discount for --env; a file has its own, and so have networks."""

    def load(self) -> tuple[FiniteMDP, tuple[int, int] | None]:
        """The MDP, and the shape of its grid if it has one."""
        if self.env is not None and self.mdp is None:
            return from_gymnasium(self.env, self.discount), None
        if self.mdp is not None and self.env is None:
            return load_mdp(self.mdp)
        got = "neither" if self.mdp is None else "both"
        raise ConfigError(problem("the MDP", got=got, expected="--mdp FILE or --env ID", remedy="give one of them"))


@dataclass(frozen=True)
class FitCommand:
    """Learn a policy and everyone's expertise from demonstrations.

    In a finite MDP, where observations are the numbers of its states, the shared reward as well. Otherwise an ensemble
    of networks learns from the data alone or, with --env, by playing too.
    """

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder of any format that is known, see the documentation."""
    reading: Annotated[Reading, tyro.conf.arg(name="")]
    source: Annotated[Source, tyro.conf.arg(name="")]
    keeping: Annotated[Keeping, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder for fit.json, policy.safetensors and the figures, and for the run as it goes; nothing is written without
    it."""
    algorithm: Literal["irleed", "maxent", "iq", "ileed", "bc", "sqil"] = "irleed"
    """IRLEED. In an MDP, also maximum-entropy IRL, which takes all demonstrators for equal experts. With networks, also
    IQ-Learn; offline ILEED and behaviour cloning; online SQIL."""
    estimator: Literal["map", "published", "online"] = "map"
    """In an MDP: the converged estimate with intervals; the paper's protocol; or that protocol with the dynamics
    unknown, policies being found by soft Q-learning on sampled transitions."""
    planner: PlannerName = "soft"
    """In an MDP: how demonstrators are supposed to plan, by the paper's equations, or as its released program does."""
    endless: bool = False
    """In an MDP: plan as if terminal states did not end the episode, as the released program does."""
    seeds: int = MEMBERS
    """Networks: members of the ensemble that policy and intervals come from."""
    steps: int | None = None
    """Networks: updates; online also steps of each member in the environment. By default 20,000; online 50,000, or
    500,000 with continuous actions."""
    ends: Literal["neutral", "failure"] = "neutral"
    """Networks, IRLEED and IQ-Learn: whether it is a failure that the task ended before its time, as when a pole falls.
    On CartPole, where it is, policies are far better for saying so; on LunarLander, where it is not, they crash."""
    clip: bool = False
    """Networks, continuous actions with --env: bring actions that are out of the environment's bounds within them."""
    seed: int = 0
    """Where the random numbers start."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Fit, print, and write what was asked for."""
        self.keeping.check(self.out)
        demonstrations = load(self.data, self.reading)
        aside = Console(stderr=True)
        shape = None
        if self.source.mdp is not None or of_states(demonstrations):
            found, folder, shape = self._tabular(demonstrations)
            warnings = () if found.converged else ("stopped before convergence; see `history`",)
        else:
            try:
                found, folder = self._networks(demonstrations, aside)
            except Stopped as stopped:
                say(aside, f"{stopped}; the same command with --resume goes on from there")
                sys.exit(130)
            warnings = found.warnings
        for warning in warnings:
            say(aside, f"warning: {warning}")
        if self.json:
            print(json.dumps(found.summary(), indent=1))
        else:
            console.print(found.expertise.table())
            if isinstance(found, NetworkFit) and found.returns:
                console.print(_returns(found.returns))
        if folder is not None:
            with writing(folder):
                write(folder, found, self._settings(), demonstrations, shape)
            say(aside if self.json else console, f"wrote {folder}")

    def _tabular(self, data: Demonstrations) -> tuple[Fit, Path | None, tuple[int, int] | None]:
        mdp, shape = self.source.load()
        self._refuse_others(TABULAR, FOR_NETWORKS, "in an MDP")
        refuse_ignored((self.keeping,), LASTING, "in an MDP")
        tabulate(data, mdp)  # data that do not belong to the MDP are refused before anything is written
        algorithm = self._planned(mdp, int(data.length.max()))
        if self.out is not None:
            config = {**plain(algorithm, "algorithm"), "endless": self.endless, "seed": self.seed}
            open_run(self.out, config, fingerprint(data, mdp), resume=self.keeping.resume)
        with progress.shown(Console(stderr=True), "fit") as callback:
            found = fit(data, mdp, algorithm=algorithm, endless=self.endless, seed=self.seed, progress=callback)
        return found, self.out, shape

    def _networks(self, data: Demonstrations, aside: Console) -> tuple[NetworkFit, Path | None]:
        online = self.source.env is not None
        way = "for networks that play (--env)" if online else "for networks that do not play (no --env)"
        self._refuse_others(ONLINE if online else OFFLINE, FOR_MDPS, way)
        algorithm = self._learner(data, online)
        with contextlib.ExitStack() as stack:
            arena = None
            if self.source.env is not None:
                arena = stack.enter_context(contextlib.closing(HostArena(self.source.env)))
                if self.clip and not isinstance(arena.actions, int):
                    data = clipped(data, arena.actions)
            check(data, algorithm, arena, self.seeds)
            keeper = None
            if self.out is not None:
                own = {"seeds": self.seeds, "seed": self.seed, "env": self.source.env}
                config = {**plain(algorithm, "algorithm"), **own}
                kept = open_run(self.out, config, fingerprint(data), resume=self.keeping.resume)
                keeper = stack.enter_context(self.keeping.keeper(kept, config, lambda text: say(aside, text)))
            callback = stack.enter_context(progress.shown(aside, "fit"))
            found = fit_networks(
                data, algorithm, arena=arena, members=self.seeds, seed=self.seed, progress=callback, keeper=keeper
            )
        return found, self.out

    def _planned(self, mdp: FiniteMDP, horizon: int) -> Irleed | Published:
        planner, maxent = PLANNERS[self.planner], self.algorithm == "maxent"
        if self.estimator == "map":
            return suitable(mdp, planner, maxent=maxent, anonymous=self.reading.demonstrator == "episode")
        online = self.estimator == "online"
        inference = SoftQLearning() if online else Planned(planner, endless=self.endless)
        return Published(inference=inference, horizon=horizon, outer_rounds=1 if maxent else 2)

    def _learner(self, data: Demonstrations, online: bool) -> Algorithm:
        continuous = not are_choices(data)
        if continuous or self.algorithm not in ("irleed", "iq"):
            refuse_ignored((self,), ("ends",), "with continuous actions" if continuous else f"with {self.algorithm}")
        iq, survival = self.algorithm == "iq", self.ends == "failure"
        shared = suitable_networks(data.demonstrators, online=online, iq=iq, survival=survival, continuous=continuous)
        choices = {"ileed": Ileed(), "bc": BehaviourCloning(), "sqil": Sqil()}
        numbers = {"ileed": GaussianIleed(), "bc": GaussianQ.cloning()}
        found = (numbers | {"sqil": Sqil()} if continuous else choices).get(self.algorithm, shared)
        return found if self.steps is None else dataclasses.replace(found, steps=self.steps)

    def _settings(self) -> dict[str, Any]:
        """As they are kept beside the answer."""
        own = dataclasses.asdict(self)
        reading, source, _ = own.pop("reading"), own.pop("source"), own.pop("keeping")
        return {key: str(value) for key, value in {**own, **source}.items()} | {"reading": reading}

    def _refuse_others(self, algorithms: tuple[str, ...], others: tuple[str, ...], way: str) -> None:
        """Settings that would be ignored are a mistake."""
        if self.algorithm not in algorithms:
            expected = f"{' or '.join(algorithms)} {way}"
            raise ConfigError(
                problem("--algorithm", got=self.algorithm, expected=expected, remedy="choose one of them")
            )
        refuse_ignored((self.source, self), others, way)


def refuse_ignored(parts: tuple[Any, ...], names: tuple[str, ...], way: str) -> None:
    """Refuse settings of a command that differ from the default where they mean nothing."""
    given = {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}
    usual = {field.name: field.default for part in parts for field in dataclasses.fields(part)}
    for name in names:
        if given[name] != usual[name]:
            flag, expected = f"--{name.replace('_', '-')}", f"no such setting {way}"
            raise ConfigError(problem(flag, got=given[name], expected=expected, remedy="leave it out"))


def say(console: Console, text: str) -> None:
    """Print text as it is: no markup, no colours, no line breaks in the middle of a path."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _returns(rows: tuple[Earned, ...], limit: int = 30) -> Table:
    """What was earned, in the order of the rows."""
    table = Table(title="Return", caption="means with 90 % intervals", box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("who", "episodes", "return"):
        table.add_column(heading, justify="left" if heading == "who" else "right", no_wrap=True)
    for row in rows[:limit]:
        table.add_row(escape(row.who), str(row.episodes), with_interval(row.mean, row.low, row.high))
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table
