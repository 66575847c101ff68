"""Minari data sets: folders of episodes with observations, actions, rewards, flags, infos and metadata.

A data set is a folder `data` with `metadata.json` and either one HDF5 file or a folder of Arrow or Parquet an episode.
"""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io import printable
from irleed._typing import Shaped
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import minari_hdf5
from irleed.data.formats.base import Format, Reading, joined, library, refuse
from irleed.data.lazy import LazyRows
from irleed.data.validation import listed
from irleed.errors import IrleedError

WHO = ("demonstrator", "operator", "annotator", "author")  # where "data" looks, in this order
MARKS = {"data_format", "total_episodes", "total_steps"}  # in the metadata of every Minari data set


def recognises(path: Path) -> bool:
    """Is there Minari's metadata in this folder, or in its folder `data`?"""
    try:
        return MARKS <= set(json.loads((_inside(path) / "metadata.json").read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def read(path: Path, reading: Reading) -> Demonstrations:
    """The episodes of a data set's folder."""
    with _refusing(path):
        dataset = _opened(path)
        found, where, space = _found(dataset, path), printable(path), dataset.action_space
        if reading.action not in (None, "actions"):
            refuse(f"{where}, actions", f"no {reading.action!r}", "'actions'", "leave the name of the actions out")
        said = [_flat(metadata) for metadata in dataset.storage.get_episode_metadata(range(len(found)))]
        names = _demonstrators(said, [_flat(episode.infos or {}) for episode in found], dataset.id, reading, path)
        episodes = [_episode(found[i], space, names[i], reading.obs, where, i) for i in range(len(found))]
        return Demonstrations.from_episodes(episodes, where=where)


def read_id(name: str, reading: Reading) -> Demonstrations:
    """The episodes of a data set in Minari's local folder; nothing is downloaded."""
    path = Path(library("minari.storage.datasets_root_dir", "formats").get_dataset_path(name))
    if not recognises(path):
        remedy = f"download it with `minari download {printable(name)}`"
        refuse(name, "no such data set", f"one in {printable(path)}", remedy)
    return read(path, reading)


def write(source: Path, out: Path, episodes: Sequence[int]) -> None:
    """A copy of a data set with these episodes only, in this order, all that is stored as it is, under the same id."""
    with _refusing(source):
        dataset = _opened(source)
        found = _found(dataset, source)
    bad = [f"episode {episode}" for episode in episodes if not 0 <= episode < len(found)]
    if bad or not len(episodes):
        refuse(source, bad[0] if bad else "no episodes", f"some of 0 to {len(found) - 1}", "choose from these")
    if os.path.lexists(out) or not out.parent.is_dir():
        refuse(out, "a path that is taken or in no folder", "a new name in an existing folder", "choose another path")
    part = out.parent / f".{secrets.token_hex(8)}.part"
    try:
        with _refusing(source):
            _copy(_inside(source), part / "data", episodes, dataset.storage.FORMAT)
            new, ids = _opened(part).storage, range(len(episodes))
            new.update_episode_metadata([{"id": i} for i in ids], ids)
            totals = {"total_episodes": len(ids), "total_steps": sum(len(found[e].rewards) for e in episodes)}
            new.update_metadata(totals | {"dataset_size": new.get_size()})
            part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _inside(path: Path) -> Path:
    """The folder that holds the data: `data` in the one named, or that itself."""
    return path / "data" if (path / "data" / "metadata.json").is_file() else path


def _opened(path: Path) -> Any:
    """The library's data set. Where no spaces are stored it would run the environment that the data name."""
    if not recognises(path):
        refuse(path, "no metadata.json of Minari's", "the folder of a Minari data set", "check the path")
    there = sorted(json.loads((_inside(path) / "metadata.json").read_bytes()))
    if not {"observation_space", "action_space"} <= set(there):
        refuse(path, listed(there, 16), "observation_space and action_space, too", "write it with a newer Minari")
    if (_inside(path) / minari_hdf5.FILE).is_file():
        _check_sizes(_inside(path) / minari_hdf5.FILE)
    dataset = library("minari", "formats").MinariDataset(_inside(path))
    spaces, kind = library("gymnasium", "formats").spaces, type(dataset.action_space)
    if not issubclass(kind, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        refuse(f"{printable(path)}, actions", kind.__name__, "Discrete or Box", "make each action one array of numbers")
    return dataset


def _check_sizes(path: Path) -> None:
    """One wrong byte can make an array of terabytes, which HDF5 would try to read."""
    with library("h5py", "formats").File(path, "r") as file:
        sizes: list[int] = []
        file.visititems(lambda _, item: sizes.append(getattr(item, "nbytes", 0)))
    if max(sizes, default=0) > 1100 * path.stat().st_size:  # no compression of HDF5's makes them smaller than that
        refuse(path, f"an array of {max(sizes)} bytes", "no more than the file can hold", "copy or download it again")


def _found(dataset: Any, path: Path) -> list[Any]:
    """All episodes, one by one: of several at once, Arrow may hand out a long one's second part as the next."""
    if minari_hdf5.is_large(dataset, _inside(path)):
        found = minari_hdf5.episodes(dataset, _inside(path))
    else:
        found = [next(iter(dataset.iterate_episodes([i]))) for i in range(dataset.storage.total_episodes)]
    steps, expected = sum(len(episode.rewards) for episode in found), int(dataset.storage.total_steps)
    if steps != expected:
        remedy = "copy it again; in Arrow and Parquet, Minari loses parts of long episodes: write it as HDF5"
        refuse(path, f"{steps} steps", f"{expected}, as its metadata say", remedy)
    return found


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Whatever the library finds wrong is one line."""
    try:
        yield
    except IrleedError:
        raise
    except Exception as error:  # damaged files make HDF5, Arrow, JSON and Gymnasium raise nearly anything
        said = "".join(c if c.isprintable() else " " for c in f"{type(error).__name__}: {error}")[:200]
        refuse(path, f"what Minari cannot read ({said.strip()})", "a whole data set", "copy or download it again")


def _episode(found: Any, space: Any, name: str, wanted: tuple[str, ...], path: str, number: int) -> Episode:
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
    """Observations that have names joined as chosen, others as they are."""
    if not isinstance(values, Mapping | tuple):
        values, wanted = {"observations": values}, wanted or ("observations",)
    arrays = {name: part if isinstance(part, LazyRows) else np.asarray(part) for name, part in _flat(values).items()}
    return joined({name: part for name, part in arrays.items() if part.dtype.kind in "biuf"}, wanted, where)


def _actions(values: Shaped[np.ndarray, "..."], space: Any, where: str) -> Shaped[np.ndarray, "..."]:
    """Actions as they are, discrete ones numbered from 0 whatever number their space starts with."""
    if not isinstance(space, library("gymnasium", "formats").spaces.Discrete):
        return values
    if values.shape not in ((len(values),), (len(values), 1)) or values.dtype.kind not in "iu":
        refuse(where, f"{values.dtype} of shape {values.shape}", "one whole number a step", "write them again")
    numbers = values.reshape(-1).astype(np.int64) - int(space.start)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < space.n:
        refuse(where, f"{numbers.min()} to {numbers.max()}", f"0 to {space.n - 1}, as in their space", "mend either")
    return numbers


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """The entries of nested mappings and tuples, their names joined with slashes."""
    if not isinstance(values, Mapping | tuple):
        return {prefix: values}
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    return {k: v for name, value in items for k, v in _flat(value, f"{prefix}/{name}".lstrip("/")).items()}


def _demonstrators(said: list[dict], infos: list[dict], dataset: str, reading: Reading, path: Path) -> list[str]:
    """The name of each episode's demonstrator."""
    for key in (reading.named,) if reading.named else WHO:
        names = [_name(one.get(key)) or _name(other.get(key)) for one, other in zip(said, infos, strict=True)]
        if all(names):
            return [str(name) for name in names]
        if reading.named:
            bad, there = next((i, said[i] | infos[i]) for i, name in enumerate(names) if not name)
            got = f"no one value of {key!r}" if key in there else f"no {key!r}"
            expected = f"one for the whole episode in metadata or infos, of {listed(sorted(there))}"
            refuse(f"{printable(path)}, episode {bad}", got, expected, "name another, or `episode`")
    return [dataset] * len(said)


def _name(value: Any) -> str | None:
    """The one value, as text, that is there at every step."""
    values = np.asarray(value).ravel().tolist()
    if not values or any(v != values[0] for v in values) or values[0] in (None, "", b""):
        return None
    return values[0].decode() if isinstance(values[0], bytes) else str(values[0])


def _copy(data: Path, out: Path, episodes: Sequence[int], kind: str) -> None:
    """Copy the episodes to a new folder, numbered anew."""
    out.mkdir(parents=True)
    shutil.copy(data / "metadata.json", out)
    if kind == "hdf5":
        file, name = library("h5py", "formats").File, minari_hdf5.FILE
        with file(data / name, "r") as old, file(out / name, "x", track_order=True) as new:
            for i, episode in enumerate(episodes):
                old.copy(f"episode_{episode}", new, f"episode_{i}")
    else:
        for i, episode in enumerate(episodes):
            shutil.copytree(data / str(episode), out / str(i))


FORMAT = Format(name="Minari data set", recognises=recognises, read=read)
