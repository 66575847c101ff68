"""HDF5 files of robomimic, with a group for each demonstration and masks that name some of them, and of D4RL.

A D4RL file has columns of steps, episode after episode, with flags where episodes end.
"""

import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from irleed._io.arrays import CORRUPT, Budget
from irleed._io.files import replacing
from irleed._io.text import printable
from irleed._typing import Int
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, hdf5, refuse
from irleed.data.formats.hdf5 import Group
from irleed.data.formats.hdf5_values import OBJECT, Values
from irleed.data.lazy import LazyRows, concatenate, part
from irleed.data.validation import listed
from irleed.errors import ConfigError, DataError, library

DEMO = re.compile(r"demo_([0-9]+)")
OPERATOR = re.compile(r"[A-Za-z]+_operator_[0-9]+")
SKILL = re.compile(r"better|okay|worse")
LOOKED_AT = 4  # next observations of a demonstration that are checked in a large file
SPLIT = re.compile(r"(.*_)?(train|valid)")


def demo_names(path: Path) -> tuple[str, ...]:
    """The demonstrations of a file, in the order in which they are read."""
    with hdf5.opened(path, Budget()) as file:
        return tuple(_demos(file))


def write_masks(source: Path, out: Path, masks: Mapping[str, Sequence[str]]) -> None:
    """Copy the file `source` to `out` and add masks, each a list of names of demonstrations.

    `out` is written atomically, and must not exist.
    """
    if os.path.lexists(out):
        refuse(out, "a file that exists", "a new name", "choose another, or remove it")
    with hdf5.opened(source, Budget()) as file:
        demos, there = tuple(_demos(file)), _masks(file)
    for mask, members in masks.items():
        _check_mask(f"{printable(source)}, mask {mask!r}", mask, members, demos, there)
    try:
        with replacing(out) as part:
            shutil.copyfile(source, part)
            with library("h5py", "formats").File(part, "r+") as file:
                group = file.require_group("mask")
                for mask, members in masks.items():
                    group.create_dataset(mask, data=np.array(members, dtype="S"))
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
    except CORRUPT as error:
        got = f"an unwritable place ({hdf5.one_line(error)})"
        refuse(out, got, "a place that can be written", "choose another path, or make room and folder for it")


def _recognises(path: Path) -> bool:
    if not hdf5.is_hdf5(path):
        return False
    try:
        with hdf5.opened(path, Budget()) as file:
            return isinstance(file.get("data"), Group)
    except DataError:
        return False
    except ConfigError:  # no h5py to look inside: reading says what to install
        return True


def _read(path: Path, reading: ReadOptions) -> Demonstrations:
    with hdf5.opened(path, reading.budget()) as file:
        demos = _demos(file)
        owner = _owners(path, file, tuple(demos), reading)
        episodes, again, first = [], hdf5.Reopened.of(file), None
        for demo, group in demos.items():
            there = dict(_group(group, "obs").walk())
            layout = _layout(there, reading)
            first = first or layout
            if layout != first:
                got, expected = str(layout), f"{first}, as in {next(iter(demos))}"
                refuse(hdf5.place(group, "obs"), got, expected, "choose what all have")
            episodes.append(_episode(group, there, reading, tuple(layout), owner[demo], again))
        return Demonstrations.from_episodes(episodes, where=printable(path))


def _demos(file: Group) -> dict[str, Group]:
    """The demonstrations, by number."""
    data = file.get("data")
    if not isinstance(data, Group):
        refuse(file.visit.path, f"entries {hdf5.there(file)}", "a group 'data'", "name a robomimic file")
    entries = {name: data.get(name) if DEMO.fullmatch(name) else None for name in data.names()}
    demos = {name: entry for name, entry in entries.items() if isinstance(entry, Group)}
    if len(demos) < len(entries) or not demos:
        got = f"entries {listed([name for name in entries if name not in demos])}" if entries else "nothing"
        refuse(hdf5.place(data), got, "groups demo_0, demo_1, ...", "remove or rename what is not")
    return dict(sorted(demos.items(), key=lambda item: (int(item[0].removeprefix("demo_")), item[0])))


def _group(demo: Group, name: str) -> Group:
    """A group of observations."""
    found = demo.get(name)
    if not isinstance(found, Group):
        remedy = f"in {hdf5.place(demo)} there is {hdf5.there(demo)}"
        refuse(hdf5.place(demo, name), "no group", "a group of observations", remedy)
    return found


def _layout(there: Mapping[str, Values], reading: ReadOptions) -> dict[str, tuple[int, ...]]:
    """The chosen observations, and the shape of each."""
    chosen = reading.obs or sorted(name for name, entry in there.items() if entry.ndim <= 2)
    return {name: there[name].shape[1:] if name in there else () for name in chosen}


def _episode(
    demo: Group,
    there: Mapping[str, Values],
    reading: ReadOptions,
    chosen: tuple[str, ...],
    owner: str,
    again: hdf5.Reopened,
) -> Episode:
    """One demonstration; without next observations, its last action is left out."""
    name, where = reading.action or "actions", hdf5.place(demo)
    action, done = hdf5.numbers(demo, name), hdf5.flags(demo, "dones")
    obs = hdf5.observations(_group(demo, "obs"), chosen, there, again)
    reward = None
    if "rewards" in demo:
        reward = hdf5.column(hdf5.numbers(demo, "rewards"), f"{where}/rewards")
    steps = {name: action, "dones": done, "obs": obs} | ({} if reward is None else {"rewards": reward})
    length = hdf5.same_length(steps, where)
    samples = demo.attribute("num_samples")
    if samples is not None and (np.size(samples) != 1 or samples != length):
        refuse(where, f"{length} steps", f"num_samples {printable(str(samples)[:80])}", "write the file again")
    if "next_obs" in demo:
        following = _group(demo, "next_obs")
        later = hdf5.observations(following, chosen, dict(following.walk()), again)
        most = LOOKED_AT if hdf5.is_large(again.path) else None
        hdf5.check_followed(obs, later, np.arange(length) == length - 1, f"{where}/next_obs", most)
        obs = concatenate([obs, part(later, length - 1, length)])
    kept = len(obs) - 1
    rewards = None if reward is None else reward[:kept]
    return Episode(obs, action[:kept], done[kept - 1], owner, rewards)


def _owners(path: Path, file: Group, demos: tuple[str, ...], reading: ReadOptions) -> dict[str, str]:
    """The demonstrator of each demonstration."""
    there, named = _masks(file), reading.named
    if named is None:
        for kind in (OPERATOR, SKILL):
            holders = _holders(file, tuple(mask for mask in there if kind.fullmatch(mask)), demos)
            if all(len(masks) == 1 for masks in holders.values()):
                return {demo: masks[0] for demo, masks in holders.items()}
        return dict.fromkeys(demos, path.stem)
    listed_masks = tuple(name.strip() for name in named.split(","))
    if named == "mask":
        return _by_masks(path, file, tuple(mask for mask in there if not SPLIT.fullmatch(mask)), demos)
    if set(listed_masks) <= set(there):
        return _by_masks(path, file, listed_masks, demos)
    return {demo: _attribute(file, demo, named, there) for demo in demos}


def _attribute(file: Group, name: str, attribute: str, masks: tuple[str, ...]) -> str:
    demo = _group(file, f"data/{name}")
    value = demo.attribute(attribute)
    if value is None:
        there = f"an attribute of {listed(demo.attributes()) or 'none'}, or masks of {listed(masks) or 'none'}"
        refuse(hdf5.place(demo), f"no attribute {attribute!r}", there, "choose from these")
    return hdf5.text(value, f"{hdf5.place(demo)}, attribute {attribute!r}")


def _masks(file: Group) -> tuple[str, ...]:
    masks = file.get("mask")
    return tuple(masks.names()) if isinstance(masks, Group) else ()


def _holders(file: Group, masks: tuple[str, ...], demos: tuple[str, ...]) -> dict[str, list[str]]:
    """The masks that each demonstration is in."""
    holders: dict[str, list[str]] = {demo: [] for demo in demos}
    for mask in masks:
        where, values = hdf5.place(file, f"mask/{mask}"), hdf5.sound(file, f"mask/{mask}")
        values.visit.budget.take(where, OBJECT * math.prod(values.shape))  # of the names as Python texts
        for demo in hdf5.column(values.read(), where):
            holders.get(hdf5.text(demo, where), []).append(mask)
    return holders


def _by_masks(path: Path, file: Group, masks: tuple[str, ...], demos: tuple[str, ...]) -> dict[str, str]:
    holders = _holders(file, masks, demos)
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


NEEDED = ("observations", "actions", "terminals")
D4RL_LOOKED_AT = 256  # next observations that are checked in a large file


def _read_d4rl(path: Path, reading: ReadOptions) -> Demonstrations:
    with hdf5.opened(path, reading.budget()) as file:
        action = reading.action or "actions"
        _check_names(file, action)
        columns = {action: hdf5.numbers(file, action), "terminals": hdf5.flags(file, "terminals")}
        if "timeouts" in file:
            columns["timeouts"] = hdf5.flags(file, "timeouts")
        if "rewards" in file:
            columns["rewards"] = hdf5.column(hdf5.numbers(file, "rewards"), hdf5.place(file, "rewards"))
        chosen, rows = reading.obs or ("observations",), len(columns[action])
        there = {name: e for name, e in file.walk() if name in chosen or (e.shape and e.shape[0] == rows)}
        again = hdf5.Reopened.of(file)
        obs = hdf5.observations(file, chosen, there, again)
        hdf5.same_length(columns | {"observations": obs}, printable(path))
        ends = columns["terminals"] | columns.get("timeouts", False)
        ends[-1] = True
        last = np.flatnonzero(ends)
        final = None
        if "next_observations" in file and chosen == ("observations",):
            final, where = hdf5.rows(file, "next_observations", again), hdf5.place(file, "next_observations")
            hdf5.check_followed(obs, final, ends, where, D4RL_LOOKED_AT if hdf5.is_large(path) else None)
        owner = _d4rl_owners(path, file, reading.named, there, last)
        episodes = _d4rl_episodes(obs, columns, columns[action], final, last, owner)
        return Demonstrations.from_episodes(episodes, where=printable(path))


def _check_names(file: Group, action: str) -> None:
    missing = [name for name in NEEDED if name not in file and (name != "actions" or action == name)]
    if missing:
        expected = "the datasets of D4RL, or the group 'data' of robomimic"
        refuse(file.visit.path, f"no {', '.join(missing)}", expected, f"there is {hdf5.there(file)}")


def _d4rl_owners(
    path: Path, file: Group, named: str | None, there: dict[str, Values], last: Int[np.ndarray, " E"]
) -> list[str]:
    """The demonstrator of each episode, from a dataset that is constant within episodes."""
    if named is None:
        return [path.stem] * len(last)
    if named not in there:
        expected = f"one of {listed(sorted(there), most=20)}"
        refuse(path, f"no dataset {named!r} of one value a step", expected, "choose from these")
    where = hdf5.place(file, named)
    values = hdf5.column(hdf5.array(file, named), where)
    changed = np.flatnonzero(values[1:] != values[:-1])
    inside = changed[~np.isin(changed, last)]
    if len(inside):
        got = f"{values[inside[0] + 1]!r} after {values[inside[0]]!r}"
        refuse(f"{where}, row {inside[0] + 1}", got, "one demonstrator an episode", "mark where episodes end")
    return [hdf5.text(values[row], f"{where}, row {row}") for row in last]


def _d4rl_episodes(
    obs: np.ndarray | LazyRows,
    columns: dict[str, np.ndarray],
    action: np.ndarray,
    final: np.ndarray | LazyRows | None,
    last: np.ndarray,
    owner: list[str],
) -> list[Episode]:
    """Cut the columns after the `last` steps; without `final` observations, last actions are left out."""
    episodes = []
    for start, end, name in zip(np.append(0, last[:-1] + 1), last + 1, owner, strict=True):
        seen = part(obs, start, end)
        if final is not None:
            seen = concatenate([seen, part(final, end - 1, end)])
        stop = start + len(seen) - 1
        if stop == start:
            continue
        reward = columns["rewards"][start:stop] if "rewards" in columns else None
        episodes.append(Episode(seen, action[start:stop], bool(columns["terminals"][stop - 1]), name, reward))
    return episodes


D4RL = Format(name="D4RL HDF5", recognises=hdf5.is_hdf5, read=_read_d4rl)
