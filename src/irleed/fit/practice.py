r"""What changes with practice: a reward that is learnt from the order in which people did things.

People improve. What changes within a person from their first recordings to their last ones therefore tells what is
better, without any score ("Learning from a Learner", Jacq et al., 2019). Every recording is described by the mean of
its observations. A linear reward of situations is the ridge regression of the order of recordings on these means, both
relative to their owner's mean, so that who somebody is does not enter. Each person's score is the mean of the reward
that the others' order has taught.

Where people have few recordings, the order of the quarters of long recordings is taken, if the clock ended these: what
comes last in an episode that ended by itself says how the task ends, not how people improve.

Nothing supposes that people do improve: unless the order of *other* people's recordings can be told from the reward,
beyond chance, there is no such score. Conditions that drift as people record (light, wear) would be mistaken for it.
"""

import equinox as eqx
import numpy as np
from scipy.stats import rankdata, t

from irleed._typing import Float, Int
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations
from irleed.fit.posterior import Posterior

LEAST_RECORDINGS = 4  # of a person, for their order to be looked at
PARTS = 4  # of a recording, where people have fewer
LEAST_LONG = 50  # transitions of a part
LEAST_PEOPLE = 5  # whose order is known
MOST_FOLDS = 25  # of people, each scored by the order of all others
MOST_NUMBERS = 1_000  # in an observation: means of images say little
FAR = 5.0  # standard deviations beyond which a description is clipped
SHUFFLES = 999  # orders without any meaning that the true one is compared with
CHANCE = 0.01  # that such an order is believed; likewise after the first part: how an episode begins is not practice
AGREEMENT = 0.5  # what agreement with others counts beside practice, both in standard deviations
LEAST_SPREAD = 0.05  # of skill between people, for the scale of skill


class Practice(eqx.Module):
    """How far D demonstrators have come along what changes with practice, in standard deviations between them."""

    score: Float[np.ndarray, " D"]
    deviation: Float[np.ndarray, " D"]
    order: float = eqx.field(static=True)  # mean correlation with the order of people who were left out
    low: float = eqx.field(static=True)  # the ends of its 95 % interval over people
    high: float = eqx.field(static=True)

    @property
    def note(self) -> str:
        """A note for users."""
        return (
            "skill counts practice: what changes from people's early to their late recordings tells the order of"
            f" recordings of people who were left out (correlation {self.order:.2f} [{self.low:.2f}, {self.high:.2f}]);"
            " this supposes that people improve, and that nothing else changed meanwhile"
        )

    def beside(self, agreed: Posterior) -> Posterior:
        """Skill by practice and by agreement with others, on the scale of the latter."""
        middle, spread = float(agreed.skill.mean()), max(float(agreed.skill.std()), LEAST_SPREAD)
        size = np.hypot(1.0, AGREEMENT)
        skill = middle + (spread * self.score + AGREEMENT * (agreed.skill - middle)) / size
        deviation = np.hypot(spread * self.deviation, AGREEMENT * agreed.deviation) / size
        return Posterior(np.minimum(skill, 1.0), deviation, agreed.log_precision, agreed.shift)


class _Parts(eqx.Module):
    """U recordings, or parts of them, described by their mean observation of K numbers."""

    described: Float[np.ndarray, "U K"]
    who: Int[np.ndarray, " U"]
    group: Int[np.ndarray, " U"]  # within which there is an order; -1: none
    order: Int[np.ndarray, " U"]


def practice(data: Demonstrations) -> Practice | None:
    """Score everyone by what changes with practice in others; None where others' order says nothing about it."""
    if isinstance(data.obs, lazy.LazyRows) or np.prod(data.obs.shape[1:]) > MOST_NUMBERS:
        return None
    recordings = np.bincount(data.owner[np.unique(data.recordings, return_index=True)[1]], minlength=data.demonstrators)
    within = int((recordings >= LEAST_RECORDINGS).sum()) < LEAST_PEOPLE
    parts = _parts(data, within=within)
    if len(np.unique(parts.who[parts.group >= 0])) < LEAST_PEOPLE:
        return None
    found, by_chance = _order_correlation(parts)
    if by_chance > CHANCE or (within and _order_correlation(parts, first=1)[1] > CHANCE):
        return None
    score, deviation = _scores(parts, data.demonstrators)
    margin = float(t.isf(0.025, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found)))
    return Practice(score, deviation, float(found.mean()), float(found.mean()) - margin, float(found.mean()) + margin)


def _parts(data: Demonstrations, *, within: bool) -> _Parts:
    """Recordings in the order of their person, or the parts of long ones in theirs."""
    numbers = data.recordings[np.asarray(data.episode)]
    ordered = np.argsort(numbers, kind="stable")
    _, first, recording, length = np.unique(
        numbers[ordered], return_index=True, return_inverse=True, return_counts=True
    )
    row, who = np.asarray(data.row)[ordered], np.asarray(data.demonstrator)[ordered][first]
    ended = np.bincount(recording, np.asarray(data.terminated)[ordered]) > 0
    several = within & ~ended & (length >= PARTS * LEAST_LONG)
    parts = np.where(several, PARTS, 1)
    start = np.cumsum(parts) - parts
    part = start[recording] + (np.arange(len(row)) - first[recording]) * parts[recording] // length[recording]
    obs = np.asarray(data.obs).reshape(len(data.obs), -1)
    described = np.stack([np.bincount(part, column[row]) for column in obs.T], 1) / np.bincount(part)[:, None]
    middle, spread = described.mean(0), described.std(0)
    varies = spread > 1e-9 * np.abs(middle) + 1e-12
    scaled = np.clip((described - middle)[:, varies] / spread[varies], -FAR, FAR)
    whole = np.repeat(np.arange(len(length)), parts)
    if within:
        group, order = np.where(several[whole], whole, -1), np.arange(len(whole)) - start[whole]
    else:
        known = np.bincount(who, minlength=data.demonstrators) >= LEAST_RECORDINGS
        group, order = np.where(known[who], who, -1), whole
    return _Parts(scaled, who[whole], group, order)


def _order_correlation(parts: _Parts, first: int = 0) -> tuple[Float[np.ndarray, " D"], float]:
    """The correlation of each person's order with the reward that the others' order teaches, and a p-value.

    The p-value is the share of permutations (of parts within their groups) whose mean correlation is as high. Orders
    begin with part `first`.
    """
    group = np.where(parts.order >= first, parts.group, -1)
    off, time = _centred(parts.described, group, parts.order)
    rng = np.random.default_rng(0)
    times = np.stack([time, *(_shuffled(rng, time, group) for _ in range(SHUFFLES))], 1)
    fold, rewards = _rewards(off, times, parts.who)
    people = np.unique(parts.who[group >= 0])
    told = np.zeros_like(times)
    for number, reward in enumerate(rewards):
        own = fold[parts.who] == number
        told[own] = off[own] @ reward
    moments = [_summed(parts.who, each)[people] for each in (told * times, told**2, times**2)]
    found = moments[0] / np.sqrt(np.maximum(moments[1] * moments[2], 1e-24))
    mean = found.mean(0)
    return found[:, 0], float(np.mean(mean >= mean[0]))


def _summed(who: Int[np.ndarray, " U"], each: Float[np.ndarray, "U R"]) -> Float[np.ndarray, "D R"]:
    """Sums over each person's parts."""
    total = np.zeros((int(who.max()) + 1, each.shape[1]))
    np.add.at(total, who, each)
    return total


def _shuffled(
    rng: np.random.Generator, time: Float[np.ndarray, " U"], group: Int[np.ndarray, " U"]
) -> Float[np.ndarray, " U"]:
    """The same with the order of the parts of each group drawn anew."""
    drawn = time.copy()
    order = np.lexsort((rng.random(len(time)), group))
    drawn[np.argsort(group, kind="stable")] = time[order]
    return drawn


def _scores(parts: _Parts, people: int) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Everyone's score by the others' order, with the deviation of their own parts and of the others' reward.

    The latter is a jackknife: the scores by the rewards that leave one fold of people out each.
    """
    off, time = _centred(parts.described, parts.group, parts.order)
    fold, rewards = _rewards(off, time[:, None], parts.who)
    each = parts.described @ rewards[:, :, 0].T
    count = np.bincount(parts.who, minlength=people)
    by_fold = np.stack([np.bincount(parts.who, column, people) for column in each.T], 1) / count[:, None]
    score = by_fold[np.arange(people), fold]
    off_mean = each[np.arange(len(each)), fold[parts.who]] - score[parts.who]
    within = np.bincount(parts.who, off_mean**2, people) / np.maximum(count - 1, 1)
    own = np.where(count > 1, within, within[count > 1].mean()) / count
    learnt = (len(rewards) - 1) * by_fold.var(1)
    spread = max(float(score.std()), 1e-12)
    return (score - score.mean()) / spread, np.sqrt(own + learnt) / spread


def _centred(
    described: Float[np.ndarray, "U K"], group: Int[np.ndarray, " U"], order: Int[np.ndarray, " U"]
) -> tuple[Float[np.ndarray, "U K"], Float[np.ndarray, " U"]]:
    """Descriptions and ranks in the order, relative to the means of groups; zeros for parts without an order."""
    off, time = np.zeros_like(described), np.zeros(len(described))
    for number in np.unique(group[group >= 0]):
        own = group == number
        off[own] = described[own] - described[own].mean(0)
        rank = rankdata(order[own]) / own.sum()
        time[own] = rank - rank.mean()
    return off, time


def _rewards(
    off: Float[np.ndarray, "U K"], times: Float[np.ndarray, "U R"], who: Int[np.ndarray, " U"]
) -> tuple[Int[np.ndarray, " D"], Float[np.ndarray, "G K R"]]:
    """The fold of each person, and for each fold the linear rewards that all other folds teach, one for each order."""
    people = int(who.max()) + 1
    folds = min(people, MOST_FOLDS)
    fold = np.arange(people) % folds
    own = [fold[who] == number for number in range(folds)]
    grams, targets = [off[rows].T @ off[rows] for rows in own], [off[rows].T @ times[rows] for rows in own]
    gram, target, ridge = sum(grams), sum(targets), len(off) * np.eye(off.shape[1])
    return fold, np.stack([np.linalg.solve(gram - grams[g] + ridge, target - targets[g]) for g in range(folds)])
