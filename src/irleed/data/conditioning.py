"""Robust ranges of columns, entries of actions that are choices, and observations conditioned for single precision.

The bulk of a column is what is left without a fortieth of its values on either side. A value is an outlier if it is
farther from the bulk than three times the bulk's width, which for a normal distribution is 14 standard deviations, and
if at most one in a hundred values is so far off: more of them are part of the distribution. Of columns that are only
standardised, such values are outliers if they also make the standard deviation more than twice what it is without them.

Networks standardise observations by mean and standard deviation, in single precision. An entry of the observations is
changed before only

- if single precision cannot tell its values apart (1e8 and 1e8 + 1 are one number there): a centre is subtracted in
  double precision;
- if it varies by less than 1e-9 or more than 1e9, whose squares single precision cannot hold: it is divided by a power
  of two;
- if it has outliers, which would decide mean and standard deviation: they are clipped to where outliers begin.

The policy applies the same `Conditioning`.

An entry of the actions is a choice if it has a few values only, as a gripper that is open or closed, or is often at a
bound, as a torque that is cut off there: a normal distribution describes neither.
"""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.data.lazy import LazyRows, Source, chunks
from irleed.errors import SpaceError

TAIL = 0.025  # share of the values on either side of the bulk
FAR = 3.0  # distance of an outlier from the bulk, in widths of the bulk
MOST_OUTLYING = 0.01  # share of the values
INFLATED = 2.0  # standard deviation with outliers, relative to that without
LEAST_ROWS = 20  # fewer have no bulk
SAMPLE_ROWS, SAMPLE_VALUES = 20_000, 1 << 23  # of the sample, evenly spaced, that the bulk is estimated from


@dataclasses.dataclass(frozen=True)
class Outliers:
    """Outliers of one entry."""

    entry: int  # of a flattened observation or action
    rows: Int[np.ndarray, " K"]  # where they are
    values: Float[np.ndarray, " K"]

    def inflate(
        self,
        low: Float[np.ndarray, " F"],
        high: Float[np.ndarray, " F"],
        deviation: Float[np.ndarray, " F"],
        count: int,
    ) -> bool:
        """Whether they make the standard deviation of `count` values more than `INFLATED` times as large."""
        with np.errstate(over="ignore"):
            off = (self.values - (0.5 * low + 0.5 * high)[self.entry]) / deviation[self.entry]
            return bool(np.sum(off**2) > (INFLATED**2 - 1) * count)


@dataclasses.dataclass(frozen=True)
class Ranges:
    """Ranges of F columns, in double precision."""

    low: Float[np.ndarray, " F"]  # of the bulk
    high: Float[np.ndarray, " F"]
    least: Float[np.ndarray, " F"]  # values below are outliers; -inf: there are none
    most: Float[np.ndarray, " F"]
    minimum: Float[np.ndarray, " F"]  # of all values but the outliers
    maximum: Float[np.ndarray, " F"]
    outliers: tuple[Outliers, ...]
    resolution: float  # relative to a value, of the dtype

    @classmethod
    def of(cls, values: Shaped[Array | LazyRows, "N ..."], *, standardised: bool = False) -> "Ranges":
        """Ranges of every entry; the bulk of large data is estimated from a sample, the rest from all of them.

        With `standardised`, values that hardly change the standard deviation are no outliers.
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
        minimum, maximum = np.where(own, ends[2:], ends[:2])
        resolution = np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0.0
        least, most = np.where(own, least, -np.inf), np.where(own, most, np.inf)
        return cls(low, high, least, most, minimum, maximum, outliers, float(resolution))

    @property
    def width(self) -> Float[np.ndarray, " F"]:
        """Width of the bulk; where that is a single value, of all values but outliers."""
        with np.errstate(over="ignore"):
            return np.where(self.high > self.low, self.high - self.low, self.maximum - self.minimum)

    @property
    def size(self) -> Float[np.ndarray, " F"]:
        """The largest magnitude, outliers excluded."""
        return np.maximum(np.abs(self.minimum), np.abs(self.maximum))

    @property
    def coarse(self) -> Bool[np.ndarray, " F"]:
        """Entries that single precision would round by more than a ten thousandth of their width."""
        rounding = np.finfo(np.float32).eps * self.size
        return (self.width > 4 * self.resolution * self.size) & (1e-4 * self.width < rounding)


def _bulk(values: Array | LazyRows) -> tuple[Float[np.ndarray, " F"], ...]:
    """Both ends of the bulk, and the standard deviation without values far off, from an even sample."""
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
    """Minimum and maximum of all values, and of those from `least` to `most`; and the others, by entry."""
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


LARGEST = 1e30  # magnitude that leaves room for arithmetic in single precision
SCALES = (1e-9, 1e9)  # widths between which no unit is needed
NO_END = float(np.finfo(np.float32).max)
FIELDS = ("origin", "remainder", "unit", "low", "high")


class Conditioning(eqx.Module):
    """For every entry, ``clip((x - origin - remainder) / unit, low, high)``.

    All in single precision, so that it can be traced and saved as other parameters are; `origin` and `remainder`
    together are the centre in (nearly) double precision.
    """

    origin: Float[Array, "*obs"]
    remainder: Float[Array, "*obs"]
    unit: Float[Array, "*obs"]  # a power of two
    low: Float[Array, "*obs"]
    high: Float[Array, "*obs"]

    @classmethod
    def of(cls, ranges: Ranges, shape: tuple[int, ...], shift: bool = True) -> "Conditioning | None":
        """The conditioning that observations of these ranges need, or None.

        Without `shift`, only outliers are clipped, so that observations stay in the units of an environment.
        """
        _refuse_too_large(ranges)
        extreme = (ranges.width > 4 * ranges.resolution * ranges.size) & (
            (ranges.width < SCALES[0]) | (ranges.width > SCALES[1])
        )
        changed = shift & (ranges.coarse | extreme)
        centre = np.where(changed, 0.5 * (ranges.low + ranges.high), 0.0)
        unit = np.ones(len(centre))
        unit[changed & extreme] = 2.0 ** np.round(np.log2(ranges.width[changed & extreme]))
        if not changed.any() and not ranges.outliers:
            return None
        origin = centre.astype(np.float32)
        low, high = (np.clip((end - centre) / unit, -NO_END, NO_END) for end in (ranges.least, ranges.most))
        parts = origin, centre - origin, unit, low, high
        return cls(*(part.astype(np.float32).reshape(shape) for part in parts))

    def __call__(self, observation: Float[Array, "..."]) -> Float[Array, "..."]:
        """Condition an observation in single precision; can be traced."""
        held = jax.lax.stop_gradient(self)
        centred = (observation - held.origin) - held.remainder
        return jnp.clip(centred / held.unit, held.low, held.high)

    def exact(self, observations: Shaped[np.ndarray, "B ..."]) -> Float[np.ndarray, "B ..."]:
        """Condition observations of any dtype, computed in double precision."""
        origin, remainder, unit, low, high = (np.asarray(getattr(self, name), float) for name in FIELDS)
        centred = observations.astype(float) - (origin + remainder)
        return np.clip(centred / unit, low, high).astype(np.float32)

    def undone(self, conditioned: Float[np.ndarray, "B ..."]) -> Float[np.ndarray, "B ..."]:
        """Conditioned observations in their own units; what was clipped stays so."""
        origin, remainder, unit = (np.asarray(getattr(self, name), float) for name in FIELDS[:3])
        return conditioned * unit + (origin + remainder)

    def rows(self, obs: Shaped[Array | LazyRows, "R ..."]) -> Float[Array, "R ..."] | LazyRows:
        """Condition all rows of a data set; lazy rows stay lazy."""
        if isinstance(obs, LazyRows):
            return LazyRows.of(_Conditioned(obs, self))
        found = np.empty(obs.shape, np.float32)
        for first, chunk in chunks(obs):
            found[first : first + len(chunk)] = self.exact(chunk)
        return found


class _Conditioned(Source):
    """Lazy rows that are conditioned when they are read."""

    def __init__(self, rows: LazyRows, conditioning: Conditioning):
        self.rows, self.conditioning = rows, conditioning
        self.shape, self.dtype = rows.shape, np.dtype(np.float32)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the data, in single precision."""
        return self.conditioning.exact(self.rows[rows])


def measured(obs: Shaped[Array | LazyRows, "R ..."]) -> bool:
    """Whether observations are measured quantities: not pixels, flags or numbers of states."""
    return obs.dtype.kind == "f" or (obs.dtype.kind in "iu" and obs.dtype.itemsize > 2 and obs.ndim > 1)


def _refuse_too_large(ranges: Ranges) -> None:
    entry = int(ranges.size.argmax())
    if ranges.size[entry] > LARGEST:
        got = f"{ranges.size[entry]:g} in entry {entry}"
        expected = f"numbers up to {LARGEST:g}, which single precision can compute with"
        raise SpaceError("observations", got=got, expected=expected, remedy="divide them by a constant")


FEW_VALUES = 8  # of an entry that is a choice
REPEATED = 20  # transitions for each value, at least, on average
AT_BOUND = 0.05  # share of the transitions at an end of the range that makes it a choice
ROUNDING = 5e-4  # distance from an end, relative to the width, that counts as being at it
MOST_LISTED = 8


@dataclasses.dataclass(frozen=True)
class Choice:
    """An entry of actions that is one of these values or, if it is `free`, any other number."""

    entry: int
    values: tuple[float, ...]
    share: tuple[float, ...]  # of the transitions with each value
    free: bool

    def __str__(self) -> str:
        listed = ", ".join(f"{value:.4g} ({share:.0%})" for value, share in zip(self.values, self.share, strict=True))
        return f"{self.entry} is often at {listed}" if self.free else f"{self.entry} is one of {listed}"


def choices(action: Shaped[np.ndarray, "N ..."], ranges: Ranges | None = None) -> tuple[Choice, ...]:
    """The entries of vectors that are choices; constant ones are not."""
    table = np.asarray(action).reshape(len(action), -1)
    ranges = Ranges.of(table) if ranges is None else ranges
    found = (_choice(entry, column, ranges) for entry, column in enumerate(table.T))
    return tuple(each for each in found if each is not None)


def sentences(found: tuple[Choice, ...]) -> list[str]:
    """The line of `irleed inspect` about choices."""
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
            return Choice(entry, _floats(values), _floats(count / len(kept)), free=False)
    ends = np.array([low, high])
    share = np.mean(np.abs(kept[:, None] - ends) <= ROUNDING * (high - low), 0)
    often = (share >= AT_BOUND) & (share * len(kept) >= REPEATED)
    return Choice(entry, _floats(ends[often]), _floats(share[often]), free=True) if often.any() else None


def _floats(values: Float[np.ndarray, " K"]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
