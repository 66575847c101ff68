"""Entries of actions that are choices: among a few values, or between a bound and everything else.

One bell over all numbers describes neither. A gripper that is either open or closed would be half closed on average; a
torque that is cut off at its bounds is at one of them more often than anywhere near.
"""

import dataclasses

import numpy as np

from irleed._typing import Float, Shaped
from irleed.data.conditioning import Ranges

FEW_VALUES = 8  # an entry with more is a quantity
REPEATED = 20  # transitions for each value, at least, on average
AT_BOUND = 0.05  # share of the transitions at one end of the data that makes it an option of its own
ROUNDING = 5e-4  # of the width: how far from an end counts as being there
MOST_LISTED = 8


@dataclasses.dataclass(frozen=True)
class Choice:
    """An entry that is one of these values or, if it is `free`, any other number as well."""

    entry: int
    values: tuple[float, ...]
    share: tuple[float, ...]  # of the transitions, of each value
    free: bool

    def __str__(self) -> str:
        listed = ", ".join(f"{value:.4g} ({share:.0%})" for value, share in zip(self.values, self.share, strict=True))
        return f"{self.entry} is often at {listed}" if self.free else f"{self.entry} is one of {listed}"


def choices(action: Shaped[np.ndarray, "N ..."], ranges: Ranges | None = None) -> tuple[Choice, ...]:
    """The entries of vectors that are choices; those that never change are none."""
    table = np.asarray(action).reshape(len(action), -1)
    ranges = Ranges.of(table) if ranges is None else ranges
    found = (_choice(entry, column, ranges) for entry, column in enumerate(table.T))
    return tuple(each for each in found if each is not None)


def sentences(found: tuple[Choice, ...]) -> list[str]:
    """What `irleed inspect` says of them, in one line."""
    if not found:
        return []
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return [f"action entries that are modelled as choices: {'; '.join(map(str, found[:MOST_LISTED]))}{more}"]


def _choice(entry: int, column: Shaped[np.ndarray, " N"], ranges: Ranges) -> Choice | None:
    low, high = ranges.minimum[entry], ranges.maximum[entry]
    kept = column[(column >= low) & (column <= high)].astype(float)  # without outliers
    if low == high:
        return None
    values, count = np.unique(kept[: REPEATED * (FEW_VALUES + 1)], return_counts=True)
    if len(values) <= FEW_VALUES:
        values, count = np.unique(kept, return_counts=True)
        if len(values) <= FEW_VALUES and len(kept) >= REPEATED * len(values):
            return Choice(entry, _plain(values), _plain(count / len(kept)), free=False)
    ends = np.array([low, high])
    share = np.mean(np.abs(kept[:, None] - ends) <= ROUNDING * (high - low), 0)
    often = (share >= AT_BOUND) & (share * len(kept) >= REPEATED)
    return Choice(entry, _plain(ends[often]), _plain(share[often]), free=True) if often.any() else None


def _plain(values: Float[np.ndarray, " K"]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
