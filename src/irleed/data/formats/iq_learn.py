"""Pickled demonstrations as IQ-Learn stores them: a dict of lists of trajectories, in a ``.pkl`` or a ``.npy`` file."""

from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.npz import printable
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats.base import Format, ReadOptions, refuse
from irleed.data.formats.pickles import NUMPY, load
from irleed.data.validation import listed, native

FIELDS = ("states", "next_states", "actions", "dones")  # these there must be; rewards and lengths may be


def _owners(data: dict[str, Any], reading: ReadOptions, path: Path, count: int) -> list[str]:
    if reading.named is None:
        return [path.stem] * count
    where = f"{printable(path)}, demonstrators"
    values = data.get(reading.named)
    if values is None:
        refuse(where, f"no {reading.named!r}", f"one of {listed(list(data))}", "name the key that says who acted")
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list) or len(values) != count:
        got = f"{len(values)} values" if isinstance(values, list) else "no list"
        refuse(where, f"{got} of {reading.named!r}", f"{count}, one a trajectory", "name the key that says who acted")
    if not all(
        isinstance(value, str) or isinstance(value, int | np.integer) and abs(value) < 1 << 64 for value in values
    ):
        refuse(where, f"{reading.named!r} of other kinds", "texts or whole numbers", "name the key that says who acted")
    return [str(value) if isinstance(value, str) else f"{value:d}" for value in values]


def _trajectory(data: dict[str, Any], i: int, owner: str, path: Path) -> Episode:
    """Trajectory i, its steps checked against each other."""
    where = f"{printable(path)}, trajectory {i}"
    state, following, action, done = (_field(data, key, i, where) for key in FIELDS)
    if (
        done.ndim != 1
        or not len(done)
        or not done.shape == state.shape[:1] == action.shape[:1]
        or state.shape != following.shape
    ):
        got = ", ".join(
            f"{key} {array.shape}" for key, array in zip(FIELDS, (state, following, action, done), strict=True)
        )
        refuse(where, got, "as many of each, and states and next_states alike", "store one entry a step in each")
    length = _field(data, "lengths", i, where) if "lengths" in data else np.array(len(done))
    if length.shape != () or length != len(done):
        refuse(f"{where}, lengths", str(length)[:20].replace("\n", " "), len(done), "store the number of steps")
    differs = (state[1:] != following[:-1]).reshape(len(done) - 1, -1).any(1)
    if differs.any():
        got = "a next state that is not the state of the step after"
        refuse(f"{where}, step {np.argmax(differs)}", got, "the same", "store whole episodes, one a trajectory")
    ends = np.flatnonzero(done)
    if not np.isin(done, (0, 1)).all() or len(ends) and ends[0] != len(done) - 1:
        odd = np.argmax((done != 0) & ((done != 1) | (np.arange(len(done)) < len(done) - 1)))
        refuse(
            f"{where}, step {odd}", f"done {done[odd]}", "0 before the last step, 0 or 1 there", "split the episodes"
        )
    reward = _field(data, "rewards", i, where) if "rewards" in data else None
    return Episode(np.concatenate([state, following[-1:]]), action, bool(done[-1]), owner, reward)


def _field(data: dict[str, Any], key: str, i: int, where: str) -> np.ndarray:
    try:
        array = np.asarray(data[key][i])
    except ValueError:
        refuse(f"{where}, {key}", "entries of different shapes", "an array", "make all its entries alike")
    except (TypeError, LookupError, OverflowError, MemoryError) as error:
        refuse(f"{where}, {key}", ascii(str(error)[:80]), "an array of numbers", "store numbers only")
    return native(array, f"{where}, {key}")


def _recognises(path: Path) -> bool:
    """The beginning of a pickle, or of a .npy file of objects."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError:
        return False
    return (
        start[:1] == b"\x80"
        and start[1:2] in (b"\2", b"\3", b"\4", b"\5")
        or (start.startswith(NUMPY) and b"'descr': '|O'" in start)
    )


def _read(path: Path, reading: ReadOptions) -> Demonstrations:
    """Every trajectory is an episode, of one demonstrator unless a key of the dict says who acted."""
    where = printable(path)
    if reading.obs not in ((), ("states",)) or reading.action not in (None, "actions"):
        got = f"a choice of {listed([*reading.obs, *filter(None, [reading.action])])}"
        refuse(where, got, "'states' and 'actions'", "leave the choice out: there are no others")
    data = load(path, reading.budget())
    missing = [key for key in FIELDS if key not in data]
    if missing:
        refuse(where, f"no {', '.join(missing)} among {listed(list(data))}", "a dict of these", "add them")
    count = {
        key: len(data[key]) if np.iterable(data[key]) else 0 for key in (*FIELDS, "rewards", "lengths") if key in data
    }
    if len(set(count.values())) > 1:
        got = ", ".join(f"{key} {number}" for key, number in count.items())
        refuse(where, got, "as many trajectories in each", "store one entry a trajectory in each")
    owners = _owners(data, reading, path, count["states"])
    episodes = [_trajectory(data, i, owner, path) for i, owner in enumerate(owners)]
    return Demonstrations.from_episodes(episodes, where=where)


FORMAT = Format(name="pickled demonstrations of IQ-Learn", recognises=_recognises, read=_read)
