"""What is in a data set, and what looks odd about it: the content of ``irleed inspect``."""

import hashlib
from typing import Any

import numpy as np

from irleed._typing import Int
from irleed.data.demonstrations import Demonstrations

MOST_VALUES = 1000  # a histogram of more actions than this tells nobody anything
MOST_LISTED = 8


def summarise(demonstrations: Demonstrations) -> dict[str, Any]:
    """Counts, a row for each demonstrator, ranges and warnings, as plain values that `json` can write.

    Keys: ``transitions``, ``episodes``, ``demonstrators`` (a list, a row for each), ``observation`` and ``action``
    (``dtype``, ``shape``, ``min``, ``max``; for one whole number an action, ``histogram`` from value to count, else
    None), ``reward`` (``min`` and ``max`` of a step, or None) and ``warnings`` (sentences).
    """
    data = demonstrations
    histogram = _histogram(np.asarray(data.action))
    return {
        "transitions": data.transitions,
        "episodes": data.episodes,
        "demonstrators": _rows(data),
        "observation": _describe(np.asarray(data.obs)),
        "action": _describe(np.asarray(data.action))
        | {"histogram": None if histogram is None else {str(value): count for value, count in histogram.items()}},
        "reward": None if data.reward is None else _range(np.asarray(data.reward)),
        "warnings": [
            *_lone(data),
            *_constant(np.asarray(data.obs)),
            *_unused(histogram),
            *_copied(data),
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


def _describe(values: np.ndarray) -> dict[str, Any]:
    return {"dtype": str(values.dtype), "shape": list(values.shape[1:])} | _range(values)


def _histogram(action: np.ndarray) -> dict[int, int] | None:
    """Count of each value from 0 (or the smallest) to the largest, unused ones too; None if not discrete."""
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
    return ["there is only one demonstrator, and so nobody to compare; if episodes differ in skill, use by_episode()"]


def _constant(obs: np.ndarray) -> list[str]:
    """Observation entries that never change."""
    table = obs.reshape(len(obs), -1)
    columns = np.flatnonzero(table.min(axis=0) == table.max(axis=0))
    if len(columns) == 0:
        return []
    if obs.ndim == 1 or len(columns) == table.shape[1]:
        return ["the observation never changes"]
    entries = [np.unravel_index(column, obs.shape[1:]) for column in columns[:MOST_LISTED]]
    listed = _listed([",".join(str(int(i)) for i in entry) for entry in entries], len(columns))
    return [f"{len(columns)} of {table.shape[1]} observation entries never change: {listed}"]


def _unused(histogram: dict[int, int] | None) -> list[str]:
    """Action values below the largest that nobody took."""
    unused = [str(value) for value, count in (histogram or {}).items() if count == 0]
    if not unused:
        return []
    return [f"action values below the largest that never occur ({len(unused)}): {_listed(unused, len(unused))}"]


def _copied(data: Demonstrations) -> list[str]:
    """Episodes that occur under several demonstrators, bit for bit."""
    owner = data.owner
    _, alike = np.unique(_fingerprints(data), return_inverse=True)
    first = np.zeros(alike.max() + 1, np.int64)
    first[alike[::-1]] = np.arange(len(alike))[::-1]  # the last assignment is the earliest episode
    differs = owner != owner[first[alike]]
    if not differs.any():
        return []
    copy = int(np.argmax(differs))
    source = int(first[alike[copy]])
    count, here, there = int(differs.sum()), data.names[owner[copy]], data.names[owner[source]]
    first_copy = f"first episode {copy} of {here!r}, a copy of episode {source} of {there!r}"
    meaning = "with continuous observations this means the same recording under two names"
    return [f"episodes that repeat one of another demonstrator exactly ({count}): {first_copy}; {meaning}"]


def _fingerprints(data: Demonstrations) -> Int[np.ndarray, " E"]:
    """A 64-bit digest of each episode's observations and actions."""
    obs, action = np.ascontiguousarray(data.obs), np.ascontiguousarray(data.action)
    start, length, row = data.start, data.length, np.asarray(data.row)[data.start]
    digests = []
    for s, n, r in zip(start.tolist(), length.tolist(), row.tolist(), strict=True):
        digest = hashlib.blake2b(obs[r : r + n + 1].tobytes(), digest_size=8)
        digest.update(action[s : s + n].tobytes())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), np.int64)


def _listed(entries: list[str], count: int) -> str:
    shown = ", ".join(entries[:MOST_LISTED])
    return shown + (f" and {count - MOST_LISTED} more" if count > MOST_LISTED else "")
