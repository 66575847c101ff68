r"""Experts: soft Q-learning on the true reward, $Q \leftarrow r + \gamma\,T \log\sum_a \exp(Q'/T)$.

Nothing of IRLEED needs them; they are what simulated demonstrators are made from.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Float, Int, Key, Scalar
from irleed.envs.step import AbstractEnv
from irleed.iq.networks import Mlp
from irleed.iq.replay import Replay
from irleed.policy import SoftmaxPolicy


class State(eqx.Module):
    """Critic, target, optimiser, experience, and where the environment is."""

    q: Mlp
    target: Mlp
    optimiser: optax.OptState
    replay: Replay
    env: eqx.Module
    step: Int[Array, ""]


class SoftCritic(eqx.Module):
    """A soft-Q agent on the true reward.

    - `temperature`: of policy and values; `random`: share of random actions on top.
    - `target_rate`: how fast the target follows, every step.
    - `warm`: steps before the first update.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=100_000)
    batch: int = eqx.field(static=True, default=128)
    capacity: int = eqx.field(static=True, default=50_000)
    warm: int = eqx.field(static=True, default=1_000)
    rate: Scalar = 3e-4
    discount: Scalar = 0.99
    temperature: Scalar = 0.1
    random: Scalar = 0.05
    target_rate: Scalar = 0.005

    def init(self, key: Key, env: AbstractEnv) -> State:
        """Before the first step."""
        q_key, env_key, step_key = jax.random.split(key, 3)
        q = Mlp.init(q_key, (math.prod(env.observation_shape), *self.hidden, env.actions))
        start = env.reset(env_key)
        _, seen = env.step(step_key, start, jnp.asarray(0, jnp.int32))
        return State(
            q=q,
            target=q,
            optimiser=optax.scale_by_adam().init(q),  # pyright: ignore[reportArgumentType]
            replay=Replay.empty(seen, self.capacity),
            env=start,
            step=jnp.asarray(0, jnp.int32),
        )

    def update(self, key: Key, state: State, env: AbstractEnv) -> State:
        """One step in the environment and one of Adam."""
        act_key, random_key, env_key, batch_key = jax.random.split(key, 4)
        chosen = self.policy(state).act(act_key, env.observe(state.env))
        stray = jax.random.randint(random_key, (), 0, env.actions)
        at_random = jax.random.uniform(jax.random.fold_in(random_key, 1)) < self.random
        place, seen = env.step(env_key, state.env, jnp.where(at_random, stray, chosen).astype(jnp.int32))
        replay = state.replay.add(seen)
        batch = replay.sample(batch_key, self.batch)
        gradient = jax.grad(lambda q: self._loss(q, state.target, batch))(state.q)
        direction, optimiser = optax.scale_by_adam().update(gradient, state.optimiser)
        rate = jnp.where(state.step < self.warm, 0.0, self.rate)
        q = jax.tree.map(lambda p, d: p - rate * d, state.q, direction)
        target = jax.tree.map(lambda old, new: old + self.target_rate * (new - old), state.target, q)
        return State(q, target, optimiser, replay, place, state.step + 1)

    def policy(self, state: State) -> SoftmaxPolicy:
        """What was learnt."""
        return SoftmaxPolicy(state.q, jnp.asarray(1 / self.temperature, jnp.float32))

    def train(self, key: Key, env: AbstractEnv) -> State:
        """A whole run in one loop."""
        init_key, loop_key = jax.random.split(key)
        start = self.init(init_key, env)
        return jax.lax.fori_loop(
            0, self.steps, lambda i, state: self.update(jax.random.fold_in(loop_key, i), state, env), start
        )

    def _loss(self, q: Mlp, target: Mlp, batch) -> Float[Array, ""]:
        def one(seen):
            ahead = self.temperature * jax.nn.logsumexp(target(seen.next_obs) / self.temperature)
            goal = seen.reward + self.discount * jnp.where(seen.terminated, 0.0, ahead)
            return optax.huber_loss(q(seen.obs)[seen.action], goal, delta=10.0)

        return jnp.mean(jax.vmap(one)(batch))
