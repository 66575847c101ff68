"""The command `irleed doctor`: versions, missing extras, and self-tests of computations."""

import functools
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._compute import in_double_precision
from irleed._io.text import escaped
from irleed.algorithms import OfflineIrleed
from irleed.algorithms.base import initial_state, update_on
from irleed.algorithms.tabular.irleed import negative_log_likelihood
from irleed.algorithms.tabular.planning import Soft
from irleed.data import Demonstrations, Episode
from irleed.data.transitions import COLUMNS, Inputs, Row, Transitions
from irleed.envs.mdp import FiniteMDP, gridworld
from irleed.fit.door import fit

NEEDED = ("irleed", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "matplotlib", "safetensors")
ENOUGH = 0.9  # share of situations in which a network must choose correctly
TOLERANCE = 1e-6  # of computations in double precision
# For small programs that run once: optimising them would take longest.
QUICKLY = {"xla_backend_optimization_level": 0}


def examine(thorough: bool = False) -> dict[str, Any]:
    """All results as plain values for JSON; `ok` says whether all self-tests passed.

    The self-tests take about a second; with `thorough`, whole fits are tested as well, which compile for many seconds.
    """
    tests = [_tested("likelihood in an MDP", likelihood), _tested("training of a network", training)]
    if thorough:
        tests += [_tested("tabular fit", tabular_fit), _tested("network fit", network_fit)]
    return {
        "ok": all(test["ok"] for test in tests),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in NEEDED}},
        "platform": platform.platform(),
        "devices": [f"{device.platform} {device.id}: {device.device_kind}" for device in jax.devices()],
        "extras": {extra: missing(extra) for extra in sorted(metadata("irleed").get_all("Provides-Extra") or ())},
        "folders": {name: _writable(folder) for name, folder in folders().items()},
        "tests": tests,
    }


def missing(extra: str, package: str = "irleed") -> list[str]:
    """Requirements of an extra of a package that are not installed, or not in a supported version."""
    return sorted({f"{each.name}{each.specifier}" for each in _of_extra(package, extra) if not _installed(each)})


def folders() -> dict[str, Path]:
    """Folders for temporary files and, where set, for compiled programs."""
    compiled = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    found = {"temporary files": Path(tempfile.gettempdir())}
    return found | ({"compiled programs": Path(compiled)} if compiled else {})


@in_double_precision
def likelihood() -> str | None:
    r"""Check the likelihood of choices between two terminal states and its gradient; returns an error message.

    By hand: a demonstrator of rewards $u$ goes to the first with odds $\exp(\gamma(u_1 - u_2))$.
    """
    discount, counts = 0.9, np.zeros((2, 3, 2))
    ends = FiniteMDP.from_transitions(
        [0, 0], [0, 1], [1, 2], [1.0, 1.0], initial=[1.0, 0.0, 0.0], discount=discount, terminal=[1, 2]
    )
    counts[:, 0], pursued = [[3, 1], [1, 1]], np.array([[0.0, 1.0, -1.0], [0.0, 0.5, 0.0]])
    first = 1 / (1 + np.exp(-discount * (pursued[:, 1] - pursued[:, 2])))
    wanted = -np.sum(counts[:, 0] * np.log(np.stack([first, 1 - first], -1)))
    pull = discount * (counts[:, 0, 0] * (1 - first) - counts[:, 0, 1] * first)
    both = jax.value_and_grad(functools.partial(negative_log_likelihood, Soft(), ends, counts))
    found, slope = jax.jit(both, compiler_options=QUICKLY)(pursued)
    error = max(abs(float(found) - wanted), np.abs(np.asarray(slope)[:, 1:] + np.stack([pull, -pull], -1)).max())
    return None if error < TOLERANCE else f"off by {error:.1e}"


def training() -> str | None:
    """Check that IRLEED finds the consistent demonstrator and imitates it; returns an error message."""
    data = _choices()
    learner = OfflineIrleed(hidden=(), steps=300, learning_rate=0.05, precision_learning_rate=0.05)
    rows = Transitions.from_demonstrations(data)
    batch = Row(**{name: getattr(rows, name) for name in COLUMNS}, initial=rows.obs)
    inputs = Inputs(np.zeros(2, np.float32), np.ones(2, np.float32))
    shapes = jax.eval_shape(lambda: learner.parameters(jax.random.key(0), inputs, 2, data.demonstrators))
    start = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)  # a linear network may start anywhere

    def trained(start, batch):
        begin = initial_state(start)
        state, _ = jax.lax.scan(lambda state, _: update_on(learner, state, batch), begin, None, learner.steps)
        chosen = learner.policy(state.parameters).batch(batch.obs).mode()
        return learner.log_precision(state.parameters, rows), chosen

    precision, chosen = map(np.asarray, jax.jit(trained, compiler_options=QUICKLY)(start, batch))
    share = float(np.mean(chosen == (rows.obs[:, 0] > 0)))
    better = data.names[precision.argmax()]
    return None if better == "direct" and share >= ENOUGH else f"{better} is better, right in {share:.0%}"


def tabular_fit() -> str | None:
    """Check that a fit in an MDP finds the direct demonstrator and imitates it; returns an error message."""
    corridor, random = gridworld(1, 4, goals={3: 1.0}).mdp, np.random.default_rng(0)
    direct = [_walk([0, 0, 0], "direct") for _ in range(8)]
    astray = [_walk(random.integers(0, 4, 12).tolist(), "astray") for _ in range(8)]
    found = fit(Demonstrations.from_episodes(direct + astray), corridor)
    actions = found.policy.predict(np.arange(3), deterministic=True)[0]
    right = found.converged and found.expertise.ranking[0] == "direct" and not np.any(actions)
    return None if right else f"converged {found.converged}, {found.expertise.ranking}, actions {actions}"


def network_fit() -> str | None:
    """The same of a fit of networks, of choices by the sign of a number."""
    rates: dict[str, Any] = {"learning_rate": 0.02, "precision_learning_rate": 0.02, "bias_learning_rate": None}
    learner = OfflineIrleed(hidden=(8,), steps=200, activation="relu", **rates)
    found = fit(_choices(), algorithm=learner, members=1)
    seen = np.random.default_rng(1).normal(size=(200, 2)).astype(np.float32)
    share = float(np.mean(found.policy.predict(seen, deterministic=True)[0] == (seen[:, 0] > 0)))
    right = share >= ENOUGH and found.expertise.ranking[0] == "direct"
    return None if right else f"{found.expertise.ranking}, right in {share:.0%}"


def _choices() -> Demonstrations:
    """Data of a demonstrator who always chooses by the sign of a number, and of one who does so half of the time."""
    random, episodes = np.random.default_rng(0), []
    for n in range(32):
        obs = random.normal(size=(17, 2)).astype(np.float32)
        right = (obs[:-1, 0] > 0).astype(np.int64)
        strays = random.random(16) < (0.5 if n % 2 else 0.0)
        episodes.append(Episode(obs, np.where(strays, 1 - right, right), False, "astray" if n % 2 else "direct"))
    return Demonstrations.from_episodes(episodes)


def _walk(actions: list[int], name: str) -> Episode:
    """An episode in a corridor of four cells, to the last: 0 is right, 1 left, other actions do not move."""
    places = [0]
    for action in actions:
        places.append(min(max(places[-1] + {0: 1, 1: -1}.get(action, 0), 0), 3))
        if places[-1] == 3:
            break
    return Episode(np.array(places), np.array(actions[: len(places) - 1]), places[-1] == 3, name)


def _tested(name: str, test: Callable[[], str | None]) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        wrong = test()
    except Exception as error:  # any failure is a result of the test
        wrong = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - began, 1)
    return {"name": name, "ok": wrong is None, "seconds": seconds, "wrong": wrong}


def _of_extra(package: str, extra: str) -> Iterator[Requirement]:
    """Requirements of an extra of a package, including those of extras of other packages."""
    for line in requires(package) or ():
        each = Requirement(line)
        if each.marker is None or not each.marker.evaluate({"extra": extra}) or each.marker.evaluate({"extra": ""}):
            continue
        if each.name != package:
            yield each
        for further in each.extras if each.name == package or _installed(each) else ():
            yield from _of_extra(each.name, further)


def _installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _writable(folder: Path) -> dict[str, Any]:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return {"path": str(folder), "writable": True}
    except OSError:
        return {"path": str(folder), "writable": False}


@dataclass(frozen=True)
class DoctorCommand:
    """Check the installation: versions, missing extras, and self-tests of computations; exit status 1 if one fails."""

    thorough: bool = False
    """Test whole fits with known results as well, of tables and networks; compiling them takes some time."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Examine, print, and exit with status 1 if a self-test failed."""
        found = examine(self.thorough)
        if self.json:
            print(json.dumps(found, indent=1))
        else:
            console.print(_table(found))
        if not found["ok"]:
            sys.exit(1)


def _table(found: dict[str, Any]) -> Table:
    """A row for each fact: its kind, name and value."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("bold", None, None):
        table.add_column(style=style, overflow="fold")
    rows: list[tuple[str, str, str]] = [("versions", name, own) for name, own in found["versions"].items()]
    rows.append(("machine", "platform", found["platform"]))
    rows += [("machine", "device", device) for device in found["devices"]]
    for extra, missing in found["extras"].items():
        lacks = f"missing {', '.join(missing)}; pip install 'irleed[{extra}]'" if missing else "installed"
        rows.append(("extras", extra, lacks))
    for name, folder in found["folders"].items():
        state = "can be written to" if folder["writable"] else "cannot be written to"
        rows.append(("folders", name, f"{folder['path']}: {state}"))
    for test in found["tests"]:
        state = "right" if test["ok"] else f"wrong: {test['wrong']}"
        rows.append(("self-test", test["name"], f"{state} ({test['seconds']} s, compilation included)"))
    before = ""
    for kind, name, value in rows:
        if before and kind != before:
            table.add_row()
        table.add_row("" if kind == before else kind, *(Text(escaped(text)) for text in (name, value)))
        before = kind
    return table
