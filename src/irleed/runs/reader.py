"""The reader of run directories, which checks every value."""

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import EXPANSION
from irleed._io.files import file_digest
from irleed._io.text import name, one_line
from irleed._typing import Int
from irleed.data import Demonstrations, ReadOptions
from irleed.data.formats import inside
from irleed.data.validation import LONGEST as LONGEST_NAME
from irleed.policies import Policy, load_policy
from irleed.runs.directory import ANSWER, BASELINES, POLICY, RUN, Fields, content, read_json, read_lines, refuse
from irleed.runs.results import RESULTS, Results, Validation, read_results, read_validation
from irleed.runs.strengths import Strengths, read_strengths


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, if there is one."""

    name: str
    value: float
    low: float | None
    high: float | None
    count: int | None = None  # of the episodes it is the mean of; 0: computed exactly

    @property
    def exact(self) -> bool:
        """Whether it was computed exactly."""
        return self.count == 0 and self.low == self.high == self.value

    def apart(self, other: "Estimate") -> bool:
        """Whether the intervals do not overlap; False without intervals."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low > other.high or other.low > self.high


@dataclass(frozen=True)
class Person:
    """The estimates for one demonstrator."""

    name: str
    transitions: float
    precision: Estimate
    bias: Estimate | None  # None where the algorithm has none
    log_likelihood: float | None
    weight: float | None
    ranked: bool = True  # False: too few transitions to be compared with others
    skill: Estimate | None = None  # None where it is not estimated: in older runs, and by algorithms without it

    @property
    def quality(self) -> Estimate:
        """Skill where it is estimated, else precision; demonstrators are ranked by it."""
        return self.precision if self.skill is None else self.skill


@dataclass(frozen=True)
class EpisodeSkill:
    """Skill in one episode, shrunk towards the demonstrator's."""

    episode: int
    who: int  # number of the demonstrator
    value: float


@dataclass(frozen=True)
class Grouping:
    """Who acted in each episode, where episodes were grouped into people."""

    probability: tuple[tuple[float, ...], ...]  # of each of the people, by episode
    log_likelihood: tuple[tuple[str, float], ...]  # held out, by the number of people

    @property
    def owner(self) -> Int[np.ndarray, " E"]:
        """The most probable person of each episode."""
        return np.array(self.probability).argmax(1)


@dataclass(frozen=True)
class Situation:
    """A step where a demonstrator departed far from the shared policy."""

    episode: int
    step: int
    action: int
    probability: float
    likeliest: int
    likeliest_probability: float
    departure: float
    place: tuple[float, float]
    observation: tuple[float, ...] | None
    frame: str | None


@dataclass(frozen=True)
class Departures:
    """Departures from the shared policy; demonstrators are numbers in the order of `FitRun.people`."""

    mean: tuple[float, ...]
    looked_at: int
    explained: tuple[float, ...]
    points: tuple[tuple[int, float, float, float], ...]  # who, x, y, departure
    people: tuple[tuple[int, tuple[Situation, ...]], ...]


@dataclass(frozen=True)
class Film:
    """A recorded episode of the policy, as images to embed."""

    moving: str
    still: str
    total: float
    steps: int
    every: int  # steps between two frames
    seed: int


@dataclass(frozen=True)
class FitRun:
    """A folder of `irleed fit`."""

    label: str
    folder: str
    config: dict[str, Any]
    people: tuple[Person, ...]
    returns: tuple[Estimate, ...]  # of the policy and of the demonstrators; none where they are not known
    demonstrated: tuple[Estimate, ...]  # of the demonstrators, from the data
    history: tuple[tuple[float, float], ...]  # step, measure
    measure: str
    steps: int
    members: int | None
    seconds: float
    warnings: tuple[str, ...]
    weights: tuple[float, ...] | None
    bias: tuple[tuple[float, ...], ...] | None
    grid: tuple[int, int] | None
    departures: Departures | None
    facts: Fields | None
    provenance: dict[str, Any] | None
    baselines: tuple["FitRun", ...] = ()  # other methods on the same data, in folders inside this one
    film: Film | str | None = None  # or the reason why there is none
    unfinished: tuple[str, ...] = ()  # baselines without results
    reading: ReadOptions = ReadOptions()  # of the data
    fingerprint: str | None = None  # of the data; runs of older versions have none
    validation: Validation | None = None  # against scores that the user has
    episodes: tuple[EpisodeSkill, ...] = ()  # none where skill is not estimated
    strengths: Strengths | None = None  # skill by situation
    grouping: Grouping | None = None  # where episodes were grouped into people

    def as_fitted(self, data: Demonstrations) -> Demonstrations:
        """The data with the people that their episodes were grouped into, if they were."""
        names = tuple(person.name for person in self.people)
        if self.grouping is None or data.names == names or data.episodes != len(self.grouping.probability):
            return data
        return data.by_owner(self.grouping.owner, names)

    @property
    def by_skill(self) -> bool:
        """Whether demonstrators are ranked by skill, not by precision."""
        return all(person.skill is not None for person in self.people)

    @property
    def policy(self) -> Policy:
        """The shared policy, from its file."""
        return load_policy(Path(self.folder) / POLICY)

    @property
    def networks(self) -> bool:
        """Whether networks were fitted, not a finite MDP."""
        return self.members is not None


@dataclass(frozen=True)
class ExperimentRun:
    """A folder of `irleed experiment`."""

    label: str
    folder: str
    results: Results

    @property
    def config(self) -> Mapping[str, Any]:
        """Settings of the experiment."""
        return self.results.config


Run = FitRun | ExperimentRun


VERSION = 1  # the newest known format of every file
MOST_BYTES = 600_000  # of an image of a film
PLAIN = re.compile(r"[\w.-]{1,200}", re.ASCII)  # names of files in runs and exports
MOST_SUMMED = 1 << 32  # bytes of a file whose checksum is compared
MOST_LISTED, MOST_POINTS = 100, 10_000  # situations and their demonstrators; points of the projection
MOST_FRAME = 10_000_000  # characters of an image of a situation
WRITE_AGAIN = "copy the run again, or write it again: the same command with --resume does"
MAKE = "name a folder made by `irleed fit DATA --out FOLDER` or `irleed experiment NAME --out FOLDER`"


def read_run(folder: Path, beside: bool = True) -> Run:
    """The content of a run directory, and with `beside` the runs in its folder `baselines`."""
    try:
        if not folder.is_dir():
            refuse(str(folder), "a file" if folder.exists() else "nothing", "a run directory", MAKE)
        experiment = (folder / RESULTS).exists()
    except OSError as error:  # a name that is too long, or a folder that may not be searched
        refuse(str(folder), error.strerror or str(error), "a run directory", MAKE)
    if experiment:
        return ExperimentRun(folder.resolve().name, str(folder), read_results(folder / RESULTS))
    if not (folder / ANSWER).exists() and (folder / RUN).exists():
        remedy = "finish it: the same command with --resume continues it"
        refuse(str(folder), "a run that has not finished: no fit.json in it", "a whole run directory", remedy)
    if not (folder / ANSWER).exists():
        refuse(str(folder), f"no {ANSWER} and no results.json in it", "a run directory", MAKE)
    if not (folder / POLICY).exists():
        refuse(str(folder), f"no {POLICY} in it", "a whole run directory", WRITE_AGAIN)
    inside(folder, folder / POLICY)
    answer = read_json(folder / ANSWER)
    check_files(folder, answer)
    run = _fit(folder, answer)
    done = _baselines(folder) if beside else {}
    found = [read_run(each, beside=False) for each, answered in done.items() if answered]
    return replace(
        run,
        baselines=tuple(each for each in found if isinstance(each, FitRun)),
        unfinished=tuple(each.name for each, answered in done.items() if not answered),
        film=_film(folder),
        validation=read_validation(folder),
    )


def read_fit(folder: Path, remedy: str = "name a folder made by `irleed fit DATA --out FOLDER`") -> FitRun:
    """The content of the run directory of a fit; one of an experiment is refused."""
    found = read_run(folder)
    if not isinstance(found, FitRun):
        refuse(str(folder), "an experiment", "the folder of a fit", remedy)
    return found


def _baselines(run: Path) -> dict[Path, bool]:
    """The subfolders of a run for other methods, and whether each has an answer; links out of the run are refused."""
    place = run / BASELINES
    try:
        found = sorted(inside(run, place).iterdir()) if place.is_dir() else []
        return {each: (each / ANSWER).exists() for each in found if inside(run, each).is_dir()}
    except OSError as error:
        refuse(str(place), error.strerror or str(error), "a folder that can be read")


def check_files(folder: Path, described: Fields) -> None:
    """Refuse files that are missing, or do not match the SHA-256 in a description.

    Older runs have none.
    """
    sums = described.inner("files").plain() if "files" in described else {}
    for file, expected in sums.items():
        path = folder / file
        if not PLAIN.fullmatch(file) or path.parent != folder or not isinstance(expected, str):
            refuse(f"{described.where}, files", repr(file), "names of files in this folder, each with its SHA-256")
        if not inside(folder, path).is_file():
            refuse(str(folder), f"no {file} in it", "a whole run directory", WRITE_AGAIN)
        if path.stat().st_size > MOST_SUMMED:
            refuse(str(path), f"{path.stat().st_size} bytes", f"at most {MOST_SUMMED}")
        try:
            found = file_digest(path)
        except OSError as error:
            refuse(str(path), error.strerror or str(error), "a file that can be read")
        if found != expected:
            got = f"another file than was written (SHA-256 {found[:8]}...)"
            refuse(str(path), got, f"SHA-256 {expected[:8]}..., as {described.where} says", WRITE_AGAIN)


def _fit(folder: Path, found: Fields) -> FitRun:
    found.version(VERSION)
    people = tuple(map(_person, found.inners("expertise")))
    if not people:
        refuse(f"{found.where}, expertise", "no demonstrators", "one demonstrator or more")
    if len({person.skill is None for person in people}) > 1:
        refuse(f"{found.where}, expertise", "some demonstrators without skill", "skill of all of them, or of none")
    weights = tuple(found.numbers("weights")) if "weights" in found else None
    bias = tuple(map(tuple, found.table("bias"))) if "bias" in found else None
    if bias is not None and (weights is None or len(bias) != len(people) or len(bias[0]) != len(weights)):
        refuse(f"{found.where}, bias", f"{len(bias)} rows", "a row for each demonstrator, as long as the weights")
    measure, history = _history(folder, found)
    data = read_json(folder / "data.json") if (folder / "data.json").exists() else None
    provenance = read_json(folder / RUN) if (folder / RUN).exists() else None
    if provenance is not None:
        provenance.inner("config")
    for part in (data, provenance):
        if part is not None:
            part.version(VERSION)
    return FitRun(
        label=folder.resolve().name,
        folder=str(folder),
        config=found.inner("config").plain(),
        people=people,
        returns=tuple(map(_earned, found.inners("returns"))) if "returns" in found else (),
        demonstrated=() if data is None else tuple(map(_earned, data.inners("returns"))),
        history=history,
        measure=measure,
        steps=found.whole("steps"),
        members=found.whole("members") if "members" in found else None,
        seconds=found.number("seconds"),
        warnings=tuple(_warnings(found)),
        weights=weights,
        bias=bias,
        grid=_grid(found, weights),
        departures=_departures(folder, len(people)),
        facts=None if data is None else data.inner("facts"),
        reading=_reading(found.inner("config")),
        fingerprint=found.text("fingerprint") if "fingerprint" in found else None,
        provenance=None if provenance is None else provenance.plain(),
        episodes=_episodes(found, len(people)),
        strengths=read_strengths(found, len(people)),
        grouping=_grouping(found, len(people)),
    )


def _episodes(found: Fields, people: int) -> tuple[EpisodeSkill, ...]:
    """The skill in each episode, where it is estimated."""
    if "episode_skill" not in found or "episode_demonstrator" not in found:
        return ()
    skill, owner = found.numbers("episode_skill"), found.numbers("episode_demonstrator")
    if len(skill) != len(owner) or any(who not in range(people) for who in owner):
        where, expected = f"{found.where}, episode_demonstrator", "the number of a demonstrator for each episode_skill"
        refuse(where, "something else", expected)
    return tuple(
        EpisodeSkill(number, int(who), value) for number, (who, value) in enumerate(zip(owner, skill, strict=True))
    )


def _grouping(found: Fields, people: int) -> Grouping | None:
    """Probabilities of people, each of whom has an episode."""
    if "people" not in found:
        return None
    own = found.inner("people")
    rows, levels = own.table("probability"), own.inner("log_likelihood")
    known = len(rows) > 0 and len(rows[0]) == people and all(0 <= value <= 1 for row in rows for value in row)
    if not known or len(set(np.array(rows).argmax(1).tolist())) < people:
        expected = "a probability for each demonstrator, of every episode; an episode of everyone"
        refuse(f"{own.where}, probability", "something else", expected)
    level = tuple((one_line(count), levels.number(count)) for count in levels.plain())
    return Grouping(tuple(map(tuple, rows)), level)


def _reading(config: Fields) -> ReadOptions:
    """How the data were read; older runs lack some of it."""
    if "reading" not in config:
        return ReadOptions()
    found = config.inner("reading")
    return ReadOptions(
        demonstrator=found.text("demonstrator") if "demonstrator" in found else ReadOptions.demonstrator,
        obs=tuple(found.texts("obs")) if "obs" in found else (),
        action=found.text("action") if "action" in found else None,
        expansion=found.number("expansion") if "expansion" in found else EXPANSION,
    )


def _warnings(found: Fields) -> list[str]:
    stopped = "converged" in found and not found.flag("converged")
    return [*(found.texts("warnings") if "warnings" in found else []), *(["stopped before convergence"] * stopped)]


def _grid(found: Fields, weights: tuple[float, ...] | None) -> tuple[int, int] | None:
    """Rows and columns, if every cell has a weight."""
    if "grid" not in found:
        return None
    shape = found.numbers("grid")
    if len(shape) != 2 or min(shape) < 1 or any(side % 1 for side in shape):
        refuse(f"{found.where}, grid", shape, "rows and columns")
    return (int(shape[0]), int(shape[1])) if weights is not None and math.prod(shape) == len(weights) else None


def _person(row: Fields) -> Person:
    precision = _estimate(row, "precision")
    if precision.value < 0:
        refuse(f"{row.where}, precision", precision.value, "a number from 0")
    return Person(
        name=row.text("name", LONGEST_NAME),
        transitions=row.number("transitions"),
        precision=precision,
        bias=None if row.maybe("bias") is None else _estimate(row, "bias"),
        log_likelihood=row.maybe("log_likelihood"),
        weight=row.maybe("weight"),
        ranked="ranked" not in row or row.flag("ranked"),
        skill=_estimate(row, "skill") if "skill" in row else None,
    )


def _estimate(row: Fields, key: str) -> Estimate:
    return _checked(row, Estimate(row.text("name"), row.number(key), row.maybe(f"{key}_low"), row.maybe(f"{key}_high")))


def _earned(row: Fields) -> Estimate:
    found = Estimate(row.text("who"), row.number("mean"), row.maybe("low"), row.maybe("high"), row.whole("episodes"))
    return _checked(row, found)


def _checked(row: Fields, found: Estimate) -> Estimate:
    if found.low is not None and found.high is not None and found.low > found.high:
        refuse(row.where, f"an interval from {found.low} to {found.high}", "its low end first")
    return found


def _history(folder: Path, found: Fields) -> tuple[str, tuple[tuple[float, float], ...]]:
    """Name and values of the metric in history.jsonl or else fit.json, by step."""
    path = folder / "history.jsonl"
    rows = read_lines(path) if path.exists() else found.inners("history") if "history" in found else []
    if not rows:
        return "loss", ()
    there = [key for key in rows[0].plain() if key not in ("step", "seconds")]
    if not there:
        return "loss", ()
    measure = next((key for key in ("loss", "log_posterior", "objective") if key in there), there[0])
    # A resumed run may have the same step twice: the last one counts.
    points = {row.number("step"): row.number(measure) for row in rows if measure in row}
    return name(measure), tuple(sorted(points.items()))


def _departures(folder: Path, people: int) -> Departures | None:
    path = folder / "departures.json"
    if not path.exists():
        return None
    found = read_json(path)
    found.version(VERSION)
    points, mean = found.inner("points"), found.numbers("mean")
    who, place, departure = points.numbers("who"), points.table("place"), points.numbers("departure")
    listed = [
        (person.whole("who"), tuple(map(_situation, person.inners("situations")))) for person in found.inners("people")
    ]
    numbers = [*who, *(number for number, _ in listed)]
    longest = max([len(listed), *(len(own) for _, own in listed)])
    if longest > MOST_LISTED or len(who) > MOST_POINTS:  # each demonstrator has a panel with all points
        got = f"a list of {longest} and {len(who)} points"
        refuse(str(path), got, f"lists of at most {MOST_LISTED} and {MOST_POINTS} points")
    fits = len(mean) == people and len(who) == len(place) == len(departure) and all(len(at) == 2 for at in place)
    if not fits or any(number not in range(people) for number in numbers):
        refuse(str(path), "inconsistent numbers", "those of the demonstrators in fit.json")
    return Departures(
        mean=tuple(mean),
        looked_at=found.whole("looked_at"),
        explained=tuple(found.numbers("explained")),
        points=tuple((int(w), x, y, d) for w, (x, y), d in zip(who, place, departure, strict=True)),
        people=tuple(listed),
    )


def _film(folder: Path) -> Film | str | None:
    """A recorded episode of the policy, or the reason why there is none."""
    if not (folder / "film.json").exists():
        return None
    found = read_json(folder / "film.json")
    found.version(VERSION)
    if "reason" in found:
        return found.text("reason")
    return Film(
        moving=_picture(folder / "film.webp", "webp", b"RIFF"),
        still=_picture(folder / "film.png", "png", b"\x89PNG"),
        total=found.number("return"),
        steps=found.whole("steps"),
        every=found.whole("every"),
        seed=found.whole("seed"),
    )


def _picture(path: Path, kind: str, start: bytes) -> str:
    """An image file as a data URI; refused if it is another kind of file or too large."""
    picture = content(path, MOST_BYTES)
    if not picture.startswith(start):
        refuse(str(path), f"{len(picture)} bytes of something else", f"a {kind} picture")
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _situation(row: Fields) -> Situation:
    place = row.numbers("place")
    frame = row.text("frame", MOST_FRAME + 1) if "frame" in row else None
    if len(place) != 2:
        refuse(f"{row.where}, place", place, "two numbers")
    if frame is not None and not (frame.startswith("data:image/png;base64,") and len(frame) <= MOST_FRAME):
        refuse(f"{row.where}, frame", frame, f"a PNG picture as a data URI of {MOST_FRAME} characters at most")
    return Situation(
        episode=row.whole("episode"),
        step=row.whole("step"),
        action=row.whole("action"),
        probability=row.number("probability"),
        likeliest=row.whole("likeliest"),
        likeliest_probability=row.number("likeliest_probability"),
        departure=row.number("departure"),
        place=(place[0], place[1]),
        observation=tuple(row.numbers("observation")) if "observation" in row else None,
        frame=frame,
    )
