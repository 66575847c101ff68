"""What the metadata of a Minari data set say, read from their JSON without Minari and Gymnasium.

Both would take whatever is written there: of arrays of any size, and of names that are searched for hours.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed.data.formats.base import refuse
from irleed.data.formats.folders import read_json
from irleed.data.validation import listed

MARKS = {"data_format", "total_episodes", "total_steps"}  # in the metadata of every Minari data set
KINDS = ("hdf5", "arrow", "parquet")
VERSIONS = ("0.4.", "0.5.")  # of Minari, that wrote data sets of this layout
NUMBERS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
LEAST_SIDE = 32  # pixels: what is smaller, Minari does not take for an image
LONGEST_NAME = 1000


@dataclasses.dataclass(frozen=True)
class Space:
    """Values that observations or actions may have."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: np.dtype = np.dtype(np.int64)
    start: int = 0  # the lowest of discrete values
    count: int = 0  # how many of them there are
    image: bool = False
    parts: Mapping[str, "Space"] = dataclasses.field(default_factory=dict)  # of Dict and Tuple, by name or number

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        here = math.prod(self.shape) * self.dtype.itemsize if self.kind in NUMBERS else 0
        return here + sum(part.nbytes for part in self.parts.values())


@dataclasses.dataclass(frozen=True)
class About:
    """What `metadata.json` says."""

    kind: str  # hdf5, arrow or parquet
    name: str
    episodes: int
    steps: int
    compressed: bool  # images are JPEG
    observation: Space
    action: Space


def about(root: Path, folder: Path) -> About:
    """The metadata in a folder, which is in that of the data set or is it."""
    place = folder / "metadata.json"
    try:
        said = dict(read_json(root, place))
        if not {"observation_space", "action_space"} <= set(said):
            expected = "observation_space and action_space, too"
            refuse(place, listed(sorted(said), 16), expected, "write it with a newer Minari")
        if not str(said["minari_version"]).startswith(VERSIONS):
            got = f"a data set of Minari {ascii(said['minari_version'])[:20]}"
            refuse(place, got, f"one of {', '.join(VERSIONS)}x", "write it with another Minari")
        spaces = [_space(json.loads(said[name])) for name in ("observation_space", "action_space")]
        counts = said["total_episodes"], said["total_steps"]
        sound = all(type(count) is int and count >= 0 for count in counts) and said["data_format"] in KINDS
        name = said["dataset_id"]
        if not (sound and isinstance(name, str) and 0 < len(name) <= LONGEST_NAME):
            raise ValueError("data_format, dataset_id, total_episodes or total_steps are not what they should be")
        return About(said["data_format"], name, *counts, bool(said.get("jpeg_encoding", True)), *spaces)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        text = printable(" ".join(f"{type(error).__name__}: {error}".split())[:200])
        refuse(place, f"what cannot be read ({text})", "the metadata of a Minari data set", "copy or download it again")


def _space(said: Mapping[str, Any]) -> Space:
    """A space as Minari writes it."""
    kind = said["type"]
    if kind in ("Dict", "Tuple"):
        inner = said["subspaces"]
        named = inner.items() if kind == "Dict" else enumerate(inner)
        return Space(kind, parts={str(name): _space(part) for name, part in named})
    if kind == "Discrete":
        return Space(kind, start=int(said["start"]), count=int(said["n"]))
    if kind == "Box":
        shape, dtype = tuple(int(size) for size in said["shape"]), np.dtype(said["dtype"])
        if dtype.kind not in "biuf" or any(size < 0 for size in shape):
            raise ValueError(f"a Box of {dtype} and shape {shape}")
        large = len(shape) in (2, 3) and min(shape[:2]) >= LEAST_SIDE and dtype == np.uint8
        image = large and bool(np.all(np.asarray(said["low"]) == 0) and np.all(np.asarray(said["high"]) == 255))
        return Space(kind, shape, dtype, image=image)
    if kind == "MultiDiscrete":
        return Space(kind, np.shape(said["nvec"]), np.dtype(np.int64))
    if kind == "MultiBinary":
        size = said["n"]
        return Space(kind, tuple(map(int, size)) if isinstance(size, list) else (int(size),), np.dtype(np.int8))
    return Space(str(kind))
