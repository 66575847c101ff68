"""Demonstrations: who did what, in which situation. The only data set type."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NoReturn, SupportsIndex

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.errors import ConfigError, DataError, problem

# The columns with one number a transition, and their dtypes; obs and action may be any numbers.
COLUMNS = {
    "row": (np.int32, np.int64),
    "terminated": (np.bool_,),
    "truncated": (np.bool_,),
    "demonstrator": (np.int32, np.int64),
    "episode": (np.int32, np.int64),
    "reward": (np.float32, np.float64),
}


@dataclasses.dataclass(frozen=True)
class Episode:
    """One episode as it was played, for `Demonstrations.from_episodes`."""

    obs: ArrayLike  # T + 1 observations: the last one is where the last action led
    action: ArrayLike  # T actions
    terminated: bool | np.bool_  # True: the task ended; False: the clock ran out
    demonstrator: SupportsIndex | str  # number or name
    reward: ArrayLike | None = None  # T rewards


class Demonstrations(eqx.Module):
    """Transitions of D demonstrators, episode after episode, as NumPy arrays.

    Build one with `from_episodes`, `from_arrays` or `irleed.data.load`, which check what they are given. Episodes lie
    end to end: an episode of T transitions has T + 1 rows of `obs`, and no observation is stored twice.
    """

    obs: Shaped[Array, "R *obs"]
    row: Int[Array, " N"]  # obs[row] is s, obs[row + 1] is s'
    action: Shaped[Array, "N *act"]
    terminated: Bool[Array, " N"]  # the task ended: do not bootstrap
    truncated: Bool[Array, " N"]  # the clock ran out: bootstrap
    demonstrator: Int[Array, " N"]  # 0 .. D-1
    episode: Int[Array, " N"]  # 0 .. E-1, in order
    reward: Float[Array, " N"] | None  # never used for learning, only to check and to report
    names: tuple[str, ...] = eqx.field(static=True)  # who the demonstrators are

    @classmethod
    def from_arrays(
        cls, names: Sequence[str], *, reward: ArrayLike | None = None, where: str = "data", **columns: ArrayLike
    ) -> "Demonstrations":
        """Build from all the fields themselves, checked. `where` is what error messages call the data."""
        missing = [f for f in ("obs", "action", *COLUMNS) if f not in columns and f != "reward"]
        if missing:
            _refuse(where, f"no {', '.join(missing)}", "every field of Demonstrations", "give the arrays by keyword")
        arrays = {k: _native(v, f"{where}, {k}") for k, v in columns.items()}
        rewards = None if reward is None else _native(reward, f"{where}, reward")
        _check_columns(arrays | {"reward": rewards}, where)  # here too: a type checker would object less clearly
        demonstrations = cls(**arrays, reward=rewards, names=tuple(names))
        demonstrations.validate(where)
        return demonstrations

    @classmethod
    def from_episodes(
        cls, episodes: Iterable[Episode], names: Sequence[str] | None = None, *, where: str = "data"
    ) -> "Demonstrations":
        """Lay episodes end to end. Without `names`, demonstrators are called as the episodes call them."""
        episodes = list(episodes)
        if not episodes:
            _refuse(where, "no episodes", "at least one", "give the episodes of every demonstrator")
        obs, action = (
            [_native(getattr(e, name), f"{where}, episode {i}, {name}") for i, e in enumerate(episodes)]
            for name in ("obs", "action")
        )
        for i in range(len(episodes)):
            _check_shapes(obs[i], action[i], obs[0], action[0], f"{where}, episode {i}")
        length = [len(a) for a in action]
        reward = _rewards(episodes, length, where)
        owner, names = _number([e.demonstrator for e in episodes], names, where)
        episode = np.repeat(np.arange(len(length), dtype=np.int32), length)
        last = np.zeros(len(episode), bool)
        last[np.cumsum(length) - 1] = True
        ended = np.array([bool(e.terminated) for e in episodes])[episode]
        return cls.from_arrays(
            obs=np.concatenate(obs),
            row=_end_to_end(episode),
            action=np.concatenate(action),
            terminated=last & ended,
            truncated=last & ~ended,
            demonstrator=owner[episode],
            episode=episode,
            reward=reward,
            names=names,
            where=where,
        )

    def __len__(self) -> int:
        return self.transitions

    @property
    def transitions(self) -> int:
        """Number of transitions, N."""
        return self.row.shape[0]

    @property
    def episodes(self) -> int:
        """Number of episodes, E."""
        return int(self.episode[-1]) + 1

    @property
    def demonstrators(self) -> int:
        """Number of demonstrators, D."""
        return len(self.names)

    @property
    def observation(self) -> Shaped[Array, "N *obs"]:
        """The observation each action was taken on."""
        return self.obs[self.row]

    @property
    def next_observation(self) -> Shaped[Array, "N *obs"]:
        """The observation each action led to."""
        return self.obs[self.row + 1]

    @property
    def start(self) -> Int[np.ndarray, " E"]:
        """The first transition of each episode."""
        return _starts(np.asarray(self.episode))

    @property
    def length(self) -> Int[np.ndarray, " E"]:
        """Transitions of each episode."""
        return np.diff(self.start, append=self.transitions)

    @property
    def owner(self) -> Int[np.ndarray, " E"]:
        """The demonstrator of each episode."""
        return np.asarray(self.demonstrator)[self.start]

    def returns(self) -> Float[np.ndarray, " E"] | None:
        """Undiscounted return of each episode, if rewards are known."""
        return None if self.reward is None else np.add.reduceat(np.asarray(self.reward, np.float64), self.start)

    def take(self, episodes: Sequence[int] | Int[np.ndarray, " K"]) -> "Demonstrations":
        """These episodes, in this order, repeats allowed; demonstrators without any left drop out."""
        chosen = np.asarray(episodes, np.int64)
        bad = chosen[(chosen < 0) | (chosen >= self.episodes)]
        if len(chosen) == 0 or len(bad):
            got, expected = bad[0] if len(bad) else "no episodes", f"episodes of 0 to {self.episodes - 1}"
            raise ConfigError(problem("take", got=got, expected=expected, remedy="see `episodes` for their number"))
        return self._gather(chosen, np.unique(self.owner[chosen]))

    def select(self, demonstrators: Sequence[SupportsIndex | str]) -> "Demonstrations":
        """The data of these demonstrators, by number or name, renumbered in the order given."""
        number = {name: i for i, name in enumerate(self.names)}
        chosen = [number.get(d, -1) if isinstance(d, str) else int(d) for d in demonstrators]
        if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= d < self.demonstrators for d in chosen):
            expected = f"different demonstrators of {_listed(self.names)} or their numbers from 0"
            got = list(demonstrators) or "none"
            raise ConfigError(problem("select", got=got, expected=expected, remedy="see `names` for who is there"))
        return self._gather(np.flatnonzero(np.isin(self.owner, chosen)), np.array(chosen))

    def by_episode(self) -> "Demonstrations":
        """The same data, arrays shared, with every episode its own demonstrator: for identities that are unknown."""
        names = tuple(f"episode {i}" for i in range(self.episodes))
        return dataclasses.replace(self, demonstrator=self.episode, names=names)

    def validate(self, where: str = "data") -> None:
        """Raise a `DataError` that names the first thing found wrong."""
        _check_columns({f: getattr(self, f) for f in ("obs", "action", *COLUMNS)}, where)
        _check_names(self.names, where)
        _check_episodes(self, where)
        _check_rows(self, where)
        _check_owners(self, where)
        _check_flags(self, where)
        _check_finite(self, where)

    def _gather(self, chosen: Int[np.ndarray, " K"], demonstrators: Int[np.ndarray, " d"]) -> "Demonstrations":
        """A copy of the chosen episodes, their demonstrators renumbered by their place in `demonstrators`."""
        first, length = self.start[chosen], self.length[chosen]
        keep = _spans(first, length)
        place = np.zeros(self.demonstrators, self.demonstrator.dtype)
        place[demonstrators] = np.arange(len(demonstrators))
        episode = np.repeat(np.arange(len(chosen), dtype=self.episode.dtype), length)
        return Demonstrations(
            obs=self.obs[_spans(np.asarray(self.row)[first], length + 1)],
            row=_end_to_end(episode),
            action=self.action[keep],
            terminated=self.terminated[keep],
            truncated=self.truncated[keep],
            demonstrator=place[self.demonstrator[keep]],
            episode=episode,
            reward=None if self.reward is None else self.reward[keep],
            names=tuple(self.names[d] for d in demonstrators),
        )


def _refuse(where: str, got: object, expected: object, remedy: str) -> NoReturn:
    raise DataError(problem(where, got=got, expected=expected, remedy=remedy))


def _listed(names: Sequence[str], most: int = 8) -> str:
    """The first few names, quoted."""
    return ", ".join(repr(n) for n in names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _starts(episode: Int[np.ndarray, " N"]) -> Int[np.ndarray, " E"]:
    return np.concatenate([[0], np.flatnonzero(episode[1:] != episode[:-1]) + 1])


def _spans(start: Int[np.ndarray, " K"], length: Int[np.ndarray, " K"]) -> Int[np.ndarray, " M"]:
    """Indices ``start[k] .. start[k] + length[k] - 1`` of every k, one after the other."""
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(length.sum())


def _end_to_end(episode: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """The row of each transition: every episode before it has one row more than transitions."""
    dtype = np.int32 if 2 * len(episode) < np.iinfo(np.int32).max else np.int64
    return np.arange(len(episode), dtype=dtype) + episode.astype(dtype)


def _native(values: ArrayLike, where: str) -> np.ndarray:
    """An array of numbers in this machine's byte order."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged
        _refuse(where, "rows of different shapes", "an array", "make all its entries alike")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        _refuse(where, array.dtype, "numbers of at most 64 bits", "encode it as numbers")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _number(owners: list, names: Sequence[str] | None, where: str) -> tuple[Int[np.ndarray, " E"], tuple[str, ...]]:
    """Demonstrator of each episode as a number, and the names."""
    if names is None and all(isinstance(o, str) for o in owners):
        names = list(dict.fromkeys(owners))
    elif names is None:  # more demonstrators than episodes cannot be: a stray number must not make a billion names
        most = max(int(o) for o in owners if not isinstance(o, str))
        names = [f"demonstrator {i}" for i in range(min(most + 1, len(owners)))]
    number = {name: i for i, name in enumerate(names)}
    index = [number.get(o, -1) if isinstance(o, str) else int(o) for o in owners]
    bad = next((i for i, value in enumerate(index) if not 0 <= value < len(names)), None)
    if bad is not None:
        expected = f"one of {_listed(names)} or their numbers from 0" if names else "a number from 0"
        remedy = "number demonstrators from 0 without gaps, or name them all"
        _refuse(f"{where}, episode {bad}, demonstrator", repr(owners[bad]), expected, remedy)
    return np.array(index, np.int32), tuple(names)


def _rewards(episodes: list[Episode], length: list[int], where: str) -> Float[np.ndarray, " N"] | None:
    """The rewards of all episodes, or None if no episode has any."""
    if all(e.reward is None for e in episodes):
        return None
    rewards = []
    for i, (episode, steps) in enumerate(zip(episodes, length, strict=True)):
        place = f"{where}, episode {i}, reward"
        if episode.reward is None:
            _refuse(place, "none", "rewards in all episodes or in no episode", "add them, or leave all out")
        rewards.append(_native(episode.reward, place))
        if rewards[-1].shape != (steps,):
            _refuse(place, f"shape {rewards[-1].shape}", f"({steps},)", "give one reward an action")
    joined = np.concatenate(rewards)
    return joined if joined.dtype == np.float32 else joined.astype(np.float64)


def _check_shapes(obs: np.ndarray, action: np.ndarray, first_obs, first_action, where: str) -> None:
    """T + 1 observations and T actions, each like those of the first episode."""
    if action.size == 0 or action.ndim == 0:
        _refuse(where, "no actions", "at least one", "leave empty episodes out")
    steps, rows = len(action), len(obs) if obs.ndim else 0
    if rows != steps + 1:
        remedy = "include the observation the last action led to"
        _refuse(where, f"{rows} observations and {steps} actions", f"{steps + 1} observations", remedy)
    for name, one, first in (("observations", obs, first_obs), ("actions", action, first_action)):
        if one.shape[1:] != first.shape[1:]:
            expected = f"{first.shape[1:]}, as in episode 0"
            _refuse(where, f"{name} of shape {one.shape[1:]}", expected, "keep data of different tasks apart")


def _check_columns(columns: dict, where: str) -> None:
    """Kinds, shapes and lengths."""
    for name in ("obs", "action"):
        shape = columns[name].shape
        if columns[name].size == 0 or not shape:
            _refuse(f"{where}, {name}", f"nothing (shape {shape})", "at least one entry", "give data with transitions")
    for name, dtypes in COLUMNS.items():
        column = columns[name]
        if column is not None and (column.dtype not in dtypes or column.ndim != 1):
            got, kinds = f"{column.dtype} of shape {column.shape}", " or ".join(np.dtype(d).name for d in dtypes)
            _refuse(f"{where}, {name}", got, f"{kinds} of shape (N,)", "store one such number a transition")
    lengths = {k: len(v) for k, v in columns.items() if k != "obs" and v is not None}
    if len(set(lengths.values())) != 1:
        got = "columns of lengths " + ", ".join(f"{k} {v}" for k, v in lengths.items())
        _refuse(where, got, "equal lengths", "store one entry a transition in each")


def _check_names(names: tuple[str, ...], where: str) -> None:
    for i, name in enumerate(names):
        if not (isinstance(name, str) and name and name.isprintable()):
            _refuse(f"{where}, names[{i}]", repr(name), "printable text", "rename this demonstrator")
    if len(set(names)) < len(names):
        again = next(name for name, count in Counter(names).items() if count > 1)
        _refuse(f"{where}, names", f"{again!r} twice", "different names", "rename one, or merge the two")


def _first(bad: Bool[np.ndarray, " N"]) -> int | None:
    """Index of the first True, if any."""
    index = int(np.argmax(bad))
    return index if bad[index] else None


def _place(data: Demonstrations, transition: int) -> str:
    first = np.searchsorted(data.episode, data.episode[transition])
    return f"episode {data.episode[transition]}, step {transition - first}"


def _check_episodes(data: Demonstrations, where: str) -> None:
    """Episodes are contiguous and numbered in order."""
    start = data.start
    number = np.asarray(data.episode)[start]
    odd = _first(number != np.arange(len(number)))
    if odd is None:
        return
    _, once = np.unique(number, return_index=True)
    if len(once) < len(number):
        again = np.setdiff1d(np.arange(len(number)), once)[0]
        got = f"a second part at transition {start[again]}"
        _refuse(f"{where}, episode {number[again]}", got, "one contiguous run", "sort the transitions by episode")
    _refuse(f"{where}, episode {odd}", f"the number {number[odd]}", odd, "number episodes 0, 1, 2, ... in order")


def _check_rows(data: Demonstrations, where: str) -> None:
    """Rows exist, follow each other within an episode, and lie end to end."""
    row, rows, expected = np.asarray(data.row), len(data.obs), _end_to_end(np.asarray(data.episode))
    bad = _first((row < 0) | (row >= rows - 1))
    if bad is not None:
        there = f"0 to {rows - 2}, for {rows} observations"
        _refuse(f"{where}, {_place(data, bad)}", f"row {row[bad]}", there, "store T + 1 observations an episode")
    bad = _first(row != expected)
    if bad is not None:
        remedy = "lay observations end to end, in order, T + 1 an episode"
        _refuse(f"{where}, {_place(data, bad)}", f"row {row[bad]}", expected[bad], remedy)
    if rows != expected[-1] + 2:
        remedy = "leave out the observations that no episode uses"
        _refuse(f"{where}, obs", f"{rows} rows", f"{expected[-1] + 2}: T + 1 an episode", remedy)


def _check_owners(data: Demonstrations, where: str) -> None:
    """Every episode has one demonstrator, every demonstrator an episode."""
    demonstrator, count, owner = np.asarray(data.demonstrator), data.demonstrators, data.owner[data.episode]
    bad = _first((demonstrator < 0) | (demonstrator >= count))
    if bad is not None:
        got, expected = f"demonstrator {demonstrator[bad]}", f"0 to {count - 1}, for {count} names"
        _refuse(f"{where}, {_place(data, bad)}", got, expected, "number demonstrators from 0, and name each")
    bad = _first(demonstrator != owner)
    if bad is not None:
        got, expected = f"demonstrator {demonstrator[bad]}", f"{owner[bad]}, as at the episode's first step"
        _refuse(f"{where}, {_place(data, bad)}", got, expected, "split the episode where the demonstrator changes")
    bad = _first(np.bincount(demonstrator, minlength=count) == 0)
    if bad is not None:
        place = f"{where}, demonstrator {bad} ({data.names[bad]!r})"
        _refuse(place, "no transitions", "at least one", "remove the name, or add the episodes")


def _check_flags(data: Demonstrations, where: str) -> None:
    """An episode ends at its last step and nowhere else."""
    done = np.asarray(data.terminated | data.truncated)
    last = np.zeros(len(done), bool)
    last[data.start + data.length - 1] = True
    bad = _first(done != last)
    if bad is not None and last[bad]:
        remedy = "set truncated if the recording just stops there"
        _refuse(f"{where}, {_place(data, bad)}", "neither terminated nor truncated", "one at the last step", remedy)
    if bad is not None:
        got = "terminated" if data.terminated[bad] else "truncated"
        expected = f"neither before the last step, {data.length[data.episode[bad]] - 1}"
        _refuse(f"{where}, {_place(data, bad)}", got, expected, "start a new episode after it")


def _check_finite(data: Demonstrations, where: str) -> None:
    for name in ("obs", "action", "reward"):
        values = getattr(data, name)
        if values is None or values.dtype.kind != "f":
            continue
        with np.errstate(invalid="ignore"):  # extremes first: they need no mask as large as the data
            if np.isfinite(values.min()) and np.isfinite(values.max()):
                continue
        at = [int(i) for i in np.unravel_index(np.argmin(np.isfinite(values)), values.shape)]
        first = data.start + (np.arange(data.episodes) if name == "obs" else 0)
        episode = int(np.searchsorted(first, at[0], side="right")) - 1
        entry = str(at[1:]) if len(at) > 1 else ""
        place = f"{where}, episode {episode}, step {at[0] - first[episode]}, {name}{entry}"
        _refuse(place, values[tuple(at)], "a finite number", "mend it, or leave the episode out")
