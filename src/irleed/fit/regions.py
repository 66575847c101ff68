r"""Regions of situations in which demonstrators differ: a tree of thresholds on features.

A split in two is scored by how differently it changes people's skill. For everyone with transitions on both sides, let
$\delta_i$ be the difference between the two skills, and $V_i$ its variance by blocks of transitions. A region that is
harder for all is no reason to split, so that a multiple of each one's skill $\theta_i$ is taken off. The score is
$\min_\kappa \sum_i (\delta_i - \kappa \theta_i)^2 / V_i$ as a deviate of a normal variable (Wilson and Hilferty, 1931).
The best split of all regions is made, until there are `MOST` regions, or `LEAST` and no split that is beyond chance.

A tree finds differences in noise too. Skill in its regions has to be estimated from other transitions.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import norm

from irleed._typing import Bool, Float, Int

LEAST, MOST = 2, 8  # regions
BINS = 12  # of a feature in a region, between which it can be split
SMALLEST = 0.05  # share of all transitions in a region
CHANCE = 0.05  # that the best split is as good where nobody differs
ALIKE = 4.0  # blocks that everyone's variance counts for in each person's
LEAST_BLOCKS = 2.0  # effective number, for a variance by blocks
ROUNDED = 0.02  # of a feature's standard deviation, to which thresholds are rounded


@dataclasses.dataclass(frozen=True)
class Region:
    """Situations whose features lie from a low (included) to a high end (not included), by the feature's number."""

    bounds: dict[int, tuple[float, float]]

    def contains(self, features: Float[np.ndarray, "N F"]) -> Bool[np.ndarray, " N"]:
        """Which situations belong to it."""
        inside = np.ones(len(features), bool)
        for feature, (low, high) in self.bounds.items():
            inside &= (features[:, feature] >= low) & (features[:, feature] < high)
        return inside

    def split(self, feature: int, threshold: float) -> "tuple[Region, Region]":
        """The parts below a threshold, and from it on."""
        low, high = self.bounds.get(feature, (-np.inf, np.inf))
        below, above = ({**self.bounds, feature: ends} for ends in ((low, threshold), (threshold, high)))
        return Region(below), Region(above)


@dataclasses.dataclass(frozen=True)
class Seen:
    """N transitions of D demonstrators in B blocks, which are numbered from 0 in the order of the demonstrators."""

    features: Float[np.ndarray, "N F"]
    realised: Float[np.ndarray, " N"]
    possible: Float[np.ndarray, " N"]
    block: Int[np.ndarray, " N"]
    owner: Int[np.ndarray, " B"]  # of each block
    skill: Float[np.ndarray, " D"]


@dataclasses.dataclass(frozen=True)
class _Split:
    """The best split of a region."""

    score: float
    feature: int
    threshold: float
    region: Region
    rows: Int[np.ndarray, " K"]


def grown(seen: Seen) -> list[Region]:
    """Regions that together are all situations."""
    step = 10.0 ** np.floor(np.log10(np.maximum(ROUNDED * seen.features.std(0), 1e-300)))
    beyond = float(norm.isf(CHANCE / (seen.features.shape[1] * BINS * MOST)))
    regions, whole = [Region({})], np.arange(len(seen.block))
    waiting = _splits(seen, Region({}), whole, step)
    while waiting and len(regions) < MOST:
        best = max(waiting, key=lambda each: each.score)
        if len(regions) >= LEAST and best.score < beyond:
            break
        waiting.remove(best)
        regions.remove(best.region)
        above = seen.features[best.rows, best.feature] >= best.threshold
        parts = best.region.split(best.feature, best.threshold)
        for region, rows in zip(parts, (best.rows[~above], best.rows[above]), strict=True):
            regions.append(region)
            waiting += _splits(seen, region, rows, step)
    return regions


def _splits(seen: Seen, region: Region, rows: Int[np.ndarray, " K"], step: Float[np.ndarray, " F"]) -> list[_Split]:
    """The best split of a region, if there is one."""
    found = []
    for feature, values in enumerate(seen.features[rows].T):
        thresholds = _thresholds(values, step[feature], SMALLEST * len(seen.block))
        if len(thresholds):
            scores = _scores(seen, rows, np.searchsorted(thresholds, values, side="right"), len(thresholds))
            best = int(np.argmax(scores))
            found.append(_Split(float(scores[best]), feature, float(thresholds[best]), region, rows))
    found = [each for each in found if np.isfinite(each.score)]
    return [max(found, key=lambda each: each.score)] if found else []


def _thresholds(values: Float[np.ndarray, " K"], step: float, least: float) -> Float[np.ndarray, " T"]:
    """Quantiles of a feature as round numbers, and 0, that leave at least so many values on either side."""
    ordered = np.sort(values)
    inner = ordered[np.linspace(0, len(ordered) - 1, BINS + 1).astype(int)[1:]]
    rounded = np.unique(np.append(np.round(inner / step) * step, 0.0))
    below = np.searchsorted(ordered, rounded)
    return rounded[(below >= least) & (len(ordered) - below >= least)]


def _scores(
    seen: Seen, rows: Int[np.ndarray, " K"], place: Int[np.ndarray, " K"], count: int
) -> Float[np.ndarray, " T"]:
    """The score of a split at each of the thresholds; `place` is how many of them a value has reached."""
    people, blocks = len(seen.skill), len(seen.owner)
    cell = seen.block[rows] * (count + 1) + place
    of_person = csr_array((np.ones(blocks), (seen.owner, np.arange(blocks))), shape=(people, blocks))
    below = [
        np.bincount(cell, values[rows], blocks * (count + 1)).reshape(blocks, -1).cumsum(1)
        for values in (seen.realised, seen.possible, seen.possible**2)
    ]
    sides = [
        _side(seen.owner, of_person, *parts)
        for parts in ([each[:, :-1] for each in below], [each[:, -1:] - each[:, :-1] for each in below])
    ]
    change, off = sides[1].skill - sides[0].skill, sides[1].off - sides[0].off
    number = np.minimum(sides[0].blocks, sides[1].blocks)
    return _deviates(change, of_person @ off**2, sides[0].single + sides[1].single, number, seen.skill[:, None])


class _Side(NamedTuple):
    """What lies on one side of each threshold."""

    skill: Float[np.ndarray, "D T"]
    off: Float[np.ndarray, "B T"]  # of each block, from its demonstrator's skill
    single: Float[np.ndarray, "D T"]  # sum of squares of transitions, for the variance if they are independent
    blocks: Float[np.ndarray, "D T"]  # the effective number of them


def _side(
    owner: Int[np.ndarray, " B"],
    of_person: csr_array,
    realised: Float[np.ndarray, "B T"],
    possible: Float[np.ndarray, "B T"],
    square: Float[np.ndarray, "B T"],
) -> _Side:
    room = of_person @ possible
    safe = np.where(room > 0, room, 1.0)
    skill = of_person @ realised / safe
    off = (realised - skill[owner] * possible) / safe[owner]
    single = of_person @ square / safe**2
    return _Side(skill, off, single, np.where(room > 0, room**2 / np.maximum(of_person @ possible**2, 1e-300), 0.0))


def _deviates(
    change: Float[np.ndarray, "D T"],
    square: Float[np.ndarray, "D T"],
    single: Float[np.ndarray, "D T"],
    blocks: Float[np.ndarray, "D T"],
    skill: Float[np.ndarray, "D 1"],
) -> Float[np.ndarray, " T"]:
    """Sums of squared changes, less what is common to all, as deviates of a normal variable.

    A variance by few blocks is drawn to what it is for everybody, relative to independent transitions.
    """
    both, several = blocks > 0, blocks >= LEAST_BLOCKS
    own = square * blocks / np.maximum(blocks - 1, 1)
    alike = (own * several).sum(0) / np.maximum((single * several).sum(0), 1e-300)
    known = np.where(several, blocks - 1, 0.0) + ALIKE  # degrees of freedom
    variance = ((known - ALIKE) * own + ALIKE * alike * single) / known
    # The mean of the inverse of a chi-squared variable is larger than that of its mean.
    weight = both * (known - 2) / known / np.maximum(variance, 1e-12)
    common = (weight * change * skill).sum(0) / np.maximum((weight * skill**2).sum(0), 1e-12)
    number = both.sum(0)
    freedom = np.maximum(number - 1.0, 1.0)
    total = (weight * (change - common * skill) ** 2).sum(0)
    spread = 2 / (9 * freedom)
    deviate = ((total / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread)
    return np.where((number > 1) & several.any(0), deviate, -np.inf)
