"""Rank correlations with scores, their intervals over people, and what is left of them given other numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import rankdata

from irleed._typing import Array, Float, Int
from irleed.runs.results import Agreement

FEWEST = 5  # people with scores: with fewer, no correlation says anything
RESAMPLES = 2_000
TAIL = 0.025  # on each side of an interval
Rows = Int[np.ndarray, "B D"] | list[Int[np.ndarray, "..."]]  # of many resamples; a list if their sizes differ
EMPTY = 1e-9  # share of the variance of ranks below which nothing is left of them


def rank_correlation(a: Float[Array, "*N D"], b: Float[Array, "*N D"]) -> Float[Array, "*N"]:
    """Spearman's correlation along the last axis; NaN where either is constant."""
    return _correlation(_ranks(a), _ranks(b))


def partial_rank_correlation(
    a: Float[Array, "*N D"], b: Float[Array, "*N D"], given: Float[Array, "*N K D"]
) -> Float[Array, "*N"]:
    """Correlation of what is left of the ranks of `a` and of `b` after regression on the ranks of `given`."""
    known = np.swapaxes(_ranks(given), -1, -2)
    fitted = known @ np.linalg.pinv(known)

    def left(values: Float[Array, "*N D"]) -> Float[np.ndarray, "*N D"]:
        ranks = _ranks(values)
        rest = ranks - (fitted @ ranks[..., None])[..., 0]
        gone = (rest**2).sum(-1, keepdims=True) <= EMPTY * (ranks**2).sum(-1, keepdims=True)
        return np.where(gone, 0.0, rest)

    return _correlation(left(a), left(b))


def agreement(
    name: str,
    values: Float[np.ndarray, " D"],
    score: Float[np.ndarray, " D"],
    given: Float[np.ndarray, "K D"],
    *,
    trivial: bool = False,
    group: Int[np.ndarray, " D"] | None = None,
) -> Agreement:
    """Spearman's correlation of values and score, and the partial one, each with its interval.

    **Arguments:**

    - `values`, `score`: of people, or of episodes; NaN where unknown, which leaves them out.
    - `given`: what the partial correlation holds fixed.
    - `group`: the person of each episode; people are resampled with all their episodes.
    """
    known = np.isfinite(values) & np.isfinite(score)
    group = np.arange(len(score))[known] if group is None else group[known]
    values, score, given = values[known], score[known], given[:, known]
    people = len(np.unique(group))
    reason = _reason(people, values, score)
    if reason is not None:
        return Agreement(name, trivial, people, None, reason=reason)
    drawn = resamples(group)
    found = _with_interval(rank_correlation, drawn, values, score)
    partial = _with_interval(partial_rank_correlation, drawn, values, score, given)
    if len(score) < len(given) + 3 or not np.isfinite(partial[0]):
        partial = (None, None, None)
    return Agreement(name, trivial, people, *found, *partial)


def beyond(
    values: Float[np.ndarray, " D"], score: Float[np.ndarray, " D"], other: Float[np.ndarray, " D"]
) -> tuple[float, float, float] | None:
    """The partial correlation given one other number, with its interval; None where it is not defined."""
    known = np.isfinite(values) & np.isfinite(score) & np.isfinite(other)
    columns = values[known], score[known], other[known][None]
    if _reason(int(known.sum()), *columns[:2]) is not None:
        return None
    found = _with_interval(partial_rank_correlation, resamples(np.arange(known.sum())), *columns)
    return found if np.isfinite(found[0]) else None


def resamples(group: Int[np.ndarray, " D"]) -> Rows:
    """Rows of as many people as there are, drawn with replacement, each person with all their rows."""
    people, place = np.unique(group, return_inverse=True)
    chosen = np.random.default_rng(0).integers(0, len(people), (RESAMPLES, len(people)))
    if len(people) == len(group):
        return np.argsort(place)[chosen]
    rows = [np.flatnonzero(place == person) for person in range(len(people))]
    return [np.concatenate([rows[person] for person in people_drawn]) for people_drawn in chosen]


def _with_interval(
    statistic: Callable[..., Any], drawn: Rows, *columns: Float[np.ndarray, "..."]
) -> tuple[float, float, float]:
    """A statistic of columns, and the ends of its interval."""
    if isinstance(drawn, np.ndarray):
        many = [np.moveaxis(column[..., drawn], 0, -2) if column.ndim > 1 else column[drawn] for column in columns]
        values = statistic(*many)
    else:
        values = np.array([statistic(*(column[..., rows] for column in columns)) for rows in drawn])
    values = values[np.isfinite(values)]  # a resample may be constant
    low, high = np.quantile(values, [TAIL, 1 - TAIL]) if len(values) else (np.nan, np.nan)
    return float(statistic(*columns)), float(low), float(high)


def _reason(people: int, values: Float[np.ndarray, " D"], score: Float[np.ndarray, " D"]) -> str | None:
    """Why there is no correlation."""
    if people < FEWEST:
        return f"fewer than {FEWEST} people with scores"
    for what, column in (("all scores are equal", score), ("all values are equal", values)):
        if np.ptp(column) == 0:
            return what
    return None


def _ranks(values: Float[Array, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """Ranks along the last axis, around 0."""
    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(-1, keepdims=True)


def _correlation(a: Float[np.ndarray, "*N D"], b: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N"]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1)))
