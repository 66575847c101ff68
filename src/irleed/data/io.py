"""Load and save demonstrations: as one ``.npz`` file, or in the formats of other programs.

The former is a zip archive of ``.npy`` arrays without pickled objects; `docs/data.md` lists them. Large observations
(`irleed.data.lazy.LARGE`) that were stored without compression stay in the file, and their checksum is not verified.
"""

import csv
import io
import os
from pathlib import Path
from typing import Any

from irleed._io.arrays import Layout, read_npz, write_npz
from irleed._io.files import beside, writing
from irleed._io.text import csv_cell, printable
from irleed.data import lazy
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import (
    Format,
    ReadOptions,
    atari_grand_challenge,
    crafter,
    imitation,
    inside,
    iq_learn,
    lerobot,
    minari,
    refuse,
    robomimic,
    tables,
)
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
# Folders first; robomimic before D4RL, which recognises any HDF5 file.
FORMATS = (
    minari.FORMAT,
    lerobot.FORMAT,
    imitation.FORMAT,
    atari_grand_challenge.FORMAT,
    crafter.FORMAT,
    robomimic.FORMAT,
    robomimic.D4RL,
    iq_learn.FORMAT,
    tables.FORMAT,
)


def load(path: str | os.PathLike[str], reading: ReadOptions | None = None) -> Demonstrations:
    """Read and validate demonstrations in irleed's own format or one of `irleed.data.formats`, recognised by content.

    ``minari:ID`` is a data set in Minari's local folder. Errors are one-line `DataError`s.
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
    """Whether it is a zip archive, or of no known format: then the reader of `.npz` files refuses it."""
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
    columns: dict[str, Any] = dict(read_npz(path, LAYOUT, reading.budget(), () if stored is None else ("obs",)))
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
    """Write a file for `load`, atomically.

    Without `compress` the file is larger, and written many times faster.
    """
    demonstrations.validate(printable(path))
    columns = {name: getattr(demonstrations, name) for name in LAYOUT.required + LAYOUT.optional}
    write_npz(path, LAYOUT, columns, compress=compress)


def write_scores(
    source: str | os.PathLike[str], out: str | os.PathLike[str], reading: ReadOptions | None = None
) -> None:
    """Write a CSV file of scores for `irleed.validate`: the return of each episode in `source`.

    Formats that know more of an episode write that too; data without rewards are refused.
    """
    reading = ReadOptions() if reading is None else reading
    kind = recognise(Path(source))
    table = _returns(source, reading) if kind is None or kind.scores is None else kind.scores(Path(source), reading)
    with writing(printable(out), "choose another file"), beside(Path(os.path.realpath(out))) as file:
        file.write(table.encode())


def _returns(source: str | os.PathLike[str], reading: ReadOptions) -> str:
    """The return of each episode, as CSV."""
    data = load(source, reading)
    returns = data.returns()
    if returns is None:
        refuse(printable(source), "no rewards", "rewards, to sum up", "write the table by hand")
    text, count = io.StringIO(), [0] * data.demonstrators
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("demonstrator", "episode_of_demonstrator", "steps", "return"))
    for steps, owner, score in zip(data.length.tolist(), data.owner.tolist(), returns.tolist(), strict=True):
        rows.writerow((csv_cell(data.names[owner]), count[owner], steps, score))
        count[owner] += 1
    return text.getvalue()


def recognise(path: Path) -> Format | None:
    """The format of a file or folder, by its content."""
    if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        return None
    return next((kind for kind in FORMATS if kind.recognises(path)), None)


def read_folder(path: Path, reading: ReadOptions) -> Demonstrations:
    """A folder of files of any format; the demonstrator of a file with only one is named after the file."""
    found = [(file, recognise(file)) for file in sorted(path.iterdir()) if inside(path, file).is_file()]
    known = [(file, kind) for file, kind in found if kind is not None]
    if not known:
        names = ", ".join(kind.name for kind in FORMATS)
        refuse(path, "a folder with no file that is known", f"files of {names}", "name a file, or convert it")
    episodes: list[Episode] = []
    for file, kind in known:
        data = kind.read(file, reading)
        for episode in data.split():
            name = file.stem if data.demonstrators == 1 else f"{file.stem}, {episode.demonstrator}"
            episodes.append(Episode(episode.obs, episode.action, episode.terminated, name, episode.reward))
    return Demonstrations.from_episodes(episodes, where=str(path))
