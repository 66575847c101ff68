"""Environments in pure JAX: CartPole, equal to Gymnasium's CartPole-v1."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Bool, Float, Int, Key
from irleed.envs.step import AbstractEnv

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.0 + POLE_MASS
HALF_LENGTH = 0.5  # of the pole
PUSH = 10.0  # force on the cart, to either side
SECONDS = 0.02  # from one step to the next
FARTHEST = 2.4  # position at which the cart leaves the track
STEEPEST = math.radians(12)  # angle at which the pole counts as fallen
START = 0.05  # bound of every coordinate of a first state


class CartPoleState(eqx.Module):
    """Position, velocity, angle and angular velocity, and the steps of the episode so far."""

    motion: Float[Array, "4"]
    elapsed: Int[Array, ""]


class CartPole(AbstractEnv[CartPoleState]):
    """Keep a pole upright by pushing its cart left (0) or right (1); reward 1 for every step, 500 steps at most.

    Equations, integration (explicit Euler), limits and first states are those of Gymnasium's CartPole-v1, which
    computes in double precision; here a state has JAX's default type. Observations are in single precision in both.

    One step from the same state agrees to 1e-6, with 64-bit types enabled to 1e-14. The pole is unstable:
    rounding errors grow by 8 % in every step, so that trajectories of the same actions diverge in the end. With 64-bit
    types observations are equal for more than 100 steps and agree to 1e-5 for 300; in single precision they agree to
    1e-5 for 60 steps.
    """

    limit: int = eqx.field(static=True, default=500)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def actions(self) -> int:
        return 2

    @property
    def horizon(self) -> int:
        return self.limit

    def reset(self, key: Key) -> CartPoleState:
        motion = jax.random.uniform(key, (4,), float, -START, START)
        return CartPoleState(motion=motion, elapsed=jnp.zeros((), jnp.int32))

    def observe(self, state: CartPoleState) -> Float[Array, "4"]:
        return state.motion.astype(jnp.float32)

    def advance(
        self, key: Key, state: CartPoleState, action: Int[Array, ""]
    ) -> tuple[CartPoleState, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        motion = state.motion + SECONDS * _rates(state.motion, action)
        elapsed = state.elapsed + 1
        terminated = (jnp.abs(motion[0]) > FARTHEST) | (jnp.abs(motion[2]) > STEEPEST)
        truncated = (elapsed >= self.limit) & ~terminated
        return CartPoleState(motion=motion, elapsed=elapsed), jnp.ones((), jnp.float32), terminated, truncated


def _rates(motion: Float[Array, "4"], action: Int[Array, ""]) -> Float[Array, "4"]:
    """How position, velocity, angle and angular velocity change per second (Florian 2007, without friction)."""
    _, velocity, angle, turning = motion
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    moment = POLE_MASS * HALF_LENGTH
    pushed = (jnp.where(action == 1, PUSH, -PUSH) + moment * turning**2 * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
    turning_faster = (GRAVITY * sine - cosine * pushed) / inertia
    faster = pushed - moment * turning_faster * cosine / TOTAL_MASS
    return jnp.stack([velocity, faster, turning, turning_faster])
