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
CHANCE = 0.01  # that an order without any meaning is believed
ENDURING = 0.25  # the same of the order after the first part: how an episode begins is not practice
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
    def said(self) -> str:
        """What users should know about it."""
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
    within = (recordings >= LEAST_RECORDINGS).sum() < LEAST_PEOPLE
    parts = _parts(data, within=within)
    if len(np.unique(parts.who[parts.group >= 0])) < LEAST_PEOPLE:
        return None
    found, margin = _told(parts, CHANCE)
    if found < margin or (within and np.less(*_told(parts, ENDURING, first=1))):
        return None
    margin = _told(parts, 0.025)[1]
    score, deviation = _scores(parts, data.demonstrators)
    return Practice(score, deviation, found, found - margin, found + margin)


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


def _told(parts: _Parts, chance: float, first: int = 0) -> tuple[float, float]:
    """The mean correlation over people of their order with the reward that the others' order teaches.

    And the margin that it has to be beyond, not to be there by chance. Orders begin with part `first`.
    """
    group = np.where(parts.order >= first, parts.group, -1)
    off, time = _centred(parts.described, group, parts.order)
    fold, rewards = _rewards(off, time, parts.who)
    told = np.sum(off * rewards[fold[parts.who]], 1)
    people = np.unique(parts.who[group >= 0])
    moments = [np.bincount(parts.who, each)[people] for each in (told * time, told**2, time**2)]
    found = moments[0] / np.sqrt(np.maximum(moments[1] * moments[2], 1e-24))
    return float(found.mean()), float(t.isf(chance, len(people) - 1) * found.std(ddof=1) / np.sqrt(len(people)))


def _scores(parts: _Parts, people: int) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Everyone's score by the others' order, with the deviation of their own parts and of the others' reward.

    The latter is a jackknife: the scores by the rewards that leave one fold of people out each.
    """
    off, time = _centred(parts.described, parts.group, parts.order)
    fold, rewards = _rewards(off, time, parts.who)
    each = parts.described @ rewards.T
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
    off: Float[np.ndarray, "U K"], time: Float[np.ndarray, " U"], who: Int[np.ndarray, " U"]
) -> tuple[Int[np.ndarray, " D"], Float[np.ndarray, "G K"]]:
    """The fold of each person, and for each fold the linear reward that all other folds teach."""
    people = int(who.max()) + 1
    folds = min(people, MOST_FOLDS)
    fold = np.arange(people) % folds
    grams = [off[fold[who] == g].T @ off[fold[who] == g] for g in range(folds)]
    targets = [off[fold[who] == g].T @ time[fold[who] == g] for g in range(folds)]
    gram, target, ridge = sum(grams), sum(targets), len(off) * np.eye(off.shape[1])
    return fold, np.stack([np.linalg.solve(gram - grams[g] + ridge, target - targets[g]) for g in range(folds)])
