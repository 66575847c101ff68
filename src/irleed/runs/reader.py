"""Run directories, read and checked."""

import base64
import math
import re
from dataclasses import replace
from pathlib import Path

from irleed._io.files import file_digest
from irleed._io.text import name
from irleed.data import ReadOptions
from irleed.data.formats.base import inside
from irleed.data.limits import EXPANSION
from irleed.data.validation import LONGEST as LONGEST_NAME
from irleed.runs.directory import ANSWER, BASELINES, POLICY
from irleed.runs.fields import Fields, content, read_json, read_lines, refuse
from irleed.runs.kinds import Departures, EpisodeSkill, Estimate, ExperimentRun, Film, FitRun, Person, Run, Situation
from irleed.runs.results import RESULTS, read_results
from irleed.runs.validation import read_validation

VERSION = 1  # the newest format of every file that is known here
MOST_BYTES = 600_000  # of a picture of a film
PLAIN = re.compile(r"[\w.-]{1,200}", re.ASCII)  # names of files that runs and exports consist of
MOST_SUMMED = 1 << 32  # bytes of a file whose checksum is compared
MOST_LISTED, MOST_POINTS = 100, 10_000  # situations, and demonstrators with such, and points of the projection
MOST_FRAME = 10_000_000  # characters of a picture of a situation
WRITE_AGAIN = "copy the run again, or write it again: the same command with --resume does"
MAKE = "name a folder made by `irleed fit DATA --out FOLDER` or `irleed experiment NAME --out FOLDER`"


def read_run(folder: Path, beside: bool = True) -> Run:
    """What a run directory says, and the runs `beside` it in its folder `baselines`; others are refused in one line."""
    try:
        if not folder.is_dir():
            refuse(str(folder), "a file" if folder.exists() else "nothing", "a run directory", MAKE)
        experiment = (folder / RESULTS).exists()
    except OSError as error:  # a name that is too long, or a folder that may not be searched
        refuse(str(folder), error.strerror or str(error), "a run directory", MAKE)
    if experiment:
        return ExperimentRun(folder.resolve().name, str(folder), read_results(folder / RESULTS))
    if not (folder / "fit.json").exists() and (folder / "run.json").exists():
        remedy = "finish it: the same command with --resume goes on"
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
    """What the run directory of a fit says; an experiment's is refused."""
    found = read_run(folder)
    if not isinstance(found, FitRun):
        refuse(str(folder), "an experiment", "the folder of a fit", remedy)
    return found


def _baselines(run: Path) -> dict[Path, bool]:
    """The folders of other methods in that of a run, none of which leads out of it, and whether each has an answer."""
    place = run / BASELINES
    try:
        found = sorted(inside(run, place).iterdir()) if place.is_dir() else []
        return {each: (each / ANSWER).exists() for each in found if inside(run, each).is_dir()}
    except OSError as error:
        refuse(str(place), error.strerror or str(error), "a folder that can be read")


def check_files(folder: Path, described: Fields) -> None:
    """Refuse files that are missing, or not those that a description names with their SHA-256.

    Runs of older versions name none.
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
        refuse(f"{found.where}, expertise", "nobody", "one demonstrator or more")
    if len({person.skill is None for person in people}) > 1:
        refuse(f"{found.where}, expertise", "some demonstrators without skill", "skill of all of them, or of none")
    weights = tuple(found.numbers("weights")) if "weights" in found else None
    bias = tuple(map(tuple, found.table("bias"))) if "bias" in found else None
    if bias is not None and (weights is None or len(bias) != len(people) or len(bias[0]) != len(weights)):
        refuse(f"{found.where}, bias", f"{len(bias)} rows", "a row for each demonstrator, as long as the weights")
    measure, history = _history(folder, found)
    data = read_json(folder / "data.json") if (folder / "data.json").exists() else None
    provenance = read_json(folder / "run.json") if (folder / "run.json").exists() else None
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
    )


def _episodes(found: Fields, people: int) -> tuple[EpisodeSkill, ...]:
    """The skill in each episode and whose it is, where that is estimated."""
    if "episode_skill" not in found or "episode_demonstrator" not in found:
        return ()
    skill, owner = found.numbers("episode_skill"), found.numbers("episode_demonstrator")
    if len(skill) != len(owner) or any(who not in range(people) for who in owner):
        where, expected = f"{found.where}, episode_demonstrator", "the number of a demonstrator for each episode_skill"
        refuse(where, "something else", expected)
    return tuple(
        EpisodeSkill(number, int(who), value) for number, (who, value) in enumerate(zip(owner, skill, strict=True))
    )


def _reading(config: Fields) -> ReadOptions:
    """How the data were read; older runs do not say all of it."""
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
    """Rows and columns, where every cell has a weight of its own."""
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
    """Of history.jsonl, else of fit.json: what was measured, and at which step it was what."""
    path = folder / "history.jsonl"
    rows = read_lines(path) if path.exists() else found.inners("history") if "history" in found else []
    if not rows:
        return "loss", ()
    there = [key for key in rows[0].plain() if key not in ("step", "seconds")]
    if not there:
        return "loss", ()
    measure = next((key for key in ("loss", "log_posterior", "objective") if key in there), there[0])
    # A run that went on from a checkpoint may have been at the same step twice: what came last counts.
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
    if longest > MOST_LISTED or len(who) > MOST_POINTS:  # each demonstrator is a drawing with all points
        got = f"a list of {longest} and {len(who)} points"
        refuse(str(path), got, f"lists of at most {MOST_LISTED} and {MOST_POINTS} points")
    fits = len(mean) == people and len(who) == len(place) == len(departure) and all(len(at) == 2 for at in place)
    if not fits or any(number not in range(people) for number in numbers):
        refuse(str(path), "numbers that do not fit together", "those of the demonstrators in fit.json")
    return Departures(
        mean=tuple(mean),
        looked_at=found.whole("looked_at"),
        explained=tuple(found.numbers("explained")),
        points=tuple((int(w), x, y, d) for w, (x, y), d in zip(who, place, departure, strict=True)),
        people=tuple(listed),
    )


def _film(folder: Path) -> Film | str | None:
    """An episode of the policy, or why there is none."""
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
    """A file as a data URI, if it is what it is called, and not more than a page should carry."""
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
