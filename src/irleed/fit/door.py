"""The front door: `irleed.fit` is the one way from demonstrations to a fit, in Python and on the command line."""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from rich.console import Console

from irleed._compute import drop_programs
from irleed._io.arrays import EXPANSION
from irleed._io.files import writing
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Planned, Published, SoftQLearning
from irleed.algorithms.tabular.planning import AbstractPlanner, Averaged, Soft
from irleed.algorithms.tabular.visitation import tabulate
from irleed.algorithms.training import Progress
from irleed.analysis import recordings
from irleed.analysis.statistics import nearly_the_same
from irleed.data import Demonstrations, ReadOptions, load
from irleed.data.transitions import are_choices
from irleed.envs.mdp import FiniteMDP, Gridworld, from_gymnasium, load_mdp
from irleed.envs.step import AbstractEnv
from irleed.errors import ConfigError, DivergedError
from irleed.fit import mixture
from irleed.fit.defaults import Algorithm, Ends, Method, network_algorithm, tabular_algorithm
from irleed.fit.feature_names import feature_names
from irleed.fit.networks import MEMBERS, fit_networks
from irleed.fit.options import (
    DISCOUNT,
    Environment,
    Estimator,
    Keeping,
    MethodName,
    Options,
    PlannerName,
    TabularAlgorithm,
    World,
)
from irleed.fit.result import Fit, Origin, write
from irleed.fit.settings import with_settings
from irleed.fit.tabular import fit as fit_tables
from irleed.fit.validation import check, clipped, refuse_ignored
from irleed.report.page import report
from irleed.rollout import AbstractBackend, DeviceBackend, HostBackend
from irleed.runs.checkpoint import Checkpointer, stoppable
from irleed.runs.directory import BASELINES, fingerprint, open_run, plain
from irleed.runs.logging import logs_of, progress_bar
from irleed.runs.results import METHODS

Data = Demonstrations | str | Path
PLANNERS: dict[str, AbstractPlanner] = {"soft": Soft(), "averaged": Averaged()}
LASTING = ("checkpoint_every", "log")  # of runs that take long enough to be kept on the way


def fit(
    data: Data,
    mdp: World | None = None,
    *,
    env: Environment | None = None,
    algorithm: MethodName | Algorithm | TabularAlgorithm = "irleed",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    ends: Ends = "neutral",
    members: int = MEMBERS,
    seed: int = 0,
    online: bool = True,
    clip: bool = False,
    estimator: Estimator = "map",
    planner: PlannerName | AbstractPlanner = "soft",
    endless: bool = False,
    discount: float = DISCOUNT,
    baselines: bool = False,
    feature_names: Sequence[str] | str | Path | None = None,
    demonstrators: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: float | None = None,
    log: tuple[str, ...] = (),
    reading: ReadOptions | None = None,
    progress: bool | Progress = False,
    warn: Callable[[str], None] = warnings.warn,
) -> Fit:
    """Learn a policy and each demonstrator's skill: in a finite MDP with tables, elsewhere with networks.

    The command ``irleed fit`` calls this function; its flags are these arguments.

    **Arguments:**

    - `data`: demonstrations, or the path of a file or folder in any known format.
    - `mdp`: the finite MDP that they were made in, where observations are the numbers of its states: the MDP, a
      gridworld, or the path of a file.
    - `env`: an environment: a Gymnasium id, one in JAX, or a backend of `irleed.rollout`. Networks learn in it and are
      evaluated in it. Where observations are states, the id of an environment with a transition table is the MDP.
    - `algorithm`: the name of a method, or an algorithm with settings of its own.
    - `settings`: settings of the algorithm by name, see `irleed.fit.settings`.
    - `steps`: updates of networks; in `env` also steps of each member there.
    - `ends`: ``"failure"`` if early termination counts as failure, for IRLEED and IQ-Learn with networks.
    - `members`: of the ensemble of networks. `seed`: the random seed.
    - `online`: with `env`, ``False`` to learn from the data alone and only evaluate there.
    - `clip`: bring continuous actions within the bounds of `env`.
    - `estimator`: in an MDP, ``"map"``, the converged estimate with intervals; ``"published"``, the paper's protocol;
      ``"online"``, that protocol with unknown dynamics.
    - `planner`: in an MDP, how demonstrators plan. `endless`: as if terminal states did not end the episode.
    - `discount`: of an MDP that is made from a Gymnasium id.
    - `baselines`: fit other methods to the same data as well.
    - `feature_names`: of the numbers in an observation, or the path of a file with them (a JSON list, or one a line):
      for the names of situations. Those of classic Gymnasium environments are known.
    - `demonstrators`: group the episodes into so many people first, whoever the data name; see `irleed.fit.mixture`.
    - `out`: a folder for the run: checkpoints, metrics, the answer and report.html. Inside, Ctrl-C, SIGTERM and SIGHUP
      stop at the next checkpoint.
    - `resume`: continue the run in `out` from its last checkpoint; start it if there is none.
    - `checkpoint_every`: seconds between checkpoints. `log`: ``"tensorboard"`` or ``"wandb"``, besides history.jsonl.
    - `reading`: how a path is read, see `irleed.data.ReadOptions`.
    - `progress`: ``True`` for a progress bar on standard error, or a function that is called with the steps done, how
      many there are and, now and then, ``loss=``.
    - `warn`: called with each line that the user should see on the way.

    **Returns:** a `Fit`. Raises `irleed.runs.checkpoint.Stopped`, a `KeyboardInterrupt`, if it was stopped.
    """
    options = Options(
        mdp=mdp,
        env=env,
        algorithm=algorithm,
        settings=settings or {},
        steps=steps,
        ends=ends,
        members=members,
        seed=seed,
        online=online,
        clip=clip,
        estimator=estimator,
        planner=planner,
        endless=endless,
        discount=discount,
        baselines=baselines,
        feature_names=feature_names,
        reading=reading or ReadOptions(),
        demonstrators=demonstrators,
    )
    drop_programs()
    keeping = Keeping(None if out is None else Path(out), resume, checkpoint_every, tuple(log))
    loaded = data if isinstance(data, Demonstrations) else load(data, options.reading)
    tables = mdp is not None or of_states(loaded)
    options.check(tables, are_choices(loaded))
    with contextlib.ExitStack() as held:
        world = _Tables.of(loaded, options, keeping) if tables else _Networks.of(loaded, options, held)
        people = None
        if demonstrators is not None:
            people = world.grouped(demonstrators, options)
            loaded = loaded.by_owner(people.owner, people.names)
            world = dataclasses.replace(world, data=world.data.by_owner(people.owner, people.names))
        path = None if isinstance(data, Demonstrations) else str(data)
        session = _Session(loaded, path, world, keeping, progress, warn, held, people)
        found = session.fitted(options, keeping.out, "fit")
        if baselines:
            found = dataclasses.replace(found, baselines=session.beside(options))
        if keeping.out is not None:
            report(keeping.out)
    return found


def of_states(data: Demonstrations) -> bool:
    """Whether observations are one whole number each: the states of an MDP, of which a network could make nothing."""
    obs = np.asarray(data.obs)
    return obs.ndim == 1 and bool(np.all(obs == np.floor(obs)))


def load_world(
    mdp: World | None, env: Environment | None, discount: float, expansion: float = EXPANSION
) -> tuple[FiniteMDP, tuple[int, int] | None]:
    """The MDP that is meant by one of the two, and the shape of its grid if it has one."""
    if isinstance(env, str) and mdp is None:
        return from_gymnasium(env, discount), None
    if env is not None or mdp is None:
        got = "neither" if env is None else "both" if mdp is not None else "an environment without a transition table"
        raise ConfigError("the MDP", got=got, expected="--mdp FILE or --env ID", remedy="give one of them")
    if isinstance(mdp, Gridworld):
        return mdp.mdp, (mdp.rows, mdp.columns)
    return (mdp, None) if isinstance(mdp, FiniteMDP) else load_mdp(mdp, expansion)


@dataclass(frozen=True)
class _Tables:
    """A finite MDP, in which tables are fitted; it takes seconds, so that to resume is to do it again."""

    data: Demonstrations
    mdp: FiniteMDP
    grid: tuple[int, int] | None
    others: tuple[Method | Literal["maxent"], ...] = ("maxent",)

    @classmethod
    def of(cls, data: Demonstrations, options: Options, keeping: Keeping) -> "_Tables":
        """Data that do not belong to the MDP are refused before anything is written."""
        mdp, grid = load_world(options.mdp, options.env, options.discount, options.reading.expansion)
        tabulate(data, mdp)
        refuse_ignored((keeping,), LASTING, "in an MDP")
        return cls(data, mdp, grid)

    def grouped(self, count: int, options: Options) -> mixture.People:
        """So many people, whose planner is that of the fit."""
        own = getattr(options.algorithm, "planner", options.planner)
        planner = PLANNERS[own] if isinstance(own, str) else own
        plan = self.mdp.without_terminals() if options.endless else self.mdp
        return mixture.of_tables(self.data, plan, planner, count, options.seed)

    def algorithm(self, options: Options) -> Irleed | Published:
        """The algorithm that is meant, with its settings."""
        found = options.algorithm
        if isinstance(found, str):
            planner = PLANNERS[options.planner] if isinstance(options.planner, str) else options.planner
            if options.estimator == "map":
                anonymous = options.reading.demonstrator == "episode"
                found = tabular_algorithm(self.mdp, planner, maxent=found == "maxent", anonymous=anonymous)
            else:
                known = Planned(planner, endless=options.endless)
                inference = SoftQLearning() if options.estimator == "online" else known
                rounds, horizon = 1 if found == "maxent" else 2, int(self.data.length.max())
                found = Published(inference=inference, horizon=horizon, outer_rounds=rounds)
        return with_settings(cast(Irleed | Published, found), options.settings)

    def origin(self, algorithm: Any, options: Options) -> tuple[dict[str, Any], str]:
        """What the numbers depend on: settings, and the fingerprint of data and MDP."""
        config = {**plain(algorithm, "algorithm"), "endless": options.endless, "seed": options.seed}
        return config, fingerprint(self.data, self.mdp)

    def train(self, algorithm: Any, options: Options, told: Progress | None, kept: Checkpointer | None) -> Fit:
        """Fit."""
        given = {"algorithm": algorithm, "endless": options.endless, "seed": options.seed, "progress": told}
        return fit_tables(self.data, self.mdp, **given)


@dataclass(frozen=True)
class _Networks:
    """Data with no model of the dynamics, and an environment if there is one."""

    data: Demonstrations
    backend: AbstractBackend | None
    feature_names: tuple[str, ...]
    grid: None = None
    others: tuple[Method, ...] = ("iq", "ileed", "bc")

    @classmethod
    def of(cls, data: Demonstrations, options: Options, held: contextlib.ExitStack) -> "_Networks":
        """The environment is closed with `held`, unless it was given as a backend."""
        backend = options.env
        if isinstance(backend, str):
            backend = held.enter_context(contextlib.closing(HostBackend(backend)))
        elif isinstance(backend, AbstractEnv):
            backend = DeviceBackend(backend)
        if backend is not None and options.clip and not isinstance(backend.actions, int):
            data = clipped(data, backend.actions)
        return cls(data, backend, feature_names(options.feature_names, options.env, data.obs.shape[1:]))

    def grouped(self, count: int, options: Options) -> mixture.People:
        """So many people."""
        return mixture.of_networks(self.data, count, options.seed)

    def algorithm(self, options: Options) -> Algorithm:
        """The algorithm that is meant, with its settings; refused if it does not suit data and environment."""
        found, steps = options.algorithm, options.steps
        if isinstance(found, str):
            kind = {"continuous": not are_choices(self.data), "online": options.plays, "ends": options.ends}
            found = network_algorithm(cast(Method, found), **kind)
        found = with_settings(cast(Algorithm, found), options.settings)
        found = found if steps is None else dataclasses.replace(found, steps=steps)
        check(self.data, found, self.backend, options.members)
        return found

    def origin(self, algorithm: Any, options: Options) -> tuple[dict[str, Any], str]:
        """What the numbers depend on: settings, and the fingerprint of the data."""
        env = options.env if isinstance(options.env, str | None) else type(options.env).__name__
        config = {"members": options.members, "seed": options.seed, "env": env if options.plays else None}
        return {**plain(algorithm, "algorithm"), **config}, fingerprint(self.data)

    def train(self, algorithm: Any, options: Options, told: Progress | None, kept: Checkpointer | None) -> Fit:
        """Fit."""
        given = {"members": options.members, "seed": options.seed, "progress": told, "checkpointer": kept}
        given |= {"feature_names": self.feature_names}
        return fit_networks(self.data, algorithm, backend=self.backend, **given)


@dataclass(frozen=True)
class _Session:
    """What a fit shares with those beside it: data, where they were made, and how runs are kept."""

    data: Demonstrations
    path: str | None
    world: _Tables | _Networks
    keeping: Keeping
    progress: bool | Progress
    warn: Callable[[str], None]
    held: contextlib.ExitStack  # folders stay locked until it is closed
    people: mixture.People | None  # where nobody knew who acted

    def fitted(self, options: Options, folder: Path | None, title: str) -> Fit:
        """Fit and, if there is a folder, keep the run there and write the answer."""
        algorithm, tables = self.world.algorithm(options), isinstance(self.world, _Tables)
        run, found = self.world.origin(algorithm, options)
        origin = Origin(self.data, run, found, options.given(self.path, tables), self.world.grid)
        with contextlib.ExitStack() as stack:
            kept = None if folder is None else stack.enter_context(self._kept(folder, origin))
            told = None if self.progress is False else self.progress
            if told is True:
                told = stack.enter_context(progress_bar(Console(stderr=True), title))
            found = self.world.train(algorithm, options, told, None if tables else kept)
        said = nearly_the_same(found.expertise, self.data)
        doubts = () if self.people is None else self.people.warnings
        found = dataclasses.replace(
            found, origin=origin, people=self.people, warnings=(*doubts, *found.warnings, *said)
        )
        if folder is not None:
            with writing(folder):
                if isinstance(options.env, str) and folder == self.keeping.out:
                    recordings.write(folder, options.env, found.policy, options.seed)
                write(folder, found)
        return found

    def beside(self, options: Options) -> dict[str, Fit]:
        """Fits of other methods, each as it would be alone, in folders inside this run's; one may diverge."""
        found, out = {}, self.keeping.out
        for method in (each for each in self.world.others if each != options.algorithm):
            ends = options.ends if method == "iq" else "neutral"
            own = dataclasses.replace(options, algorithm=method, settings={}, ends=ends, baselines=False)
            try:
                found[method] = self.fitted(own, None if out is None else out / BASELINES / method, METHODS[method])
            except DivergedError as error:
                self.warn(f"warning: {METHODS[method]}: {error}")
        return found

    @contextlib.contextmanager
    def _kept(self, folder: Path, origin: Origin) -> Iterator[Checkpointer]:
        """What keeps a run in a folder, and stops it when asked to."""
        run = self.held.enter_context(open_run(folder, origin.run, origin.fingerprint, resume=self.keeping.resume))
        for note in run.notes:
            self.warn(f"note: {note}")
        logs = logs_of(self.keeping.log, run.folder, run.identity, origin.run)
        every = self.keeping.checkpoint_every
        with Checkpointer(run.folder, run.fingerprint, every=every, logs=logs, warn=self.warn) as kept:
            with stoppable(kept, self.warn):
                yield kept
