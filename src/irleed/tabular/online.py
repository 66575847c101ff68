r"""Policies without a model of the dynamics: tabular soft Q-learning on sampled transitions."""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Key, Scalar
from irleed.envs.mdp import FiniteMDP
from irleed.tabular.planning import Reward, by_action, soft_maximum
from irleed.tabular.published import AbstractInference


class SoftQLearning(AbstractInference):
    r"""Learn the values of the `Soft` planner, $Q = r + \gamma E[\log \sum_a \exp Q']$, from transitions alone.

    Walkers act by the current Boltzmann policy mixed with the uniform one; only `mdp.reset` and `mdp.step` are asked
    what happens. A value that has seen n samples moves by $1 / (1 + (1 - \gamma) n)$ of its difference to the next: a
    plain mean, $1 / (1 + n)$, would forget its first, wrong targets far too slowly.

    **Fields:**

    - `walkers`, `steps`: so many walk in parallel, for so many steps each.
    - `exploration`: the uniform policy's part of the mixture.
    - `restart`: probability, at every step, of starting an episode afresh.
    """

    walkers: int = eqx.field(static=True, default=64)
    steps: int = eqx.field(static=True, default=2_000)
    exploration: Scalar = 0.3
    restart: Scalar = 0.02

    def q_values(self, key: Key, mdp: FiniteMDP, reward: Reward, start: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """See `AbstractInference.q_values`. States that are never reached keep what they start from."""
        reset = jax.vmap(mdp.reset)
        terminal, gain = jnp.asarray(mdp.terminal), by_action(mdp, jnp.asarray(reward))
        # Like the planner's: the end gives its own reward, and the entropy of choices that no longer matter.
        final = jnp.asarray(reward) if reward.ndim == 1 else jnp.zeros(mdp.states)
        final = final + jnp.log(float(mdp.actions)) / (1 - mdp.discount)

        def step(carry, step_key):
            q, seen, state = carry
            action_key, move_key, restart_key, reset_key = jax.random.split(step_key, 4)
            action = self._act(action_key, q[state])
            successor = jax.vmap(mdp.step)(jax.random.split(move_key, self.walkers), state, action)
            ahead = jnp.where(terminal[successor], final[successor], soft_maximum(q[successor]))
            target = gain[state, action] + mdp.discount * ahead
            count = jnp.zeros_like(q).at[state, action].add(1.0)
            total = jnp.zeros_like(q).at[state, action].add(target)
            # Walkers that meet count as one sample each: their mean moves the value by as much as they would together.
            rate = count / jnp.maximum(count + (1 - mdp.discount) * seen, 1.0)
            q = q + rate * (total / jnp.maximum(count, 1.0) - q)
            over = terminal[successor] | (jax.random.uniform(restart_key, (self.walkers,), float) < self.restart)
            state = jnp.where(over, reset(jax.random.split(reset_key, self.walkers)), successor)
            return (q, seen + count, state), None

        first_key, walk_key = jax.random.split(key)
        carry = jnp.asarray(start), jnp.zeros_like(start), reset(jax.random.split(first_key, self.walkers))
        (q, _, _), _ = jax.lax.scan(step, carry, jax.random.split(walk_key, self.steps))
        return q

    def _act(self, key: Key, q: Float[Array, "W A"]) -> Array:
        """An action of the mixed policy for every walker."""
        policy = (1 - self.exploration) * jax.nn.softmax(q) + self.exploration / q.shape[-1]
        draw = jax.random.uniform(key, (len(q), 1), float)
        return jnp.sum(jnp.cumsum(policy, -1)[:, :-1] <= draw, -1, dtype=jnp.int32)
