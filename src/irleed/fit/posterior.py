r"""Skill and precision by the others' policy, with intervals that know how much was seen.

Three things widen an interval. A demonstrator's transitions are not independent: the variance between their episodes is
compared with what independent transitions would have, and that ratio, drawn towards the mean of all demonstrators
where episodes are few, multiplies the variance. Demonstrators are alike: estimates are drawn towards their common mean
by as much as their own variance says (empirical Bayes), so that a demonstrator with ten transitions ends near the mean.
And the others' policy is itself estimated: repetitions of the cross-fit differ.
"""

import equinox as eqx
import numpy as np
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

from irleed._typing import Float, Int

GRID = np.linspace(np.log(0.02), np.log(50.0), 49)  # of log precision
WIDTHS = np.geomspace(0.05, 3.0, 25)  # of its prior, of which the most probable is taken
WIDEST = 1.5  # the scale of a half-normal prior on that width
POOLED = 8.0  # episodes that the mean of all demonstrators' ratios of variances counts for
LEAST_EPISODES = 4  # of whoever takes part in that mean
LIKE_OTHERS = 20.0  # transitions that the others' variance of a transition counts for
STEPS = 100  # of expectation maximisation
LEAST_ALIKE = 4  # demonstrators that can be drawn towards their mean
LEAST_VARIANCE = 1e-6  # of skill among demonstrators
USUAL = 2.0  # that ratio where nobody has episodes enough to tell


class Measured(eqx.Module):
    """Of N transitions, by a policy that has learnt from others alone."""

    realised: Float[np.ndarray, " N"]  # how much better than a random action the one taken is by its values
    possible: Float[np.ndarray, " N"]  # how much better the best one is
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
        total = np.cumsum(self.log_precision, 1)
        return np.exp([np.interp(quantile, own, GRID) - self.shift for own in total])


def better(skill: Float[np.ndarray, " D"], deviation: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"]:
    """The probability that the demonstrator of a row is more skilled than that of a column."""
    spread = np.sqrt(deviation[:, None] ** 2 + deviation[None] ** 2)
    return ndtr((skill[:, None] - skill[None]) / np.maximum(spread, 1e-12))


def evidence(
    measured: Measured,
    weight: Float[np.ndarray, " N"],
    who: Int[np.ndarray, " N"],
    episode: Int[np.ndarray, " N"],
    count: int,
) -> Evidence:
    r"""Skill $\sum w\,A(s, a) / \sum w\,\max_a A(s, a)$ and the likelihood of precisions, of `count` demonstrators.

    Of the weights of transitions, only the ratios within a demonstrator matter.
    """
    realised, possible, curve = measured.realised, measured.possible, measured.curve
    total = np.bincount(who, weight, count)
    weight = (weight * (total / np.bincount(who, weight**2, count))[who]).astype(float)  # sums to the effective number
    number = np.bincount(who, weight, count)
    room = np.maximum(np.bincount(who, weight * possible, count), 1e-12)
    skill = np.bincount(who, weight * realised, count) / room
    off = weight * (realised - skill[who] * possible) / room[who]
    single = number * np.bincount(who, off**2, count)  # the variance of a single transition
    known = float(np.median(single))
    independent = (number * single + LIKE_OTHERS * known) / (number + LIKE_OTHERS) / number
    episodes, place = np.unique(episode, return_inverse=True)
    owner = np.zeros(len(episodes), int)
    owner[place] = who
    own = np.bincount(owner, minlength=count)  # episodes of each
    variance = independent * _ratio(np.bincount(who, off**2, count), np.bincount(place, off), owner, own)
    summed = np.zeros((len(episodes), len(GRID)))
    np.add.at(summed, place, weight[:, None] * curve)
    curves = np.zeros((count, len(GRID)))
    np.add.at(curves, owner, summed)
    peak, step = np.clip(curves.argmax(1), 1, len(GRID) - 2), GRID[1] - GRID[0]
    rows, every = np.arange(count), np.arange(len(owner))
    bent = (2 * curves[rows, peak] - curves[rows, peak - 1] - curves[rows, peak + 1]) / step**2
    slope = (summed[every, peak[owner] + 1] - summed[every, peak[owner] - 1]) / (2 * step)
    slope -= (np.bincount(owner, slope, count) / own)[owner]
    ratio = _ratio(np.maximum(bent, 1e-9), slope, owner, own)
    return Evidence(skill, variance, curves / ratio[:, None])


def _ratio(
    independent: Float[np.ndarray, " D"],
    between: Float[np.ndarray, " E"],
    owner: Int[np.ndarray, " E"],
    episodes: Int[np.ndarray, " D"],
) -> Float[np.ndarray, " D"]:
    """The variance between episodes over that of independent transitions, drawn towards the mean of everyone."""
    found = np.bincount(owner, between**2, len(episodes)) / np.maximum(independent, 1e-12)
    found *= episodes / np.maximum(episodes - 1, 1)
    known = (episodes >= LEAST_EPISODES) & (independent > 1e-9)
    pooled = float(np.average(found[known], weights=episodes[known])) if known.any() else USUAL
    free = np.where(independent > 1e-9, episodes - 1, 0)
    return np.maximum((free * found + POOLED * pooled) / (free + POOLED), 1.0)


def posterior(found: list[Evidence]) -> Posterior:
    """What repetitions of a cross-fit say together."""
    skills, variances, probabilities = [], [], []
    for each in found:
        skill, variance = _drawn_together(each.skill, each.variance)
        skills.append(skill)
        variances.append(variance)
        probabilities.append(_on_grid(each.curve))
    mean = np.mean(probabilities, 0)
    spread = np.var(skills, 0, ddof=1) if len(found) > 1 else 0.0
    return Posterior(np.mean(skills, 0), np.sqrt(np.mean(variances, 0) + spread), mean, float((mean @ GRID).mean()))


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
