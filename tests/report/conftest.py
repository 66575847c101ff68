"""Real runs to report on: small fits and results of experiments, made once."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from irleed.analysis.recordings import animated, strip
from irleed.cli import main
from irleed.envs.mdp import paper_gridworld, save_mdp
from irleed.runs.results import read_results

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = {
    "control": "control/cartpole_penalty_5.json",
    "sweep": "gridworld/known.json",
    "hopper": "hopper/results.json",
}
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)</script>',
    "</style></title><svg onload=alert(3)>",
    "' onmouseover='alert(4)' x='",
)


def call(*arguments: object) -> None:
    """The command, as it is typed."""
    main([str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def runs(tmp_path_factory, compiled_once):
    """Folders by name: gridworld and networks (fits), control, sweep and hopper (experiments)."""
    folder = tmp_path_factory.mktemp("runs")
    _gridworld(folder)
    _networks(folder)
    for name, source in KEPT.items():
        found = read_results(RESULTS / source)
        (folder / name).mkdir()
        # A few settings of a sweep say as much as 121 of them, and are shown alike.
        replace(found, rows=found.rows[:200]).write(folder / name)
    return {name: folder / name for name in ("gridworld", "networks", *KEPT)}


def _gridworld(folder: Path) -> None:
    world = paper_gridworld()
    save_mdp(world.mdp, folder / "mdp.npz", (world.rows, world.columns))
    call(
        "simulate",
        "--mdp",
        folder / "mdp.npz",
        "--demonstrators",
        3,
        "--demonstrations",
        10,
        "--out",
        folder / "grid.npz",
    )
    call("fit", folder / "grid.npz", "--mdp", folder / "mdp.npz", "--out", folder / "gridworld")


def _networks(folder: Path) -> None:
    poles = "--env", "CartPole-v1", "--critic", "cartpole", "--max-precision", 1, "--bias-scale", 30
    call("simulate", *poles, "--demonstrators", 4, "--demonstrations", 4, "--out", folder / "poles.npz")
    call("fit", folder / "poles.npz", "--steps", 200, "--members", 2, "--out", folder / "networks")


@pytest.fixture
def copy(runs, tmp_path):
    """A function that copies a run, with changes to one of its files; see `edit`."""

    def made(name: str, file: str = "fit.json", **changes: object) -> Path:
        unsigned(shutil.copytree(runs[name], tmp_path / "run"))
        edit(tmp_path / "run" / file, **changes)
        return tmp_path / "run"

    return made


@pytest.fixture
def filmed(copy):
    """A function that copies a run, with a film of random frames."""

    def made() -> Path:
        folder, random = copy("networks"), np.random.default_rng(0)
        frames = [Image.fromarray(random.integers(0, 256, (40, 60, 3), np.uint8)) for _ in range(5)]
        (folder / "film.webp").write_bytes(animated(frames))
        (folder / "film.png").write_bytes(strip(frames))
        told = {"format": "irleed-film", "version": 1, "env": "CartPole-v1", "seed": 0}
        (folder / "film.json").write_text(json.dumps(told | {"return": 12.0, "steps": 12, "every": 3, "frames": 5}))
        return folder

    return made


def unsigned(folder: Path) -> None:
    """Make a run one of those before checksums, whose values can be edited."""
    for name in ("fit.json", "run.json", "results.json"):
        if (folder / name).exists():
            found = json.loads((folder / name).read_text())
            kept = {key: value for key, value in found.items() if key not in ("checksum", "files")}
            (folder / name).write_text(json.dumps(kept))


def edit(path: Path, **changes: object) -> None:
    """Change values of a JSON file, by keys from the outside in, joined by dots: ``a.0.b``."""
    found = json.loads(path.read_text())
    for keys, value in changes.items():
        *outer, last = keys.split(".")
        inner = found
        for key in outer:
            inner = inner[int(key) if isinstance(inner, list) else key]
        inner[int(last) if isinstance(inner, list) else last] = value
    path.write_text(json.dumps(found))


@pytest.fixture(scope="session")
def hostile(runs, tmp_path_factory):
    """A run whose demonstrators, data and warnings have names that are HTML, and these names."""
    folder = tmp_path_factory.mktemp("hostile") / HOSTILE[0]
    unsigned(shutil.copytree(runs["networks"], folder))
    names = {f"expertise.{n}.name": name for n, name in enumerate(HOSTILE)}
    others = {"config.data": HOSTILE[0], "warnings": list(HOSTILE), "config.env": HOSTILE[1]}
    edit(folder / "fit.json", **names, **others)
    people = {f"facts.demonstrators.{n}.name": name for n, name in enumerate(HOSTILE)}
    edit(folder / "data.json", **people, **{f"returns.{n}.who": name for n, name in enumerate(HOSTILE)})
    return folder, HOSTILE
