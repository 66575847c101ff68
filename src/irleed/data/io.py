"""Demonstrations on disk: one ``.npz`` file, which NumPy alone can read and write; and files of other programs.

The former is a zip archive of ``.npy`` arrays, without pickled objects. N transitions in E episodes by D demonstrators:

================  =====================  ==========================================================================
entry             dtype and shape        meaning
================  =====================  ==========================================================================
``format``        text, ()               ``"irleed-demonstrations"``
``version``       integer, ()            1
``obs``           numbers, (N + E, ...)  every episode's T + 1 observations, episode after episode
``row``           int32 or int64, (N,)   ``obs[row]`` is where an action was taken, ``obs[row + 1]`` where it led
``action``        numbers, (N, ...)      what was done; whole numbers from 0 if actions are discrete
``terminated``    bool, (N,)             the task ended here; only at the last step of an episode
``truncated``     bool, (N,)             the clock ran out here; the last step has this flag or ``terminated``
``demonstrator``  int32 or int64, (N,)   who acted, 0 to D - 1
``episode``       int32 or int64, (N,)   0 to E - 1, in order
``names``         text, (D,)             what the demonstrators are called, each name once
``reward``        float32/float64, (N,)  optional; used to check and to report, never to learn
================  =====================  ==========================================================================

"Numbers" are booleans, integers or floats of at most 64 bits, all finite. Large observations (`irleed.data.lazy.LARGE`)
that were stored without compression stay in the file, and their checksum is not verified.
"""

import os
from pathlib import Path
from typing import Any

from irleed._io.npz import Layout, printable, read_npz, write_npz
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations
from irleed.data.formats import ReadOptions, minari, read_folder, recognise
from irleed.data.validation import LONGEST
from irleed.errors import ConfigError, DataError

MINARI = "minari:"
LAYOUT = Layout(
    format="irleed-demonstrations",
    version=1,
    holds="demonstrations",
    required=("obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "names"),
    optional=("reward",),
    writer="irleed.data.save",
    counted="terminated",
    per_item={"names": 4 * LONGEST, **dict.fromkeys(("row", "truncated", "demonstrator", "episode", "reward"), 8)},
)


def load(path: str | os.PathLike[str], reading: ReadOptions | None = None) -> Demonstrations:
    """Read and check demonstrations: a file of ours, or of one of `irleed.data.formats`, told apart by content.

    ``minari:ID`` is a data set that Minari keeps. Whatever is wrong with it is a one-line `DataError`.
    """
    reading = ReadOptions() if reading is None else reading
    place = Path(path)
    if os.fspath(path).startswith(MINARI):
        data = minari.read_id(os.fspath(path).removeprefix(MINARI), reading)
    elif not os.path.lexists(place):
        expected = "a file or folder of demonstrations"
        raise DataError(printable(path), got="no such file or folder", expected=expected, remedy="check the path")
    elif _is_npz(place):
        data = _load_npz(path, reading)
    else:
        kind = recognise(place)
        data = read_folder(place, reading) if kind is None else kind.read(place, reading)
    return data.by_episode() if reading.demonstrator == "episode" else data


def _is_npz(path: Path) -> bool:
    """Whether it is a zip archive, or nothing else that is known: then that reader says what is wrong."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return not path.is_dir()
        with path.open("rb") as stream:
            return stream.read(2) == b"PK" or recognise(path) is None
    except (OSError, ValueError):
        return True


def _load_npz(path: str | os.PathLike[str], reading: ReadOptions) -> Demonstrations:
    where = printable(path)
    if reading.named or reading.obs or reading.action:
        got, expected = reading.named or reading.action or reading.obs[0], "no choice: such files name one of each"
        raise ConfigError(where, got=got, expected=expected, remedy="leave the choice out")
    stored = lazy.member(Path(path), "obs")
    budget = reading.budget()
    budget.admit(path)
    columns: dict[str, Any] = dict(read_npz(path, LAYOUT, budget.take, () if stored is None else ("obs",)))
    if stored is not None:
        columns["obs"] = lazy.LazyRows.of(stored)
    names = columns.pop("names")
    if names.dtype.kind != "U" or names.ndim != 1:
        got, remedy = f"{names.dtype} of shape {names.shape}", "store names as a NumPy array of text"
        raise DataError(f"{where}, names", got=got, expected="text of shape (D,)", remedy=remedy)
    if len(names) > columns["row"].size:  # text takes far more memory in Python than in an array
        got, expected = f"{len(names)} names", f"at most one a transition, {columns['row'].size}"
        raise DataError(f"{where}, names", got=got, expected=expected, remedy="remove those without episodes")
    return Demonstrations.from_arrays(names.tolist(), **columns, where=where)


def save(demonstrations: Demonstrations, path: str | os.PathLike[str], *, compress: bool = True) -> None:
    """Write a file that `load` reads back equal: complete, or not at all.

    Without `compress` the file is larger, and written many times faster.
    """
    demonstrations.validate(printable(path))
    columns = {name: getattr(demonstrations, name) for name in LAYOUT.required + LAYOUT.optional}
    write_npz(path, LAYOUT, columns, compress=compress)
