r"""Who is good where: each demonstrator's skill in a few regions of situations, and which differences are supported.

The others' policies say of every transition how much of what was possible it realises (`irleed.fit.consensus`).

1. Transitions are in blocks: recordings, or parts of them where people have few. On every second block of everyone a
   tree finds regions in which people differ (`irleed.fit.regions`). All else is estimated on the other blocks, so that
   what the tree has found by chance is not found again.
2. The skill $s_{ig}$ of demonstrator $i$ in region $g$ is $\sum w\,A(s, a) / \sum w \max_a A(s, a)$. Its variance
   allows for transitions that are not independent: nearly identical ones of a block are one decision, and decisions are
   correlated within a block, and within a group of similar situations, where the others' values are off in the same
   way. Both correlations are those of all demonstrators together.
3. What is expected there is $\theta_i m_g$: the demonstrator's mean times what the region makes of everybody's skill.
   Random actions have no skill anywhere, so that the two multiply. Whoever differs has little influence on $m_g$.
4. The deviation $s_{ig} - \theta_i m_g$ is drawn towards zero under a fitted prior: a mixture of zero and of normal
   distributions of several widths (adaptive shrinkage; Stephens, 2017). It vanishes where nothing supports it.

A demonstrator is called strong or weak in a region if the 90 % interval of the deviation excludes 0 and if, as surely,
skill there is on the same side of their mean.
"""

from collections.abc import Sequence

import equinox as eqx
import numpy as np
from scipy.stats import norm

from irleed._typing import Bool, Float, Int, Shaped
from irleed.fit.feature_names import named
from irleed.fit.regions import Seen, grown
from irleed.fit.shrinkage import Mixture, shrunk
from irleed.model.expertise import INTERVAL

MOST_NUMBERS = 1_000  # in an observation: pixels have no names
MOST_ROWS = 60_000  # that regions are looked for in
BLOCKS = 12  # of everyone's, if their recordings are fewer
LEAST_EFFECTIVE = 2.0  # blocks or groups of a cell, for the correlation within them
UNKNOWN = 0.1  # the variance of the mean of whom nothing is known
NEAR = 0.1  # standard deviations of a feature that nearly identical situations differ by
LIKE_OTHERS = 20.0  # decisions that everyone's variance of one counts for
STEPS = 60  # of robust regression
FREEDOM = 2.0  # of the t distribution that the regression supposes
LEAST_SPREAD = 0.05  # of levels between demonstrators
LEAST_VARIANCE = 1e-6
LITTLE = 0.01  # skill: a deviation is supported to be larger
COMMON = 0.3  # standard deviation of a region's effect on everybody


class Situations(eqx.Module):
    """The skill of D demonstrators in G regions of situations."""

    names: tuple[str, ...] = eqx.field(static=True)  # of the regions
    share: Float[np.ndarray, " G"]  # of all transitions
    mean: Float[np.ndarray, " D"]  # skill in all of them
    expected: Float[np.ndarray, "D G"]  # by the demonstrator's level and the region
    deviation: Float[np.ndarray, "D G"]  # of skill from that, shrunk
    low: Float[np.ndarray, "D G"]  # the ends of its 90 % interval
    high: Float[np.ndarray, "D G"]
    skill_low: Float[np.ndarray, "D G"]  # those of skill, whose mean is uncertain too
    skill_high: Float[np.ndarray, "D G"]
    transitions: Int[np.ndarray, "D G"]
    supported: Int[np.ndarray, "D G"]  # 1: strong, -1: weak, 0: neither

    @property
    def skill(self) -> Float[np.ndarray, "D G"]:
        """In each region; what is expected, where a demonstrator has not been."""
        return self.expected + self.deviation

    def to_dict(self) -> dict[str, object]:
        """As plain values, for JSON."""
        ends = "low", "high", "skill_low", "skill_high"
        columns = "share", "mean", "expected", "deviation", *ends, "transitions", "supported"
        return {"names": list(self.names), **{name: getattr(self, name).tolist() for name in columns}}


def by_situation(
    obs: Shaped[np.ndarray, "N ..."],
    realised: Float[np.ndarray, " N"],
    possible: Float[np.ndarray, " N"],
    weight: Float[np.ndarray, " N"],
    who: Int[np.ndarray, " N"],
    recording: Int[np.ndarray, " N"],
    similar: Int[np.ndarray, " N"],
    features: Sequence[str] = (),
) -> Situations | None:
    """Estimate skill by regions.

    None of a single demonstrator, of observations without features to name, and where nothing was possible.

    **Arguments:**

    - `realised`, `possible`: the advantage of each action over a random one, and of the best action.
    - `weight`: how much a transition counts in the judgement of its demonstrator.
    - `similar`: the group of similar situations that each transition is in.
    - `features`: names of the numbers in an observation.
    """
    count, values = int(who.max()) + 1, obs.reshape(len(obs), -1).astype(float)
    if count < 2 or values.shape[1] > MOST_NUMBERS or not (np.ptp(values, 0) > 0).any():
        return None
    block, owner, second = _blocks(who, recording, count)
    realised, possible = weight * realised, weight * possible
    rows = np.flatnonzero(second[block])
    if not (possible[rows] > 0).any():
        return None
    overall = np.bincount(who, realised, count) / np.maximum(np.bincount(who, possible, count), 1e-12)
    first = np.flatnonzero(~second[block])
    first = first[:: -(-len(first) // MOST_ROWS)]
    regions = grown(Seen(values[first], realised[first], possible[first], block[first], owner, overall))
    regions.sort(key=lambda each: -each.contains(values).sum())
    region = np.zeros(len(who), int)
    for number, each in enumerate(regions):
        region[each.contains(values)] = number
    cell = who * len(regions) + region
    transitions = np.bincount(cell, minlength=count * len(regions)).reshape(count, -1)
    share = transitions.sum(0) / len(who)
    given = cell[rows], realised[rows], possible[rows], _decisions(values[rows], block[rows])
    found = _measured(*given, (block[rows], similar[rows]), count * len(regions), len(regions))
    skill, variance = (each.reshape(count, -1) for each in found)
    expected, variance, mean, uncertain = _expected(skill, variance, share)
    found = shrunk(skill - expected, variance)
    skilled, tail = found.widened(uncertain), (1 - INTERVAL) / 2
    return Situations(
        names=tuple(named(each, features, values, obs.shape[1:]) for each in regions),
        share=share,
        mean=mean,
        expected=expected,
        deviation=found.average,
        low=found.quantile(tail),
        high=found.quantile(1 - tail),
        skill_low=expected + skilled.quantile(tail),
        skill_high=expected + skilled.quantile(1 - tail),
        transitions=transitions,
        supported=_supported(found, mean[:, None] - expected),
    )


def _supported(found: Mixture, beyond: Float[np.ndarray, "D G"]) -> Int[np.ndarray, "D G"]:
    """1 where a deviation is surely above both zero and `beyond`, -1 where it is surely below both, else 0."""
    tail = (1 - INTERVAL) / 2
    strong = found.below(np.maximum(beyond, LITTLE)) < tail
    weak = found.below(np.minimum(beyond, -LITTLE)) > 1 - tail
    return strong.astype(int) - weak


def _blocks(
    who: Int[np.ndarray, " N"], recording: Int[np.ndarray, " N"], count: int
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " B"], np.ndarray]:
    """The block of each transition, and of each block the demonstrator and whether it is of the second half."""
    order = np.lexsort((np.arange(len(who)), recording, who))
    _, first, place, length = np.unique(
        who[order] * (int(recording.max()) + 1) + recording[order],
        return_index=True, return_inverse=True, return_counts=True,
    )  # fmt: skip
    person = who[order][first]
    parts = np.minimum(-(-BLOCKS // np.bincount(person, minlength=count))[person], length)
    begin = np.cumsum(parts) - parts
    block = np.empty(len(who), int)
    block[order] = begin[place] + (np.arange(len(who)) - first[place]) * parts[place] // length[place]
    owner = np.repeat(person, parts)
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return block, owner, within % 2 == 1


def _decisions(values: Float[np.ndarray, "N F"], block: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """A number for each transition, the same for nearly identical situations of a block."""
    spread = values.std(0)
    rounded = np.round((values - values.mean(0)) / np.where(spread > 0, spread, 1.0) / NEAR).astype(np.int64)
    mixed = rounded @ np.random.default_rng(0).integers(1 << 62, size=values.shape[1])  # wraps around: a hash
    place = np.unique(mixed, return_inverse=True)[1]
    return np.unique(block * (int(place.max()) + 1) + place, return_inverse=True)[1]


def _measured(
    cell: Int[np.ndarray, " N"],
    realised: Float[np.ndarray, " N"],
    possible: Float[np.ndarray, " N"],
    decision: Int[np.ndarray, " N"],
    groups: Sequence[Int[np.ndarray, " N"]],
    cells: int,
    regions: int,
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, " C"]]:
    """Skill in each cell (a demonstrator in a region) and its variance, infinite where there is nothing.

    Transitions of a decision are as one, those of one of the groups are correlated.
    """
    room = np.bincount(cell, possible, cells)
    seen = room > 1e-9 * room.max()
    safe = np.where(seen, room, 1.0)
    skill = np.where(seen, np.bincount(cell, realised, cells) / safe, 0.0)
    off = np.where(seen[cell], realised - skill[cell] * possible, 0.0)
    person, count = np.arange(cells) // regions, cells // regions
    size, square = (np.bincount(person[cell], each**2, count) for each in (possible, off))
    independent = _squares(cell, decision, possible, cells)
    effective = np.bincount(person, room) ** 2 / np.maximum(np.bincount(person, independent), 1e-300)
    own = square / np.maximum(size, 1e-300)
    single = ((effective * own + LIKE_OTHERS * square.sum() / size.sum()) / (effective + LIKE_OTHERS))[person]
    wider = np.zeros(cells)
    for group in groups:
        joint = np.maximum(_squares(cell, group, possible, cells), independent)
        several = seen & (room**2 >= LEAST_EFFECTIVE * joint)
        found = _squares(cell, group, off, cells) / (1 - np.where(several, joint / safe**2, 0.0))
        excess, most = found - single * independent, single * (joint - independent)
        wider += np.clip(excess[several].sum() / max(most[several].sum(), 1e-300), 0, 1) * (joint - independent)
    variance = single * (independent + wider) / safe**2
    return skill, np.where(seen, np.maximum(variance, LEAST_VARIANCE), np.inf)


def _squares(
    cell: Int[np.ndarray, " N"], group: Int[np.ndarray, " N"], values: Float[np.ndarray, " N"], cells: int
) -> Float[np.ndarray, " C"]:
    """Of each cell, the sum of the squares of the sums over groups."""
    _, place = np.unique(cell * (int(group.max()) + 1) + group, return_inverse=True)
    owner = np.zeros(int(place.max()) + 1, int)
    owner[place] = cell
    return np.bincount(owner, np.bincount(place, values) ** 2, cells)


def _expected(
    skill: Float[np.ndarray, "D G"], variance: Float[np.ndarray, "D G"], often: Float[np.ndarray, " G"]
) -> tuple[Float[np.ndarray, "D G"], Float[np.ndarray, "D G"], Float[np.ndarray, " D"], Float[np.ndarray, "D G"]]:
    """What is expected of everyone in each region, the variance of skill about that, means, and variances of the first.

    A mean weighs regions by the inverse of the variance where skill is the same everywhere and, where it is not, by how
    often all demonstrators are there: whoever spends most of their time where they are weak is weak there. Means are
    drawn towards that of all, by as much as these say about each other.
    """
    seen = np.asarray(np.isfinite(variance))
    finite, often = np.where(seen, variance, 1.0), len(often) * often
    effect, robust = np.ones(skill.shape[1]), seen / finite
    own, level, share, known = np.zeros(len(skill)), np.zeros(len(skill)), robust, effect
    for _ in range(STEPS):
        share = seen / (finite + own[:, None] / often)
        total = np.maximum((share * effect**2).sum(1), 1e-300)
        share = share * effect / total[:, None]
        level = _together((share * skill).sum(1), (share**2 * finite).sum(1), np.asarray(seen.any(1)))
        off = skill - level[:, None] * effect
        own = _heterogeneity(off, finite, seen)
        precise = seen / (finite + _between(off, variance))
        robust = precise * (FREEDOM + 1) / (FREEDOM + precise * off**2)
        known = robust.T @ level**2 + 1 / COMMON**2
        effect = ((robust * skill).T @ level + 1 / COMMON**2) / known
        effect /= np.mean(often * effect)  # so that levels are means
    uncertain = (share**2 * finite).sum(1, keepdims=True)
    about = finite * (1 - 2 * share * effect) + effect**2 * uncertain + level[:, None] ** 2 / known
    about = np.where(seen, np.maximum(about, 0.5 * finite), np.inf)
    return level[:, None] * effect, about, level, effect**2 * np.where(seen.any(1, keepdims=True), uncertain, UNKNOWN)


def _together(
    value: Float[np.ndarray, " D"], variance: Float[np.ndarray, " D"], seen: Bool[np.ndarray, " D"]
) -> Float[np.ndarray, " D"]:
    """Values drawn towards the middle of all; those that are not seen are there."""
    middle, between = float(np.median(value[seen])), max(float(np.var(value[seen])), LEAST_SPREAD**2)
    return np.where(seen, middle + (value - middle) * between / (between + variance), middle)


def _heterogeneity(
    off: Float[np.ndarray, "D G"], variance: Float[np.ndarray, "D G"], seen: Bool[np.ndarray, "D G"]
) -> Float[np.ndarray, " D"]:
    """The variance of each one's skill between regions (DerSimonian and Laird, 1986)."""
    weight = seen / variance
    total = np.maximum(weight.sum(1), 1e-300)
    excess = (weight * off**2).sum(1) - (seen.sum(1) - 1)
    return np.maximum(excess, 0) / np.maximum(total - (weight**2).sum(1) / total, 1e-300) * (seen.sum(1) > 1)


def _between(off: Float[np.ndarray, "D G"], variance: Float[np.ndarray, "D G"]) -> float:
    """The variance of most deviations beyond that of their estimates, by medians, which a few hardly move."""
    seen = np.isfinite(variance)
    middle = float(np.median(off[seen] ** 2)) / norm.ppf(0.75) ** 2
    return max(float(middle) - float(np.median(variance[seen])), LEAST_VARIANCE)
