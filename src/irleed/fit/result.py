"""What a fit hands out, whatever it was fitted with: to be shown, saved as a run directory, and reported on."""

import abc
import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import numpy as np

from irleed._io.files import beside, file_digest, write_signed, writing
from irleed.analysis import departures
from irleed.data import Demonstrations, ReadOptions
from irleed.model.expertise import Expertise
from irleed.report import figures
from irleed.report import figures as style
from irleed.report.markup import join, listing, paragraph
from irleed.report.page import page
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.directory import ANSWER, POLICY, fingerprint, open_run, plain
from irleed.runs.kinds import FitRun
from irleed.runs.reader import read_run

MOST_MAPS = 8
READ = (POLICY, "data.json", "departures.json", "history.jsonl", "film.json", "film.webp", "film.png")


class Origin(eqx.Module):
    """What a fit comes from."""

    data: Demonstrations
    settings: tuple[tuple[str, Any], ...] = eqx.field(static=True)  # by their names
    path: str | None = eqx.field(static=True, default=None)  # of the data, if they were read
    reading: ReadOptions = eqx.field(static=True, default=ReadOptions())
    grid: tuple[int, int] | None = eqx.field(static=True, default=None)  # rows and columns, in a gridworld

    @classmethod
    def of(cls, data: Demonstrations, algorithm: Any, **settings: Any) -> "Origin":
        """Data in memory, and with what they were fitted."""
        return cls(data, tuple((plain(algorithm, "algorithm") | settings).items()))


class AbstractFit(eqx.Module):
    """A policy, and who is how good."""

    policy: eqx.AbstractVar[Any]  # a `Policy`
    expertise: eqx.AbstractVar[Expertise]
    origin: eqx.AbstractVar[Origin]
    returns: eqx.AbstractVar[tuple[ReturnEstimate, ...]]  # of the policy and of the demonstrators, where they are known

    @abc.abstractmethod
    def summary(self) -> dict[str, object]:
        """The whole answer as plain values, for JSON."""

    @abc.abstractmethod
    def details(self) -> dict[str, object]:
        """What is kept in a file besides the summary."""

    def save(self, folder: str | Path) -> Path:
        """Write a run directory, as `irleed fit --out` does: for `irleed report`, `curate` and `export`."""
        origin = self.origin
        settings = dict(origin.settings)
        told = {"data": origin.path or "in memory", "python": "irleed.fit", "algorithm": settings["algorithm"]}
        told |= {"reading": dataclasses.asdict(origin.reading)}
        with open_run(folder, settings, fingerprint(origin.data), resume=False) as run, writing(run.folder):
            write(run.folder, self, told, origin.data, origin.grid)
        return run.folder

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page."""
        path = Path(path)
        with tempfile.TemporaryDirectory() as folder:
            run = cast(FitRun, read_run(self.save(Path(folder) / "run")))
        with beside(path) as file:
            file.write(page([dataclasses.replace(run, label=path.stem, folder="irleed.fit")]).encode())
        return path

    def _repr_html_(self) -> str:
        """For notebooks: in short."""
        summary = self.summary()
        warnings = summary.get("warnings")
        said = f"{type(self).__name__}: {summary['steps']} steps, {summary['seconds']} s"
        odd = [listing(warnings)] if isinstance(warnings, list) and warnings else []
        return join([paragraph(said), *odd]) + self.expertise._repr_html_()


def as_rows(returns: tuple[ReturnEstimate, ...]) -> list[dict[str, object]]:
    """Returns as plain values, for JSON. What was computed, not played, has 0 episodes and an interval of no width."""
    return [{key: None if value != value else value for key, value in vars(row).items()} for row in returns]


def write(
    folder: Path,
    found: AbstractFit,
    config: Mapping[str, object],
    data: Demonstrations,
    grid: tuple[int, int] | None = None,
) -> None:
    """The policy, what the data are, the pictures (expertise, and in a grid maps) and at the end the answer as JSON.

    The answer has the checksums of what is read with it, and the fingerprint of the data.
    """
    answer: dict[str, Any] = {**found.summary(), **found.details()}
    found.policy.save(folder / POLICY)
    names, expertise = found.expertise.names, found.expertise
    bars = figures.expertise_bars(names, expertise.precision, expertise.precision_low, expertise.precision_high)
    style.save(bars, folder / "expertise")
    if grid is not None and "weights" in answer and np.prod(grid) == len(answer["weights"]):
        own = {f"bias of {name}": bias for name, bias in zip(names, answer["bias"], strict=True)}
        maps = {name: np.asarray(values) for name, values in {"shared reward": answer["weights"], **own}.items()}
        style.save(figures.gridworld_maps(*grid, dict(list(maps.items())[:MOST_MAPS])), folder / "maps")
    departures.write(folder, data, found.policy)
    head = {"format": "irleed-fit", "version": 1, "config": config, "grid": None if grid is None else list(grid)}
    known = {"fingerprint": fingerprint(data), "files": sums(folder)}
    write_signed(folder / ANSWER, {**head, **known, **answer})


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a run that are read with its answer, by their names."""
    return {name: file_digest(folder / name) for name in READ if (folder / name).is_file()}
