"""What in a data set makes a fit of it doubtful, in sentences: for `irleed inspect`, `irleed fit` and the report."""

from collections.abc import Sequence

import numpy as np

from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.data.conditioning import measured
from irleed.data.demonstrations import Demonstrations
from irleed.data.lazy import LazyRows
from irleed.data.ranges import Outliers, Ranges
from irleed.data.transitions import are_choices

FEW = 10  # transitions: with fewer, nobody is ranked
NARROW = 0.1  # of the width of the bounds
MOST_LISTED = 4


def cautions(
    data: Demonstrations,
    bounds: tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]] | None = None,
    obs: Ranges | None = None,
) -> list[str]:
    """Outliers, values that single precision cannot tell apart, narrow actions, and demonstrators with few transitions.

    `bounds` are the environment's, of continuous actions; without, those from -1 to 1 are meant, if all are in there.
    `obs` are the ranges of the observations, where they are known already.
    """
    obs = ranges_of(data.obs) if obs is None else obs
    found = [] if obs is None else [*_outliers(data, obs, "observation"), *_coarse(obs)]
    found += few(data)
    action = np.asarray(data.action)
    if are_choices(data):
        return found
    ranges = Ranges.of(action)
    return [*_outliers(data, ranges, "action"), *_narrow(ranges, bounds), *found]


def ranges_of(obs: Shaped[Array | LazyRows, "R ..."]) -> Ranges | None:
    """Of observations; None where they are pixels, flags or numbers of states, which cannot be off."""
    return Ranges.of(obs, standardised=True) if measured(obs) else None


def few(data: Demonstrations, so: str = "networks give them no intervals and no rank") -> list[str]:
    """Who has too few transitions to be ranked among others, and what follows."""
    count = np.bincount(np.asarray(data.demonstrator), minlength=data.demonstrators)
    who = np.flatnonzero(count < FEW)
    if data.demonstrators == 1 or not len(who):
        return []
    named = _listed([f"{data.names[number]!r} ({count[number]})" for number in who])
    return [f"too few transitions to rank, fewer than {FEW}: {named}; {so}"]


def narrow(ranges: Ranges, low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]) -> Bool[np.ndarray, " A"]:
    """Entries whose values, outliers apart, take up less than a tenth of these bounds."""
    return ranges.maximum - ranges.minimum < NARROW * (np.asarray(high, float) - low)


def _narrow(ranges: Ranges, bounds: tuple[np.ndarray, np.ndarray] | None) -> list[str]:
    if bounds is None and (ranges.minimum.min() < -1 or ranges.maximum.max() > 1):
        return []
    low, high = (-np.ones(len(ranges.low)), np.ones(len(ranges.low))) if bounds is None else bounds
    entries = np.flatnonzero(narrow(ranges, low, high) & (ranges.maximum > ranges.minimum))
    if not len(entries):
        return []
    ends = [f"{e} ({ranges.minimum[e]:.3g} to {ranges.maximum[e]:.3g} of {low[e]:g} to {high[e]:g})" for e in entries]
    whose = "the range from -1 to 1" if bounds is None else "the environment's bounds"
    return [f"action entries far narrower than {whose}, as if in another unit: {_listed(ends)}"]


def _outliers(data: Demonstrations, ranges: Ranges, what: str) -> list[str]:
    """Where the farthest value of each entry is, and how far."""
    shown = [_outlier(data, ranges, each, what) for each in ranges.outliers[:MOST_LISTED]]
    left = len(ranges.outliers) - len(shown)
    return shown + ([f"{left} more {what} entries have outliers"] if left else [])


def _outlier(data: Demonstrations, ranges: Ranges, found: Outliers, what: str) -> str:
    low, high = ranges.low[found.entry], ranges.high[found.entry]
    farthest = int(np.argmax(np.maximum(low - found.values, found.values - high)))
    value = found.values[farthest]
    widths = max(low - value, value - high) / (high - low)
    episode, step = _place(data, int(found.rows[farthest]), what)
    who = data.names[data.owner[episode]]
    count = f"{len(found.rows)} outlier{'s' if len(found.rows) > 1 else ''} in {what} entry {found.entry}"
    return (
        f"{count}: {value:g} in episode {episode}, step {step}, of {who!r} is {widths:.0f} times as far from the bulk "
        f"({low:.3g} to {high:.3g}) as that is wide"
    )


def _place(data: Demonstrations, row: int, what: str) -> tuple[int, int]:
    """Episode and step of a row of observations, which has one more an episode than there are actions."""
    start: Int[np.ndarray, " E"] = data.start + (np.arange(data.episodes) if what == "observation" else 0)
    episode = int(np.searchsorted(start, row, side="right")) - 1
    return episode, row - int(start[episode])


def _coarse(ranges: Ranges) -> list[str]:
    entries = np.flatnonzero(ranges.coarse)
    if not len(entries):
        return []
    ends = [f"{e} ({ranges.low[e]:.12g} to {ranges.high[e]:.12g})" for e in entries]
    said = "observation entries whose values single precision hardly tells apart"
    return [f"{said}: {_listed(ends)}; subtract a constant before agents play in such an environment"]


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - MOST_LISTED} more" if len(parts) > MOST_LISTED else ""
    return ", ".join(parts[:MOST_LISTED]) + more
