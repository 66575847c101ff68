r"""`irleed.curate`: weights of episodes, for training other policies on the same data.

Where skill is estimated, the weight of an episode is $\max(k_e, 0)^2$, where $k_e$ is the skill in it: 1 for what the
other demonstrators would do, 0 for actions that do not depend on the state. Skill has no units, and is shrunk towards
the demonstrator's where an episode is short.

Other fits have no skill: the weight of an episode of demonstrator $i$ is $\frac{\beta_i}{1 + b_i^2}\,e^{\ell -
\bar\ell}$: precision times the fraction of the demonstrator's values that is not bias ($b_i$ is the size of the bias
relative to the shared values), times the likelihood of the actions under the shared policy ($\ell$ is their mean log
probability, $\bar\ell$ that of all transitions).

Either is scaled so that the mean over all transitions is 1.
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

from irleed._io.arrays import EXPANSION
from irleed._io.files import beside
from irleed._io.text import csv_cell
from irleed._typing import Bool, Float, Int
from irleed.data import Demonstrations, ReadOptions, load, save
from irleed.data.formats import imitation, lerobot, minari, robomimic
from irleed.data.lazy import CHUNK
from irleed.errors import ConfigError, DataError, SpaceError
from irleed.fit.result import Fit
from irleed.policies import Policy
from irleed.runs.directory import ANSWER, fingerprint, refuse
from irleed.runs.reader import read_fit

LEAST_KEPT = 0.02  # of the largest weight: less is not kept to fill a share
KEEP, DROP = "irleed_keep", "irleed_drop"  # masks in a robomimic file
FEWEST_SHARE, FEWEST = 0.1, 10  # effective episodes: weights with fewer than both are refused
MANY = 20  # episodes from which on this is checked


class Assessment(eqx.Module):
    """A fit's estimates, from which weights of episodes are computed."""

    policy: Policy
    names: tuple[str, ...] = eqx.field(static=True)
    precision: Float[np.ndarray, " D"]
    bias: Float[np.ndarray, " D"]  # 0 where the algorithm knows none
    reading: ReadOptions = eqx.field(static=True)  # of the data
    fingerprint: str | None = eqx.field(static=True, default=None)  # of the data; runs of older versions have none
    skill: Float[np.ndarray, " D"] | None = None  # None where it is not estimated
    episode_skill: Float[np.ndarray, " E"] | None = None  # of the episodes of the data
    probability: Float[np.ndarray, "E D"] | None = None  # that an episode is someone's, where they were grouped

    def as_fitted(self, data: Demonstrations) -> Demonstrations:
        """The data with the people that their episodes were grouped into, if they were and these are the data."""
        if self.probability is None or len(self.probability) != data.episodes or data.names == self.names:
            return data
        found = data.by_owner(self.probability.argmax(1), self.names)
        return found if fingerprint(found) == self.fingerprint else data

    @classmethod
    def of(cls, run: Fit | str | Path, expansion: float = EXPANSION) -> "Assessment":
        """From a fit, or from the folder of one.

        The data of a folder are read with this `expansion`, not the run's: a foreign run must not raise the limit of
        memory.
        """
        if isinstance(run, Fit):
            found, reading = run.expertise, ReadOptions(**run.origin.given["reading"])
            precision, bias = np.asarray(found.precision), np.nan_to_num(np.asarray(found.bias))
            skill, data = None if found.skill is None else np.asarray(found.skill, float), fingerprint(run.origin.data)
            share = None if run.people is None else run.people.probability
            return cls(run.policy, found.names, precision, bias, reading, data, skill, run.episode_skill, share)
        kept = read_fit(Path(run), "make one with `irleed fit DATA --out FOLDER`")
        names = tuple(person.name for person in kept.people)
        precision = np.array([person.precision.value for person in kept.people], float)
        bias = np.array([0.0 if person.bias is None else person.bias.value for person in kept.people], float)
        if not (precision > 0).all() or not (bias >= 0).all() or len(set(names)) < len(names):
            got, expected = "an invalid expertise table", "positive precisions, every name once"
            refuse(f"{run}, {ANSWER}", got, expected, "fit again")
        skills = [person.skill.value for person in kept.people if person.skill is not None]
        skill = np.array(skills, float) if kept.by_skill else None
        episodes = np.array([each.value for each in kept.episodes], float) if kept.episodes else None
        reading = dataclasses.replace(kept.reading, expansion=expansion)
        share = None if kept.grouping is None else np.array(kept.grouping.probability)
        return cls(kept.policy, names, precision, bias, reading, kept.fingerprint, skill, episodes, share)


class Curation(eqx.Module):
    """The weight of every episode, and the estimates it is computed from."""

    names: tuple[str, ...] = eqx.field(static=True)
    owner: Int[np.ndarray, " E"]
    steps: Int[np.ndarray, " E"]
    precision: Float[np.ndarray, " D"]
    bias: Float[np.ndarray, " D"]
    log_likelihood: Float[np.ndarray, " E"]
    weight: Float[np.ndarray, " E"]
    keep: Bool[np.ndarray, " E"]
    skill: Float[np.ndarray, " D"] | None = None  # None where it is not estimated
    episode_skill: Float[np.ndarray, " E"] | None = None  # None too for episodes that were not fitted
    episode_names: tuple[str, ...] | None = eqx.field(static=True, default=None)  # in the source, where it has names
    probability: Float[np.ndarray, "E D"] | None = None  # that an episode is someone's, where they were grouped

    @property
    def effective_episodes(self) -> float:
        r"""The effective sample size of the weights in episodes, $(\sum w)^2 / \sum w^2$: all, if they are equal."""
        return effective_size(self.weight)

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each episode."""
        average = float(np.average(self.log_likelihood, weights=self.steps))
        return [
            {
                "episode": number,
                **({} if self.episode_names is None else {"episode_name": self.episode_names[number]}),
                "operator": self.names[who],
                "steps": int(self.steps[number]),
                **({} if self.skill is None else {"skill": float(self.skill[who])}),
                **({} if self.episode_skill is None else {"episode_skill": float(self.episode_skill[number])}),
                "precision": float(self.precision[who]),
                "bias": float(self.bias[who]),
                "log_likelihood": float(self.log_likelihood[number]),
                "quality_score": float(self.weight[number]),
                "keep": bool(self.keep[number]),
                "reason": self._reason(number, int(who), average),
                **({} if self.probability is None else self._probabilities(number)),
            }
            for number, who in enumerate(self.owner)
        ]

    def _probabilities(self, number: int) -> dict[str, float]:
        row = () if self.probability is None else self.probability[number].tolist()
        return {f"probability of {name}": value for name, value in zip(self.names, row, strict=True)}

    def _reason(self, number: int, who: int, average: float) -> str:
        own = self.log_likelihood[number]
        likely = "more probable" if own > average else "less probable"
        if self.skill is not None:
            here = "" if self.episode_skill is None else f"skill {self.episode_skill[number]:.2f} in this episode, "
            return f"{here}{self.skill[who]:.2f} of the demonstrator; 1 is what the others would do, 0 random actions"
        return (
            f"precision {self.precision[who]:.2f}, bias {self.bias[who]:.2f}; "
            f"actions {likely} than average under the shared policy ({own:.2f}, average {average:.2f})"
        )


def curate(
    data: Demonstrations | str | Path,
    run: Fit | str | Path,
    *,
    out: str | Path | None = None,
    frames: str | Path | None = None,
    share: float = 0.5,
    other_data: bool = False,
    expansion: float = EXPANSION,
    allow_few: bool = False,
) -> Curation:
    """Weigh episodes by a fit's estimates, and write weights or a filtered copy; the source is not changed.

    **Arguments:**

    - `data`: the demonstrations that were fitted, or their path.
    - `run`: the fit, or the folder of one.
    - `out`: what to write, by its ending. ``.csv`` or ``.parquet``: a row of weights for each episode; ``.npz``: the
      episodes to keep; ``.hdf5``: a copy of a robomimic file with the masks irleed_keep and irleed_drop; none: a folder
      with the episodes to keep, of a Minari data set as such, else in the layout of the library imitation.
    - `frames`: of a LeRobot folder, also write a new Parquet file with the `index` and the `weight` of every frame.
    - `share`: episodes of most weight are kept until they have this share of all transitions.
    - `other_data`: weigh data that the run was not fitted to: new episodes of the same demonstrators.
    - `expansion`: how many times its own size a file may take in memory, see `irleed.data.ReadOptions`.
    - `allow_few`: accept weights that rest on a few episodes, see `weigh`.
    """
    known = Assessment.of(run, expansion)
    loaded = known.as_fitted(data if isinstance(data, Demonstrations) else load(data, known.reading))
    found = weigh(loaded, known, share, other_data=other_data, allow_few=allow_few)
    source = None if isinstance(data, Demonstrations) else Path(data)
    people = known.probability if found.names == known.names and not other_data else None
    found = dataclasses.replace(found, episode_names=_names(source, known.reading), probability=people)
    if frames is not None:
        if source is None or not lerobot.FORMAT.recognises(source):
            got, expected = "other data" if source else "data in memory", "a LeRobot folder, whose frames have an index"
            raise ConfigError(f"--frames {frames}", got=got, expected=expected, remedy="leave --frames out")
        lerobot.write_frame_weights(Path(frames), source, found.weight, known.reading)
    if out is not None:
        _write(source, Path(out), loaded, found)
    return found


def _names(source: Path | None, reading: ReadOptions) -> tuple[str, ...] | None:
    """Names of the episodes in the source, where its format has any."""
    if source is not None and robomimic.FORMAT.recognises(source):
        return robomimic.demo_names(source)
    if source is not None and lerobot.FORMAT.recognises(source):
        return lerobot.episode_names(source, reading)
    return None


def weigh(
    data: Demonstrations,
    run: Assessment,
    share: float = 0.5,
    *,
    other_data: bool = False,
    allow_few: bool = False,
) -> Curation:
    """Weigh the episodes, and keep those of most weight until they have this share of all transitions.

    Below a share of 1, episodes of less than a fiftieth of the largest weight are not kept, even if fewer are left.
    Data that the run was not fitted to are refused unless `other_data`: new episodes of the same demonstrators, with
    their weights. Of 20 episodes or more, weights whose effective sample size is below 10 % of the
    episodes and below 10 are refused unless `allow_few`.
    """
    if not 0 < share <= 1:
        raise ConfigError("--share", got=share, expected="above 0, at most 1", remedy="choose another")
    unknown = [name for name in data.names if name not in run.names]
    if unknown:
        got, expected = f"demonstrator {unknown[0]!r}", f"those of the run: {', '.join(run.names[:8])}"
        raise SpaceError("data", got=got, expected=expected, remedy="curate the data that were fitted")
    found = None if run.fingerprint is None else fingerprint(data)
    if not other_data and found is not None and found != run.fingerprint:
        got, expected = f"SHA-256 {found[:8]}...", f"{str(run.fingerprint)[:8]}..., the data of the run"
        remedy = "curate the data that were fitted, or give --other-data for new episodes of the same demonstrators"
        raise SpaceError("data", got=got, expected=expected, remedy=remedy)
    place = [run.names.index(name) for name in data.names]
    precision, bias = run.precision[place], run.bias[place]
    skill = None if run.skill is None else run.skill[place]
    episode_skill = run.episode_skill if found is not None and found == run.fingerprint else None
    if episode_skill is not None and len(episode_skill) != data.episodes:
        got, expected = f"skill in {len(episode_skill)} episodes", f"in {data.episodes}, those of the data"
        refuse(f"the run, {ANSWER}", got, expected, "fit again")
    steps, owner = np.asarray(data.length), np.asarray(data.owner)
    likely = np.add.reduceat(_log_likelihood(run.policy, data), data.start) / steps
    if skill is None:
        with np.errstate(all="ignore"):  # overflow is refused below
            score = np.log(precision / (1 + bias**2))[owner] + likely
        _check_finite(score)
        weight = np.exp(score - score.max())
    else:
        score = skill[owner] if episode_skill is None else np.asarray(episode_skill, float)
        _check_finite(score)
        weight = np.maximum(score, 0.0) ** 2
    _check_size(weight, allow_few)
    weight /= np.average(weight, weights=steps)
    order = np.argsort(-score, kind="stable")
    before = np.cumsum(steps[order]) - steps[order]
    keep = np.zeros(len(steps), bool)
    keep[order[before < share * steps.sum()]] = True
    if share < 1:
        keep &= weight >= LEAST_KEPT * weight.max()
    return Curation(data.names, owner, steps, precision, bias, likely, weight, keep, skill, episode_skill)


def _check_finite(score: Float[np.ndarray, " E"]) -> None:
    """Refuse scores that are not finite."""
    if not np.isfinite(score).all():
        episode = int(np.argmin(np.isfinite(score)))
        got, remedy = f"a score of {score[episode]}", "fit again: policy or expertise are not finite"
        raise DataError(f"data, episode {episode}", got=got, expected="a finite number", remedy=remedy)


def effective_size(weight: Float[np.ndarray, " E"]) -> float:
    r"""The effective sample size $(\sum w)^2 / \sum w^2$: the number of equal weights with the same variance."""
    return float(weight.sum() ** 2 / max((weight**2).sum(), 1e-300))


def _check_size(weight: Float[np.ndarray, " E"], allow_few: bool) -> None:
    """Refuse weights with too small an effective sample size."""
    if not (weight > 0).any():
        remedy = "do not use this fit for weights: by its values, no demonstrator is better than random"
        raise DataError("weights", got="skill of 0 or less in every episode", expected="some above 0", remedy=remedy)
    size, episodes = effective_size(weight), len(weight)
    if not allow_few and episodes >= MANY and size < min(FEWEST, FEWEST_SHARE * episodes):
        got = f"an effective sample size of {size:.1f} of {episodes} episodes"
        expected = f"at least {min(FEWEST, FEWEST_SHARE * episodes):.0f}"
        remedy = "give --allow-few to accept them"
        raise DataError("weights", got=got, expected=expected, remedy=remedy)


def _log_likelihood(policy: Policy, data: Demonstrations) -> Float[np.ndarray, " N"]:
    """Log likelihoods of all actions under the shared policy, in batches, as data may be too large for memory."""
    row, action = np.asarray(data.row), np.asarray(data.action)
    step = max(1, CHUNK // (4 * math.prod(data.obs.shape[1:])))
    parts = [slice(n, n + step) for n in range(0, len(row), step)]
    return np.concatenate([policy.log_likelihood(data.obs[row[part]], action[part]) for part in parts])


def _write(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    """Write in the format of the file name's suffix; existing files are not overwritten."""
    if os.path.lexists(out):
        raise ConfigError(f"--out {out}", got="what exists", expected="a new name", remedy="choose another")
    if not os.path.isdir(out.parent):
        got, remedy = f"no folder {out.parent}", "make it first"
        raise ConfigError(f"--out {out}", got=got, expected="a folder that exists", remedy=remedy)
    writers: dict[str, Callable[[Path | None, Path, Demonstrations, Curation], None]]
    writers = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".hdf5": _masks, ".h5": _masks, "": _folder}
    if out.suffix not in writers:
        expected = ", ".join(ending or "a folder" for ending in writers)
        raise ConfigError(f"--out {out}", got=out.suffix, expected=expected, remedy="choose one of them")
    try:
        writers[out.suffix](source, out, data, found)
    except OSError as error:
        got, remedy = error.strerror or str(error), "choose another place"
        raise ConfigError(f"--out {out}", got=got, expected="a place to write", remedy=remedy) from error


def _csv(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    """Names that a spreadsheet would take for formulas get an apostrophe."""
    rows = found.rows()
    with beside(out) as binary, open(os.dup(binary.fileno()), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)


def _parquet(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    rows = found.rows()
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("episode", "quality_score")}
    of_lerobot = source is not None and lerobot.FORMAT.recognises(source)
    episode = [int(row["episode_name"]) if of_lerobot else row["episode"] for row in rows]
    lerobot.write_weights(out, episode, [row["quality_score"] for row in rows], **columns)


def _npz(source: Path | None, out: Path, data: Demonstrations, found: Curation) -> None:
    save(data.take(np.flatnonzero(found.keep)), out)


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
        imitation.write(data.take(np.flatnonzero(found.keep)), out)
