"""Statistics: bootstrap intervals, rank correlations with scores, and trivial statistics that need no fit."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from irleed._typing import Array, Float, Int
from irleed.data import Demonstrations
from irleed.data.transitions import are_choices
from irleed.model import Expertise
from irleed.runs.results import Agreement

TAILS = (0.025, 0.975)  # quantiles of a 95 % interval
MEAN_RESAMPLES, RANK_RESAMPLES = 10_000, 2_000
FEWEST = 5  # people with scores: with fewer, no correlation is computed
EMPTY = 1e-9  # share of the variance of ranks below which no residual is left
Rows = Int[np.ndarray, "B D"] | list[Int[np.ndarray, "..."]]  # of all resamples; a list if their sizes differ

STEPS, MOST_FREQUENT = "steps per episode", "share of the most frequent action"
CHANGE, SIZE = "mean absolute change of action", "mean absolute action"
REPEATED, ENTROPY, TRANSITIONS = "share of repeated actions", "entropy of actions", "transitions"
GIVEN = (STEPS, MOST_FREQUENT, CHANGE)  # control variables of partial correlations, where they are defined
SAME_ORDER, FEWEST_RANKED = 0.9, 8  # rank correlation with a trivial statistic that is reported, and of how many people


def bootstrap_interval(values: Float[Array, " N"], over: Float[Array, " N"] | None = None) -> tuple[float, float]:
    """A 95 % bootstrap interval of the mean of values, or of its ratio to the mean of others, resampled together."""
    drawn = np.random.default_rng(0).integers(0, len(values), (MEAN_RESAMPLES, len(values)))
    means = np.asarray(values)[drawn].mean(1)
    low, high = np.quantile(means if over is None else means / np.asarray(over)[drawn].mean(1), TAILS)
    return float(low), float(high)


def paired_difference(ours: Float[Array, " N"], theirs: Float[Array, " N"]) -> list[float]:
    """Low end, mean and high end of the paired difference."""
    values = np.asarray(ours - theirs)
    low, high = bootstrap_interval(values)
    return [low, float(values.mean()), high]


def mean_and_interval(values: Float[Array, " N"]) -> dict[str, Any]:
    """Mean, standard deviation and a 95 % normal interval of the mean over seeds."""
    mean, deviation = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    margin = 1.96 * deviation / np.sqrt(len(values))
    return {"mean": mean, "std": deviation, "ci_low": mean - margin, "ci_high": mean + margin, "seeds": len(values)}


def adjusted_rand_index(truth: Int[Array, " D"], found: Int[Array, " D"]) -> float:
    """Agreement of two groupings: 1 if equal, 0 on average if found at random."""
    table = np.zeros((truth.max() + 1, found.max() + 1))
    np.add.at(table, (truth, found), 1)
    together, by_truth, by_found = (float((x * (x - 1) / 2).sum()) for x in (table, table.sum(1), table.sum(0)))
    chance = by_truth * by_found / (len(truth) * (len(truth) - 1) / 2)
    most = (by_truth + by_found) / 2
    return (together - chance) / (most - chance) if most > chance else 1.0


def rank_correlation(a: Float[Array, "*N D"], b: Float[Array, "*N D"]) -> Float[Array, "*N"]:
    """Spearman's correlation along the last axis; NaN where either is constant."""
    return _correlation(_ranks(a), _ranks(b))


def partial_rank_correlation(
    a: Float[Array, "*N D"], b: Float[Array, "*N D"], given: Float[Array, "*N K D"]
) -> Float[Array, "*N"]:
    """Correlation of the residuals of the ranks of `a` and of `b` after regression on the ranks of `given`."""
    known = np.swapaxes(_ranks(given), -1, -2)
    fitted = known @ np.linalg.pinv(known)

    def residual(values: Float[Array, "*N D"]) -> Float[np.ndarray, "*N D"]:
        ranks = _ranks(values)
        rest = ranks - (fitted @ ranks[..., None])[..., 0]
        gone = (rest**2).sum(-1, keepdims=True) <= EMPTY * (ranks**2).sum(-1, keepdims=True)
        return np.where(gone, 0.0, rest)

    return _correlation(residual(a), residual(b))


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

    - `values`, `score`: of people or of episodes; NaN where unknown, which are left out.
    - `given`: control variables of the partial correlation.
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


def partial_correlation_given(
    values: Float[np.ndarray, " D"], score: Float[np.ndarray, " D"], other: Float[np.ndarray, " D"]
) -> tuple[float, float, float] | None:
    """The partial rank correlation given one other variable, with its interval; None where it is not defined."""
    known = np.isfinite(values) & np.isfinite(score) & np.isfinite(other)
    columns = values[known], score[known], other[known][None]
    if _reason(int(known.sum()), *columns[:2]) is not None:
        return None
    found = _with_interval(partial_rank_correlation, resamples(np.arange(known.sum())), *columns)
    return found if np.isfinite(found[0]) else None


def resamples(group: Int[np.ndarray, " D"]) -> Rows:
    """Rows of as many people as there are, drawn with replacement, each person with all their rows."""
    people, place = np.unique(group, return_inverse=True)
    chosen = np.random.default_rng(0).integers(0, len(people), (RANK_RESAMPLES, len(people)))
    if len(people) == len(group):
        return np.argsort(place)[chosen]
    rows = [np.flatnonzero(place == person) for person in range(len(people))]
    return [np.concatenate([rows[person] for person in people_drawn]) for people_drawn in chosen]


def _with_interval(
    statistic: Callable[..., Any], drawn: Rows, *columns: Float[np.ndarray, "..."]
) -> tuple[float, float, float]:
    """A statistic of columns, and the ends of its bootstrap interval."""
    if isinstance(drawn, np.ndarray):
        many = [np.moveaxis(column[..., drawn], 0, -2) if column.ndim > 1 else column[drawn] for column in columns]
        values = statistic(*many)
    else:
        values = np.array([statistic(*(column[..., rows] for column in columns)) for rows in drawn])
    values = values[np.isfinite(values)]  # a resample may be constant
    low, high = np.quantile(values, TAILS) if len(values) else (np.nan, np.nan)
    return float(statistic(*columns)), float(low), float(high)


def _reason(people: int, values: Float[np.ndarray, " D"], score: Float[np.ndarray, " D"]) -> str | None:
    """Why there is no correlation; None if there is one."""
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


def trivial_statistics(
    data: Demonstrations, group: Int[np.ndarray, " E"] | None = None, actions: tuple[int, ...] = ()
) -> dict[str, Float[np.ndarray, " G"]]:
    """Statistics of each demonstrator, by their names.

    Steps per episode and transitions. Of discrete actions, the share of the action that is most frequent in the whole
    data (often the idle one), the share of actions equal to the one before, and the entropy of actions in nats. Of
    continuous actions, the mean absolute action and the mean absolute change from one step to the next.

    **Arguments:**

    - `group`: a group's number for each episode, instead of its demonstrator's.
    - `actions`: discrete actions whose shares are added.
    """
    group = np.asarray(data.owner) if group is None else group
    count = int(group.max()) + 1
    whose, steps = group[np.asarray(data.episode)], np.bincount(group, data.length, count)
    found = {STEPS: steps / np.bincount(group, minlength=count), TRANSITIONS: steps}
    second = np.setdiff1d(np.arange(data.transitions), data.start)  # transitions with another one before them
    followed = np.maximum(np.bincount(whose[second], minlength=count), 1)
    action = np.asarray(data.action)
    if not are_choices(data):
        size = np.abs(action.astype(float)).reshape(len(action), -1).mean(1)
        change = np.abs(np.diff(action.astype(float), axis=0)).reshape(len(action) - 1, -1).mean(1)
        mean_change = np.bincount(whose[second], change[second - 1], count) / followed
        return found | {SIZE: np.bincount(whose, size, count) / steps, CHANGE: mean_change}
    choices, place = np.unique(action, return_inverse=True)
    share = np.bincount(whose * len(choices) + place, minlength=count * len(choices)).reshape(count, -1)
    share = share / steps[:, None]
    repeated = np.bincount(whose[second], action[second] == action[second - 1], count) / followed
    entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(1)
    found |= {MOST_FREQUENT: share[:, np.bincount(place).argmax()], REPEATED: repeated, ENTROPY: entropy}
    return found | {f"share of action {each}": (share * (choices == each)).sum(1) for each in actions}


def control_variables(statistics: Mapping[str, Float[np.ndarray, " G"]]) -> Float[np.ndarray, "K G"]:
    """The control variables of partial correlations."""
    return np.stack([statistics[name] for name in GIVEN if name in statistics])


def nearly_the_same(expertise: Expertise, data: Demonstrations) -> tuple[str, ...]:
    """A sentence for each trivial statistic with (nearly) the same or the opposite ranking as skill."""
    skill = np.asarray(expertise.precision if expertise.skill is None else expertise.skill, float)
    what = "precision" if expertise.skill is None else "skill"
    ranked = np.flatnonzero(expertise.ranked & np.isfinite(skill))
    if len(ranked) < FEWEST_RANKED:
        return ()
    found = []
    for name, values in trivial_statistics(data).items():
        rho = rank_correlation(skill[ranked], values[ranked])
        if abs(rho) > SAME_ORDER:
            same = "nearly the same as" if rho > 0 else "nearly the opposite of"
            found.append(f"{what} says {same} {name} (Spearman {rho:.2f}): `irleed validate` compares it with scores")
    return tuple(found)
