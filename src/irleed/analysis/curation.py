r"""Weights for what is trained next: whom to listen to, and which of their episodes.

An episode of demonstrator $i$ weighs $\frac{\beta_i}{1 + b_i^2}\,e^{\ell - \bar\ell}$, scaled so that the mean over all
transitions is 1: the precision of its demonstrator times the share of their values that is not bias, $b_i$ being the
size of the bias relative to what all are after; and how likely its actions are under the shared policy, $\ell$ being
their mean log probability and $\bar\ell$ that of all transitions.
"""

import math
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from irleed._typing import Bool, Float, Int
from irleed.data import Demonstrations, ReadOptions
from irleed.data.formats.base import inside
from irleed.data.lazy import CHUNK
from irleed.data.limits import EXPANSION
from irleed.errors import ConfigError, DataError, SpaceError
from irleed.policies.base import Policy
from irleed.policies.files import load_policy
from irleed.runs.directory import ANSWER, POLICY, fingerprint
from irleed.runs.fields import read_json, refuse
from irleed.runs.reader import check_files


class Run(eqx.Module):
    """What a fit left behind."""

    policy: Policy
    names: tuple[str, ...] = eqx.field(static=True)
    precision: Float[np.ndarray, " D"]
    bias: Float[np.ndarray, " D"]  # 0 where the algorithm knows none
    reading: ReadOptions = eqx.field(static=True)  # of the data
    fingerprint: str | None = eqx.field(static=True, default=None)  # of the data; runs of older versions have none


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


def read_run(folder: str | Path) -> Run:
    """The folder that `irleed fit --out` wrote; anything else is refused in one line."""
    folder = Path(folder)
    if not (folder / ANSWER).exists():
        got, remedy = f"no {ANSWER} in it", "make one with `irleed fit DATA --out FOLDER`"
        refuse(str(folder), got, "the folder of a fit", remedy)
    answer = read_json(folder / ANSWER)
    check_files(folder, answer, only=(POLICY,))
    inside(folder, folder / POLICY)
    rows, reading = answer.inners("expertise"), answer.inner("config").inner("reading")
    names = tuple(row.text("name") for row in rows)
    precision = np.array([row.number("precision") for row in rows], float)
    bias = np.array([row.maybe("bias") or 0.0 for row in rows], float)
    if not rows or not (precision > 0).all() or not (bias >= 0).all() or len(set(names)) < len(names):
        got, expected = "an expertise table that is none", "positive precisions, every name once"
        refuse(f"{folder}, {ANSWER}", got, expected, "fit again")
    action = reading.text("action") if "action" in reading else None
    expansion = reading.number("expansion") if "expansion" in reading else EXPANSION  # which older runs do not have
    read = ReadOptions(reading.text("demonstrator"), tuple(reading.texts("obs")), action, expansion)
    known = answer.text("fingerprint") if "fingerprint" in answer else None
    return Run(load_policy(folder / POLICY), names, precision, bias, read, known)


def curate(data: Demonstrations, run: Run, share: float = 0.5, *, other_data: bool = False) -> Curation:
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
