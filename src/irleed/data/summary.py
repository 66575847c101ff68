"""Summary statistics and warnings of a data set.

`summarise` is the content of ``irleed inspect``; `cautions` are warnings in it, in ``irleed fit`` and in the report.
"""

import hashlib
import math
from typing import Any

import numpy as np

from irleed._io.text import several
from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.data.conditioning import Outliers, Ranges, choices, measured, sentences
from irleed.data.demonstrations import Demonstrations
from irleed.data.lazy import LazyRows, chunks
from irleed.data.transitions import are_choices

FEW = 10  # transitions: demonstrators with fewer are not ranked
NARROW = 0.1  # range of an action entry, relative to its bounds
MOST_NAMED = 4


def cautions(
    data: Demonstrations,
    bounds: tuple[Float[np.ndarray, " A"], Float[np.ndarray, " A"]] | None = None,
    obs: Ranges | None = None,
) -> list[str]:
    """Warnings of outliers, single precision, narrow actions, and demonstrators with few transitions.

    `bounds` are those of continuous actions in the environment, by default -1 to 1 if all actions are within; `obs` are
    the ranges of the observations, if they are known already.
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
    """Ranges of observations; None for pixels, flags and numbers of states."""
    return Ranges.of(obs, standardised=True) if measured(obs) else None


def few(data: Demonstrations, so: str = "networks give them no intervals and no rank") -> list[str]:
    """A warning of demonstrators with too few transitions to be ranked, and its consequence `so`."""
    count = np.bincount(np.asarray(data.demonstrator), minlength=data.demonstrators)
    who = np.flatnonzero(count < FEW)
    if data.demonstrators == 1 or not len(who):
        return []
    named = several([f"{data.names[number]!r} ({count[number]})" for number in who], MOST_NAMED)
    return [f"too few transitions to rank, fewer than {FEW}: {named}; {so}"]


def narrow(ranges: Ranges, low: Float[np.ndarray, " A"], high: Float[np.ndarray, " A"]) -> Bool[np.ndarray, " A"]:
    """Entries whose range, without outliers, is less than a tenth of these bounds."""
    return ranges.maximum - ranges.minimum < NARROW * (np.asarray(high, float) - low)


def _narrow(ranges: Ranges, bounds: tuple[np.ndarray, np.ndarray] | None) -> list[str]:
    if bounds is None and (ranges.minimum.min() < -1 or ranges.maximum.max() > 1):
        return []
    low, high = (-np.ones(len(ranges.low)), np.ones(len(ranges.low))) if bounds is None else bounds
    entries = np.flatnonzero(narrow(ranges, low, high) & (ranges.maximum > ranges.minimum))
    if not len(entries):
        return []
    ends = [f"{e} ({ranges.minimum[e]:.3g} to {ranges.maximum[e]:.3g} of {low[e]:g} to {high[e]:g})" for e in entries]
    limits = "the range from -1 to 1" if bounds is None else "the environment's bounds"
    return [f"action entries far narrower than {limits}, as if in another unit: {several(ends, MOST_NAMED)}"]


def _outliers(data: Demonstrations, ranges: Ranges, what: str) -> list[str]:
    """The farthest outlier of each entry."""
    shown = [_outlier(data, ranges, each, what) for each in ranges.outliers[:MOST_NAMED]]
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
    """Episode and step of a row of actions, or of observations, of which an episode has one more."""
    start: Int[np.ndarray, " E"] = data.start + (np.arange(data.episodes) if what == "observation" else 0)
    episode = int(np.searchsorted(start, row, side="right")) - 1
    return episode, row - int(start[episode])


def _coarse(ranges: Ranges) -> list[str]:
    entries = np.flatnonzero(ranges.coarse)
    if not len(entries):
        return []
    ends = [f"{e} ({ranges.low[e]:.12g} to {ranges.high[e]:.12g})" for e in entries]
    problem = "observation entries whose values single precision hardly tells apart"
    return [f"{problem}: {several(ends, MOST_NAMED)}; subtract a constant before agents play in such an environment"]


MOST_VALUES = 1000  # of discrete actions in a histogram
MOST_ENTRIES = 64  # with ranges and histograms
MOST_LISTED = 8
BINS = 20


def summarise(demonstrations: Demonstrations) -> dict[str, Any]:
    """Counts, a row for each demonstrator, ranges, histograms and warnings, as plain values that `json` can write.

    Keys: ``transitions``; ``episodes``; ``demonstrators``, a list with a row for each; ``observation`` and ``action``:
    ``dtype``, ``shape``, ``min``, ``max``, ``constant`` (how many entries never change), ``constant_first`` (the first
    of them) and, of vectors, ``low`` and ``high`` of every entry. Actions also have ``histogram``, from value to count
    if they are one whole number each, and else ``histograms``, one for every entry. ``length`` and ``returns`` are
    those of episodes: ``min``, ``mean``, ``max`` and ``histogram``; a histogram has ``edges`` and ``counts``.
    ``reward`` is ``min`` and ``max`` of a step. ``repeated`` counts episodes that are like an earlier one, ``within``
    and ``between`` demonstrators, and says what was ``compared``. Missing values
    are None; ``warnings`` are sentences.
    """
    data, action = demonstrations, np.asarray(demonstrations.action)
    histogram, returns = _histogram(action), data.returns()
    observation, repeated = _describe(data.obs), _repeated(data)
    counted = None if histogram is None else {str(value): count for value, count in histogram.items()}
    return {
        "transitions": data.transitions,
        "episodes": data.episodes,
        "demonstrators": _rows(data),
        "observation": observation,
        "action": _describe(action)
        | {"histogram": counted, "histograms": _histograms(action) if histogram is None else None},
        "reward": None if data.reward is None else _range(np.asarray(data.reward)),
        "length": _spread(data.length),
        "returns": None if returns is None else _spread(returns),
        "repeated": {key: repeated[key] for key in ("within", "between", "compared")},
        "warnings": [
            *_lone(data),
            *_constant(observation, "observation"),
            *_unused(histogram),
            *(_constant(_describe(action), "action") if histogram is None else ()),
            *(() if are_choices(data) else sentences(choices(action))),
            *_copied(data, repeated),
            *cautions(data),
        ],
    }


def _rows(data: Demonstrations) -> list[dict[str, Any]]:
    """A row for each demonstrator."""
    owner, length, returns, count = data.owner, data.length, data.returns(), data.demonstrators
    ended = np.asarray(data.terminated)[data.start + length - 1]
    episodes = np.bincount(owner, minlength=count)
    transitions = np.bincount(owner, weights=length, minlength=count)
    terminated = np.bincount(owner[ended], minlength=count)
    lowest, highest, total = np.full(count, np.inf), np.full(count, -np.inf), None
    if returns is not None:
        np.minimum.at(lowest, owner, returns)
        np.maximum.at(highest, owner, returns)
        total = np.bincount(owner, weights=returns, minlength=count)
    return [
        {
            "name": name,
            "episodes": int(episodes[d]),
            "transitions": int(transitions[d]),
            "mean_length": float(transitions[d] / episodes[d]),
            "mean_return": None if total is None else float(total[d] / episodes[d]),
            "min_return": None if total is None else float(lowest[d]),
            "max_return": None if total is None else float(highest[d]),
            "terminated": int(terminated[d]),
            "truncated": int(episodes[d] - terminated[d]),
        }
        for d, name in enumerate(data.names)
    ]


def _range(values: np.ndarray) -> dict[str, Any]:
    return {"min": values.min().item(), "max": values.max().item()}


def _describe(values: Array | LazyRows) -> dict[str, Any]:
    """Type, shape and ranges, a chunk at a time."""
    low = high = np.asarray(values[:1])[0]
    for _, chunk in chunks(values):
        low, high = np.minimum(low, chunk.min(0)), np.maximum(high, chunk.max(0))
    same = np.argwhere(low == high).tolist()
    facts = {"dtype": str(values.dtype), "shape": list(values.shape[1:])}
    facts |= {"min": low.min().item(), "max": high.max().item()}
    facts |= {"constant": len(same), "constant_first": same[:MOST_LISTED]}
    if 1 <= low.size <= MOST_ENTRIES and low.ndim == 1:
        facts |= {"low": low.tolist(), "high": high.tolist()}
    return facts


def _spread(values: np.ndarray) -> dict[str, Any]:
    """Range, mean and histogram of one number an episode."""
    return _range(values) | {"mean": float(values.mean()), "histogram": _binned(values)}


def _binned(values: np.ndarray) -> dict[str, Any]:
    """Counts between edges; few whole numbers have a bin each."""
    low, high = values.min(), values.max()
    if low == high:
        return {"edges": [low.item(), high.item()], "counts": [len(values)]}
    if values.dtype.kind != "f" and int(high) - int(low) < BINS:  # as Python's numbers, which do not overflow
        edges = float(low) + np.arange(int(high) - int(low) + 2) - 0.5
    else:
        edges = np.linspace(low, high, BINS + 1, dtype=np.float64)
    counts, _ = np.histogram(values.astype(np.float64), edges)
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _histograms(action: np.ndarray) -> list[dict[str, Any]] | None:
    """One for every entry of an action, unless there are too many."""
    table = action.reshape(len(action), -1)
    return [_binned(column) for column in table.T] if table.shape[1] <= MOST_ENTRIES else None


def _histogram(action: np.ndarray) -> dict[int, int] | None:
    """Count of each value from 0 (or the smallest) to the largest; None if actions are not discrete."""
    if action.dtype.kind == "f" or action.size != len(action):
        return None
    low, high = min(0, int(action.min())), int(action.max())
    if high - low >= MOST_VALUES:
        return None
    counts = np.bincount(action.ravel().astype(np.int64) - low, minlength=high - low + 1)
    return {low + i: int(count) for i, count in enumerate(counts)}


def _lone(data: Demonstrations) -> list[str]:
    if data.demonstrators > 1:
        return []
    return [
        "there is only one demonstrator, and none to compare it with; if episodes differ in skill, use by_episode()"
    ]


def _constant(facts: dict[str, Any], what: str) -> list[str]:
    """Entries that never change."""
    same, entries = facts["constant"], math.prod(facts["shape"])
    if not same:
        return []
    if same == entries:
        return [f"the {what} never changes"]
    listed = several([",".join(map(str, entry)) for entry in facts["constant_first"]], MOST_LISTED, same)
    return [f"{same} of {entries} {what} entries never change: {listed}"]


def _unused(histogram: dict[int, int] | None) -> list[str]:
    """Action values below the largest that never occur."""
    unused = [str(value) for value, count in (histogram or {}).items() if count == 0]
    if not unused:
        return []
    return [f"action values below the largest that never occur ({len(unused)}): {several(unused, MOST_LISTED)}"]


def _repeated(data: Demonstrations) -> dict[str, Any]:
    """Numbers of episodes equal to an earlier one, of the same and of another demonstrator, and an example.

    Of large data, only actions and the first and last observation are compared.
    """
    owner = data.owner
    _, alike = np.unique(_fingerprints(data), return_inverse=True)
    first = np.zeros(alike.max() + 1, np.int64)
    first[alike[::-1]] = np.arange(len(alike))[::-1]  # the last assignment is the earliest episode
    source = first[alike]
    differs = owner != owner[source]
    copy = int(np.argmax(differs)) if differs.any() else None
    whole = not isinstance(data.obs, LazyRows)
    return {
        "within": int(np.sum((source != np.arange(len(source))) & ~differs)),
        "between": int(differs.sum()),
        "compared": "whole episodes" if whole else "actions, first and last observations",
        "example": None if copy is None else (copy, int(source[copy])),
    }


def _copied(data: Demonstrations, repeated: dict[str, Any]) -> list[str]:
    """Equal episodes of several demonstrators."""
    if repeated["example"] is None:
        return []
    copy, source = repeated["example"]
    here, there = (data.names[data.owner[episode]] for episode in (copy, source))
    first = f"first episode {copy} of {here!r}, a copy of episode {source} of {there!r}"
    meaning = "with continuous observations this means the same recording under two names"
    return [f"episodes that repeat one of another demonstrator exactly ({repeated['between']}): {first}; {meaning}"]


def _fingerprints(data: Demonstrations) -> Int[np.ndarray, " E"]:
    """A 64-bit digest of each episode's actions and observations; of lazy ones, the first and last."""
    obs, action = data.obs, np.ascontiguousarray(data.action)
    start, length, row = data.start, data.length, np.asarray(data.row)[data.start]
    digests = []
    for s, n, r in zip(start.tolist(), length.tolist(), row.tolist(), strict=True):
        seen = obs[np.array([r, r + n])] if isinstance(obs, LazyRows) else np.asarray(obs[r : r + n + 1])
        digest = hashlib.blake2b(seen.tobytes(), digest_size=8)
        digest.update(action[s : s + n].tobytes())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), np.int64)
