"""The experiment with real demonstrators: every method is fitted to the first part of every file."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from irleed._typing import Float
from irleed.data.transitions import are_choices
from irleed.experiments.people.config import PeopleConfig, check
from irleed.experiments.people.data import Part, part_of
from irleed.fit.defaults import Method, network_algorithm
from irleed.fit.door import fit
from irleed.runs.directory import fingerprint, keep, kept, plain

ESTIMATES = ("skill", "precision", "bias", "log_likelihood", "weight")


@dataclass(frozen=True)
class Outcome:
    """What came of it all."""

    parts: tuple[Part, ...]
    estimates: dict[tuple[str, str], dict[str, Float[np.ndarray, " D"]]]  # by file and method
    seconds: dict[str, float] = field(default_factory=dict)


def sweep(config: PeopleConfig, progress: Callable[..., None]) -> Outcome:
    """Every method on every file; what an earlier run with the same settings has left in the folder is taken."""
    check(config)
    outcome = Outcome(tuple(part_of(path, table, config) for path, table in config.table_of.items()), {})
    methods = tuple(dict.fromkeys(config.methods))
    total = 1_000 * len(outcome.parts) * len(methods)
    for part in outcome.parts:
        for method in methods:
            before = 1_000 * len(outcome.estimates)

            def told(done: int, steps: int, before: int = before, **figures: float) -> None:
                progress(before + 1_000 * done // steps, total, **figures)

            found, seconds = _estimates(config, part, method, told)
            outcome.estimates[part.name, method], outcome.seconds[f"{part.name}_{method}"] = found, seconds
    return outcome


def _estimates(
    config: PeopleConfig, part: Part, method: str, told: Callable[..., None]
) -> tuple[dict[str, Float[np.ndarray, " D"]], float]:
    """What a method says of each demonstrator of the first part, and the seconds it took."""
    settings = config.fit_settings
    algorithm = network_algorithm(cast(Method, method), continuous=not are_choices(part.data))
    known = {"data": fingerprint(part.data), "method": method, **settings, **plain(algorithm, "algorithm")}
    path = config.out / "parts" / f"{part.name}_{method}.npz"
    arrays = kept(path, known)
    if arrays is None:
        began = time.monotonic()
        found = fit(part.data, algorithm=cast(Method, method), progress=told, warn=lambda line: None, **settings)
        columns = {name: getattr(found.expertise, name) for name in ESTIMATES}
        arrays = {name: np.asarray(values, float) for name, values in columns.items() if values is not None}
        arrays["seconds"] = np.asarray(time.monotonic() - began)
        keep(path, known, arrays)
    seconds = float(arrays.pop("seconds"))
    return arrays, seconds
