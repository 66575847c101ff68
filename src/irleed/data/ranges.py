"""Robust ranges of columns of numbers, and the values that lie far outside them.

The bulk of a column is what is left without a fortieth of its values on either side. A value is an outlier if it is
farther from the bulk than three times the bulk's width, which for a normal distribution is 14 standard deviations, and
if at most one in a hundred values is so far off: more of them are part of the distribution. Of columns that are only
standardised, such values are outliers if they also make the standard deviation more than twice what it is without them.
"""

import dataclasses
import math

import numpy as np

from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.data.lazy import LazyRows, chunks

TAIL = 0.025  # share of the values on either side that does not belong to the bulk
FAR = 3.0  # widths of the bulk between it and an outlier
MOST_OUTLYING = 0.01  # share of the values
INFLATED = 2.0  # standard deviation with outliers, relative to that without
LEAST_ROWS = 20  # fewer have no bulk
SAMPLE_ROWS, SAMPLE_VALUES = 20_000, 1 << 23  # what the bulk is found from, evenly spaced


@dataclasses.dataclass(frozen=True)
class Outliers:
    """Values of one entry that are far from all others."""

    entry: int  # of an observation or action, flattened
    rows: Int[np.ndarray, " K"]  # where they are
    values: Float[np.ndarray, " K"]

    def inflate(
        self,
        low: Float[np.ndarray, " F"],
        high: Float[np.ndarray, " F"],
        deviation: Float[np.ndarray, " F"],
        count: int,
    ) -> bool:
        """Whether they make the standard deviation of so many values much larger than it is without them."""
        with np.errstate(over="ignore"):
            off = (self.values - (0.5 * low + 0.5 * high)[self.entry]) / deviation[self.entry]
            return bool(np.sum(off**2) > (INFLATED**2 - 1) * count)


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Of F columns, in double precision."""

    low: Float[np.ndarray, " F"]  # of the bulk
    high: Float[np.ndarray, " F"]
    least: Float[np.ndarray, " F"]  # values below are outliers; -inf: there are none
    most: Float[np.ndarray, " F"]
    minimum: Float[np.ndarray, " F"]  # of all values but the outliers
    maximum: Float[np.ndarray, " F"]
    outliers: tuple[Outliers, ...]
    resolution: float  # relative to a value, of the type they are stored in

    @classmethod
    def of(cls, values: Shaped[Array | LazyRows, "N ..."], *, standardised: bool = False) -> "Ranges":
        """Of every entry; the bulk is found from a sample of large data, the rest from all of them.

        With `standardised`, what hardly changes the standard deviation is no outlier.
        """
        low, high, deviation = _bulk(values)
        with np.errstate(over="ignore"):  # an infinite margin: no value is outside
            margin = np.where((high > low) & (len(values) >= LEAST_ROWS), FAR * (high - low), np.inf)
        least, most = low - margin, high + margin
        ends, found = _scanned(values, least, most)
        allowed, count = max(1, int(MOST_OUTLYING * len(values))), len(values)
        outliers = tuple(each for each in found if len(each.rows) <= allowed)
        if standardised:
            outliers = tuple(each for each in outliers if each.inflate(low, high, deviation, count))
        own = np.isin(np.arange(len(low)), [each.entry for each in outliers])
        # An entry without outliers has the ends of all its values, one with outliers those of the others.
        minimum, maximum = np.where(own, ends[2:], ends[:2])
        resolution = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0.0
        least, most = np.where(own, least, -np.inf), np.where(own, most, np.inf)
        return cls(low, high, least, most, minimum, maximum, outliers, float(resolution))

    @property
    def width(self) -> Float[np.ndarray, " F"]:
        """Of the bulk; where that is a single value, of all that are no outliers."""
        with np.errstate(over="ignore"):
            return np.where(self.high > self.low, self.high - self.low, self.maximum - self.minimum)

    @property
    def size(self) -> Float[np.ndarray, " F"]:
        """The largest magnitude that is no outlier."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def coarse(self) -> Bool[np.ndarray, " F"]:
        """Entries that differ by more than the rounding of their own type, but by little more than single precision's.

        Relative to their width, single precision would be off by more than a ten thousandth.
        """
        rounding = np.finfo(np.float32).eps * self.size
        return (self.width > 4 * self.resolution * self.size) & (1e-4 * self.width < rounding)


def _bulk(values: Array | LazyRows) -> tuple[Float[np.ndarray, " F"], ...]:
    """Both ends, and the standard deviation of what is not far off, from an even sample."""
    entries = math.prod(values.shape[1:])
    rows = min(len(values), SAMPLE_ROWS, max(LEAST_ROWS, SAMPLE_VALUES // max(entries, 1)))
    chosen = np.linspace(0, len(values) - 1, rows).astype(np.int64)
    sample = np.asarray(values[chosen]).reshape(rows, -1).astype(float)
    beyond = min(max(1, math.ceil(TAIL * rows)), (rows - 1) // 2)
    sample = np.partition(sample, (beyond, rows - 1 - beyond), 0)
    low, high = sample[beyond], sample[rows - 1 - beyond]
    with np.errstate(over="ignore"):
        width = np.minimum(np.where(high > low, high - low, 1.0), np.finfo(float).max)
        off = (sample - (0.5 * low + 0.5 * high)) / width
    deviation = width * np.sqrt(np.mean(np.square(off, where=np.abs(off) <= FAR + 0.5, out=np.zeros_like(off)), 0))
    return low, high, deviation


def _scanned(
    values: Array | LazyRows, least: Float[np.ndarray, " F"], most: Float[np.ndarray, " F"]
) -> tuple[Float[np.ndarray, "4 F"], list[Outliers]]:
    """Least and greatest of all values, and of those within the fences; and the others, by entry."""
    ends = np.tile(np.array([[np.inf], [-np.inf]] * 2), len(least))
    rows, entries, beyond = [], [], []
    for first, chunk in chunks(values):
        table = chunk.reshape(len(chunk), -1).astype(float)
        low, high = table.min(0), table.max(0)
        ends[:2] = np.minimum(ends[0], low), np.maximum(ends[1], high)
        if (low < least).any() or (high > most).any():
            off = (table < least) | (table > most)
            row, entry = np.nonzero(off)
            rows, entries, beyond = [*rows, first + row], [*entries, entry], [*beyond, table[off]]
            low, high = np.where(off, np.inf, table).min(0), np.where(off, -np.inf, table).max(0)
        ends[2:] = np.minimum(ends[2], low), np.maximum(ends[3], high)
    if not rows:
        return ends, []
    row, entry, value = (np.concatenate(column) for column in (rows, entries, beyond))
    return ends, [Outliers(int(e), row[entry == e], value[entry == e]) for e in np.unique(entry)]
