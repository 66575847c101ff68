"""Statistics that the experiments share: bootstrap intervals, agreement of groupings."""

from typing import Any

import numpy as np

from irleed._typing import Array, Float, Int

RESAMPLES = 10_000


def interval(values: Float[Array, " N"], over: Float[Array, " N"] | None = None) -> tuple[float, float]:
    """A 95 % bootstrap interval of the mean of values, or of its ratio to the mean of others drawn with them."""
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    means = np.asarray(values)[drawn].mean(1)
    low, high = np.quantile(means if over is None else means / np.asarray(over)[drawn].mean(1), [0.025, 0.975])
    return float(low), float(high)


def difference(ours: Float[Array, " N"], theirs: Float[Array, " N"]) -> list[float]:
    """Low end, mean and high end of the paired difference."""
    values = np.asarray(ours - theirs)
    low, high = interval(values)
    return [low, float(values.mean()), high]


def mean_and_interval(values: Float[Array, " N"]) -> dict[str, Any]:
    """Mean, standard deviation and a 95 % normal interval of the mean over seeds."""
    mean, deviation = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    margin = 1.96 * deviation / np.sqrt(len(values))
    return {"mean": mean, "std": deviation, "ci_low": mean - margin, "ci_high": mean + margin, "seeds": len(values)}


def adjusted_rand_index(truth: Int[Array, " D"], found: Int[Array, " D"]) -> float:
    """Agreement of two groupings: 1 if equal, 0 on average if found at random."""
    table = np.zeros((truth.max() + 1, found.max() + 1))
    np.add.at(table, (truth, found), 1)
    pairs = [float((x * (x - 1) / 2).sum()) for x in (table, table.sum(1), table.sum(0))]
    together, by_truth, by_found = pairs
    chance = by_truth * by_found / (len(truth) * (len(truth) - 1) / 2)
    most = (by_truth + by_found) / 2
    return (together - chance) / (most - chance) if most > chance else 1.0
