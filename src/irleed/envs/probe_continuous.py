r"""Probes whose actions are one number between bounds, and whose soft values are known at any temperature.

The soft values of temperature $T$ are $Q = r + \gamma V'$ with $V = T \log \int \exp(Q / T) \, da$ over the actions
within the bounds, and $V' = 0$ after the task has ended; the soft-optimal policy has density $\exp((Q - V) / T)$.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.envs.step import AbstractEnv, Bounds

NODES = 200  # of the quadrature: ten digits for temperatures down to 0.01


class ContinuousProbeState(eqx.Module):
    """The number that is seen, and how many steps the episode has had."""

    place: Float[Array, ""]
    elapsed: Int[Array, ""]


class ContinuousProbe(AbstractEnv[ContinuousProbeState]):
    """One number to see and one to choose; the last step alone has a reward; made by the functions below.

    Where there are several steps, an action leads to the place of the same number, and the number of steps taken is
    seen beside it. All fields are static: a probe is a constant of the program that it is used in.
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
        """The soft value of what is seen, by quadrature over the actions."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        seen = np.broadcast_to(obs[..., None, :], (*obs.shape[:-1], NODES, obs.shape[-1]))
        action = np.broadcast_to(self.bound * nodes[:, None], (*seen.shape[:-1], 1))
        q = self.soft_q(seen, action, temperature, discount) / temperature
        return np.asarray(temperature * np.logaddexp.reduce(q + np.log(self.bound * weights), -1))

    def log_density(
        self, obs: Float[np.ndarray, "*N O"], action: Float[np.ndarray, "*N 1"], temperature: float, discount: float
    ) -> Float[np.ndarray, "*N"]:
        """Of actions under the soft-optimal policy; they are taken to be within the bounds."""
        q, value = self.soft_q(obs, action, temperature, discount), self.soft_value(obs, temperature, discount)
        return np.asarray((q - value) / temperature)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """See `AbstractEnv`."""
        return (1,) if self.steps == 1 else (2,)

    @property
    def actions(self) -> Bounds:
        """See `AbstractEnv`."""
        high = np.array([self.bound], np.float32)
        return Bounds(low=-high, high=high)

    @property
    def horizon(self) -> int:
        """See `AbstractEnv`."""
        return self.steps

    def reset(self, key: Key) -> ContinuousProbeState:
        """See `AbstractEnv.reset`."""
        low, high = self.starts
        place = jax.random.uniform(key, (), jnp.float32, low, high)
        return ContinuousProbeState(place=place, elapsed=jnp.zeros((), jnp.int32))

    def observe(self, state: ContinuousProbeState) -> Float[Array, " O"]:
        """See `AbstractEnv.observe`."""
        seen = jnp.stack([state.place, state.elapsed.astype(jnp.float32)])
        return seen[: self.observation_shape[0]]

    def advance(
        self, key: Key, state: ContinuousProbeState, action: Float[Array, "1"]
    ) -> tuple[ContinuousProbeState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """See `AbstractEnv.advance`. Nothing is drawn: the key is not used."""
        chosen, elapsed = jnp.asarray(action[0], jnp.float32), state.elapsed + 1
        ends = elapsed >= self.steps
        reward = jnp.where(ends, self.reward(state.place, chosen), jnp.zeros((), jnp.float32))
        successor = ContinuousProbeState(place=jnp.where(ends, state.place, chosen), elapsed=elapsed)
        return successor, reward, ends, jnp.zeros((), bool)

    def _elapsed(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(obs.shape[:-1]) if self.steps == 1 else np.asarray(obs[..., 1], float)


def target() -> ContinuousProbe:
    r"""One place, one step, actions from -1 to 1: $Q(a) = -(a - 0.3)^2$. Catches a policy that does not settle.

    The soft-optimal one is the normal one of mean 0.3 and variance $T / 2$ within the bounds.
    """
    return ContinuousProbe(lambda place, action: -((action - 0.3) ** 2), (0.0, 0.0), 1.0, 1)


def tracking() -> ContinuousProbe:
    r"""Places from -1 to 1, one step, actions from -2 to 2: $Q(s, a) = -(a - s / 2)^2$.

    Catches a policy that does not see its input, and bounds that are taken for -1 and 1.
    """
    return ContinuousProbe(lambda place, action: -((action - 0.5 * place) ** 2), (-1.0, 1.0), 2.0, 1)


def delay() -> ContinuousProbe:
    r"""The first action is the place of the second, which gives $-(a - s / 2)^2 - (s + 0.4)^2$ and ends it.

    As good as any are $a = -0.4$ and then $-0.2$; $Q(0, a) = \gamma V(a)$. Catches values that do not reach back.
    """

    def reward(place: Any, action: Any) -> Any:
        return -((action - 0.5 * place) ** 2) - (place + 0.4) ** 2

    return ContinuousProbe(reward, (0.0, 0.0), 1.0, 2)


CONTINUOUS_PROBES = (target, tracking, delay)
