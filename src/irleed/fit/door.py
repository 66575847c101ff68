"""The front door: `irleed.fit`."""

import dataclasses
from pathlib import Path
from typing import Any, overload

import numpy as np

from irleed.data import Demonstrations, ReadOptions, load
from irleed.envs.mdp import FiniteMDP, Gridworld, load_mdp
from irleed.errors import ConfigError
from irleed.fit.networks import NetworkFit, fit_networks
from irleed.fit.tabular import Fit
from irleed.fit.tabular import fit as fit_tables

Data = Demonstrations | str | Path


@overload
def fit(
    data: Data, mdp: FiniteMDP | Gridworld | str | Path, *, reading: ReadOptions | None = None, **settings: Any
) -> Fit: ...


@overload
def fit(data: Data, mdp: None = None, *, reading: ReadOptions | None = None, **settings: Any) -> NetworkFit: ...


def fit(
    data: Data,
    mdp: FiniteMDP | Gridworld | str | Path | None = None,
    *,
    reading: ReadOptions | None = None,
    **settings: Any,
) -> Fit | NetworkFit:
    """Learn a policy and everyone's expertise: in a finite MDP with tables, without one with networks.

    **Arguments:**

    - `data`: demonstrations, or the path of a file or folder of any format that is known.
    - `mdp`: where they were made, if that is a finite MDP: the MDP, a gridworld, or the path of a file.
    - `reading`: of a path, see `irleed.data.ReadOptions`.
    - `settings`: those of `irleed.fit.tabular.fit` with an MDP, of `irleed.fit.networks` without.
    """
    path, reading = None if isinstance(data, Demonstrations) else str(data), reading or ReadOptions()
    if not isinstance(data, Demonstrations):
        data = load(data, reading)
    grid = None
    if isinstance(mdp, str | Path):
        mdp, grid = load_mdp(mdp, reading.expansion)
    elif isinstance(mdp, Gridworld):
        mdp, grid = mdp.mdp, (mdp.rows, mdp.columns)
    if mdp is None and of_states(data):
        got, expected = "none", "the MDP whose states these observations are the numbers of"
        raise ConfigError("mdp", got=got, expected=expected, remedy="give it")
    found = fit_networks(data, **settings) if mdp is None else fit_tables(data, mdp, **settings)
    return dataclasses.replace(found, origin=dataclasses.replace(found.origin, path=path, reading=reading, grid=grid))


def of_states(data: Demonstrations) -> bool:
    """Whether observations are one whole number each: the states of an MDP, of which a network could make nothing."""
    obs = np.asarray(data.obs)
    return obs.ndim == 1 and bool(np.all(obs == np.floor(obs)))
