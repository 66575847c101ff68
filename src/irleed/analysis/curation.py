r"""Weights for what is trained next: whom to listen to, and which of their episodes.

An episode of demonstrator $i$ weighs $\frac{\beta_i}{1 + b_i^2}\,e^{\ell - \bar\ell}$, scaled so that the mean over all
transitions is 1: the precision of its demonstrator times the share of their values that is not bias, $b_i$ being the
size of the bias relative to what all are after; and how likely its actions are under the shared policy, $\ell$ being
their mean log probability and $\bar\ell$ that of all transitions.
"""

import csv
import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from irleed._io.files import beside
from irleed._io.text import csv_cell
from irleed._typing import Bool, Float, Int
from irleed.data import Demonstrations, ReadOptions, load, save
from irleed.data.formats import imitation, lerobot, minari, robomimic
from irleed.data.lazy import CHUNK
from irleed.data.limits import EXPANSION
from irleed.errors import ConfigError, DataError, SpaceError
from irleed.fit.result import Fit
from irleed.policies.base import Policy
from irleed.runs.directory import ANSWER, fingerprint
from irleed.runs.fields import refuse
from irleed.runs.reader import read_fit

KEEP, DROP = "irleed_keep", "irleed_drop"  # masks in a robomimic file


class Assessment(eqx.Module):
    """What a fit says of the demonstrators, by which their episodes are weighed."""

    policy: Policy
    names: tuple[str, ...] = eqx.field(static=True)
    precision: Float[np.ndarray, " D"]
    bias: Float[np.ndarray, " D"]  # 0 where the algorithm knows none
    reading: ReadOptions = eqx.field(static=True)  # of the data
    fingerprint: str | None = eqx.field(static=True, default=None)  # of the data; runs of older versions have none

    @classmethod
    def of(cls, run: Fit | str | Path, expansion: float = EXPANSION) -> "Assessment":
        """From a fit, or from the folder of one; anything else is refused in one line.

        The data of a folder are to be read with this `expansion`: a run, which may be somebody's, does not raise the
        limit of memory.
        """
        if isinstance(run, Fit):
            found, data = run.expertise, run.origin.data
            reading = ReadOptions(**run.origin.given["reading"])
            skill = np.asarray(found.precision), np.nan_to_num(np.asarray(found.bias))
            return cls(run.policy, found.names, *skill, reading, fingerprint(data))
        kept = read_fit(Path(run), "make one with `irleed fit DATA --out FOLDER`")
        names = tuple(person.name for person in kept.people)
        precision = np.array([person.precision.value for person in kept.people], float)
        bias = np.array([0.0 if person.bias is None else person.bias.value for person in kept.people], float)
        if not (precision > 0).all() or not (bias >= 0).all() or len(set(names)) < len(names):
            got, expected = "an expertise table that is none", "positive precisions, every name once"
            refuse(f"{run}, {ANSWER}", got, expected, "fit again")
        reading = dataclasses.replace(kept.reading, expansion=expansion)
        return cls(kept.policy, names, precision, bias, reading, kept.fingerprint)


class Curation(eqx.Module):
    """A judgement on every episode, with what it comes from."""

    names: tuple[str, ...] = eqx.field(static=True)
    owner: Int[np.ndarray, " E"]
    steps: Int[np.ndarray, " E"]
    precision: Float[np.ndarray, " D"]
    bias: Float[np.ndarray, " D"]
    log_likelihood: Float[np.ndarray, " E"]
    weight: Float[np.ndarray, " E"]
    keep: Bool[np.ndarray, " E"]

    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary an episode."""
        average = float(np.average(self.log_likelihood, weights=self.steps))
        return [
            {
                "episode": number,
                "operator": self.names[who],
                "steps": int(self.steps[number]),
                "precision": float(self.precision[who]),
                "bias": float(self.bias[who]),
                "log_likelihood": float(self.log_likelihood[number]),
                "quality_score": float(self.weight[number]),
                "keep": bool(self.keep[number]),
                "reason": self._reason(number, int(who), average),
            }
            for number, who in enumerate(self.owner)
        ]

    def _reason(self, number: int, who: int, average: float) -> str:
        own = self.log_likelihood[number]
        likely = "likelier" if own > average else "less likely"
        return (
            f"precision {self.precision[who]:.2f}, bias {self.bias[who]:.2f}; "
            f"actions {likely} than average under the shared policy ({own:.2f}, average {average:.2f})"
        )


def curate(
    data: Demonstrations | str | Path,
    run: Fit | str | Path,
    *,
    out: str | Path | None = None,
    share: float = 0.5,
    other_data: bool = False,
    expansion: float = EXPANSION,
) -> Curation:
    """Weigh episodes by what a fit says of them, and write weights or a filtered copy; the source stays as it is.

    **Arguments:**

    - `data`: the demonstrations that were fitted, or their path.
    - `run`: the fit, or the folder of one.
    - `out`: what to write, by its ending. ``.csv`` or ``.parquet``: a row of weights for each episode; ``.npz``: the
      episodes to keep; ``.hdf5``: a copy of a robomimic file with the masks irleed_keep and irleed_drop; none: a folder
      with the episodes to keep, of a Minari data set as such, else in the layout of the library imitation.
    - `share`: episodes of most weight are kept until they have this share of all transitions.
    - `other_data`: weigh data that the run was not fitted to: new episodes of the same demonstrators.
    - `expansion`: how many times its own size a file may take in memory, see `irleed.data.ReadOptions`.
    """
    known = Assessment.of(run, expansion)
    loaded = data if isinstance(data, Demonstrations) else load(data, known.reading)
    found = weigh(loaded, known, share, other_data=other_data)
    if out is not None:
        _write(None if isinstance(data, Demonstrations) else Path(data), Path(out), loaded, found)
    return found


def weigh(data: Demonstrations, run: Assessment, share: float = 0.5, *, other_data: bool = False) -> Curation:
    """Weigh the episodes, and keep those of most weight until they have this share of all transitions.

    Data that the run was not fitted to are refused, unless `other_data` says that they are meant: new episodes of the
    same demonstrators.
    """
    if not 0 < share <= 1:
        raise ConfigError("--share", got=share, expected="above 0, at most 1", remedy="choose another")
    unknown = [name for name in data.names if name not in run.names]
    if unknown:
        got, expected = f"demonstrator {unknown[0]!r}", f"those of the run: {', '.join(run.names[:8])}"
        raise SpaceError("data", got=got, expected=expected, remedy="curate the data that were fitted")
    if not other_data and run.fingerprint is not None and run.fingerprint != (found := fingerprint(data)):
        got, expected = f"SHA-256 {found[:8]}...", f"{run.fingerprint[:8]}..., the data of the run"
        remedy = "curate the data that were fitted, or say --other-data for new episodes of the same demonstrators"
        raise SpaceError("data", got=got, expected=expected, remedy=remedy)
    place = [run.names.index(name) for name in data.names]
    precision, bias = run.precision[place], run.bias[place]
    steps = np.asarray(data.length)
    likely = np.add.reduceat(_log_likelihood(run.policy, data), data.start) / steps
    with np.errstate(all="ignore"):  # numbers that are too large for this are refused below
        score = np.log(precision / (1 + bias**2))[data.owner] + likely
    if not np.isfinite(score).all():  # such episodes have no place in an order
        episode = int(np.argmin(np.isfinite(score)))
        got, remedy = f"a score of {score[episode]}", "fit again: policy or expertise are out of all bounds"
        raise DataError(f"data, episode {episode}", got=got, expected="a finite number", remedy=remedy)
    weight = np.exp(score - score.max())
    weight /= np.average(weight, weights=steps)
    order = np.argsort(-weight, kind="stable")
    before = np.cumsum(steps[order]) - steps[order]
    keep = np.zeros(len(steps), bool)
    keep[order[before < share * steps.sum()]] = True
    return Curation(data.names, np.asarray(data.owner), steps, precision, bias, likely, weight, keep)


def _log_likelihood(policy: Policy, data: Demonstrations) -> Float[np.ndarray, " N"]:
    """Of every action under the shared policy, in parts, as data may be too large for memory."""
    row, action = np.asarray(data.row), np.asarray(data.action)
    step = max(1, CHUNK // (4 * math.prod(data.obs.shape[1:])))
    parts = [slice(n, n + step) for n in range(0, len(row), step)]
    return np.concatenate([policy.log_likelihood(data.obs[row[part]], action[part]) for part in parts])


def _write(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    """By the ending of the name; nothing that is there is written over."""
    if out.exists():
        raise ConfigError(f"--out {out}", got="what exists", expected="a new name", remedy="choose another")
    if not out.parent.is_dir():
        got, remedy = f"no folder {out.parent}", "make it first"
        raise ConfigError(f"--out {out}", got=got, expected="a folder that exists", remedy=remedy)
    writers: dict[str, Callable[[Path | None, Path, Demonstrations, Curation], None]] = {
        ".csv": _csv,
        ".parquet": _parquet,
        ".npz": _npz,
        ".hdf5": _masks,
        ".h5": _masks,
        "": _folder,
    }
    if out.suffix not in writers:
        expected = ", ".join(ending or "a folder" for ending in writers)
        raise ConfigError(f"--out {out}", got=out.suffix, expected=expected, remedy="choose one of them")
    try:
        writers[out.suffix](source, out, data, found)
    except OSError as error:
        got, remedy = error.strerror or str(error), "choose another place"
        raise ConfigError(f"--out {out}", got=got, expected="a place to write", remedy=remedy) from error


def _csv(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    """Names that a spreadsheet would take for formulas get an apostrophe; programs join on the episode's number."""
    rows = found.rows()
    with beside(out) as binary, open(os.dup(binary.fileno()), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)


def _parquet(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    rows = found.rows()
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("episode", "quality_score")}
    lerobot.write_weights(out, [row["episode"] for row in rows], [row["quality_score"] for row in rows], **columns)


def _npz(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    save(_kept(data, found), out)


def _masks(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    if source is None:
        got, remedy = "data in memory", "give the path of the file, or write .npz"
        raise ConfigError(f"--out {out}", got=got, expected="a robomimic file to copy", remedy=remedy)
    masks: dict[str, list[str]] = {KEEP: [], DROP: []}
    for name, keep in zip(robomimic.demo_names(source), found.keep, strict=True):
        masks[KEEP if keep else DROP].append(name)
    robomimic.write_masks(source, out, {mask: names for mask, names in masks.items() if names})


def _folder(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    if source is not None and minari.FORMAT.recognises(source):
        minari.write(source, out, np.flatnonzero(found.keep).tolist())
    else:
        imitation.write(_kept(data, found), out)


def _kept(data: Demonstrations, found: Curation) -> Demonstrations:
    return data.take(np.flatnonzero(found.keep))
