r"""Skill and precision by the others' policy, with intervals that know how much was seen.

Three things widen an interval.

- A demonstrator's transitions are not independent: not within an episode, and not in similar situations either, where
  the others' values are off in the same way. The variance of sums over episodes, and over situations, is compared with
  what independent transitions would have (two-way clustering; Cameron, Gelbach and Miller, 2011). The correlation
  within these groups is drawn towards that of all demonstrators where groups are few.
- The others' policy is itself estimated: repetitions of the cross-fit differ.
- Whoever is alone in most situations is judged by few transitions.

Demonstrators are alike: estimates are drawn towards their common mean by as much as their own variance says (empirical
Bayes), so that a demonstrator with ten transitions ends near the mean.
"""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

from irleed._typing import Float, Int

GRID = np.linspace(np.log(0.02), np.log(50.0), 49)  # of log precision
WIDTHS = np.geomspace(0.05, 3.0, 25)  # of its prior, of which the most probable is taken
WIDEST = 1.5  # the scale of a half-normal prior on that width
POOLED = 8.0  # groups of transitions that the correlation within everyone's groups counts for
LEAST_GROUPS = 4  # of whoever takes part in that
LIKE_OTHERS = 20.0  # transitions that the others' variance of a transition counts for
STEPS = 100  # of expectation maximisation
LEAST_ALIKE = 4  # demonstrators that can be drawn towards their mean
LEAST_VARIANCE = 1e-6  # of skill among demonstrators, and of log precision between repetitions
USUAL = 2.0  # the ratio of variances where nobody has groups enough to tell
POOLED_REPEATS = 4.0  # repetitions that the variance between everyone's repetitions counts for


class Measured(eqx.Module):
    """Of N transitions, by a policy that has learnt from others alone."""

    realised: Float[np.ndarray, " N"]  # what the action adds to its demonstrator's skill, by that policy
    possible: Float[np.ndarray, " N"]  # what the best action would add
    curve: Float[np.ndarray, "N G"]  # log probability of the action at each log precision of the grid


class Evidence(eqx.Module):
    """About D demonstrators, from one cross-fit."""

    skill: Float[np.ndarray, " D"]
    variance: Float[np.ndarray, " D"]  # of the estimate of skill
    curve: Float[np.ndarray, "D G"]  # log likelihood of each log precision of the grid


class Posterior(eqx.Module):
    """Skill and precision of D demonstrators, drawn towards what is common to them."""

    skill: Float[np.ndarray, " D"]
    deviation: Float[np.ndarray, " D"]  # of skill
    log_precision: Float[np.ndarray, "D G"]  # posterior probabilities on the grid
    shift: float = eqx.field(static=True)  # of the grid, so that the mean log precision is 0

    def skill_interval(self, level: float) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """The ends of the credible interval."""
        margin = norm.ppf((1 + level) / 2) * self.deviation
        return self.skill - margin, np.minimum(self.skill + margin, 1.0)

    def precision(self, quantile: float) -> Float[np.ndarray, " D"]:
        """A quantile of each one's precision, in the gauge."""
        total = np.pad(np.cumsum(self.log_precision, 1), ((0, 0), (1, 0)))
        half = 0.5 * (GRID[1] - GRID[0])
        edges = np.append(GRID - half, GRID[-1] + half)
        return np.exp([np.interp(quantile, own, edges) - self.shift for own in total])


def better(skill: Float[np.ndarray, " D"], deviation: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"]:
    """The probability that the demonstrator of a row is more skilled than that of a column."""
    spread = np.sqrt(deviation[:, None] ** 2 + deviation[None] ** 2)
    return ndtr((skill[:, None] - skill[None]) / np.maximum(spread, 1e-12))


def evidence(
    measured: Measured,
    weight: Float[np.ndarray, " N"],
    who: Int[np.ndarray, " N"],
    groups: Sequence[Int[np.ndarray, " N"]],
    count: int,
) -> Evidence:
    r"""Skill $\sum w\,A(s, a) / \sum w\,\max_a A(s, a)$ and the likelihood of precisions, of `count` demonstrators.

    Transitions of one of `groups`, such as episodes, are not independent. Who has less weight than is usual counts as
    somebody with fewer transitions.
    """
    realised, possible, curve = measured.realised, measured.possible, measured.curve
    total = np.bincount(who, weight, count)
    usual = float(np.median(total / np.bincount(who, minlength=count)))
    effective = total * np.minimum(total / np.bincount(who, weight**2, count), 1 / usual)
    weight = (weight * (effective / total)[who]).astype(float)  # sums to the effective number
    number = np.bincount(who, weight, count)
    room = np.maximum(np.bincount(who, weight * possible, count), 1e-12)
    skill = np.bincount(who, weight * realised, count) / room
    off = weight * (realised - skill[who] * possible) / room[who]
    single = number * np.bincount(who, off**2, count)  # the variance of a single transition
    known = float(np.median(single))
    independent = (number * single + LIKE_OTHERS * known) / (number + LIKE_OTHERS) / number
    curves = np.zeros((count, len(GRID)))
    np.add.at(curves, who, weight[:, None] * curve)
    peak, step = np.clip(curves.argmax(1), 1, len(GRID) - 2), GRID[1] - GRID[0]
    rows, every = np.arange(count), np.arange(len(who))
    bent = (2 * curves[rows, peak] - curves[rows, peak - 1] - curves[rows, peak + 1]) / step**2
    slope = weight * (curve[every, peak[who] + 1] - curve[every, peak[who] - 1]) / (2 * step)
    slope -= weight * (np.bincount(who, slope, count) / number)[who]
    square = np.bincount(who, slope**2, count)
    few = LIKE_OTHERS * float(np.median(square / number))
    misfit = (square + few) / (np.maximum(bent, 0.0) + few)  # 1 if the likelihood is right (Huber's sandwich)
    wider = np.maximum(_ratio(slope, weight, who, groups, count) * misfit, 1.0)
    return Evidence(skill, independent * _ratio(off, weight, who, groups, count), curves / wider[:, None])


def _ratio(
    off: Float[np.ndarray, " N"],
    weight: Float[np.ndarray, " N"],
    who: Int[np.ndarray, " N"],
    groups: Sequence[Int[np.ndarray, " N"]],
    count: int,
) -> Float[np.ndarray, " D"]:
    """The variance of everyone's sum of `off` over that of independent transitions; no less than 1.

    With m transitions in a group, correlated by r, it is 1 + (m - 1) r. Everyone's own ratio is drawn towards that of
    the r of all.
    """
    independent, excess = np.maximum(np.bincount(who, off**2, count), 1e-300), np.zeros(count)
    for group in groups:
        _, place = np.unique(who * (int(group.max()) + 1) + group, return_inverse=True)
        owner = np.zeros(int(place.max()) + 1, int)
        owner[place] = who
        own = np.bincount(owner, minlength=count)  # groups of each
        size = np.bincount(owner, np.bincount(place, weight) ** 2, count) / np.bincount(who, weight**2, count)
        found = np.bincount(owner, np.bincount(place, off) ** 2, count) / independent * own / np.maximum(own - 1, 1)
        known = own >= LEAST_GROUPS
        pooled = USUAL - 1.0
        if known.any():
            inside = np.sum((own * (found - 1))[known]) / max(float(np.sum((own * (size - 1))[known])), 1e-12)
            pooled = np.clip(inside, 0, 1) * (size - 1)
        excess += ((own - 1) * (found - 1) + POOLED * pooled) / (own - 1 + POOLED)
    return np.maximum(1 + excess, 1.0)


def posterior(found: list[Evidence]) -> Posterior:
    """What repetitions of a cross-fit say together."""
    skills, variances, probabilities = [], [], []
    for each in found:
        skill, variance = _drawn_together(each.skill, each.variance)
        skills.append(skill)
        variances.append(variance)
        probabilities.append(_on_grid(each.curve))
    log_precisions = np.array(probabilities) @ GRID
    log_precisions -= log_precisions.mean(1, keepdims=True)
    mean = _widened(np.mean(probabilities, 0), _between(log_precisions))
    deviation = np.sqrt(np.mean(variances, 0) + _between(np.array(skills)))
    return Posterior(np.mean(skills, 0), deviation, mean, float((mean @ GRID).mean()))


def _between(values: Float[np.ndarray, "R D"]) -> Float[np.ndarray, " D"]:
    """The variance of repetitions, drawn towards everyone's."""
    if len(values) < 2:
        return np.zeros(values.shape[1])
    free, found = len(values) - 1, values.var(0, ddof=1)
    return (free * found + POOLED_REPEATS * found.mean()) / (free + POOLED_REPEATS)


def _widened(probabilities: Float[np.ndarray, "D G"], variance: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D G"]:
    """Probabilities on the grid with Gaussian noise of this variance added."""
    squares = (GRID[:, None] - GRID[None]) ** 2 / np.maximum(variance, LEAST_VARIANCE)[:, None, None]
    kernel = np.exp(-0.5 * squares)
    return np.einsum("dg,dgh->dh", probabilities, kernel / kernel.sum(2, keepdims=True))


def _drawn_together(
    value: Float[np.ndarray, " D"], variance: Float[np.ndarray, " D"]
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Means and variances under a normal prior that is fitted, with the correction for that (Morris, 1983).

    Fewer than four demonstrators say nothing of what is common to them, and are left as they are.
    """
    count = len(value)
    if count < LEAST_ALIKE:
        return value, variance
    between = max(float(np.var(value)), LEAST_VARIANCE)
    for _ in range(STEPS):
        precise = 1 / (variance + between)
        mean, shrunk = float(precise @ value / precise.sum()), between / (between + variance)
        between = max(float(np.mean((shrunk * (value - mean)) ** 2 + shrunk * variance)), LEAST_VARIANCE)
    precise = 1 / (variance + between)
    mean = float(precise @ value / precise.sum())
    drawn = (count - 3) / (count - 1) * variance * precise
    off, scale = value - mean, (np.average(variance, weights=precise) + between) / (variance + between)
    uncertain = 2 / (count - 3) * drawn**2 * scale * off**2
    return mean + (1 - drawn) * off, variance * (1 - (count - 1) / count * drawn) + uncertain


def _on_grid(curves: Float[np.ndarray, "D G"]) -> Float[np.ndarray, "D G"]:
    """Posterior probabilities of log precision under a common normal prior, the most probable of those on a grid."""
    best, chosen = -np.inf, np.zeros_like(curves)
    for width in WIDTHS:
        log_prior = norm.logpdf(GRID[None], GRID[:, None], width)  # a row for each mean
        log_prior -= logsumexp(log_prior, 1, keepdims=True)
        joint = logsumexp(curves[:, None] + log_prior[None], 2).sum(0)
        score = joint.max() - 0.5 * (width / WIDEST) ** 2
        if score > best:
            best, chosen = score, curves + log_prior[int(joint.argmax())]
    return np.exp(chosen - logsumexp(chosen, 1, keepdims=True))
