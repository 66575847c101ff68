"""What is installed, what is missing for what, and whether fits come out right on this machine."""

import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from packaging.requirements import Requirement

from irleed.data import Demonstrations, Episode
from irleed.envs.gridworld import gridworld
from irleed.fit import fit
from irleed.fit_networks import fit_networks
from irleed.iq.soft_q import SoftQ

NEEDED = ("irleed", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "gymnasium", "matplotlib", "safetensors")
ENOUGH = 0.9  # of situations in which the network has to choose rightly


def examine() -> dict[str, Any]:
    """Everything, as plain values for JSON; `ok` says whether fits come out right."""
    tests = [_tried("tabular fit", tabular_fit), _tried("network fit", network_fit)]
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
    """What is not installed, or not in a version that will do, of an extra of a package."""
    return sorted({f"{each.name}{each.specifier}" for each in _of_extra(package, extra) if not _there(each)})


def folders() -> dict[str, Path]:
    """Where things are written on the way: temporary files and, where it is set, what was compiled."""
    compiled = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    found = {"temporary files": Path(tempfile.gettempdir())}
    return found | ({"compiled programs": Path(compiled)} if compiled else {})


def tabular_fit() -> str | None:
    """Whether someone who walks to the goal is told from someone who strays, and is imitated; else what came out."""
    corridor, random = gridworld(1, 4, goals={3: 1.0}).mdp, np.random.default_rng(0)
    direct = [_walk([0, 0, 0], "direct") for _ in range(8)]
    astray = [_walk(random.integers(0, 4, 12).tolist(), "astray") for _ in range(8)]
    found = fit(Demonstrations.from_episodes(direct + astray), corridor)
    actions = found.policy.predict(np.arange(3), deterministic=True)[0]
    right = found.converged and found.expertise.ranking[0] == "direct" and not np.any(actions)
    return None if right else f"converged {found.converged}, {found.expertise.ranking}, actions {actions}"


def network_fit() -> str | None:
    """The same with networks: who always chooses by the sign of a number, and who does so half of the time."""
    random, episodes = np.random.default_rng(0), []
    for n in range(8):
        obs = random.normal(size=(17, 2)).astype(np.float32)
        right = (obs[:-1, 0] > 0).astype(np.int64)
        strays = random.random(16) < (0.5 if n % 2 else 0.0)
        episodes.append(Episode(obs, np.where(strays, 1 - right, right), False, "astray" if n % 2 else "direct"))
    learner = SoftQ(hidden=(8,), steps=200, activation="relu", rate=0.02, precision_rate=0.02, learn_bias=False)
    found = fit_networks(Demonstrations.from_episodes(episodes), learner, members=1)
    seen = random.normal(size=(200, 2)).astype(np.float32)
    share = float(np.mean(found.policy.predict(seen, deterministic=True)[0] == (seen[:, 0] > 0)))
    right = share >= ENOUGH and found.expertise.ranking[0] == "direct"
    return None if right else f"{found.expertise.ranking}, right in {share:.0%}"


def _walk(actions: list[int], name: str) -> Episode:
    """Along a corridor of four cells, to the last: 0 is right, 1 left, the others lead nowhere."""
    places = [0]
    for action in actions:
        places.append(min(max(places[-1] + {0: 1, 1: -1}.get(action, 0), 0), 3))
        if places[-1] == 3:
            break
    return Episode(np.array(places), np.array(actions[: len(places) - 1]), places[-1] == 3, name)


def _tried(name: str, test: Callable[[], str | None]) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        wrong = test()
    except Exception as error:  # whatever it is, it is what is to be told
        wrong = f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - began, 1)
    return {"name": name, "ok": wrong is None, "seconds": seconds, "wrong": wrong}


def _of_extra(package: str, extra: str) -> Iterator[Requirement]:
    """What an extra of a package asks for, extras of others included."""
    for line in requires(package) or ():
        each = Requirement(line)
        if each.marker is None or not each.marker.evaluate({"extra": extra}) or each.marker.evaluate({"extra": ""}):
            continue
        if each.name != package:
            yield each
        for further in each.extras if each.name == package or _there(each) else ():
            yield from _of_extra(each.name, further)


def _there(requirement: Requirement) -> bool:
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
