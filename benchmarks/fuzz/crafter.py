"""Hostile folders of Crafter recordings: archives as of `fuzz.zips`, in folders as of `fuzz.links`."""

from pathlib import Path
from typing import Any

import numpy as np

from fuzz import links, values, zips
from fuzz.case import Case

SIZE = 16  # of the map, each way
NEEDS = ("health", "food", "drink", "energy")
ITEMS = (*NEEDS, "sapling", "wood", "stone", "coal", "iron", "diamond", "wood_pickaxe", "stone_pickaxe", "wood_sword")


def recording(rows: int) -> dict[str, Any]:
    """The arrays of a sound recording."""
    first = np.arange(rows) == 0
    return {
        "image": np.zeros((rows, 8, 8, 3), np.uint8),
        "action": np.arange(rows) % 6,
        "reward": np.full(rows, 0.1),
        "done": np.array([0, *[False] * (rows - 2), True], object),
        "discount": np.array([0.0, *np.ones(rows - 2), 0.0]),
        "semantic": np.where(first[:, None, None], 0, np.full((rows, SIZE, SIZE), 2)).astype(np.uint8),
        "player_pos": np.where(first[:, None], 0, np.full((rows, 2), SIZE // 2)),
        "achievement_collect_wood": np.arange(rows),
        **{f"ainventory_{item}": np.where(first, 0, 9 * (item in NEEDS)) for item in ITEMS},
    }


def crafter(case: Case) -> Path:
    """A hostile folder."""
    path = case.home / "given"
    for who, number, rows in (("part1_actual", 1, 6), ("part1_trial", 1, 4), ("part2_actual", 2, 5)):
        (path / who).mkdir(parents=True)
        archive = zips.of_columns(recording(rows))
        archive.write(path / who / f"2021121{number}T134000-ach1-len{rows - 1}.npz")
    case.mutate(path, (_arrays, _arrays, _archive, _archive, _folder))
    return path


def _hostile(case: Case, path: Path, columns: dict[str, Any], archives: tuple[Any, ...]) -> None:
    archive = zips.of_columns(columns, case.pick((zips.STORED, zips.DEFLATED)))
    case.mutate(archive, archives)
    archive.write(case.pick([each for each in links.files(path) if each.suffix == ".npz"]))


def _arrays(case: Case, path: Path) -> None:
    """A recording with hostile arrays."""
    columns = recording(case.whole(2, 9))
    case.mutate(columns, values.ARRAYS)
    _hostile(case, path, columns, (zips.framed,))


def _archive(case: Case, path: Path) -> None:
    """A recording that is a hostile archive."""
    _hostile(case, path, recording(5), zips.ARCHIVES)


def _folder(case: Case, path: Path) -> None:
    """The folder is hostile."""
    case.mutate(path, links.FOLDERS)
