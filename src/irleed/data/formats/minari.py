"""Minari data sets: folders of episodes with observations, actions, rewards, flags, infos and metadata.

A data set is a folder `data` with `metadata.json` and either one HDF5 file or a folder of Arrow or Parquet an episode.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import Budget
from irleed._io.files import replacing, writing
from irleed._io.text import one_line, printable
from irleed._typing import Shaped
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, joined, read_json, refuse, regular
from irleed.data.formats import minari_episodes as stored
from irleed.data.formats.minari_episodes import MARKS, NUMBERS, About, Space, StoredEpisode, about
from irleed.data.lazy import LazyRows
from irleed.data.validation import listed
from irleed.errors import DataError, IrleedError, library

WHO = ("demonstrator", "operator", "annotator", "author")  # default keys of the demonstrator, in this order
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def recognises(path: Path) -> bool:
    """Whether this folder, or its folder `data`, has metadata of Minari."""
    try:
        place = _inside(path) / "metadata.json"
        return place.is_file() and MARKS <= set(read_json(path, place))
    except DataError:
        return True  # reading says what is wrong
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def read(path: Path, reading: ReadOptions) -> Demonstrations:
    """Read the episodes of a data set from its folder."""
    with _refusing(path):
        about, where = _about(path), printable(path)
        found = _found(about, path, reading.budget(), (reading.named,) if reading.named else WHO)
        if reading.action not in (None, "actions"):
            refuse(f"{where}, actions", f"no {reading.action!r}", "'actions'", "leave the name of the actions out")
        metadata = [_flat(episode.metadata) for episode in found]
        names = _demonstrators(metadata, [dict(episode.infos) for episode in found], about.name, reading, path)
        episodes = [_episode(found[i], about.action, names[i], reading.obs, where, i) for i in range(len(found))]
        return Demonstrations.from_episodes(episodes, where=where)


def read_id(name: str, reading: ReadOptions) -> Demonstrations:
    """Read a data set in Minari's local folder; nothing is downloaded."""
    path = Path(library("minari.storage.datasets_root_dir", "formats").get_dataset_path(name))
    if not recognises(path):
        remedy = f"download it with `minari download {printable(name)}`"
        refuse(name, "no such data set", f"one in {printable(path)}", remedy)
    return read(path, reading)


def write(source: Path, out: Path, episodes: Sequence[int]) -> None:
    """Write a copy of a data set with these episodes only, in this order, under the same id."""
    with _refusing(source):
        about = _about(source)
        found = _found(about, source, Budget(), ())
    bad = [f"episode {episode}" for episode in episodes if not 0 <= episode < len(found)]
    if bad or not len(episodes):
        refuse(source, bad[0] if bad else "no episodes", f"some of 0 to {len(found) - 1}", "choose from these")
    if os.path.lexists(out) or not out.parent.is_dir():
        refuse(out, "a path that is taken or in no folder", "a new name in an existing folder", "choose another path")
    with writing(printable(out), "choose another place, or make room there"), replacing(out) as part, _refusing(source):
        steps = sum(len(found[episode].rewards) for episode in episodes)
        _copy(source, part / "data", episodes, about.kind)
        _describe(part / "data", len(episodes), steps)


def _inside(path: Path) -> Path:
    """The folder that holds the data: `data` in the one named, or that itself."""
    return path / "data" if (path / "data" / "metadata.json").exists() else path


def _about(path: Path) -> About:
    """The metadata; refused if actions are not supported."""
    if not recognises(path):
        refuse(path, "no metadata.json of Minari's", "the folder of a Minari data set", "check the path")
    found = about(path, _inside(path))
    if found.action.kind not in NUMBERS:
        got, remedy = printable(found.action.kind[:100]), "make each action one array of numbers"
        refuse(f"{printable(path)}, actions", got, "Discrete or Box", remedy)
    return found


def _found(about: About, path: Path, budget: Budget, wanted: tuple[str, ...]) -> list[StoredEpisode]:
    """All episodes."""
    episodes = stored.in_hdf5 if about.kind == "hdf5" else stored.in_arrow
    found = episodes(about, path, _inside(path), budget, wanted)
    steps = sum(len(episode.rewards) for episode in found)
    if steps != about.steps:
        refuse(path, f"{steps} steps", f"{about.steps}, as its metadata say", "copy or download it again")
    return found


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn errors of reading into one line."""
    try:
        yield
    except IrleedError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:  # no fault of the data
            raise
        # Damaged files make HDF5, Arrow and JSON raise nearly anything
        got = one_line(f"{type(error).__name__}: {error}")
        refuse(path, f"data that Minari cannot read ({got})", "a whole data set", "copy or download it again")


def _episode(found: StoredEpisode, space: Space, name: str, wanted: tuple[str, ...], path: str, number: int) -> Episode:
    where, steps = f"{path}, episode {number}", len(found.rewards)
    for key in ("terminations", "truncations"):
        flag = np.asarray(getattr(found, key))
        if flag.shape != (steps,) or flag.dtype.kind not in "biu":
            refuse(f"{where}, {key}", f"{flag.dtype} of shape {flag.shape}", f"({steps},) flags", "write them again")
        if flag[:-1].any():
            got, expected = f"a flag at step {int(np.argmax(flag != 0))}", f"none before the last step, {steps - 1}"
            refuse(f"{where}, {key}", got, expected, "split the episode there")
    obs = _observations(found.observations, wanted, where)
    action = _actions(np.asarray(found.actions), space, f"{where}, actions")
    return Episode(obs, action, terminated=found.terminations.any(), demonstrator=name, reward=found.rewards)


def _observations(values: Any, wanted: tuple[str, ...], where: str) -> Shaped[np.ndarray | LazyRows, "..."]:
    """Named observations joined as chosen; others as they are."""
    if not isinstance(values, Mapping | tuple):
        values, wanted = {"observations": values}, wanted or ("observations",)
    arrays = {name: part if isinstance(part, LazyRows) else np.asarray(part) for name, part in _flat(values).items()}
    return joined({name: part for name, part in arrays.items() if part.dtype.kind in "biuf"}, wanted, where)


def _actions(values: Shaped[np.ndarray, "..."], space: Space, where: str) -> Shaped[np.ndarray, "..."]:
    """Actions; discrete ones are renumbered from 0."""
    if space.kind != "Discrete":
        return values
    if values.shape not in ((len(values),), (len(values), 1)) or values.dtype.kind not in "iu":
        refuse(where, f"{values.dtype} of shape {values.shape}", "one whole number a step", "write them again")
    numbers = values.reshape(-1).astype(np.int64) - space.start
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < space.count:
        refuse(where, f"{numbers.min()} to {numbers.max()}", f"0 to {space.count - 1}, as in their space", "fix either")
    return numbers


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """The entries of nested mappings and tuples, their names joined with slashes."""
    if not isinstance(values, Mapping | tuple):
        return {prefix: values}
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    return {k: v for name, value in items for k, v in _flat(value, f"{prefix}/{name}".lstrip("/")).items()}


def _demonstrators(
    metadata: list[dict], infos: list[dict], dataset: str, reading: ReadOptions, path: Path
) -> list[str]:
    """The name of each episode's demonstrator."""
    for key in (reading.named,) if reading.named else WHO:
        names = [_name(one.get(key)) or _name(other.get(key)) for one, other in zip(metadata, infos, strict=True)]
        if all(names):
            return [str(name) for name in names]
        if reading.named:
            bad, there = next((i, metadata[i] | infos[i]) for i, name in enumerate(names) if not name)
            got = f"no one value of {key!r}" if key in there else f"no {key!r}"
            expected = f"one for the whole episode in metadata or infos, of {listed(sorted(there))}"
            refuse(f"{printable(path)}, episode {bad}", got, expected, "name another, or `episode`")
    return [dataset] * len(metadata)


def _name(value: Any) -> str | None:
    """The value as text, if it is the same at every step."""
    values = np.asarray(value).ravel()
    if not len(values) or not np.all(values == values[0]):
        return None
    first = values[:1].tolist()[0]
    if first in (None, "", b""):
        return None
    return first.decode() if isinstance(first, bytes) else str(first)


def _copy(source: Path, out: Path, episodes: Sequence[int], kind: str) -> None:
    """Copy the episodes to a new folder, renumbered."""
    data = _inside(source)
    out.mkdir(parents=True)
    shutil.copy(regular(source, data / "metadata.json"), out)
    if kind == "hdf5":
        file, name = library("h5py", "formats").File, stored.FILE
        stored.check(regular(source, data / name))
        with file(data / name, "r") as old, file(out / name, "x", track_order=True) as new:
            for i, episode in enumerate(episodes):
                old.copy(f"episode_{episode}", new, f"episode_{i}")
                new[f"episode_{i}"].attrs["id"] = i
        return
    for i, episode in enumerate(episodes):
        (out / str(i)).mkdir()
        for path in stored.files(source, data / str(episode), kind):
            shutil.copy(path, out / str(i))
        _update(out / str(i) / "metadata.json", {"id": i})


def _describe(data: Path, episodes: int, steps: int) -> None:
    """Update the size in the metadata of a copy."""
    size = sum(path.stat().st_size for path in data.rglob("*"))
    changes = {"total_episodes": episodes, "total_steps": steps, "dataset_size": round(size / 1e6, 1)}
    _update(data / "metadata.json", changes)


def _update(path: Path, changes: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


FORMAT = Format(name="Minari data set", recognises=recognises, read=read)
