r"""Planners: from a reward to the policy of someone who pursues it.

A planner takes a reward that is already scaled by the demonstrator's precision, $u = \beta(\theta + \epsilon)^\top f$
(the substitution in the proof of the paper's Lemma), and returns values $Q$ with $\pi(a|s) \propto \exp Q(s, a)$.
"""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float
from irleed.algorithms.tabular.linear import (
    DENSE_STATES,
    UNROLLED_ACTIONS,
    discounted_visits,
    expected_successor,
    fixed_point,
    krylov,
    moving,
    one_step,
    policy_value,
    push_forward,
    sum_over_actions,
)
from irleed.envs.mdp import FiniteMDP

# Newton's method for the soft planner (it is soft policy iteration): steps at most, and how well each is solved.
NEWTON_STEPS, NEWTON_PRECISION = 20, 1e-2

Reward = Float[Array, " S"] | Float[Array, "S A"]


class AbstractPlanner(eqx.Module):
    """What every planner can do; `tolerance` bounds the error of its values."""

    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def q_values(self, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
        r"""Values $Q$ such that the policy is $\pi(a|s) \propto \exp Q(s, a)$. Differentiable in `reward`."""

    @abc.abstractmethod
    def q_derivative(self, mdp: FiniteMDP, q: Float[Array, "S A"], direction: Reward) -> Float[Array, "S A"]:
        """How the values `q` change as the reward moves in a direction."""


class Soft(AbstractPlanner):
    r"""The paper's planner, Eqs. (3)-(5): $Q = r + \gamma E[V']$, $V = \log \sum_a \exp Q$, with $\beta$ in the reward.

    A terminal state is one that is never left and gives nothing more, so that it goes on collecting the entropy of
    $A$ equal actions, $\log A / (1 - \gamma)$ in all. Were that left out, anyone would flee the goal to keep their
    choices.

    **Fields:**

    - `tolerance`: the largest error of a value.
    """

    tolerance: float = eqx.field(static=True, default=1e-8)

    def q_values(self, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
        """See `AbstractPlanner.q_values`."""
        return _soft_q_values(self.tolerance, mdp, reward)

    def q_derivative(self, mdp: FiniteMDP, q: Float[Array, "S A"], direction: Reward) -> Float[Array, "S A"]:
        """See `AbstractPlanner.q_derivative`: the direction's value under the soft policy."""
        policy = jax.nn.softmax(q)
        value = policy_value(self.tolerance, mdp, policy, mean_reward(mdp, policy, direction))
        return by_action(mdp, direction) + mdp.discount * expected_successor(mdp, value)


class Averaged(AbstractPlanner):
    r"""The released program's planner: values of the uniformly random policy, $V = r + \gamma\, \mathrm{mean}_a E[V']$.

    The policy is $\pi \propto \exp E[V']$: values are linear in the reward, so that the likelihood of the actions is
    that of a softmax regression, concave in each demonstrator's $u$.

    **Fields:**

    - `tolerance`: the largest error of a value.
    """

    tolerance: float = eqx.field(static=True, default=1e-8)

    def q_values(self, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
        """See `AbstractPlanner.q_values`."""
        uniform = jnp.full((mdp.states, mdp.actions), 1 / mdp.actions)
        value = policy_value(self.tolerance, mdp, uniform, mean_reward(mdp, uniform, reward))
        # The released program weighs successors by their full, undiscounted value.
        return by_action(mdp, reward) / mdp.discount + expected_successor(mdp, value)

    def q_derivative(self, mdp: FiniteMDP, q: Float[Array, "S A"], direction: Reward) -> Float[Array, "S A"]:
        """See `AbstractPlanner.q_derivative`: values are linear in the reward."""
        return self.q_values(mdp, direction)


def optimal_q_values(mdp: FiniteMDP, reward: Reward, tolerance: float = 1e-8) -> Float[Array, "S A"]:
    r"""Ordinary value iteration: $Q = r + \gamma E[\max_a Q']$. Not differentiable."""
    return _value_iteration(mdp, reward, lambda q: jnp.max(q, -1), tolerance)


def mean_reward(mdp: FiniteMDP, policy: Float[Array, "S A"], reward: Reward) -> Float[Array, " S"]:
    """Expected reward of a step from each state; a terminal state gives its state reward, once."""
    return _with_terminals(mdp, reward, sum_over_actions(policy * by_action(mdp, reward)))


def by_action(mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
    """The reward of every state and action."""
    return jnp.broadcast_to(reward[:, None], (mdp.states, mdp.actions)) if reward.ndim == 1 else reward


def soft_maximum(q: Float[Array, "S A"]) -> Float[Array, " S"]:
    r"""$\log \sum_a \exp Q(s, a)$."""
    if q.shape[-1] > UNROLLED_ACTIONS:
        return jax.nn.logsumexp(q, -1)
    q = jax.lax.optimization_barrier(q)  # or XLA computes it anew for every use below
    columns = [q[:, a] for a in range(q.shape[-1])]
    largest = functools.reduce(jnp.maximum, columns)
    return largest + jnp.log(functools.reduce(jnp.add, [jnp.exp(column - largest) for column in columns]))


def _value_iteration(
    mdp: FiniteMDP, reward: Reward, maximum, tolerance: float, after_the_end: Array | float = 0.0, derivative=None
) -> Float[Array, "S A"]:
    """Iterate to the fixed point; where the `derivative` of `maximum` is given, Newton's method first goes near it."""

    def q_of(value):
        return by_action(mdp, reward) + mdp.discount * expected_successor(mdp, value)

    def backup(value):
        return _with_terminals(mdp, reward, maximum(q_of(value)), after_the_end)

    accuracy = tolerance * (1 - mdp.discount)
    start = jnp.zeros(mdp.states, jnp.result_type(reward))
    if derivative is not None and mdp.states > DENSE_STATES:

        def newton(carry):
            value, missing, step = carry
            value = value + krylov(one_step(mdp, derivative(q_of(value))), missing, NEWTON_PRECISION, accuracy)
            return value, backup(value) - value, step + 1

        def far(carry):
            return (jnp.max(jnp.abs(carry[1])) > accuracy) & (carry[2] < NEWTON_STEPS)

        start = jax.lax.while_loop(far, newton, (start, backup(start) - start, 0))[0]
        start = jnp.where(jnp.all(jnp.isfinite(start)), start, 0.0)
    return q_of(fixed_point(backup, start, accuracy))


def _with_terminals(
    mdp: FiniteMDP, reward: Reward, value: Float[Array, " S"], after_the_end: Array | float = 0.0
) -> Float[Array, " S"]:
    """A terminal state is worth its own state reward (none where rewards belong to actions), and what comes after."""
    own = reward if reward.ndim == 1 else jnp.zeros_like(value)
    return jnp.where(mdp.terminal, own + after_the_end, value)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _soft_q_values(tolerance: float, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
    entropy = jnp.log(float(mdp.actions)) / (1 - mdp.discount)
    return _value_iteration(mdp, reward, soft_maximum, tolerance, entropy, jax.nn.softmax)


def _soft_forward(tolerance, mdp, reward):
    q = _soft_q_values(tolerance, mdp, reward)
    return q, (mdp, reward, q)


def _soft_backward(tolerance, residual, cotangent):
    """The derivative of a soft value is an expected sum of visits under the soft policy (the paper's Lemma)."""
    mdp, reward, q = residual
    policy = jax.nn.softmax(q)
    pushed = mdp.discount * push_forward(mdp, cotangent)
    visits: Array = discounted_visits(tolerance, mdp, policy, pushed)  # pyright: ignore[reportAssignmentType]
    by_reward = cotangent + policy * moving(mdp, visits)[:, None]
    if reward.ndim == 1:
        by_reward = by_reward.sum(-1) + jnp.where(mdp.terminal, visits, 0.0)
    return None, by_reward


_soft_q_values.defvjp(_soft_forward, _soft_backward)
