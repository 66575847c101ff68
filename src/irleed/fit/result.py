"""What a fit returns, with tables or networks: a policy and each demonstrator's skill, saved as a run directory."""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import numpy as np

from irleed._io.files import beside, file_digest, write_signed, writing
from irleed._typing import Array, Float
from irleed.analysis import departures
from irleed.data import Demonstrations, ReadOptions
from irleed.fit.mixture import People
from irleed.fit.situations import Situations
from irleed.model.expertise import Expertise
from irleed.policies.base import Policy
from irleed.report import figures
from irleed.report.markup import join, listing, paragraph
from irleed.report.page import page, report
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.directory import ANSWER, BASELINES, POLICY, fingerprint, open_run, plain
from irleed.runs.reader import FitRun, read_run

MOST_MAPS = 8
READ = (POLICY, "data.json", "departures.json", "history.jsonl", "film.json", "film.webp", "film.png")


class Origin(eqx.Module):
    """What a fit comes from: the data, and the two records of a run directory."""

    data: Demonstrations
    run: Mapping[str, Any] = eqx.field(static=True)  # what the numbers depend on, for run.json
    fingerprint: str = eqx.field(static=True)  # of the data and the MDP
    given: Mapping[str, Any] = eqx.field(static=True)  # the arguments of `irleed.fit`, for fit.json
    grid: tuple[int, int] | None = eqx.field(static=True, default=None)  # rows and columns, in a gridworld

    @classmethod
    def of(cls, data: Demonstrations, algorithm: Any, **settings: Any) -> "Origin":
        """Data in memory, and the settings that they were fitted with."""
        run = plain(algorithm, "algorithm") | settings
        given = {"data": "in memory", "python": "irleed.fit", "algorithm": type(algorithm).__name__}
        return cls(data, run, fingerprint(data), given | {"reading": dataclasses.asdict(ReadOptions())})


class Fit(eqx.Module):
    """A policy, each demonstrator's skill and, in an MDP, the shared reward.

    **Fields:**

    - `policy`: the shared policy. Members of an ensemble that diverged are left out.
    - `expertise`: each demonstrator's precision and bias with 90 % intervals.
    - `origin`: the data and the settings.
    - `returns`: episode returns of the policy and of the demonstrators, where they are known.
    - `history`: metrics by step.
    - `warnings`: what to know before the answer is used.
    - `steps`, `seconds`: how long it took.
    - `weights`, `bias`: in an MDP, the weights of the shared reward, and of each demonstrator's bias.
    - `converged`: in an MDP, whether the estimate converged.
    - `members`: with networks, the members of the ensemble.
    - `episode_skill`: of each episode, where demonstrators are judged by the others.
    - `situations`: in which situations each demonstrator is strong and weak, where they are judged by the others.
    - `people`: which episodes are whose, where episodes were grouped; see `irleed.fit.mixture`.
    - `baselines`: fits of other methods to the same data, by their names.
    """

    policy: Policy
    expertise: Expertise
    origin: Origin
    returns: tuple[ReturnEstimate, ...] = eqx.field(static=True)
    history: tuple[dict[str, int | float], ...] = eqx.field(static=True)
    warnings: tuple[str, ...] = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    seconds: float = eqx.field(static=True)
    weights: Float[Array, " F"] | None = None
    bias: Float[Array, "D F"] | None = None
    converged: bool = eqx.field(static=True, default=True)
    members: int | None = eqx.field(static=True, default=None)
    episode_skill: Float[np.ndarray, " E"] | None = None
    situations: Situations | None = None
    people: People | None = None
    baselines: "dict[str, Fit]" = eqx.field(default_factory=dict)

    def summary(self) -> dict[str, object]:
        """The answer as plain values, for JSON; without the weights of the biases, which may be many."""
        own: dict[str, object] = {"members": self.members}
        if self.weights is not None:
            own = {"weights": np.asarray(self.weights).tolist(), "converged": self.converged}
        return {
            "expertise": self.expertise.to_dict(),
            "ranking": list(self.expertise.ranking),
            "returns": [row.plain() for row in self.returns],
            "history": [{name: value for name, value in row.items() if np.isfinite(value)} for row in self.history],
            "steps": self.steps,
            **own,
            **self._of_episodes,
            **({} if self.situations is None else {"situations": self.situations.to_dict()}),
            **({} if self.people is None else {"people": self.people.summary()}),
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
        }

    @property
    def _of_episodes(self) -> dict[str, object]:
        """Skill in each episode and the number of its demonstrator, where that is estimated."""
        if self.episode_skill is None:
            return {}
        owner = np.asarray(self.origin.data.owner)
        return {"episode_skill": np.asarray(self.episode_skill).tolist(), "episode_demonstrator": owner.tolist()}

    def save(self, folder: str | Path) -> Path:
        """Write a run directory, as ``irleed fit --out`` does: for `irleed report`, `curate`, `export`, `evaluate`."""
        folder, origin = Path(folder), self.origin
        with open_run(folder, origin.run, origin.fingerprint, resume=False), writing(folder):
            write(folder, self)
            for name, each in self.baselines.items():
                each.save(folder / BASELINES / name)
            report(folder)
        return folder

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML page."""
        path = Path(path)
        with tempfile.TemporaryDirectory() as folder:
            run = cast(FitRun, read_run(self.save(Path(folder) / "run")))
        with beside(path) as file:
            file.write(page([dataclasses.replace(run, label=path.stem, folder="irleed.fit")]).encode())
        return path

    def _repr_html_(self) -> str:
        """A short table for notebooks."""
        said = f"{type(self).__name__}: {self.steps} steps, {round(self.seconds, 3)} s"
        odd = [listing(self.warnings)] if self.warnings else []
        return join([paragraph(said), *odd]) + self.expertise._repr_html_()


def write(folder: Path, found: Fit) -> None:
    """Write the policy, facts about the data, the pictures (expertise, and in a grid maps) and, last, the answer.

    The answer has the checksums of the files that are read with it, and the fingerprint of the data.
    """
    origin, answer = found.origin, found.summary()
    found.policy.save(folder / POLICY)
    names, expertise = found.expertise.names, found.expertise
    precision = expertise.precision, expertise.precision_low, expertise.precision_high
    figures.save(figures.expertise_bars(names, *precision, expertise.skill_and_ends), folder / "expertise")
    if found.bias is not None:
        answer["bias"] = np.asarray(found.bias).tolist()
    if origin.grid is not None and found.bias is not None and np.prod(origin.grid) == found.bias.shape[1]:
        own = {f"bias of {name}": bias for name, bias in zip(names, found.bias, strict=True)}
        maps = {name: np.asarray(values) for name, values in {"shared reward": found.weights, **own}.items()}
        figures.save(figures.gridworld_maps(*origin.grid, dict(list(maps.items())[:MOST_MAPS])), folder / "maps")
    departures.write(folder, origin.data, found.policy)
    head = {"format": "irleed-fit", "version": 1, "config": dict(origin.given)}
    head |= {"grid": None if origin.grid is None else list(origin.grid)}
    known = {"fingerprint": fingerprint(origin.data), "files": sums(folder)}
    write_signed(folder / ANSWER, {**head, **known, **answer})


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of the files of a run that are read with its answer, by their names."""
    return {name: file_digest(folder / name) for name in READ if (folder / name).is_file()}
