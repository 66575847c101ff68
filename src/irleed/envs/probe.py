r"""Probes: environments so small that the soft values are known, each made to catch one mistake of an agent.

The values are those of temperature 1, $Q = r + \gamma V'$ with $V = \log \sum_a \exp Q$ and $V' = 0$ after the task has
ended. There are two actions, so that a place where both are worth $q$ has $V = q + \log 2$.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.envs.step import AbstractEnv

LOG_2 = math.log(2)
Table = tuple[tuple[float, ...], ...]  # by place and action


class ProbeState(eqx.Module):
    """Where one is, and how many steps the episode has had."""

    place: Int[Array, ""]
    elapsed: Int[Array, ""]


class Probe(AbstractEnv[ProbeState]):
    """A few numbered places, P, each known by the number that is seen there; made by the functions below.

    All fields are static: a probe is a constant of the program that it is used in.
    """

    seen: tuple[float, ...] = eqx.field(static=True)  # in each place
    starts: tuple[int, ...] = eqx.field(static=True)  # the places where episodes start, one as often as another
    successor: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # by place and action, as the next two
    reward: Table = eqx.field(static=True)
    ends: tuple[tuple[bool, ...], ...] = eqx.field(static=True)  # the task is over with this action
    limit: int = eqx.field(static=True)
    values: Callable[[float], Table] = eqx.field(static=True)

    @property
    def observations(self) -> Float[np.ndarray, "P 1"]:
        """What is seen, place by place."""
        return np.array(self.seen, np.float32)[:, None]

    def soft_q(self, discount: float) -> Float[np.ndarray, "P A"]:
        """The soft value of every action in every place, in closed form; places are in the order of `observations`."""
        return np.array(self.values(discount), float)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """See `AbstractEnv`."""
        return (1,)

    @property
    def actions(self) -> int:
        """See `AbstractEnv`."""
        return len(self.reward[0])

    @property
    def horizon(self) -> int:
        """See `AbstractEnv`."""
        return self.limit

    def reset(self, key: Key) -> ProbeState:
        """See `AbstractEnv.reset`."""
        drawn = jax.random.randint(key, (), 0, len(self.starts))
        return ProbeState(place=jnp.asarray(self.starts, jnp.int32)[drawn], elapsed=jnp.zeros((), jnp.int32))

    def observe(self, state: ProbeState) -> Float[Array, "1"]:
        """See `AbstractEnv.observe`."""
        return jnp.asarray(self.observations)[state.place]

    def advance(
        self, key: Key, state: ProbeState, action: Int[Array, ""]
    ) -> tuple[ProbeState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """See `AbstractEnv.advance`. Nothing is drawn: the key is not used."""
        at = state.place, action
        successor, ends = jnp.asarray(self.successor, jnp.int32)[at], jnp.asarray(self.ends)[at]
        reward = jnp.asarray(self.reward, jnp.float32)[at]
        elapsed = state.elapsed + 1
        return ProbeState(place=successor, elapsed=elapsed), reward, ends, (elapsed >= self.limit) & ~ends


def constant() -> Probe:
    r"""One place, one step, reward 1 whatever one does: $Q = 1$. Catches a value that goes on after the end."""
    reward = ((1.0, 1.0),)
    return Probe((0.0,), (0,), ((0, 0),), reward, ((True, True),), 1, lambda discount: reward)


def choice() -> Probe:
    r"""One place, one step, reward 0 or 1 by the action: $Q(a) = a$. Catches actions that are mixed up."""
    reward = ((0.0, 1.0),)
    return Probe((0.0,), (0,), ((0, 0),), reward, ((True, True),), 1, lambda discount: reward)


def context() -> Probe:
    r"""Two places, one step; where -1 is seen action 0 gives 1, where 1 is seen action 1 does, and 0 otherwise.

    $Q(-1, \cdot) = (1, 0)$ and $Q(1, \cdot) = (0, 1)$. Catches a network that does not see its input.
    """
    reward = ((1.0, 0.0), (0.0, 1.0))
    return Probe((-1.0, 1.0), (0, 1), ((0, 0), (1, 1)), reward, ((True, True),) * 2, 1, lambda discount: reward)


def delay() -> Probe:
    r"""The first action leads from 0 to -1 or to 1; the second, whatever it is, gives 0 at -1 and 1 at 1, and ends it.

    $Q(-1, \cdot) = 0$, $Q(1, \cdot) = 1$, $Q(0, a) = \gamma (a + \log 2)$. Catches discounts and successors gone wrong.
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
    r"""From 0 to 1 for nothing, then at 1 for ever, reward 1 a step; nothing ends, but after two steps the clock stops.

    $V(1) = (1 + \log 2) / (1 - \gamma)$, $Q(1, \cdot) = 1 + \gamma V(1)$, $Q(0, \cdot) = \gamma V(1)$. Catches a
    truncation that is taken for an end, and one that is followed into the next episode: there one sees 0 again.
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
