"""Which algorithm describes demonstrators best: by episodes that it has not learnt from."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Bool, Float
from irleed.algorithm import AbstractOffline
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, stack
from irleed.errors import ConfigError, problem
from irleed.fit_checks import too_large
from irleed.iq.suitable import suitable
from irleed.run import Progress, train_all

FOLDS, EVERY = 2, 5
SCALES = np.exp(np.linspace(-3, 1, 41)).astype(np.float32)
ROWS = 1024  # transitions looked at together


def held_out(
    algorithms: Mapping[str, AbstractOffline],
    data: Demonstrations,
    actions: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Mean log likelihood of the actions in held-out episodes, by algorithms for choices between so many actions.

    Twice, every fifth episode of each demonstrator is held out, one at least of whoever has more than one. Likelihoods
    are those at the best of some scales: who is too sure can still be right about what is likelier, and scale is not
    what a policy is judged by. An algorithm that diverges makes nothing likely.
    """
    why = hindrance(data)
    if why is not None:
        expected = "several people, someone with two episodes, one of which can be held out, and room for the rest"
        raise ConfigError(problem("held-out likelihood", got=why, expected=expected, remedy="choose yourself"))
    shown, others = (stack(part) for part in folds(data))
    keys, found = jax.random.split(jax.random.key(seed), FOLDS), {}
    total = sum(algorithm.steps for algorithm in algorithms.values())
    for name, algorithm in algorithms.items():
        before = sum(algorithms[other].steps for other in found)
        told = None if progress is None else functools.partial(_told, progress, before, total)
        state, _ = train_all(algorithm, keys, shown, actions, data.demonstrators, told)
        found[name] = float(likelihood(algorithm, state.parameters, others)[0])
    return found


def by_biases(
    data: Demonstrations, actions: int, *, steps: int | None = None, seed: int = 0, progress: Progress | None = None
) -> dict[str, float]:
    """Held-out likelihood of IRLEED with `small` biases and with `large` ones, see `irleed.iq.soft_q.SoftQ.apart`."""
    sizes = {"small": suitable(data.demonstrators), "large": suitable(data.demonstrators, apart=True)}
    given = {} if steps is None else {"steps": steps}
    algorithms = {size: cast(AbstractOffline, dataclasses.replace(own, **given)) for size, own in sizes.items()}
    return held_out(algorithms, data, actions, seed=seed, progress=progress)


def hindrance(data: Demonstrations) -> str | None:
    """What stands in the way of choosing by episodes that are held out, if anything does."""
    if data.demonstrators == 1:
        return "one demonstrator alone"
    if too_large(data, FOLDS):
        return "more than memory should hold"
    return None if _held(data, 0).any() else "one episode of each demonstrator"


def folds(data: Demonstrations, every: int = 1) -> tuple[list[Transitions], list[Transitions]]:
    """What is learnt from, and what is held out, each time; of either every so manieth transition of an episode."""
    held = [_held(data, fold) for fold in range(FOLDS)]
    learnt = [Transitions.from_demonstrations(data, every, ~own) for own in held]
    return learnt, [Transitions.from_demonstrations(data, every, own) for own in held]


def likelihood(algorithm: AbstractOffline, parameters: Any, others: Transitions) -> Float[np.ndarray, " L"]:
    """Mean log likelihood of what was held out of each data set, its folds next to each other; -inf if diverged."""
    each = np.asarray(_likelihood(algorithm, parameters, others)).reshape(-1, FOLDS)
    return np.nan_to_num(each.mean(1), nan=-np.inf)


def _held(data: Demonstrations, fold: int) -> Bool[np.ndarray, " E"]:
    """Which episodes are held out."""
    held = np.zeros(data.episodes, bool)
    for person in range(data.demonstrators):
        own = np.flatnonzero(data.owner == person)
        if len(own) > 1:
            held[own[fold :: min(EVERY, len(own))]] = True
    return held


def _told(progress: Progress, before: int, total: int, done: int, _: int, **figures: float) -> None:
    progress(before + done, total, **figures)


@jax.jit
def _likelihood(algorithm, parameters, data):
    """Of each fold, the mean over its transitions at the best scale."""

    def fold(own, rows):
        def one(row):
            obs, who, action = row
            log_policy = algorithm.view(own, obs, who).log_policy
            return jax.nn.log_softmax(SCALES[:, None] * log_policy[None])[:, action]

        found = jax.lax.map(one, (rows.obs, rows.demonstrator, rows.action), batch_size=ROWS)
        there = jnp.arange(len(found)) < rows.size  # the rest fills up
        return jnp.max(jnp.sum(jnp.where(there[:, None], found, 0.0), 0)) / rows.size

    return jax.vmap(fold)(parameters, data)
