"""Episodes of a policy in an environment, and their returns."""

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
from irleed.data import Demonstrations
from irleed.envs import AbstractEnv
from irleed.model.expertise import INTERVAL
from irleed.policies import AbstractActor

# From a key and an observation to an action.
Act = Callable[[Key, Shaped[Array, "..."]], Shaped[Array, "..."]]


class Trajectory(eqx.Module):
    """An episode, padded to the horizon with steps that are not `alive`; or many, with leading axes."""

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


def play(key: Key, env: AbstractEnv, act: Act) -> Trajectory:
    """One whole episode."""
    reset_key, loop_key = jax.random.split(key)

    def step(carry, number):
        state, alive = carry
        act_key, env_key = jax.random.split(jax.random.fold_in(loop_key, number))
        obs = env.observe(state)
        state, seen = env.step(env_key, state, act(act_key, obs))
        return (state, alive & ~(seen.terminated | seen.truncated)), (seen, alive)

    start = env.reset(reset_key), jnp.asarray(True)
    seen, alive = jax.lax.scan(step, start, jnp.arange(env.horizon))[1]
    return Trajectory(seen.obs, seen.next_obs, seen.action, seen.reward, seen.terminated, alive)


def returns(key: Key, env: AbstractEnv, policy: AbstractActor, episodes: int, *, greedy: bool) -> Float[Array, " E"]:
    """Episode returns by greedy or by sampled actions."""

    def one(own):
        return play(own, env, lambda act_key, obs: policy.act(act_key, obs, greedy)).total

    return jax.vmap(one)(jax.random.split(key, episodes))


@dataclasses.dataclass(frozen=True)
class ReturnEstimate:
    """The mean return of `episodes` episodes and its 90 % interval, NaN for a single episode."""

    who: str
    episodes: int
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, who: str, returns: Float[Array, " E"]) -> "ReturnEstimate":
        """From returns, by Student's t distribution."""
        count, mean = len(returns), float(np.mean(returns))
        if count == 1:
            return cls(who, count, mean, math.nan, math.nan)
        margin = float(student.ppf((1 + INTERVAL) / 2, count - 1) * np.std(returns, ddof=1) / count**0.5)
        return cls(who, count, mean, mean - margin, mean + margin)

    def plain(self) -> dict[str, Any]:
        """As a dictionary for JSON, in which NaN is None."""
        return {key: None if value != value else value for key, value in vars(self).items()}


def demonstrated(data: Demonstrations) -> tuple[ReturnEstimate, ...]:
    """The mean return of each demonstrator in the data; empty if the data have no rewards."""
    returns = data.returns()
    if returns is None:
        return ()
    return tuple(ReturnEstimate.of(name, returns[data.owner == number]) for number, name in enumerate(data.names))
