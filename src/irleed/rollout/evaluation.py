"""What a policy does in an environment: whole episodes, and their returns."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import t as student

from irleed._typing import Array, Bool, Float, Key, Shaped
from irleed.data.demonstrations import Demonstrations
from irleed.envs.step import AbstractEnv
from irleed.model.expertise import INTERVAL
from irleed.policies.actor import AbstractActor

# From a key and an observation to an action.
Act = Callable[[Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


class Played(eqx.Module):
    """An episode, padded to the horizon; steps that are not `alive` were not taken. With leading axes, many."""

    obs: Shaped[Array, "..."]
    next_obs: Shaped[Array, "..."]
    action: Shaped[Array, "..."]
    reward: Float[Array, "*lanes T"]
    terminated: Bool[Array, "*lanes T"]
    alive: Bool[Array, "*lanes T"]

    @property
    def total(self) -> Float[Array, "*lanes"]:
        """The undiscounted return."""
        return jnp.sum(jnp.where(self.alive, self.reward, 0.0), -1)


def play(key: Key, env: AbstractEnv, act: Act) -> Played:
    """One episode from its start to its end."""
    reset_key, loop_key = jax.random.split(key)

    def step(carry, number):
        state, alive = carry
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, number))
        obs = env.observe(state)
        state, seen = env.step(env_key, state, act(act_key, obs))
        return (state, alive & ~(seen.terminated | seen.truncated)), (seen, alive)

    start = env.reset(reset_key), jnp.asarray(True)
    seen, alive = jax.lax.scan(step, start, jnp.arange(env.horizon))[1]
    return Played(seen.obs, seen.next_obs, seen.action, seen.reward, seen.terminated, alive)


def returns(key: Key, env: AbstractEnv, policy: AbstractActor, episodes: int, *, greedy: bool) -> Float[Array, " E"]:
    """Returns of so many episodes, by the greedy actions or by sampled ones."""

    def one(own):
        return play(own, env, lambda act_key, obs: policy.act(act_key, obs, greedy)).total

    return jax.vmap(one)(jax.random.split(key, episodes))


@dataclasses.dataclass(frozen=True)
class ReturnEstimate:
    """Mean return of so many episodes, and the 90 % interval of that mean; NaN for a single episode."""

    who: str
    episodes: int
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, who: str, returns: Float[Array, " E"]) -> "ReturnEstimate":
        """From the returns, by Student's distribution."""
        count, mean = len(returns), float(np.mean(returns))
        if count == 1:
            return cls(who, count, mean, math.nan, math.nan)
        margin = float(student.ppf((1 + INTERVAL) / 2, count - 1) * np.std(returns, ddof=1) / count**0.5)
        return cls(who, count, mean, mean - margin, mean + margin)

    def plain(self) -> dict[str, Any]:
        """For JSON, where NaN is null."""
        return {key: None if value != value else value for key, value in vars(self).items()}


def demonstrated(data: Demonstrations) -> tuple[ReturnEstimate, ...]:
    """What each demonstrator earned in the data; nothing if they say nothing of rewards."""
    returns = data.returns()
    if returns is None:
        return ()
    return tuple(ReturnEstimate.of(name, returns[data.owner == number]) for number, name in enumerate(data.names))
