"""The command `irleed fit`: in a finite MDP where there is one, with networks where there is none."""

import contextlib
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro
from rich.console import Console

from irleed._io.files import writing
from irleed._io.text import say
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Planned, Published, SoftQLearning
from irleed.algorithms.tabular.planning import Averaged, Soft
from irleed.algorithms.tabular.visitation import tabulate
from irleed.analysis import recordings as film
from irleed.cli.methods import OFFLINE, ONLINE, returns_table, show_beside, trained
from irleed.cli.parsing import refuse_ignored
from irleed.cli.run import Keeping
from irleed.data import Demonstrations, ReadOptions, load
from irleed.data.limits import EXPANSION
from irleed.data.transitions import are_choices
from irleed.envs.mdp import FiniteMDP, from_gymnasium, load_mdp
from irleed.errors import ConfigError, DivergedError
from irleed.fit.defaults import Method, network_algorithm, tabular_algorithm
from irleed.fit.door import of_states
from irleed.fit.networks import MEMBERS, NetworkFit
from irleed.fit.result import write
from irleed.fit.tabular import Fit, fit
from irleed.fit.validation import clipped
from irleed.report.compare import METHODS
from irleed.rollout import HostBackend
from irleed.runs import progress
from irleed.runs.checkpoint import Stopped
from irleed.runs.directory import fingerprint, open_run, plain
from irleed.runs.reader import BASELINES

PlannerName = Literal["soft", "averaged"]
PLANNERS = {"soft": Soft(), "averaged": Averaged()}
TABULAR, BESIDE_TABLES, BESIDE_NETWORKS = ("irleed", "maxent"), ("maxent",), ("iq", "ileed", "bc")
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

    def load(self, expansion: float = EXPANSION) -> tuple[FiniteMDP, tuple[int, int] | None]:
        """The MDP, and the shape of its grid if it has one; see `ReadOptions.expansion`."""
        if self.env is not None and self.mdp is None:
            return from_gymnasium(self.env, self.discount), None
        if self.mdp is not None and self.env is None:
            return load_mdp(self.mdp, expansion)
        got = "neither" if self.mdp is None else "both"
        raise ConfigError("the MDP", got=got, expected="--mdp FILE or --env ID", remedy="give one of them")


@dataclass(frozen=True)
class FitCommand:
    """Learn a policy and everyone's expertise from demonstrations.

    In a finite MDP, where observations are the numbers of its states, the shared reward as well. Otherwise an ensemble
    of networks learns from the data alone or, with --env, by playing too.
    """

    data: tyro.conf.Positional[Path]
    """Demonstrations: a file or folder of any format that is known, see the documentation."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")]
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
    On CartPole, where it is, policies are far better for saying so; on LunarLander, where it is not, they crash. With
    continuous actions for networks that play (--env)."""
    clip: bool = False
    """Networks, continuous actions with --env: bring actions that are out of the environment's bounds within them."""
    baselines: bool = False
    """Fit other methods to the same data as well, and compare. In an MDP, maximum-entropy IRL; with networks, IQ-Learn,
    ILEED and behaviour cloning, as ensembles like this one: with --env their policies are tried there too."""
    seed: int = 0
    """Where the random numbers start."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Fit, print, and write what was asked for."""
        self.keeping.check(self.out)
        data = load(self.data, self.reading)
        aside = Console(stderr=True)
        tabular = self.source.mdp is not None or of_states(data)
        self._refuse_others(tabular)
        with contextlib.ExitStack() as held:
            try:
                found = self._fitted(data, tabular, aside, held)
                if not self.json:
                    console.print(found.expertise.table())
                    if found.returns:
                        console.print(returns_table(found.returns))
                others = self._beside(data, tabular, aside, held) if self.baselines else {}
            except Stopped as stopped:
                say(aside, f"{stopped}; the same command with --resume goes on from there")
                sys.exit(130)
        if self.json:
            beside = {"baselines": {name: each.summary() for name, each in others.items()}} if self.baselines else {}
            print(json.dumps({**found.summary(), **beside}, indent=1))
        elif others:
            show_beside(console, {self.algorithm: found, **others})
        if self.out is not None:
            say(aside if self.json else console, f"wrote {self.out}")

    def _fitted(
        self, data: Demonstrations, tabular: bool, aside: Console, held: contextlib.ExitStack, title: str = "fit"
    ) -> Fit | NetworkFit:
        """The answer, written down if there is a folder for it, which stays locked until `held` is closed."""
        shape, stopped = None, ()
        if tabular:
            found, shape = self._tabular(data, aside, held, title)
            stopped = () if found.converged else ("stopped before convergence; see `history`",)
        else:
            found = self._networks(data, aside, held, title)
        for warning in (*stopped, *found.warnings):
            say(aside, f"warning: {warning}" if title == "fit" else f"warning: {title}: {warning}")
        if self.out is not None:
            with writing(self.out):
                if self.source.env is not None and title == "fit":
                    film.write(self.out, self.source.env, found.policy, self.seed)
                write(self.out, found, self._settings(), data, shape)
        return found

    def _beside(
        self, data: Demonstrations, tabular: bool, aside: Console, held: contextlib.ExitStack
    ) -> dict[str, Fit | NetworkFit]:
        """Other methods on the same data, each as this command would fit it, in folders inside this run's."""
        found: dict[str, Fit | NetworkFit] = {}
        for method in BESIDE_TABLES if tabular else BESIDE_NETWORKS:
            if method == self.algorithm:
                continue
            own = dataclasses.replace(
                self,
                algorithm=method,
                baselines=False,
                ends=self.ends if method == "iq" else "neutral",
                out=None if self.out is None else self.out / BASELINES / method,
            )
            try:
                found[method] = own._fitted(data, tabular, aside, held, METHODS[method])
            except DivergedError as error:
                say(aside, f"warning: {METHODS[method]}: {error}")
        return found

    def _tabular(
        self, data: Demonstrations, aside: Console, held: contextlib.ExitStack, title: str
    ) -> tuple[Fit, tuple[int, int] | None]:
        mdp, shape = self.source.load(self.reading.expansion)
        tabulate(data, mdp)  # data that do not belong to the MDP are refused before anything is written
        algorithm = self._planned(mdp, int(data.length.max()))
        if self.out is not None:
            config = {**plain(algorithm, "algorithm"), "endless": self.endless, "seed": self.seed}
            held.enter_context(open_run(self.out, config, fingerprint(data, mdp), resume=self.keeping.resume))
        with progress.shown(aside, title) as callback:
            found = fit(data, mdp, algorithm=algorithm, endless=self.endless, seed=self.seed, progress=callback)
        return found, shape

    def _networks(self, data: Demonstrations, aside: Console, held: contextlib.ExitStack, title: str) -> NetworkFit:
        if self.algorithm not in ("irleed", "iq"):
            refuse_ignored((self,), ("ends",), f"with {self.algorithm}")
        if not are_choices(data) and not self._plays:
            refuse_ignored((self,), ("ends",), "with continuous actions and no --env")
        with contextlib.ExitStack() as stack:
            backend = None
            if self.source.env is not None:
                backend = stack.enter_context(contextlib.closing(HostBackend(self.source.env)))
                if self.clip and not isinstance(backend.actions, int):
                    data = clipped(data, backend.actions)
            kind = {"continuous": not are_choices(data), "online": self._plays, "ends": self.ends}
            algorithm = network_algorithm(cast(Method, self.algorithm), **kind, steps=self.steps)
            settings = {"members": self.seeds, "seed": self.seed, "env": self.source.env if self._plays else None}
            settings |= {"keeping": self.keeping, "title": title, "aside": aside, "held": held}
            return trained(self.out, algorithm, data, backend, **settings)

    @property
    def _plays(self) -> bool:
        """Whether networks learn by playing; those of a baseline may learn from the data, and be tried all the same."""
        return self.source.env is not None and self.algorithm in ONLINE

    def _planned(self, mdp: FiniteMDP, horizon: int) -> Irleed | Published:
        planner, maxent = PLANNERS[self.planner], self.algorithm == "maxent"
        if self.estimator == "map":
            return tabular_algorithm(mdp, planner, maxent=maxent, anonymous=self.reading.demonstrator == "episode")
        online = self.estimator == "online"
        inference = SoftQLearning() if online else Planned(planner, endless=self.endless)
        return Published(inference=inference, horizon=horizon, outer_rounds=1 if maxent else 2)

    def _settings(self) -> dict[str, Any]:
        """As they are kept beside the answer."""
        own = dataclasses.asdict(self)
        reading, source, _ = own.pop("reading"), own.pop("source"), own.pop("keeping")
        if self.source.env is not None and self.algorithm not in (*TABULAR, *ONLINE):
            source["env"] = None  # the baseline was only tried there
        return {key: str(value) for key, value in {**own, **source}.items()} | {"reading": reading}

    def _refuse_others(self, tabular: bool) -> None:
        """Settings that would be ignored are a mistake."""
        if tabular:
            way, algorithms, others = "in an MDP", TABULAR, FOR_NETWORKS
        elif self.source.env is not None:
            way, algorithms, others = "for networks that play (--env)", ONLINE, FOR_MDPS
        else:
            way, algorithms, others = "for networks that do not play (no --env)", OFFLINE, FOR_MDPS
        if self.algorithm not in algorithms:
            expected = f"{' or '.join(algorithms)} {way}"
            raise ConfigError("--algorithm", got=self.algorithm, expected=expected, remedy="choose one of them")
        refuse_ignored((self.source, self), others, way)
        if tabular:
            refuse_ignored((self.keeping,), LASTING, way)
