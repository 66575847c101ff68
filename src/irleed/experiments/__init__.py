"""The paper's experiments and one with people, and what their modules share.

- `gridworld`: five demonstrators in a gridworld (Figures 2 and 3).
- `control`: CartPole and LunarLander, offline and online (Table 1).
- `hopper`: Hopper from policies of several stages of training (Figure 4).
- `people`: real demonstrators with known scores, whose files the user has.

Each has a configuration with its `check`, `sweep` (runs it), `write` (results.json and figures) and `tables` (prints).

`published` reads the paper's figures, which results are compared with; nothing is trained on them. The files under
``published/`` have the authors' numbers: ``gridworld_121`` (Figure 3), ``table1_control`` (Table 1), ``table2_atari``
(Table 2) and ``hopper_curves`` (Figure 4).
"""

import csv
import importlib.resources
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from irleed._typing import Float
from irleed.errors import ConfigError
from irleed.runs.checkpoint import Checkpointer
from irleed.runs.directory import keep, kept


def check_least(settings: Any, **least: int) -> None:
    """Refuse numbers below a minimum; None is no number."""
    for name, low in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= low:
            flag, expected = f"--{name.replace('_', '-')}", f"{low} or more"
            raise ConfigError(flag, got=value, expected=expected, remedy="choose a larger number")


def check_chosen(settings: Any, *names: str) -> None:
    """Refuse empty choices."""
    for name in names:
        if not getattr(settings, name):
            raise ConfigError(f"--{name}", got="none", expected="at least one", remedy="name some")


def check_steps(name: str, steps: int, learning_starts: int) -> None:
    """Refuse online runs that end before learning starts."""
    if steps <= learning_starts:
        expected = f"more than {learning_starts}: the first steps only fill the replay buffer"
        raise ConfigError(name, got=steps, expected=expected, remedy="choose more")


def computed_once(
    file: Path,
    fingerprint: Mapping[str, object],
    compute: Callable[[Checkpointer], Mapping[str, np.ndarray]],
    checkpoint_every: float | None = None,
) -> tuple[dict[str, np.ndarray], float]:
    """Arrays of a part of an experiment, from its file or computed with checkpoints; and the seconds it took."""
    arrays = kept(file, fingerprint)
    if arrays is None:
        began, identity = time.perf_counter(), repr(sorted(fingerprint.items()))
        with Checkpointer(file.with_suffix(""), identity, every=checkpoint_every) as checkpointer:
            found = compute(checkpointer)
            arrays = {**found, "seconds": np.asarray(checkpointer.earlier + time.perf_counter() - began)}
            keep(file, fingerprint, arrays)
            checkpointer.clear()
    return arrays, float(arrays.pop("seconds"))


def results_table(title: str, caption: str, headings: Iterable[object]) -> Table:
    """An empty table with a column of row names, and one for each heading."""
    table = Table("", title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(str(heading), justify="right", no_wrap=True)
    return table


# A row is a setting of the largest precision, a column one of the accuracy.
Cells = Float[np.ndarray, "P L"]


class PublishedGridworld(NamedTuple):
    """Figure 3: mean return in each of the 121 data set settings."""

    max_precision: Float[np.ndarray, " P"]  # the largest beta that demonstrators were drawn with
    accuracy: Float[np.ndarray, " L"]  # lambda; infinite: no bias
    demonstrators: Cells
    irl: Cells
    irleed: Cells

    @property
    def improvement(self) -> Cells:
        """Relative improvement of IRLEED over maximum-entropy IRL: 0.3 is 30 %."""
        return self.irleed / self.irl - 1


def published_gridworld() -> PublishedGridworld:
    """The gridworld experiment's published returns."""
    rows = published("gridworld_121")
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    max_precision, accuracy = np.unique(columns["beta_max"]), np.unique(columns["lambda"])
    order = np.lexsort((columns["lambda"], columns["beta_max"]))  # by row, then by column
    shape = len(max_precision), len(accuracy)
    returns = (columns[name][order].reshape(shape) for name in ("demonstrators", "irl", "irleed"))
    return PublishedGridworld(max_precision, accuracy, *returns)


def published(name: str) -> list[dict[str, str]]:
    """The rows of one of the files, as text by column name."""
    file = importlib.resources.files("irleed.experiments") / "published" / f"{name}.csv"
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
