"""One case: a hostile file or folder made from a seed, and how it is to be read."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Mutation = Callable[["Case", Any], None]

SECRET = "secret-5f0c8e7a1d"  # in every file that no reader may open; must not appear in what is loaded or printed


@dataclass
class Case:
    """Where a case lies on disk, its random numbers, and what was done so far."""

    random: np.random.Generator
    home: Path
    """The case's own folder: what is given to the reader, and what it may write."""
    outside: Path
    """Files that no reader may open, each with `SECRET` in it."""
    store: Path
    """Large hostile pieces, made once for all cases."""
    applied: list[str] = field(default_factory=list)
    """The mutations, for messages."""
    reading: dict[str, Any] = field(default_factory=dict)
    """Fields of `irleed.data.ReadOptions`."""
    large: bool = False
    """Read as files are read that are too much for memory."""
    sound: bool = False
    """Leave mutations out."""
    small: bool = False
    """Make bombs of megabytes, for tests in seconds."""

    def pick(self, options: Sequence[T]) -> T:
        """One of them; the first, which is the usual one, where mutations are left out."""
        return options[0] if self.sound else options[int(self.random.integers(len(options)))]

    def size(self, full: int) -> int:
        """How large a bomb is to be; in quick tests, a 64th of that."""
        return full // 64 if self.small else full

    def chance(self, share: float) -> bool:
        """True in this share of cases."""
        return not self.sound and bool(self.random.random() < share)

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, small ones more often: uniform in its logarithm."""
        return int(np.exp(self.random.uniform(np.log(low), np.log(high + 1))))

    def note(self, text: str) -> None:
        """Say what was chosen inside a mutation."""
        self.applied.append(text[:80])

    def mutate(self, target: Any, mutations: Sequence[Mutation], most: int = 2) -> None:
        """Apply one or more mutations to a target; one that is listed twice is twice as likely."""
        if self.sound:
            return
        chosen = list(dict.fromkeys(mutations[place] for place in self.random.permutation(len(mutations))))
        for position, mutation in enumerate(chosen[: 1 + int(self.random.integers(most))]):
            self.note(mutation.__name__)
            try:
                mutation(self, target)
            except Exception:
                if not position:
                    raise
                self.note("not possible any more")

    def piece(self, name: str, make: Callable[[Path], None]) -> Path:
        """A file of the store, made if it is not there yet."""
        path = self.store / name
        if not path.exists():
            beside = path.with_name(f"{name}.{os.getpid()}")
            make(beside)
            beside.replace(path)
        return path
