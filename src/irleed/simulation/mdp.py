"""`irleed.simulate`: demonstrations in a finite MDP from demonstrators of known precision and bias."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._compute import in_double_precision
from irleed._typing import Array, Float, Key, Scalar
from irleed.algorithms.tabular.planning import AbstractPlanner, Reward, Soft, by_action
from irleed.algorithms.tabular.visitation import Rollout, rollout
from irleed.data import Demonstrations
from irleed.envs.mdp import FiniteMDP
from irleed.errors import ConfigError
from irleed.model import perceived

SOFT = Soft()


class Skill(NamedTuple):
    """Sampled precision and bias, not in the gauge."""

    precision: Float[Array, " D"]
    bias: Float[Array, "D F"]


class Truth(eqx.Module):
    """True parameters of a simulated data set; precisions are as sampled, not in the gauge."""

    precision: Float[Array, " D"]
    bias: Float[Array, "D F"]
    weights: Float[Array, " F"] | None  # None: the reward is a table by state and action, `mdp.reward`


def sample_demonstrators(
    key: Key, demonstrators: int, features: int, *, max_precision: Scalar, accuracy: Scalar
) -> Skill:
    r"""Draw $\beta_i \sim U(0, \texttt{max\_precision})$ and $\epsilon_i \sim N(0, 1/\texttt{accuracy}^2)$.

    An infinite accuracy means no bias.
    """
    precision_key, bias_key = jax.random.split(key)
    return Skill(
        precision=jax.random.uniform(precision_key, (demonstrators,), float) * max_precision,
        bias=jax.random.normal(bias_key, (demonstrators, features), float) / accuracy,
    )


def simulate_rollouts(
    key: Key,
    mdp: FiniteMDP,
    planner: AbstractPlanner,
    precision: Float[Array, " D"],
    bias: Float[Array, "D F"],
    episodes: int,
    horizon: int,
    plan_mdp: FiniteMDP | None = None,
    weights: Float[Array, " F"] | None = None,
) -> Rollout:
    """Episodes of every demonstrator, with leading axes D, E.

    Demonstrators plan with `plan_mdp`, by default the MDP they act in. Without `weights`, which is for MDPs without
    features, the reward is `mdp.reward`.
    """
    weights = true_weights(mdp) if weights is None else weights
    planned = mdp if plan_mdp is None else plan_mdp

    def one(own_key, own_precision, own_bias):
        policy = jax.nn.softmax(planner.q_values(planned, _pursued(planned, weights, own_precision, own_bias)))
        play = jax.vmap(lambda episode_key: rollout(episode_key, mdp, policy, horizon))
        return play(jax.random.split(own_key, episodes))

    return jax.vmap(one)(jax.random.split(key, len(precision)), precision, bias)


def _pursued(
    mdp: FiniteMDP, weights: Float[Array, " F"] | None, precision: Float[Array, ""], bias: Float[Array, " F"]
) -> Reward:
    r"""The reward of one demonstrator: $\beta(\theta + \epsilon)^\top f$, or $\beta(r + \epsilon^\top f)$ by table."""
    if weights is None:
        reward = jnp.asarray(mdp.reward)
        return perceived(jnp.broadcast_to(precision, reward.shape[:1]), reward, by_action(mdp, mdp.rewards(bias)))
    return mdp.rewards(perceived(precision, weights, bias))


@in_double_precision
def simulate(
    key: Key | int,
    mdp: FiniteMDP,
    *,
    planner: AbstractPlanner = SOFT,
    demonstrators: int = 5,
    demonstrations: int = 40,
    horizon: int = 100,
    max_precision: float = 5.0,
    accuracy: float = 4.0,
    endless: bool = False,
    weights: Float[Array, " F"] | None = None,
) -> tuple[Demonstrations, Truth]:
    """Draw demonstrators and record demonstrations of each; returns the data and the true parameters.

    **Arguments:**

    - `key`: a key, or a seed.
    - `demonstrations`: recorded episodes of each demonstrator, of at most `horizon` steps.
    - `planner`: how demonstrators plan; with `endless`, as if no state were terminal.
    - `max_precision`, `accuracy`: see `sample_demonstrators`.
    - `weights`: the true reward weights, needed where the MDP has features. Without them the true reward is
      `mdp.reward`; if that is a table by state and action, each demonstrator adds their bias to it state by state.
    """
    _check(mdp, demonstrators, demonstrations, horizon, max_precision, accuracy)
    given = true_weights(mdp) if weights is None else weights
    truth_weights = None if given is None else np.asarray(given, float)
    numbers = jnp.asarray(max_precision, float), jnp.asarray(accuracy, float)
    first_key = key if isinstance(key, jax.Array) else jax.random.key(key)
    skill, rollouts = _simulate(
        first_key, mdp, planner, truth_weights, *numbers, demonstrators, demonstrations, horizon, endless
    )
    skill, rollouts = jax.tree.map(np.asarray, (skill, rollouts))
    reward = mdp.rewards(truth_weights) if mdp.reward is None and truth_weights is not None else mdp.reward
    return _demonstrations(mdp, rollouts, np.asarray(reward)), Truth(*skill, weights=truth_weights)


def true_weights(mdp: FiniteMDP) -> Float[Array, " F"] | None:
    """The weights of `mdp.reward` where there are no features: a reward by state itself, None for one by action."""
    if mdp.reward is None or mdp.features is not None:
        reward = "no reward" if mdp.reward is None else f"a reward of shape {mdp.reward.shape}"
        got = f"an MDP with {'no ' if mdp.features is None else ''}features and {reward}"
        expected = "no features and a reward, or the weights of the features"
        raise ConfigError("true weights", got=got, expected=expected, remedy="pass `weights`")
    return mdp.reward if mdp.reward.ndim == 1 else None


@eqx.filter_jit
def _simulate(key, mdp, planner, weights, max_precision, accuracy, demonstrators, episodes, horizon, endless):
    skill_key, play_key = jax.random.split(key)
    skill = sample_demonstrators(
        skill_key, demonstrators, mdp.feature_count, max_precision=max_precision, accuracy=accuracy
    )
    plan_mdp = mdp.without_terminals() if endless else mdp
    return skill, simulate_rollouts(play_key, mdp, planner, *skill, episodes, horizon, plan_mdp, weights)


def _demonstrations(mdp: FiniteMDP, rollouts: Rollout, reward: np.ndarray) -> Demonstrations:
    """Lay the episodes end to end."""
    demonstrators, episodes, steps = rollouts.alive.shape
    alive = rollouts.alive.reshape(-1, steps)
    state = rollouts.states.reshape(-1, steps + 1)
    action = rollouts.actions.reshape(-1, steps)[alive]
    length = alive.sum(-1)
    episode = np.repeat(np.arange(len(alive), dtype=np.int32), length)
    here, there = state[:, :-1][alive], state[:, 1:][alive]
    last = np.zeros(len(episode), bool)
    last[np.cumsum(length) - 1] = True
    ended = np.asarray(mdp.terminal)[there]
    return Demonstrations.from_arrays(
        names=[f"demonstrator {i}" for i in range(demonstrators)],
        obs=state[np.concatenate([np.ones((len(alive), 1), bool), alive], -1)],
        row=np.arange(len(episode), dtype=np.int32) + episode,
        action=action,
        terminated=last & ended,
        truncated=last & ~ended,
        demonstrator=episode // np.int32(episodes),
        episode=episode,
        reward=reward[there] if reward.ndim == 1 else reward[here, action],
        where="simulated data",
    )


def _check(mdp: FiniteMDP, demonstrators, demonstrations, horizon, max_precision, accuracy) -> None:
    for name, value in (("demonstrators", demonstrators), ("demonstrations", demonstrations), ("horizon", horizon)):
        if value < 1:
            raise ConfigError(f"simulate, {name}", got=value, expected="1 or more", remedy="raise it")
    if not 0 <= max_precision < np.inf:
        expected = "a finite number from 0"
        raise ConfigError("simulate, max_precision", got=max_precision, expected=expected, remedy="choose, say, 5")
    if not accuracy > 0:
        remedy = "choose, say, 4, or inf for no bias"
        raise ConfigError("simulate, accuracy", got=accuracy, expected="above 0", remedy=remedy)
    if np.any(np.asarray(mdp.initial)[np.asarray(mdp.terminal)] > 0):
        got, remedy = "a terminal state to start in", "start in other states: such an episode has no actions"
        raise ConfigError("simulate, initial distribution", got=got, expected="states to act in", remedy=remedy)
