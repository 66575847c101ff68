"""The methods compared on CartPole and LunarLander, and how each learns from all data sets at once."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.baselines.ileed import Ileed
from irleed.algorithms.baselines.sqil import Sqil
from irleed.algorithms.iq.online import OnlineSoftQ
from irleed.algorithms.iq.soft_q import SoftQ
from irleed.algorithms.training import train_all
from irleed.data.transitions import Transitions
from irleed.experiments.control_data import DEMONSTRATORS
from irleed.policies.ensemble import NetworkPolicy
from irleed.rollout import AbstractArena, drawn, likeliest
from irleed.runs.checkpoint import Keeper

MethodName = Literal[
    "irleed", "iq", "irleed_survival", "iq_survival", "ileed", "bc", "bc_best",
    "irleed_online", "iq_online", "irleed_survival_online", "iq_survival_online", "sqil",
    "irleed_paper", "iq_paper",
]  # fmt: skip
EQUALS: dict[str, Any] = {"learn_precision": False, "learn_bias": False}  # what makes IQ-Learn of IRLEED
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed": SoftQ(),
    "iq": SoftQ(**EQUALS),
    "irleed_survival": SoftQ.survival(),
    "iq_survival": SoftQ.survival(**EQUALS),
    "ileed": Ileed(),
    "bc": BehaviourCloning(),
    "bc_best": BehaviourCloning(),
    "irleed_online": OnlineSoftQ(),
    "iq_online": OnlineSoftQ(learner=dataclasses.replace(OnlineSoftQ().learner, **EQUALS)),
    "irleed_survival_online": OnlineSoftQ.survival(),
    "iq_survival_online": OnlineSoftQ.survival(**EQUALS),
    "sqil": Sqil(),
    "irleed_paper": SoftQ.paper(),
    "iq_paper": SoftQ.paper(**EQUALS),
}
ORACLES = ("bc_best",)  # learn from the best third of the episodes by their true returns, which nobody else sees


class Lanes(eqx.Module):
    """What one method got out of the data sets; leading axes settings and seeds."""

    greedy: Float[Array, "*lanes"]  # mean return of the likeliest actions
    sampled: Float[Array, "*lanes"]  # and of drawn ones
    log_precision: Float[Array, "*lanes D"]
    diverged: Int[Array, "*lanes"]  # step at which the loss of a member was no number; -1: none


def learn(
    key: Key,
    arena: AbstractArena,
    method: AbstractOffline | AbstractAgent,
    data: Transitions,
    episodes: int = 20,
    keeper: Keeper | None = None,
    members: int = 1,
) -> Lanes:
    """Train on every data set of a stack, from where the keeper has them, and let the last policies play.

    So many members learn from each data set, and the mean of their log probabilities plays; their precisions are
    geometric means.
    """
    train_key, greedy_key, sampled_key = jax.random.split(key, 3)
    data = jax.tree.map(lambda leaf: np.repeat(leaf, members, 0), data)
    keys = jax.random.split(train_key, data.size.shape[0])
    if isinstance(method, AbstractAgent):
        state = arena.learn(method, keys, data, DEMONSTRATORS, keeper=keeper).learner
    else:
        state, _ = train_all(method, keys, data, arena.actions, DEMONSTRATORS, keeper=keeper)

    def together(leaf: Array) -> Array:
        return leaf.reshape(-1, members, *leaf.shape[1:])

    policies = jax.tree.map(together, jax.vmap(method.policy)(state.parameters))
    policies = jax.vmap(lambda own: NetworkPolicy(own).actor)(policies)
    log_precision = np.asarray(jax.vmap(method.log_precision)(state.parameters, data))
    return Lanes(
        greedy=arena.returns(greedy_key, policies, likeliest, episodes).mean(1),
        sampled=arena.returns(sampled_key, policies, drawn, episodes).mean(1),
        log_precision=together(log_precision).mean(1),
        diverged=together(np.asarray(state.diverged)).max(1),
    )
