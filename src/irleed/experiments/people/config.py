"""Settings of the experiment with real demonstrators."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import tyro

from irleed.errors import ConfigError
from irleed.fit.networks import MEMBERS

MethodName = Literal["irleed", "ileed", "bc", "iq"]
Split = Literal["auto", "episodes", "halves"]
QUICK_STEPS = 1_000


@dataclass(frozen=True)
class PeopleConfig:
    """Real demonstrators with known scores: estimates from a first part of their data beside the score of the rest."""

    data: tyro.conf.Positional[tuple[Path, ...]]
    """Files of demonstrations, each on its own."""
    out: Path
    """Folder for results.json and the figures. A run that was stopped goes on from what is there."""
    scores: tuple[Path, ...] = ()
    """Tables of scores, one for each file in this order; by default NAME_scores.csv beside NAME.npz."""
    score: str | None = None
    """Column of the score; by default the first of score_second_half (halves), score, return, success and reward."""
    split: Split = "auto"
    """episodes: fit the even episodes of each demonstrator, scored by the mean of the odd ones. halves: fit the first
    half of each episode, scored by what the table says of the rest. auto: episodes where scores are by episode."""
    without: int | None = None
    """Leave out this action, as idle, before fitting; trivial statistics count it."""
    actions: tuple[int, ...] = ()
    """Discrete actions whose shares are trivial statistics besides."""
    methods: tuple[MethodName, ...] = get_args(MethodName)[:3]
    """What to compare."""
    members: int = MEMBERS
    """Members of the ensemble of each method."""
    steps: int | None = None
    """Updates of each method; by default its own."""
    seed: int = 0
    """The random seed."""
    quick: bool = False
    """One member and 1,000 updates, for a first look."""

    @property
    def table_of(self) -> dict[Path, Path]:
        """The table of scores of each file."""
        beside = tuple(path.with_name(f"{path.stem}_scores.csv") for path in self.data)
        return dict(zip(self.data, self.scores or beside, strict=True))

    @property
    def fit_settings(self) -> dict[str, Any]:
        """Arguments of `irleed.fit`, as they will be."""
        changes = {"members": 1, "steps": QUICK_STEPS} if self.quick else {}
        return {"members": self.members, "steps": self.steps, "seed": self.seed, **changes}


def check(config: PeopleConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    for name in ("data", "methods"):
        if not getattr(config, name):
            raise ConfigError(name, got="none", expected="at least one", remedy="name some")
    if config.scores and len(config.scores) != len(config.data):
        got, expected = f"{len(config.scores)} tables", f"{len(config.data)}, one for each file"
        raise ConfigError("--scores", got=got, expected=expected, remedy="give them in the order of the files")
    stems = [path.stem for path in config.data]
    if len(set(stems)) < len(stems):
        expected, remedy = "different names, which results are called by", "rename one"
        raise ConfigError("data", got=", ".join(stems), expected=expected, remedy=remedy)
    for name in ("members", "steps"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name}", got=value, expected="1 or more", remedy="choose a larger number")
    missing = [path for path in config.table_of.values() if not path.is_file()]
    if missing:
        remedy = "name it with --scores, or put it there"
        raise ConfigError(f"scores {missing[0]}", got="no file", expected="a table of scores", remedy=remedy)
