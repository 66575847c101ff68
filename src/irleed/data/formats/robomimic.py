"""HDF5 files as robomimic has them: a group for each demonstration, and masks that name some of them."""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io import CORRUPT, printable
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import hdf5
from irleed.data.formats.base import Format, Reading, library, refuse
from irleed.data.lazy import concatenate, part
from irleed.data.validation import listed
from irleed.errors import ConfigError, DataError

DEMO = re.compile(r"demo_([0-9]+)")
OPERATOR = re.compile(r"[A-Za-z]+_operator_[0-9]+")
SKILL = re.compile(r"better|okay|worse")
LOOKED_AT = 4  # next observations of a demonstration in a large file that are compared with those they should be
SPLIT = re.compile(r"(.*_)?(train|valid)")


def demo_names(path: Path) -> tuple[str, ...]:
    """The demonstrations of a file, by number: the order in which they are read."""
    with hdf5.opened(path) as file:
        return _demos(path, file)


def write_masks(source: Path, out: Path, masks: Mapping[str, Sequence[str]]) -> None:
    """Copy a file to `out` and add masks, each a list of names of demonstrations; `source` stays as it is.

    Nobody ever sees half a file at `out`, and nothing that is there already is written over.
    """
    if os.path.lexists(out):
        refuse(out, "a file that exists", "a new name", "choose another, or remove it")
    with hdf5.opened(source) as file:
        demos, there = _demos(source, file), _masks(file)
    for mask, members in masks.items():
        _check_mask(f"{printable(source)}, mask {mask!r}", mask, members, demos, there)
    part = out.parent / f".{secrets.token_hex(8)}.part"
    try:
        shutil.copyfile(source, part)
        with library("h5py", "formats").File(part, "r+") as file:
            group = file.require_group("mask")
            for mask, members in masks.items():
                group.create_dataset(mask, data=np.array(members, dtype="S"))
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        os.replace(part, out)
    except CORRUPT as error:
        got = f"an unwritable place ({hdf5.one_line(error)})"
        refuse(out, got, "a place that can be written", "choose another path, or make room and folder for it")
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _recognises(path: Path) -> bool:
    if not hdf5.is_hdf5(path):
        return False
    try:
        with hdf5.opened(path) as file:
            return hdf5.is_group(file.get("data"))
    except DataError:
        return False
    except ConfigError:  # no h5py to look inside: reading says what to install
        return True


def _read(path: Path, reading: Reading) -> Demonstrations:
    with hdf5.opened(path) as file:
        demos = _demos(path, file)
        owner = _owners(path, file, demos, reading)
        first = _layout(path, file["data"][demos[0]], reading)
        episodes, again = [], hdf5.Reopened(path, file)
        for demo in demos:
            group = file["data"][demo]
            layout = _layout(path, group, reading)
            if layout != first:
                refuse(hdf5.place(path, group, "obs"), layout, f"{first}, as in {demos[0]}", "choose what all have")
            episodes.append(_episode(path, group, reading, tuple(layout), owner[demo], again))
        return Demonstrations.from_episodes(episodes, where=printable(path))


def _demos(path: Path, file: Any) -> tuple[str, ...]:
    data = file.get("data")
    if not hdf5.is_group(data):
        refuse(path, f"entries {listed(sorted(file)) or 'none'}", "a group 'data'", "name a robomimic file")
    odd = [name for name in data if not (DEMO.fullmatch(name) and hdf5.is_group(data.get(name)))]
    if odd or not len(data):
        got = f"entries {listed(odd)}" if odd else "nothing"
        refuse(hdf5.place(path, data), got, "groups demo_0, demo_1, ...", "remove or rename what is not")
    return tuple(sorted(data, key=lambda name: (int(name.removeprefix("demo_")), name)))


def _layout(path: Path, demo: Any, reading: Reading) -> dict[str, tuple[int, ...]]:
    """The observations to take, and the shape of each."""
    obs = demo.get("obs")
    if not hdf5.is_group(obs):
        remedy = f"in {hdf5.place(path, demo)} there is {listed(sorted(demo)) or 'nothing'}"
        refuse(hdf5.place(path, demo, "obs"), "no group", "a group of observations", remedy)
    there = dict(hdf5.datasets(obs))
    chosen = reading.obs or sorted(name for name, entry in there.items() if entry.ndim <= 2)
    return {name: there[name].shape[1:] if name in there else () for name in chosen}


def _episode(
    path: Path, demo: Any, reading: Reading, chosen: tuple[str, ...], owner: str, again: hdf5.Reopened
) -> Episode:
    """One demonstration; without next observations, it is short of its last action."""
    name, where = reading.action or "actions", hdf5.place(path, demo)
    action, done = hdf5.numbers(path, demo, name), hdf5.flags(path, demo, "dones")
    obs = hdf5.observations(path, demo["obs"], chosen, dict(hdf5.datasets(demo["obs"])), again)
    reward = None
    if "rewards" in demo:
        reward = hdf5.column(hdf5.numbers(path, demo, "rewards"), f"{where}/rewards")
    steps = {name: action, "dones": done, "obs": obs} | ({} if reward is None else {"rewards": reward})
    length = hdf5.same_length(steps, where)
    said = demo.attrs.get("num_samples", length)
    if said != length:
        refuse(where, f"{length} steps", f"num_samples {said}", "write the file again")
    if "next_obs" in demo:
        later = hdf5.observations(path, demo["next_obs"], chosen, dict(hdf5.datasets(demo["next_obs"])), again)
        most = LOOKED_AT if hdf5.is_large(path) else None
        hdf5.check_followed(obs, later, np.arange(length) == length - 1, f"{where}/next_obs", most)
        obs = concatenate([obs, part(later, length - 1, length)])
    kept = len(obs) - 1
    rewards = None if reward is None else reward[:kept]
    return Episode(obs, action[:kept], done[kept - 1], owner, rewards)


def _owners(path: Path, file: Any, demos: tuple[str, ...], reading: Reading) -> dict[str, str]:
    """Who gave each demonstration."""
    there, named = _masks(file), reading.named
    if named is None:
        for kind in (OPERATOR, SKILL):
            holders = _holders(path, file, tuple(mask for mask in there if kind.fullmatch(mask)), demos)
            if all(len(masks) == 1 for masks in holders.values()):
                return {demo: masks[0] for demo, masks in holders.items()}
        return dict.fromkeys(demos, path.stem)
    listed_masks = tuple(name.strip() for name in named.split(","))
    if named == "mask":
        return _by_masks(path, file, tuple(mask for mask in there if not SPLIT.fullmatch(mask)), demos)
    if set(listed_masks) <= set(there):
        return _by_masks(path, file, listed_masks, demos)
    return {demo: _attribute(path, file["data"][demo], named, there) for demo in demos}


def _attribute(path: Path, demo: Any, name: str, masks: tuple[str, ...]) -> str:
    if name not in demo.attrs:
        there = f"an attribute of {listed(sorted(demo.attrs)) or 'none'}, or masks of {listed(masks) or 'none'}"
        refuse(hdf5.place(path, demo), f"no attribute {name!r}", there, "choose from these")
    return hdf5.text(demo.attrs[name], f"{hdf5.place(path, demo)}, attribute {name!r}")


def _masks(file: Any) -> tuple[str, ...]:
    return tuple(sorted(file["mask"])) if hdf5.is_group(file.get("mask")) else ()


def _holders(path: Path, file: Any, masks: tuple[str, ...], demos: tuple[str, ...]) -> dict[str, list[str]]:
    """The masks that each demonstration is in."""
    holders: dict[str, list[str]] = {demo: [] for demo in demos}
    for mask in masks:
        where = hdf5.place(path, file["mask"], mask)
        for demo in hdf5.column(hdf5.array(path, file["mask"], mask), where):
            holders.get(hdf5.text(demo, where), []).append(mask)
    return holders


def _by_masks(path: Path, file: Any, masks: tuple[str, ...], demos: tuple[str, ...]) -> dict[str, str]:
    holders = _holders(path, file, masks, demos)
    for demo, found in holders.items():
        if len(found) != 1:
            remedy = f"list masks that share out the demonstrations, of {listed(_masks(file), most=20) or 'none'}"
            refuse(path, f"{demo} in masks {listed(found) or 'none'}", f"one of {listed(masks) or 'none'}", remedy)
    return {demo: found[0] for demo, found in holders.items()}


def _check_mask(where: str, mask: str, members: Sequence[str], demos: tuple[str, ...], there: tuple[str, ...]) -> None:
    if mask in there:
        refuse(where, "a mask that exists", "a new name", f"choose another than {listed(there, most=20)}")
    if not mask or not mask.isprintable() or "/" in mask or mask == ".":
        refuse(where, "no name for a mask", "printable text without '/'", "rename it")
    odd = [name for name in members if name not in demos]
    if odd or not members or len(set(members)) < len(members):
        got = f"{listed(odd)}" if odd else f"{len(members)} names, {len(set(members))} of them different"
        refuse(where, got, f"different ones of {listed(demos)}", "name demonstrations of the file, each once")


FORMAT = Format(name="robomimic HDF5", recognises=_recognises, read=_read)
