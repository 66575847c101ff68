"""Demonstrations, the only data set type."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import equinox as eqx
import numpy as np
from numpy.typing import ArrayLike

from irleed._typing import Array, Bool, Float, Int, Shaped
from irleed.data import lazy
from irleed.data import validation as checks
from irleed.data.lazy import LazyRows
from irleed.data.validation import COLUMNS, check_columns, check_shapes, end_to_end, listed, native, refuse, starts
from irleed.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Episode:
    """One recorded episode, for `Demonstrations.from_episodes`."""

    obs: ArrayLike | LazyRows  # T + 1 observations: the last one is the state that the last action led to
    action: ArrayLike  # T actions
    terminated: bool | np.bool_  # whether a terminal state was reached; else the episode was truncated
    demonstrator: SupportsIndex | str  # number or name
    reward: ArrayLike | None = None  # T rewards


class Demonstrations(eqx.Module):
    """Transitions of D demonstrators, episode after episode, as NumPy arrays; many observations may stay on disk.

    Build one with `from_episodes`, `from_arrays` or `irleed.data.load`, which validate their inputs. Episodes lie
    end to end: an episode of T transitions has T + 1 rows of `obs`, and no observation is stored twice.
    """

    obs: Shaped[Array | LazyRows, "R *obs"]
    row: Int[Array, " N"]  # obs[row] is s, obs[row + 1] is s'
    action: Shaped[Array, "N *act"]
    terminated: Bool[Array, " N"]  # a terminal state was reached: do not bootstrap
    truncated: Bool[Array, " N"]  # the time limit was reached: bootstrap
    demonstrator: Int[Array, " N"]  # 0 .. D-1
    episode: Int[Array, " N"]  # 0 .. E-1, in order
    reward: Float[Array, " N"] | None  # for checks and reports, never for learning
    names: tuple[str, ...] = eqx.field(static=True)  # of the demonstrators
    part_of: Int[Array, " E"] | None = None  # the recording of each episode, if `without` has cut some

    @classmethod
    def from_arrays(
        cls, names: Sequence[str], *, reward: ArrayLike | None = None, where: str = "data", **columns: Any
    ) -> "Demonstrations":
        """Build from arrays of all fields, validated. Error messages call the data `where`."""
        missing = [f for f in ("obs", "action", *COLUMNS) if f not in columns and f != "reward"]
        if missing:
            refuse(where, f"no {', '.join(missing)}", "every field of Demonstrations", "give the arrays by keyword")
        obs = columns.pop("obs")
        obs = lazy.settled(obs) if isinstance(obs, LazyRows) else native(obs, f"{where}, obs")
        arrays = {name: native(values, f"{where}, {name}") for name, values in columns.items()}
        rewards = None if reward is None else native(reward, f"{where}, reward")
        # Before the class checks types, with a less clear message.
        check_columns({"obs": obs, **arrays, "reward": rewards}, where)
        demonstrations = cls(obs=obs, **arrays, reward=rewards, names=tuple(names))
        demonstrations.validate(where)
        return demonstrations

    @classmethod
    def from_episodes(
        cls, episodes: Iterable[Episode], names: Sequence[str] | None = None, *, where: str = "data"
    ) -> "Demonstrations":
        """Concatenate episodes. Without `names`, demonstrators have the names or numbers in the episodes."""
        episodes = list(episodes)
        if not episodes:
            refuse(where, "no episodes", "at least one", "give the episodes of every demonstrator")
        obs = [
            e.obs if isinstance(e.obs, LazyRows) else native(e.obs, f"{where}, episode {i}, obs")
            for i, e in enumerate(episodes)
        ]
        action = [native(e.action, f"{where}, episode {i}, action") for i, e in enumerate(episodes)]
        for i in range(len(episodes)):
            check_shapes(obs[i], action[i], obs[0], action[0], f"{where}, episode {i}")
        length = [len(a) for a in action]
        reward = _rewards(episodes, length, where)
        owner, names = _number([e.demonstrator for e in episodes], names, where)
        episode = np.repeat(np.arange(len(length), dtype=np.int32), length)
        last = np.zeros(len(episode), bool)
        last[np.cumsum(length) - 1] = True
        ended = np.array([bool(e.terminated) for e in episodes])[episode]
        return cls.from_arrays(
            obs=lazy.concatenate(obs),
            row=end_to_end(episode),
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
        """The observation before each action."""
        return self.obs[self.row]

    @property
    def next_observation(self) -> Shaped[Array, "N *obs"]:
        """The observation after each action."""
        return self.obs[self.row + 1]

    @property
    def start(self) -> Int[np.ndarray, " E"]:
        """The first transition of each episode."""
        return starts(np.asarray(self.episode))

    @property
    def length(self) -> Int[np.ndarray, " E"]:
        """Transitions of each episode."""
        return np.diff(self.start, append=self.transitions)

    @property
    def owner(self) -> Int[np.ndarray, " E"]:
        """The demonstrator of each episode."""
        return np.asarray(self.demonstrator)[self.start]

    @property
    def recordings(self) -> Int[np.ndarray, " E"]:
        """The number of the recording of each episode; parts of a recording that `without` has cut share one."""
        return np.arange(self.episodes) if self.part_of is None else np.asarray(self.part_of)

    def returns(self) -> Float[np.ndarray, " E"] | None:
        """Undiscounted return of each episode, if rewards are known."""
        return None if self.reward is None else np.add.reduceat(np.asarray(self.reward, np.float64), self.start)

    def take(self, episodes: Sequence[int] | Int[np.ndarray, " K"]) -> "Demonstrations":
        """These episodes, in this order, repeats allowed; demonstrators without episodes are dropped."""
        chosen = np.asarray(episodes, np.int64)
        bad = chosen[(chosen < 0) | (chosen >= self.episodes)]
        if len(chosen) == 0 or len(bad):
            got, expected = bad[0] if len(bad) else "no episodes", f"episodes of 0 to {self.episodes - 1}"
            raise ConfigError("take", got=got, expected=expected, remedy="see `episodes` for their number")
        return self._gather(chosen, np.unique(self.owner[chosen]))

    def select(self, demonstrators: Sequence[SupportsIndex | str]) -> "Demonstrations":
        """The data of these demonstrators, by number or name, renumbered in the order given."""
        number = {name: i for i, name in enumerate(self.names)}
        chosen = [number.get(d, -1) if isinstance(d, str) else int(d) for d in demonstrators]
        if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= d < self.demonstrators for d in chosen):
            expected = f"different demonstrators of {listed(self.names)} or their numbers from 0"
            got = list(demonstrators) or "none"
            raise ConfigError("select", got=got, expected=expected, remedy="see `names` for the demonstrators")
        return self._gather(np.flatnonzero(np.isin(self.owner, chosen)), np.array(chosen))

    def split(self) -> list[Episode]:
        """The episodes as a list, which shares the arrays: the inverse of `from_episodes`."""
        parts = []
        for first, length, row, who in zip(self.start, self.length, self.row[self.start], self.owner, strict=True):
            steps = slice(first, first + length)
            reward = None if self.reward is None else self.reward[steps]
            ended = bool(self.terminated[first + length - 1])
            obs = lazy.part(self.obs, row, row + length + 1)
            parts.append(Episode(obs, self.action[steps], ended, self.names[who], reward))
        return parts

    def without(self, transitions: Int[np.ndarray, " K"]) -> "Demonstrations":
        """The same data without these transitions; every demonstrator must have one left.

        The parts before and after a transition become separate episodes of one recording, see `recordings`.
        """
        keep = np.setdiff1d(np.arange(self.transitions), transitions)
        if len(keep) == self.transitions:
            return self
        gone = np.setdiff1d(np.arange(self.demonstrators), self.demonstrator[keep])
        if len(gone):
            got, remedy = f"all transitions of {self.names[gone[0]]!r}", "leave the demonstrator out with `select`"
            raise ConfigError("without", got=got, expected="at least one left of everyone", remedy=remedy)
        begins = (np.diff(keep, prepend=-2) != 1) | (np.diff(self.episode[keep], prepend=-1) != 0)
        start = np.flatnonzero(begins)
        length = np.diff(start, append=len(keep))
        episode = np.repeat(np.arange(len(start), dtype=self.episode.dtype), length)
        last = np.zeros(len(keep), bool)
        last[start + length - 1] = True
        return dataclasses.replace(
            self,
            obs=lazy.spans(self.obs, np.asarray(self.row)[keep[start]], length + 1),
            row=end_to_end(episode),
            action=self.action[keep],
            terminated=self.terminated[keep],
            truncated=self.truncated[keep] | (last & ~self.terminated[keep]),
            demonstrator=self.demonstrator[keep],
            episode=episode,
            reward=None if self.reward is None else self.reward[keep],
            part_of=self.recordings[self.episode[keep[start]]],
        )

    def by_episode(self) -> "Demonstrations":
        """The same data with a demonstrator for every episode, for unknown identities."""
        names = tuple(f"episode {i}" for i in range(self.episodes))
        return dataclasses.replace(self, demonstrator=self.episode, names=names, part_of=None)

    def by_owner(self, owner: Int[np.ndarray, " E"], names: tuple[str, ...]) -> "Demonstrations":
        """The same data with other demonstrators, each of whom has an episode."""
        demonstrator = np.asarray(owner, np.int32)[np.asarray(self.episode)]
        found = dataclasses.replace(self, demonstrator=demonstrator, names=names)
        found.validate()
        return found

    def validate(self, where: str = "data") -> None:
        """Raise a `DataError` for the first problem found."""
        checks.check({name: getattr(self, name) for name in ("obs", "action", *COLUMNS)}, self.names, where)

    def _gather(self, chosen: Int[np.ndarray, " K"], demonstrators: Int[np.ndarray, " d"]) -> "Demonstrations":
        """A copy of the chosen episodes, with demonstrators numbered by their place in `demonstrators`."""
        first, length = self.start[chosen], self.length[chosen]
        keep = lazy.spans(np.arange(self.transitions), first, length)
        place = np.zeros(self.demonstrators, self.demonstrator.dtype)
        place[demonstrators] = np.arange(len(demonstrators))
        episode = np.repeat(np.arange(len(chosen), dtype=self.episode.dtype), length)
        return Demonstrations(
            obs=lazy.spans(self.obs, np.asarray(self.row)[first], length + 1),
            row=end_to_end(episode),
            action=self.action[keep],
            terminated=self.terminated[keep],
            truncated=self.truncated[keep],
            demonstrator=place[self.demonstrator[keep]],
            episode=episode,
            reward=None if self.reward is None else self.reward[keep],
            names=tuple(self.names[d] for d in demonstrators),
            part_of=None if self.part_of is None else self._parts_taken(chosen),
        )

    def _parts_taken(self, chosen: Int[np.ndarray, " K"]) -> Int[np.ndarray, " K"]:
        """The recordings of these episodes, renumbered; each copy of an episode gets another recording."""
        seen: dict[int, int] = {}
        number: dict[tuple[int, int], int] = {}
        parts = []
        for episode, recording in zip(chosen.tolist(), self.recordings[chosen].tolist(), strict=True):
            seen[episode] = seen.get(episode, -1) + 1
            parts.append(number.setdefault((recording, seen[episode]), len(number)))
        return np.array(parts)


def _number(owners: list, names: Sequence[str] | None, where: str) -> tuple[Int[np.ndarray, " E"], tuple[str, ...]]:
    """Demonstrator of each episode as a number, and the names."""
    if names is None and all(isinstance(o, str) for o in owners):
        names = list(dict.fromkeys(owners))
    elif names is None:  # at most one for each episode: a wrong number must not make a billion names
        most = max(int(o) for o in owners if not isinstance(o, str))
        names = [f"demonstrator {i}" for i in range(min(most + 1, len(owners)))]
    number = {name: i for i, name in enumerate(names)}
    index = [number.get(o, -1) if isinstance(o, str) else int(o) for o in owners]
    bad = next((i for i, value in enumerate(index) if not 0 <= value < len(names)), None)
    if bad is not None:
        expected = f"one of {listed(names)} or their numbers from 0" if names else "a number from 0"
        remedy = "number demonstrators from 0 without gaps, or name them all"
        refuse(f"{where}, episode {bad}, demonstrator", repr(owners[bad]), expected, remedy)
    return np.array(index, np.int32), tuple(names)


def _rewards(episodes: list[Episode], length: list[int], where: str) -> Float[np.ndarray, " N"] | None:
    """The rewards of all episodes, or None if no episode has any."""
    if all(e.reward is None for e in episodes):
        return None
    rewards = []
    for i, (episode, steps) in enumerate(zip(episodes, length, strict=True)):
        place = f"{where}, episode {i}, reward"
        if episode.reward is None:
            refuse(place, "none", "rewards in all episodes or in no episode", "add them, or leave all out")
        rewards.append(native(episode.reward, place))
        if rewards[-1].shape != (steps,):
            refuse(place, f"shape {rewards[-1].shape}", f"({steps},)", "give one reward an action")
    joined = np.concatenate(rewards)
    return joined if joined.dtype == np.float32 else joined.astype(np.float64)
