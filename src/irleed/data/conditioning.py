"""Observations that single precision or a few outliers would spoil, brought into a form that networks can learn from.

Networks standardise observations by mean and standard deviation, in single precision. For most data nothing else is
needed, and nothing else is done: their numbers are what they would be without this module. An entry is changed only

- if single precision cannot tell its values apart (1e8 and 1e8 + 1 are one number there): a centre is subtracted in
  double precision;
- if it varies by less than 1e-9 or more than 1e9, whose squares single precision cannot hold: it is divided by a power
  of two;
- if it has outliers (`irleed.data.ranges`), which would decide mean and standard deviation: they are moved to where
  outliers begin.

The policy has to see the same, so it keeps the `Conditioning`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Shaped
from irleed.data.lazy import LazyRows, Source, chunks
from irleed.data.ranges import Ranges
from irleed.errors import SpaceError

LARGEST = 1e30  # magnitude that single precision holds with room for arithmetic
SCALES = (1e-9, 1e9)  # widths that need no unit
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
        """What observations of these ranges need; None: nothing.

        Without `shift` outliers are moved and nothing else, so that observations stay in the units of an environment.
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
        """Of one observation in single precision, to be traced."""
        held = jax.lax.stop_gradient(self)
        centred = (observation - held.origin) - held.remainder
        return jnp.clip(centred / held.unit, held.low, held.high)

    def exact(self, observations: Shaped[np.ndarray, "B ..."]) -> Float[np.ndarray, "B ..."]:
        """Of many in any type, computed in double precision."""
        origin, remainder, unit, low, high = (np.asarray(getattr(self, name), float) for name in FIELDS)
        centred = observations.astype(float) - (origin + remainder)
        return np.clip(centred / unit, low, high).astype(np.float32)

    def rows(self, obs: Shaped[Array | LazyRows, "R ..."]) -> Float[Array, "R ..."] | LazyRows:
        """Of all rows of a data set; those that stay on disk stay there."""
        if isinstance(obs, LazyRows):
            return LazyRows.of(_Conditioned(obs, self))
        found = np.empty(obs.shape, np.float32)
        for first, chunk in chunks(obs):
            found[first : first + len(chunk)] = self.exact(chunk)
        return found


class _Conditioned(Source):
    """Rows that are conditioned as they are read."""

    def __init__(self, rows: LazyRows, conditioning: Conditioning):
        self.rows, self.conditioning = rows, conditioning
        self.shape, self.dtype = rows.shape, np.dtype(np.float32)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Rows of the data, in single precision."""
        return self.conditioning.exact(self.rows[rows])


def measured(obs: Shaped[Array | LazyRows, "R ..."]) -> bool:
    """Whether observations are quantities that can be off: no pixels, no flags, no numbers of states."""
    return obs.dtype.kind == "f" or (obs.dtype.kind in "iu" and obs.dtype.itemsize > 2 and obs.ndim > 1)


def _refuse_too_large(ranges: Ranges) -> None:
    entry = int(ranges.size.argmax())
    if ranges.size[entry] > LARGEST:
        got = f"{ranges.size[entry]:g} in entry {entry}"
        expected = f"numbers up to {LARGEST:g}, which single precision can compute with"
        raise SpaceError("observations", got=got, expected=expected, remedy="divide them by a constant")
