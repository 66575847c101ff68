"""Deviations of which most are zero, drawn towards it: a fitted mixture of zero and of normal distributions.

Adaptive shrinkage (Stephens, 2017): widths are on a grid, and their shares maximise the likelihood of all deviations.
"""

import equinox as eqx
import numpy as np
from scipy.special import ndtr
from scipy.stats import norm

from irleed._typing import Float

WIDTHS = np.append(0.0, 0.02 * 2 ** (0.5 * np.arange(12)))  # standard deviations, up to 0.9
DOUBT = 1.0  # deviations of zero that the shares start from
STEPS = 60  # of expectation maximisation, and of bisection
FAR = 6.0  # standard deviations, to either side of all means


class Mixture(eqx.Module):
    """A mixture of K normal distributions, some of width zero, in each of D x G cells."""

    share: Float[np.ndarray, "D G K"]
    mean: Float[np.ndarray, "D G K"]
    deviation: Float[np.ndarray, "D G K"]

    @property
    def average(self) -> Float[np.ndarray, "D G"]:
        """The mean."""
        return (self.share * self.mean).sum(-1)

    def below(self, value: Float[np.ndarray, "D G"]) -> Float[np.ndarray, "D G"]:
        """The probability of values below."""
        off = value[..., None] - self.mean
        chance = np.where(self.deviation > 0, ndtr(off / np.where(self.deviation > 0, self.deviation, 1.0)), off > 0)
        return (self.share * chance).sum(-1)

    def quantile(self, probability: float) -> Float[np.ndarray, "D G"]:
        """The value below which there is so much, by bisection."""
        high = np.abs(self.mean).max(-1) + FAR * self.deviation.max(-1)
        low = -high
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            less = self.below(middle) < probability
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        return np.round(0.5 * (low + high), 12) + 0.0  # zero is zero

    def widened(self, variance: Float[np.ndarray, "D G"]) -> "Mixture":
        """The same with normal noise added."""
        return Mixture(self.share, self.mean, np.sqrt(self.deviation**2 + variance[..., None]))


def shrunk(value: Float[np.ndarray, "D G"], variance: Float[np.ndarray, "D G"]) -> Mixture:
    """What is known of deviations, given estimates of them; those with an infinite variance are not looked at."""
    seen = np.isfinite(variance)[..., None]
    noise, off = np.where(seen, variance[..., None], 1.0), np.where(seen, value[..., None], 0.0)
    likely = np.where(seen, norm.pdf(off, scale=np.sqrt(noise + WIDTHS**2)), 1.0) + 1e-300
    share, doubt = np.full(len(WIDTHS), 1 / len(WIDTHS)), np.append(DOUBT, np.zeros(len(WIDTHS) - 1))
    for _ in range(STEPS):
        own = share * likely / (share * likely).sum(-1, keepdims=True)
        share = ((own * seen).sum((0, 1)) + doubt) / (seen.sum() + DOUBT)
    own = share * likely / (share * likely).sum(-1, keepdims=True)
    kept = np.where(seen, WIDTHS**2 / (WIDTHS**2 + noise), 0.0)
    return Mixture(own, kept * off, np.where(seen, np.sqrt(kept * noise), WIDTHS))
