"""Minari data sets in HDF5: a group an episode, with a dataset for a plain space and groups for Dict and Tuple spaces.

Large observations, and all infos, stay in the file until they are asked for.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed.data import lazy
from irleed.data.formats import hdf5
from irleed.data.formats.base import refuse
from irleed.data.formats.folders import regular
from irleed.data.formats.hdf5_gate import Group
from irleed.data.formats.media import Pictures
from irleed.data.formats.minari_spaces import About, Space
from irleed.data.lazy import LazyRows
from irleed.data.limits import Budget

FILE = "main_data.hdf5"


@dataclasses.dataclass(frozen=True)
class StoredEpisode:
    """What is stored of an episode, with `LazyRows` for what may be large."""

    observations: Any  # an array or LazyRows, or a mapping of such by their names
    actions: np.ndarray | None  # None if they are of a Dict, Tuple or Text space
    rewards: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray
    metadata: Mapping[str, Any]  # by names joined with slashes, as are infos; only values that were wanted
    infos: Mapping[str, Any]  # what NumPy makes arrays of


@dataclasses.dataclass(frozen=True)
class Info:
    """An array of a file, read when it is asked for."""

    file: hdf5.Reopened
    name: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The array."""
        return np.asarray(self.file.values(self.name).read(), dtype)


def episodes(about: About, root: Path, data: Path, budget: Budget, wanted: tuple[str, ...]) -> list[StoredEpisode]:
    """All of them, in their order, with those of their metadata that are `wanted`, from a folder in that named."""
    path = regular(root, data / FILE)
    with hdf5.opened(path, budget) as file:
        again, found = hdf5.Reopened.of(file), []
        large = hdf5.is_large(path) or about.steps * about.observation.nbytes >= lazy.LARGE
        for number in range(about.episodes):
            group = file.get(f"episode_{number}")
            if not isinstance(group, Group):
                got = f"{len(file.names())} entries, without 'episode_{number}'"
                refuse(path, got, f"{about.episodes} episodes, as its metadata say", "copy or download it again")
            found.append(_episode(group, about, again, wanted, large))
        return found


def check(path: Path) -> None:
    """Refuse a file with anything in it that leads out of it, or that may not be read for other reasons.

    Texts are read: HDF5 copies each that a dataset names, though many may lie in the same place.
    """
    with hdf5.opened(path, Budget()) as file:
        for _, values in file.walk():
            values.read() if values.dtype.hasobject else values.check()


def _episode(group: Group, about: About, again: hdf5.Reopened, wanted: tuple[str, ...], large: bool) -> StoredEpisode:
    infos = group.get("infos")
    return StoredEpisode(
        observations=_observations(group, "observations", about.observation, about, again, large),
        actions=None if about.action.parts else hdf5.array(group, "actions"),
        rewards=hdf5.array(group, "rewards"),
        terminations=hdf5.array(group, "terminations"),
        truncations=hdf5.array(group, "truncations"),
        metadata={name: group.attribute(name) if name in wanted else None for name in group.attributes()},
        infos={name: Info(again, entry.name) for name, entry in infos.walk()} if isinstance(infos, Group) else {},
    )


def _observations(group: Group, name: str, space: Space, about: About, again: hdf5.Reopened, large: bool) -> Any:
    """What lies at a name, in the structure of its space."""
    if space.parts:
        inner = group.get(name)
        if not isinstance(inner, Group):
            refuse(hdf5.place(group, name), "no group", f"one, for {space.kind}", "write it again")
        stored = {part: part if space.kind == "Dict" else f"_index_{part}" for part in space.parts}
        return {
            part: _observations(inner, stored[part], below, about, again, large) for part, below in space.parts.items()
        }
    values = hdf5.sound(group, name)
    if (about.compressed and space.image) or values.dtype.kind not in "biuf":
        values.claim()
        source = hdf5.Stored(again, values.name, values.shape, values.dtype)
        if about.compressed and space.image:
            return LazyRows.of(Pictures(source, space.shape, values.where))
        return LazyRows.of(source)
    return hdf5.rows(group, name, again, large)
