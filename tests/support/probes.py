"""Probe environments whose soft values are known, for discrete and for continuous actions."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.envs.step import AbstractEnv, Bounds

LOG_2 = math.log(2)
Table = tuple[tuple[float, ...], ...]  # by place and action


class ProbeState(eqx.Module):
    """The place, and the steps of the episode so far."""

    place: Int[Array, ""]
    elapsed: Int[Array, ""]


class Probe(AbstractEnv[ProbeState]):
    """A few places, P, each observed as a number; made by the functions below. All fields are static."""

    seen: tuple[float, ...] = eqx.field(static=True)  # the observation in each place
    starts: tuple[int, ...] = eqx.field(static=True)  # the places where episodes start, with equal probability
    successor: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # by place and action, as the next two
    reward: Table = eqx.field(static=True)
    ends: tuple[tuple[bool, ...], ...] = eqx.field(static=True)  # the task is over with this action
    limit: int = eqx.field(static=True)
    values: Callable[[float], Table] = eqx.field(static=True)

    @property
    def observations(self) -> Float[np.ndarray, "P 1"]:
        """The observation of each place."""
        return np.array(self.seen, np.float32)[:, None]

    def soft_q(self, discount: float) -> Float[np.ndarray, "P A"]:
        """The soft value of every action in every place, in closed form; places are in the order of `observations`."""
        return np.array(self.values(discount), float)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (1,)

    @property
    def actions(self) -> int:
        return len(self.reward[0])

    @property
    def horizon(self) -> int:
        return self.limit

    def reset(self, key: Key) -> ProbeState:
        drawn = jax.random.randint(key, (), 0, len(self.starts))
        return ProbeState(place=jnp.asarray(self.starts, jnp.int32)[drawn], elapsed=jnp.zeros((), jnp.int32))

    def observe(self, state: ProbeState) -> Float[Array, "1"]:
        return jnp.asarray(self.observations)[state.place]

    def advance(
        self, key: Key, state: ProbeState, action: Int[Array, ""]
    ) -> tuple[ProbeState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        at = state.place, action
        successor, ends = jnp.asarray(self.successor, jnp.int32)[at], jnp.asarray(self.ends)[at]
        reward = jnp.asarray(self.reward, jnp.float32)[at]
        elapsed = state.elapsed + 1
        return ProbeState(place=successor, elapsed=elapsed), reward, ends, (elapsed >= self.limit) & ~ends


def constant() -> Probe:
    r"""One place, one step, reward 1: $Q = 1$. Catches bootstrapping from terminal states."""
    reward = ((1.0, 1.0),)
    return Probe((0.0,), (0,), ((0, 0),), reward, ((True, True),), 1, lambda discount: reward)


def choice() -> Probe:
    r"""One place, one step, reward 0 or 1 by the action: $Q(a) = a$. Catches actions in the wrong order."""
    reward = ((0.0, 1.0),)
    return Probe((0.0,), (0,), ((0, 0),), reward, ((True, True),), 1, lambda discount: reward)


def context() -> Probe:
    r"""Two places, one step; where -1 is seen action 0 gives 1, where 1 is seen action 1 does, and 0 otherwise.

    $Q(-1, \cdot) = (1, 0)$ and $Q(1, \cdot) = (0, 1)$. Catches a network that ignores its input.
    """
    reward = ((1.0, 0.0), (0.0, 1.0))
    return Probe((-1.0, 1.0), (0, 1), ((0, 0), (1, 1)), reward, ((True, True),) * 2, 1, lambda discount: reward)


def delay() -> Probe:
    r"""The first action leads from 0 to -1 or to 1; the second, whatever it is, gives 0 at -1 and 1 at 1, and ends it.

    $Q(-1, \cdot) = 0$, $Q(1, \cdot) = 1$, $Q(0, a) = \gamma (a + \log 2)$. Catches wrong discounts and successors.
    """
    return Probe(
        seen=(0.0, -1.0, 1.0),
        starts=(0,),
        successor=((1, 2), (1, 1), (2, 2)),
        reward=((0.0, 0.0), (0.0, 0.0), (1.0, 1.0)),
        ends=((False, False), (True, True), (True, True)),
        limit=2,
        values=lambda discount: ((discount * LOG_2, discount * (1 + LOG_2)), (0.0, 0.0), (1.0, 1.0)),
    )


def endless() -> Probe:
    r"""From 0 to 1 without reward, then always at 1 with reward 1 a step; truncated after two steps, never terminated.

    $V(1) = (1 + \log 2) / (1 - \gamma)$, $Q(1, \cdot) = 1 + \gamma V(1)$, $Q(0, \cdot) = \gamma V(1)$. Catches a
    truncation treated as a termination, and bootstrapping from the first observation of the next episode, 0.
    """

    def values(discount: float) -> Table:
        ahead = discount * (1 + LOG_2) / (1 - discount)
        return ((ahead, ahead), (1 + ahead, 1 + ahead))

    return Probe(
        seen=(0.0, 1.0),
        starts=(0,),
        successor=((1, 1), (1, 1)),
        reward=((0.0, 0.0), (1.0, 1.0)),
        ends=((False, False), (False, False)),
        limit=2,
        values=values,
    )


PROBES = (constant, choice, context, delay, endless)

NODES = 200  # of the quadrature: ten digits for temperatures down to 0.01


class ContinuousProbeState(eqx.Module):
    """The number observed, and the steps of the episode so far."""

    place: Float[Array, ""]
    elapsed: Int[Array, ""]


class ContinuousProbe(AbstractEnv[ContinuousProbeState]):
    """One number is observed and one chosen; only the last step has a reward; made by the functions below.

    With several steps, an action leads to the place of the same number, and the number of steps taken is observed too.
    All fields are static.
    """

    reward: Callable[[Any, Any], Any] = eqx.field(static=True)  # of place and action, in NumPy's arrays or JAX's
    starts: tuple[float, float] = eqx.field(static=True)  # places where episodes start, uniformly between the two
    bound: float = eqx.field(static=True)  # actions go from its negative to it
    steps: int = eqx.field(static=True)

    def soft_q(
        self, obs: Float[np.ndarray, "*N O"], action: Float[np.ndarray, "*N 1"], temperature: float, discount: float
    ) -> Float[np.ndarray, "*N"]:
        """The soft value of actions; in the last step, their reward."""
        q = np.asarray(self.reward(obs[..., 0].astype(float), action[..., 0].astype(float)))
        earlier = self._elapsed(obs) < self.steps - 1
        if earlier.any():
            following = np.stack([action[earlier, 0], self._elapsed(obs)[earlier] + 1], -1)
            q[earlier] = discount * self.soft_value(following, temperature, discount)
        return q

    def soft_value(
        self, obs: Float[np.ndarray, "*N O"], temperature: float, discount: float
    ) -> Float[np.ndarray, "*N"]:
        """The soft value of observations, by quadrature over the actions."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        seen = np.broadcast_to(obs[..., None, :], (*obs.shape[:-1], NODES, obs.shape[-1]))
        action = np.broadcast_to(self.bound * nodes[:, None], (*seen.shape[:-1], 1))
        q = self.soft_q(seen, action, temperature, discount) / temperature
        return np.asarray(temperature * np.logaddexp.reduce(q + np.log(self.bound * weights), -1))

    def log_density(
        self, obs: Float[np.ndarray, "*N O"], action: Float[np.ndarray, "*N 1"], temperature: float, discount: float
    ) -> Float[np.ndarray, "*N"]:
        """Log-density of actions within the bounds under the soft-optimal policy."""
        q, value = self.soft_q(obs, action, temperature, discount), self.soft_value(obs, temperature, discount)
        return np.asarray((q - value) / temperature)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (1,) if self.steps == 1 else (2,)

    @property
    def actions(self) -> Bounds:
        high = np.array([self.bound], np.float32)
        return Bounds(low=-high, high=high)

    @property
    def horizon(self) -> int:
        return self.steps

    def reset(self, key: Key) -> ContinuousProbeState:
        low, high = self.starts
        place = jax.random.uniform(key, (), jnp.float32, low, high)
        return ContinuousProbeState(place=place, elapsed=jnp.zeros((), jnp.int32))

    def observe(self, state: ContinuousProbeState) -> Float[Array, " O"]:
        seen = jnp.stack([state.place, state.elapsed.astype(jnp.float32)])
        return seen[: self.observation_shape[0]]

    def advance(
        self, key: Key, state: ContinuousProbeState, action: Float[Array, "1"]
    ) -> tuple[ContinuousProbeState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        chosen, elapsed = jnp.asarray(action[0], jnp.float32), state.elapsed + 1
        ends = elapsed >= self.steps
        reward = jnp.where(ends, self.reward(state.place, chosen), jnp.zeros((), jnp.float32))
        successor = ContinuousProbeState(place=jnp.where(ends, state.place, chosen), elapsed=elapsed)
        return successor, reward, ends, jnp.zeros((), bool)

    def _elapsed(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(obs.shape[:-1]) if self.steps == 1 else np.asarray(obs[..., 1], float)


def target() -> ContinuousProbe:
    r"""One place, one step, actions from -1 to 1: $Q(a) = -(a - 0.3)^2$. Catches a policy that does not converge.

    The soft-optimal one is the normal one of mean 0.3 and variance $T / 2$ within the bounds.
    """
    return ContinuousProbe(lambda place, action: -((action - 0.3) ** 2), (0.0, 0.0), 1.0, 1)


def tracking() -> ContinuousProbe:
    r"""Places from -1 to 1, one step, actions from -2 to 2: $Q(s, a) = -(a - s / 2)^2$.

    Catches a policy that ignores its input, and bounds assumed to be -1 and 1.
    """
    return ContinuousProbe(lambda place, action: -((action - 0.5 * place) ** 2), (-1.0, 1.0), 2.0, 1)


def continuous_delay() -> ContinuousProbe:
    r"""The first action is the place of the second, which terminates with reward $-(a - s / 2)^2 - (s + 0.4)^2$.

    Optimal are $a = -0.4$ and then $-0.2$; $Q(0, a) = \gamma V(a)$. Catches values that do not propagate back.
    """

    def reward(place: Any, action: Any) -> Any:
        return -((action - 0.5 * place) ** 2) - (place + 0.4) ** 2

    return ContinuousProbe(reward, (0.0, 0.0), 1.0, 2)


CONTINUOUS_PROBES = (target, tracking, continuous_delay)
