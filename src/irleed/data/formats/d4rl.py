"""HDF5 files as D4RL has them: columns of steps, episode after episode, with flags where episodes end."""

from pathlib import Path

import numpy as np

from irleed._io.text import printable
from irleed._typing import Int
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import hdf5
from irleed.data.formats.base import Format, ReadOptions, refuse
from irleed.data.formats.hdf5 import Group
from irleed.data.formats.hdf5_values import Values
from irleed.data.lazy import LazyRows, concatenate, part
from irleed.data.validation import listed

NEEDED = ("observations", "actions", "terminals")
LOOKED_AT = 256  # next observations of a large file that are compared with those they should be


def _read(path: Path, reading: ReadOptions) -> Demonstrations:
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
            hdf5.check_followed(obs, final, ends, where, LOOKED_AT if hdf5.is_large(path) else None)
        owner = _owners(path, file, reading.named, there, last)
        episodes = _episodes(obs, columns, columns[action], final, last, owner)
        return Demonstrations.from_episodes(episodes, where=printable(path))


def _check_names(file: Group, action: str) -> None:
    missing = [name for name in NEEDED if name not in file and (name != "actions" or action == name)]
    if missing:
        expected = "the datasets of D4RL, or the group 'data' of robomimic"
        refuse(file.visit.path, f"no {', '.join(missing)}", expected, f"there is {hdf5.there(file)}")


def _owners(
    path: Path, file: Group, named: str | None, there: dict[str, Values], last: Int[np.ndarray, " E"]
) -> list[str]:
    """Who acted in each episode, from a dataset that does not change within one."""
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


def _episodes(
    obs: np.ndarray | LazyRows,
    columns: dict[str, np.ndarray],
    action: np.ndarray,
    final: np.ndarray | LazyRows | None,
    last: np.ndarray,
    owner: list[str],
) -> list[Episode]:
    """Cut the columns after the `last` steps; without `final` observations, episodes are short of their last action."""
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


FORMAT = Format(name="D4RL HDF5", recognises=hdf5.is_hdf5, read=_read)
