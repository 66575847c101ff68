"""The methods compared on CartPole and LunarLander, and how each learns from all data sets at once."""

from typing import Literal

import equinox as eqx
import jax
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithms.agent import AbstractAgent
from irleed.algorithms.base import AbstractOffline
from irleed.algorithms.baselines import BehaviourCloning, Ileed, Sqil
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed
from irleed.algorithms.training import train_all
from irleed.data.transitions import Transitions
from irleed.experiments.control_data import DEMONSTRATORS
from irleed.policies.actor import EnsembleActor
from irleed.rollout import AbstractBackend, greedy_action, sampled_action
from irleed.runs.checkpoint import Checkpointer

MethodName = Literal[
    "irleed", "iq", "irleed_failure", "iq_failure", "ileed", "bc", "bc_best",
    "irleed_online", "iq_online", "irleed_failure_online", "iq_failure_online", "sqil",
    "irleed_paper", "iq_paper",
]  # fmt: skip
METHODS: dict[str, AbstractOffline | AbstractAgent] = {
    "irleed": OfflineIrleed(),
    "iq": OfflineIrleed.iq(),
    "irleed_failure": OfflineIrleed.failure(),
    "iq_failure": OfflineIrleed.failure(**IQ_LEARN),
    "ileed": Ileed(),
    "bc": BehaviourCloning(),
    "bc_best": BehaviourCloning(),
    "irleed_online": OnlineIrleed(),
    "iq_online": OnlineIrleed.iq(),
    "irleed_failure_online": OnlineIrleed.failure(),
    "iq_failure_online": OnlineIrleed.failure(**IQ_LEARN),
    "sqil": Sqil(),
    "irleed_paper": OfflineIrleed.paper(),
    "iq_paper": OfflineIrleed.paper(**IQ_LEARN),
}
ORACLES = ("bc_best",)  # learn from the best third of the episodes by their true returns, which nobody else sees


class Lanes(eqx.Module):
    """What one method got out of the data sets; leading axes settings and seeds."""

    greedy: Float[Array, "*lanes"]  # mean return of the greedy actions
    sampled: Float[Array, "*lanes"]  # and of sampled ones
    log_precision: Float[Array, "*lanes D"]
    diverged: Int[Array, "*lanes"]  # step at which the loss of a member was no number; -1: none


def learn(
    key: Key,
    backend: AbstractBackend,
    method: AbstractOffline | AbstractAgent,
    data: Transitions,
    episodes: int = 20,
    checkpointer: Checkpointer | None = None,
    members: int = 1,
) -> Lanes:
    """Train on every data set of a stack, from where the checkpointer has them, and let the last policies play.

    So many members learn from each data set, and the mean of their log probabilities plays; their precisions are
    geometric means.
    """
    train_key, greedy_key, sampled_key = jax.random.split(key, 3)
    data = jax.tree.map(lambda leaf: np.repeat(leaf, members, 0), data)
    keys = jax.random.split(train_key, data.size.shape[0])
    if isinstance(method, AbstractAgent):
        state = backend.learn(method, keys, data, DEMONSTRATORS, checkpointer=checkpointer)[0].learner
    else:
        state, _ = train_all(method, keys, data, backend.actions, DEMONSTRATORS, checkpointer=checkpointer)

    def together(leaf: Array) -> Array:
        return leaf.reshape(-1, members, *leaf.shape[1:])

    policies = jax.tree.map(together, jax.vmap(method.policy)(state.parameters))
    policies = EnsembleActor(policies)
    log_precision = np.asarray(jax.vmap(method.log_precision)(state.parameters, data))
    return Lanes(
        greedy=backend.returns(greedy_key, policies, greedy_action, episodes).mean(1),
        sampled=backend.returns(sampled_key, policies, sampled_action, episodes).mean(1),
        log_precision=together(log_precision).mean(1),
        diverged=together(np.asarray(state.diverged)).max(1),
    )
