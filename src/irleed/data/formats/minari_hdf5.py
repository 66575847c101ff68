"""Large Minari data sets in HDF5: their observations and infos stay in the file until they are asked for.

Minari itself reads whole episodes, pictures decoded. What is here follows its layout: a group an episode, with a
dataset for a plain space and groups for Dict and Tuple spaces.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io import printable
from irleed.data import lazy
from irleed.data.formats import hdf5
from irleed.data.formats.base import library, refuse
from irleed.data.formats.media import Pictures
from irleed.data.lazy import LazyRows

FILE = "main_data.hdf5"


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
    """As Minari's own `EpisodeData`, with `LazyRows` for what may be large."""

    observations: Any  # LazyRows, or a mapping or tuple of such
    actions: np.ndarray
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    infos: dict[str, Any]


def is_large(dataset: Any, data: Path) -> bool:
    """Is this HDF5, and too much for memory, as the file has it or decoded?"""
    path = data / FILE
    if not path.is_file():
        return False
    return hdf5.is_large(path) or int(dataset.storage.total_steps) * _bytes(dataset.observation_space) >= lazy.LARGE


def episodes(dataset: Any, data: Path) -> list[StoredEpisode]:
    """All of them, in their order."""
    path = data / FILE
    again, storage = hdf5.Reopened(path), dataset.storage
    with hdf5.opened(path) as file:
        return [_episode(path, file, number, storage, again) for number in range(storage.total_episodes)]


def _episode(path: Path, file: Any, number: int, storage: Any, again: hdf5.Reopened) -> StoredEpisode:
    group = file.get(f"episode_{number}")
    if not hdf5.is_group(group):
        there = f"{len(file)} entries, without 'episode_{number}'"
        refuse(path, there, f"{storage.total_episodes} episodes, as its metadata say", "copy or download it again")
    plain = {name: hdf5.array(path, group, name) for name in ("actions", "rewards", "terminations", "truncations")}
    infos = group.get("infos")
    return StoredEpisode(
        observations=_observations(path, group, "observations", storage.observation_space, storage, again),
        infos=_infos(infos, again) if hdf5.is_group(infos) else {},
        **plain,
    )


def _observations(path: Path, group: Any, name: str, space: Any, storage: Any, again: hdf5.Reopened) -> Any:
    """What lies at a name, in the structure of its space."""
    spaces = library("gymnasium", "formats").spaces
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = group.get(name)
        if not hdf5.is_group(inner):
            refuse(hdf5.place(path, group, name), "no group", f"one, for {type(space).__name__}", "write it again")
        named = isinstance(space, spaces.Dict)
        parts = space.spaces.items() if named else ((f"_index_{i}", part) for i, part in enumerate(space.spaces))
        found = {key: _observations(path, inner, key, part, storage, again) for key, part in parts}
        return found if named else tuple(found.values())
    dataset = hdf5.sound(path, group, name)
    source = hdf5.Stored(again, dataset.name, dataset.shape, dataset.dtype)
    if storage.jpeg_encoding and library("minari.dataset.minari_storage", "formats").is_image_space(space):
        return LazyRows.of(Pictures(source, space.shape, f"{printable(path)}, {dataset.name}"))
    return hdf5.rows(path, group, name, again, large=True) if dataset.dtype.kind in "biuf" else LazyRows.of(source)


def _infos(group: Any, again: hdf5.Reopened) -> dict[str, Any]:
    """Infos by their names, joined with slashes; single values as they are, others to be read when asked for."""
    there = dict(hdf5.datasets(group))
    return {
        name: LazyRows.of(hdf5.Stored(again, entry.name, entry.shape, entry.dtype)) if entry.shape else entry[()]
        for name, entry in there.items()
    }


def _bytes(space: Any) -> int:
    """Of one observation."""
    spaces = library("gymnasium", "formats").spaces
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return sum(_bytes(part) for part in parts)
    return 0 if space.shape is None or space.dtype is None else math.prod(space.shape) * np.dtype(space.dtype).itemsize
