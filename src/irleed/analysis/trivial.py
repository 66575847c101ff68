"""Trivial statistics: what can be counted of demonstrators without a fit, and expertise has to be better than."""

from collections.abc import Mapping

import numpy as np

from irleed._typing import Float, Int
from irleed.analysis.agreement import rank_correlation
from irleed.data import Demonstrations
from irleed.data.transitions import are_choices
from irleed.model.expertise import Expertise

STEPS, MOST_FREQUENT, CHANGE = (
    "steps per episode",
    "share of the most frequent action",
    "mean absolute change of action",
)
REPEATED, ENTROPY, TRANSITIONS = "share of repeated actions", "entropy of actions", "transitions"
SIZE = "mean absolute action"
GIVEN = (STEPS, MOST_FREQUENT, CHANGE)  # what partial correlations hold fixed, where it is known
NEARLY_THE_SAME = 0.9  # rank correlation of skill with a trivial statistic
FEWEST = 8  # demonstrators for that to be said


def trivial_statistics(
    data: Demonstrations, group: Int[np.ndarray, " E"] | None = None, actions: tuple[int, ...] = ()
) -> dict[str, Float[np.ndarray, " G"]]:
    """Statistics of each demonstrator, by their names.

    Steps per episode and transitions. Of discrete actions, the share of the action that is most frequent in the whole
    data (often the idle one), the share of actions equal to the one before, and the entropy of actions in nats. Of
    continuous actions, the mean absolute action and the mean absolute change from one step to the next.

    **Arguments:**

    - `group`: a group's number for each episode, instead of its demonstrator's.
    - `actions`: discrete actions whose shares are wanted besides.
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
        return found | {
            SIZE: np.bincount(whose, size, count) / steps,
            CHANGE: np.bincount(whose[second], change[second - 1], count) / followed,
        }
    choices, place = np.unique(action, return_inverse=True)
    share = np.bincount(whose * len(choices) + place, minlength=count * len(choices)).reshape(count, -1)
    share = share / steps[:, None]
    repeated = np.bincount(whose[second], action[second] == action[second - 1], count) / followed
    found |= {
        MOST_FREQUENT: share[:, np.bincount(place).argmax()],
        REPEATED: repeated,
        ENTROPY: -(share * np.log(np.where(share > 0, share, 1.0))).sum(1),
    }
    return found | {f"share of action {each}": (share * (choices == each)).sum(1) for each in actions}


def held_fixed(statistics: Mapping[str, Float[np.ndarray, " G"]]) -> Float[np.ndarray, "K G"]:
    """Those of the statistics that partial correlations are given."""
    return np.stack([statistics[name] for name in GIVEN if name in statistics])


def nearly_the_same(expertise: Expertise, data: Demonstrations) -> tuple[str, ...]:
    """A sentence for each trivial statistic that orders demonstrators as their skill does, or the other way round."""
    skill = np.asarray(expertise.precision if expertise.skill is None else expertise.skill, float)
    what = "precision" if expertise.skill is None else "skill"
    ranked = np.flatnonzero(expertise.ranked & np.isfinite(skill))
    if len(ranked) < FEWEST:
        return ()
    said = []
    for name, values in trivial_statistics(data).items():
        found = rank_correlation(skill[ranked], values[ranked])
        if abs(found) > NEARLY_THE_SAME:
            same = "nearly the same as" if found > 0 else "nearly the opposite of"
            said.append(f"{what} says {same} {name} (Spearman {found:.2f}): `irleed validate` compares it with scores")
    return tuple(said)
