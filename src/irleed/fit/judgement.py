"""What an ensemble of networks says about the demonstrators."""

import dataclasses
from typing import Any

import jax
import numpy as np

from irleed._typing import Float
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.data.transitions import Transitions
from irleed.fit.consensus import Consensus
from irleed.model.expertise import INTERVAL, Expertise

ROWS = 1024  # transitions in a batch


def judge(
    names: tuple[str, ...], algorithm: AbstractOffline | AbstractAgent, parameters: Any, data: Transitions
) -> Expertise:
    """The skill of each demonstrator by K sets of parameters along a leading axis; see `fit_networks`."""
    who, count = np.asarray(data.demonstrator), len(names)
    transitions = np.bincount(who, minlength=count).astype(float)
    likelihood, bias, shared = (
        np.stack([np.bincount(who, own, count) for own in np.asarray(column, float).T]) / transitions
        for column in _measured(algorithm, parameters, data)
    )
    precision = np.exp(_middle_and_ends(np.asarray(_log_precision(algorithm, parameters, data), float)))
    ratio = _middle_and_ends(np.sqrt(bias / np.where(shared > 0, shared, np.nan)))
    share = precision[0] * transitions
    return Expertise(
        names=names,
        transitions=transitions,
        precision=precision[0],
        precision_low=precision[1],
        precision_high=precision[2],
        bias=ratio[0],
        bias_low=ratio[1],
        bias_high=ratio[2],
        log_likelihood=likelihood.mean(0),
        weight=share / share.sum(),
    )


def by_the_others(found: Expertise, judged: Consensus) -> Expertise:
    """The same with skill and precision as the others' policies say, see `irleed.fit.consensus`."""
    tail, posterior = (1 - INTERVAL) / 2, judged.posterior
    low, high = posterior.skill_interval(INTERVAL)
    return dataclasses.replace(
        found,
        precision=posterior.precision(0.5),
        precision_low=posterior.precision(tail),
        precision_high=posterior.precision(1 - tail),
        bias=np.nan_to_num(found.bias),  # 0 where biases did not make held-out actions more probable
        weight=judged.weight / judged.weight.sum(),
        skill=posterior.skill,
        skill_low=low,
        skill_high=high,
    )


def _middle_and_ends(draws: Float[np.ndarray, "K D"]) -> Float[np.ndarray, "3 D"]:
    """The median over the members and the two ends of the interval; one member has none."""
    tail = (1 - INTERVAL) / 2
    found = np.quantile(draws, [0.5, tail, 1 - tail], axis=0)
    if len(draws) == 1:
        found[1:] = np.nan
    return found


@jax.jit
def _measured(algorithm, parameters, data):
    """Of every transition and member: log probability of the action, mean squares of bias and of shared values."""

    def row(seen):
        obs, action, who = seen

        def one(own):
            found = algorithm.describe(own, obs, action, who)
            return found.log_prob, found.bias, found.shared

        return jax.vmap(one)(parameters)

    return jax.lax.map(row, (data.obs, data.action, data.demonstrator), batch_size=ROWS)


@jax.jit
def _log_precision(algorithm, parameters, data):
    return jax.vmap(lambda own: algorithm.log_precision(own, data))(parameters)
