"""Readers of other programs' files, one module each. What they share is here: options, files in folders, errors."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import EXPANSION, Budget
from irleed._io.text import printable
from irleed._typing import Shaped
from irleed.data.demonstrations import Demonstrations
from irleed.data.lazy import LazyRows, SideBySide
from irleed.data.validation import listed, refuse
from irleed.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """How to read demonstrations where their file leaves a choice."""

    demonstrator: str = "data"
    """The demonstrators: data, as in the file, or one if it names none; episode, one for each episode; else the name of
    a column, an attribute or a metadata entry."""
    obs: tuple[str, ...] = ()
    """Names of the observations to use, concatenated; by default all that are vectors or numbers."""
    action: str | None = None
    """Name of the actions, where there are several."""
    expansion: float = EXPANSION
    """How many times its own size a file may take in memory when decompressed (256 MiB are always allowed). More is
    refused before it is decompressed."""

    def __post_init__(self) -> None:
        if not 0 < self.expansion <= 1e9:
            expected, remedy = "more than 0, at most 1e9", f"the default is {EXPANSION:g}"
            raise ConfigError("expansion", got=self.expansion, expected=expected, remedy=remedy)

    @property
    def named(self) -> str | None:
        """The column, attribute or metadata entry with the demonstrators, if one was named."""
        return None if self.demonstrator in ("data", "episode") else self.demonstrator

    def budget(self) -> Budget:
        """The budget of memory for one read."""
        return Budget(self.expansion)


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file or folder."""

    name: str  # in words
    recognises: Callable[[Path], bool]  # by content, fast, without raising
    read: Callable[[Path, ReadOptions], Demonstrations]  # ``episode`` in `ReadOptions` counts as ``data``
    scores: Callable[[Path, ReadOptions], str] | None = None  # a table of episodes' scores, where it is not of rewards


def joined(
    parts: Mapping[str, Shaped[np.ndarray | LazyRows, "R ..."]], wanted: tuple[str, ...], where: str | Path
) -> Any:
    """Named observations as one array: a single one as it is, several as concatenated vectors; lazy if any are.

    Without `wanted`, all of at most one axis besides the first, by name.
    """
    missing = [name for name in wanted if name not in parts]
    if missing or not parts:
        got = f"no {', '.join(missing)}" if missing else "none"
        refuse(f"{printable(where)}, observations", got, f"some of {listed(sorted(parts))}", "choose from these")
    chosen = wanted or tuple(sorted(name for name, values in parts.items() if values.ndim <= 2))
    if not chosen:
        refuse(f"{printable(where)}, observations", "images only", "a choice", f"choose of {listed(sorted(parts))}")
    if len(chosen) == 1:
        return parts[chosen[0]]
    if len({len(parts[name]) for name in chosen}) > 1:
        lengths = ", ".join(f"{name} {len(parts[name])}" for name in chosen)
        refuse(f"{printable(where)}, observations", lengths, "as many rows of each", "check the file")
    if any(isinstance(parts[name], LazyRows) for name in chosen):
        return LazyRows.of(SideBySide([parts[name] for name in chosen]))
    return np.concatenate([np.asarray(parts[name]).reshape(len(parts[name]), -1) for name in chosen], 1)


LARGEST_JSON = 1 << 25  # bytes: a description of a data set takes kilobytes; parsed, JSON takes up to 20 times as much


def inside(folder: Path, path: Path) -> Path:
    """The path; refused if a symbolic link in it leads out of the folder, or to itself. The folder may be a link."""
    try:
        there = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # circular links
        there = False
    if not there:
        refuse(path, "a link that leads out of its folder", f"files in {printable(folder)}", "copy what it leads to")
    return path


def regular(folder: Path, path: Path) -> Path:
    """The path of a file in a folder; refused if it is missing, outside, or a pipe or device, which could block."""
    try:
        if inside(folder, path).is_file():
            return path
        got = "a pipe or device" if path.exists() and not path.is_dir() else "no file"
    except (OSError, ValueError):
        got = "a path that cannot be looked up"
    refuse(path, got, "a file", "copy the folder again")


def read_json(folder: Path, path: Path) -> Any:
    """The content of a JSON file in a folder. Raises errors of reading and parsing, and refuses as `regular` does."""
    if regular(folder, path).stat().st_size > LARGEST_JSON:
        refuse(path, f"{path.stat().st_size:,} bytes", f"at most {LARGEST_JSON:,}", "check that it is the right file")
    return json.loads(path.read_bytes())
