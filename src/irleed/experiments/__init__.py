"""The paper's experiments and one with people, and what their modules share.

- `gridworld`: five demonstrators in a gridworld (Figures 2 and 3).
- `control`: CartPole and LunarLander, offline and online (Table 1).
- `hopper`: Hopper from policies of several stages of training (Figure 4).
- `people`: real demonstrators with known scores, whose files the user has.
- `paper`: the published figures, to compare with ours.

Each has a configuration with its `check`, `sweep` (runs it), `write` (results.json and figures) and `tables` (prints).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

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
