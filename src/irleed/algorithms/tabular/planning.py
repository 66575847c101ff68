r"""Planners, which compute the policy for a reward, and the linear maps of a policy that they use.

A planner takes a reward that is scaled by the demonstrator's precision, $u = \beta(\theta + \epsilon)^\top f$
(the substitution in the proof of the paper's Lemma), and returns values $Q$ with $\pi(a|s) \propto \exp Q(s, a)$.

Of the two linear maps, each the other's transpose, `policy_value` is the expected sum of future rewards,
$x = b + \gamma P_\pi x$; `discounted_visits` is the expected number of visits, $y = b + \gamma P_\pi^\top y$. The
derivative of one is an application of the other, so reverse mode needs nothing else, to any order. The MDP itself is a
constant here: no derivative with respect to dynamics or discount is defined. Small dense matrices are inverted by
`inverse`, safe and fast under `vmap` on every platform.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Scalar
from irleed.envs.mdp import FiniteMDP


@jax.custom_batching.custom_vmap
def inverse(matrix: Float[Array, "S S"]) -> Float[Array, "S S"]:
    """The inverse of one matrix; a batch is inverted one by one on the CPU and at once elsewhere.

    On the CPU, two batched LAPACK calls at a time can deadlock, as they share the thread pool they run on. One by one
    is as fast for small matrices.
    """
    return jnp.linalg.inv(matrix)


@inverse.def_vmap
def _(axis_size: int, in_batched: Any, matrix: Array) -> Any:
    batch = jax.lax.platform_dependent(
        matrix, cpu=lambda m: jax.lax.map(inverse, m), default=lambda m: jax.vmap(jnp.linalg.inv)(m)
    )
    return batch, True


@jax.custom_batching.custom_vmap
def eigenvalues_and_vectors(matrix: Float[Array, "S S"]) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
    """Eigenvalues and eigenvectors (as columns) of one symmetric matrix; batched as `inverse` is."""
    return tuple(jnp.linalg.eigh(matrix))


@eigenvalues_and_vectors.def_vmap
def _(axis_size: int, in_batched: Any, matrix: Array) -> Any:
    batch = jax.lax.platform_dependent(
        matrix,
        cpu=lambda m: jax.lax.map(eigenvalues_and_vectors, m),
        default=lambda m: jax.vmap(lambda one: tuple(jnp.linalg.eigh(one)))(m),
    )
    return batch, (True, True)


# Up to this many states the systems are solved by a dense inverse, beyond by iteration.
DENSE_STATES = 128
MAX_SWEEPS = 1_000_000
KRYLOV_STEPS = 200
# Up to this many actions a sum or maximum over them is written out.
UNROLLED_ACTIONS = 16

Policy = Float[Array, "S A"]
StateMap = Callable[[Float[Array, " S"]], Float[Array, " S"]]


@jax.custom_vjp
def expected_successor(mdp: FiniteMDP, value: Float[Array, " S"]) -> Float[Array, "S A"]:
    r"""$E[V(s') \mid s, a]$ for every state and action."""
    return _successor(mdp, value)


def _successor(mdp: FiniteMDP, value: Array):
    return mdp.forward.product(value).reshape(mdp.states, mdp.actions)


@jax.custom_vjp
def push_forward(mdp: FiniteMDP, flow: Float[Array, "S A"]) -> Float[Array, " S"]:
    """The flow into each state from a flow out of states and actions: the transpose of `expected_successor`."""
    return mdp.backward.product(flow.reshape(-1))


expected_successor.defvjp(
    lambda mdp, value: (expected_successor(mdp, value), mdp),
    lambda mdp, cotangent: (None, push_forward(mdp, cotangent)),
)
push_forward.defvjp(
    lambda mdp, flow: (push_forward(mdp, flow), mdp),
    lambda mdp, cotangent: (None, expected_successor(mdp, cotangent)),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def policy_value(tolerance: float, mdp: FiniteMDP, policy: Policy, reward: Float[Array, " S"]) -> Float[Array, " S"]:
    r"""Expected discounted sum of `reward` from each state on: $x = b + \gamma P_\pi x$, to `tolerance`."""
    if mdp.states <= DENSE_STATES:
        return _resolvent(mdp, policy) @ reward

    return _solve(one_step(mdp, policy), reward, tolerance * (1 - mdp.discount), _largest)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def discounted_visits(
    tolerance: float, mdp: FiniteMDP, policy: Policy, source: Float[Array, " S"]
) -> Float[Array, " S"]:
    r"""Expected discounted number of visits to each state from `source` on: $y = b + \gamma P_\pi^\top y$."""
    if mdp.states <= DENSE_STATES:
        return source @ _resolvent(mdp, policy)

    def spread(visits: Array):
        return mdp.discount * mdp.backward.product((policy * moving(mdp, visits)[:, None]).reshape(-1))

    return _solve(spread, source, tolerance * (1 - mdp.discount), _total)  # the norm in which this map contracts


def _value_forward(tolerance: float, mdp: FiniteMDP, policy: Array, reward: Array):
    value = policy_value(tolerance, mdp, policy, reward)
    return value, (mdp, policy, value)


def _value_backward(tolerance: float, residual: Any, cotangent: Any) -> Any:
    mdp, policy, value = residual
    visits: Array = discounted_visits(tolerance, mdp, policy, cotangent)
    return None, mdp.discount * moving(mdp, visits)[:, None] * expected_successor(mdp, value), visits


def _visits_forward(tolerance: float, mdp: FiniteMDP, policy: Array, source: Array):
    visits = discounted_visits(tolerance, mdp, policy, source)
    return visits, (mdp, policy, visits)


def _visits_backward(tolerance: float, residual: Any, cotangent: Any) -> Any:
    mdp, policy, visits = residual
    value = policy_value(tolerance, mdp, policy, cotangent)
    return None, mdp.discount * moving(mdp, visits)[:, None] * expected_successor(mdp, value), value


policy_value.defvjp(_value_forward, _value_backward)
discounted_visits.defvjp(_visits_forward, _visits_backward)


def one_step(mdp: FiniteMDP, policy: Policy) -> StateMap:
    r"""$\gamma P_\pi$ as a function of values."""
    return lambda value: mdp.discount * moving(mdp, sum_over_actions(policy * _successor(mdp, value)))


def sum_over_actions(by_action: Float[Array, "S A"]) -> Float[Array, " S"]:
    """The sum over the last axis, written out for few actions: XLA's reductions of short axes are slow on the CPU."""
    if by_action.shape[-1] > UNROLLED_ACTIONS:
        return jnp.sum(by_action, -1)
    return functools.reduce(jnp.add, [by_action[:, a] for a in range(by_action.shape[-1])])


def moving(mdp: FiniteMDP, by_state: Float[Array, " S"]) -> Float[Array, " S"]:
    """The values with zeros in terminal states."""
    return jnp.where(mdp.terminal, 0.0, by_state)


def _largest(vector: Float[Array, " S"]) -> Float[Array, ""]:
    return jnp.max(jnp.abs(vector))


def _total(vector: Float[Array, " S"]) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(vector))


def krylov(ahead: StateMap, source: Float[Array, " S"], relative: float, absolute: Scalar) -> Float[Array, " S"]:
    """Solve x = source + ahead(x) by BiCGSTAB: faster than fixed-point iteration, but without guaranteed accuracy."""
    found, _ = jax.scipy.sparse.linalg.bicgstab(
        lambda x: x - ahead(x),
        source,
        source,
        tol=relative,
        atol=absolute,  # pyright: ignore[reportArgumentType]
        maxiter=KRYLOV_STEPS,
    )
    return jnp.where(jnp.all(jnp.isfinite(found)), found, source)


def _solve(
    ahead: StateMap,
    source: Float[Array, " S"],
    tolerance: Scalar,
    norm: Callable[[Float[Array, " S"]], Float[Array, ""]],
) -> Float[Array, " S"]:
    """Solve x = source + ahead(x), a contraction in `norm`, by fixed-point iteration from the solution of `krylov`."""
    euclidean = tolerance / jnp.sqrt(float(source.size)) if norm is _total else tolerance
    guess = krylov(ahead, source, 1e-14, euclidean)
    return fixed_point(lambda x: source + ahead(x), guess, tolerance, norm)


def fixed_point(
    function: StateMap,
    start: Float[Array, " S"],
    tolerance: Array | float,
    norm: Callable[[Float[Array, " S"]], Float[Array, ""]] = _largest,
) -> Float[Array, " S"]:
    """Apply `function` until the vector changes by at most `tolerance`, or by rounding, in `norm`."""
    rounding = 8 * jnp.finfo(start.dtype).eps  # iterates of large values may oscillate within it

    def unsettled(carry: Any):
        value, previous, sweep = carry
        return (norm(value - previous) > jnp.maximum(tolerance, rounding * norm(value))) & (sweep < MAX_SWEEPS)

    def sweep(carry: Any):
        value, _, count = carry
        return function(value), value, count + 1

    return jax.lax.while_loop(unsettled, sweep, (function(start), start, 0))[0]


def _resolvent(mdp: FiniteMDP, policy: Policy) -> Float[Array, "S S"]:
    """The inverse of ``1 - discount P``; its condition number is at most (1 + discount) / (1 - discount)."""
    step = mdp.forward.dense(mdp.states).reshape(mdp.states, mdp.actions, mdp.states)
    step = jnp.einsum("sa,sat->st", jnp.where(mdp.terminal[:, None], 0.0, policy), step)
    return inverse(jnp.eye(mdp.states, dtype=step.dtype) - mdp.discount * step)


# Newton's method for the soft planner (soft policy iteration): largest number of steps, accuracy of each.
NEWTON_STEPS, NEWTON_PRECISION = 20, 1e-2

Reward = Float[Array, " S"] | Float[Array, "S A"]


class AbstractPlanner(eqx.Module):
    """The interface of planners; `tolerance` bounds the error of the values."""

    tolerance: eqx.AbstractVar[float]

    @abc.abstractmethod
    def q_values(self, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
        r"""Values $Q$ such that the policy is $\pi(a|s) \propto \exp Q(s, a)$. Differentiable in `reward`."""

    @abc.abstractmethod
    def q_derivative(self, mdp: FiniteMDP, q: Float[Array, "S A"], direction: Reward) -> Float[Array, "S A"]:
        """The directional derivative of the values `q` with respect to the reward."""


class Soft(AbstractPlanner):
    r"""The paper's planner, Eqs. (3)-(5): $Q = r + \gamma E[V']$, $V = \log \sum_a \exp Q$, with $\beta$ in the reward.

    A terminal state absorbs and keeps collecting the entropy of $A$ equal actions, $\log A / (1 - \gamma)$ in total.
    Without it, a soft policy would avoid the goal to keep collecting entropy elsewhere.

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
    mdp: FiniteMDP,
    reward: Reward,
    maximum: Callable[[Array], Array],
    tolerance: float,
    after_the_end: Array | float = 0.0,
    derivative: Callable[[Array], Array] | None = None,
) -> Float[Array, "S A"]:
    """Iterate to the fixed point; with the `derivative` of `maximum`, started by Newton's method."""

    def q_of(value: Array) -> Array:
        return by_action(mdp, reward) + mdp.discount * expected_successor(mdp, value)

    def backup(value: Array) -> Array:
        return _with_terminals(mdp, reward, maximum(q_of(value)), after_the_end)

    accuracy = tolerance * (1 - mdp.discount)
    start = jnp.zeros(mdp.states, jnp.result_type(reward))
    if derivative is not None and mdp.states > DENSE_STATES:

        def newton(carry: Any):
            value, missing, step = carry
            value = value + krylov(one_step(mdp, derivative(q_of(value))), missing, NEWTON_PRECISION, accuracy)
            return value, backup(value) - value, step + 1

        def far(carry: Any):
            return (jnp.max(jnp.abs(carry[1])) > accuracy) & (carry[2] < NEWTON_STEPS)

        start = jax.lax.while_loop(far, newton, (start, backup(start) - start, 0))[0]
        start = jnp.where(jnp.all(jnp.isfinite(start)), start, 0.0)
    return q_of(fixed_point(backup, start, accuracy))


def _with_terminals(
    mdp: FiniteMDP, reward: Reward, value: Float[Array, " S"], after_the_end: Array | float = 0.0
) -> Float[Array, " S"]:
    """Values with those of terminal states replaced: their state reward, if there is one, plus `after_the_end`."""
    own = reward if reward.ndim == 1 else jnp.zeros_like(value)
    return jnp.where(mdp.terminal, own + after_the_end, value)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _soft_q_values(tolerance: float, mdp: FiniteMDP, reward: Reward) -> Float[Array, "S A"]:
    entropy = jnp.log(float(mdp.actions)) / (1 - mdp.discount)
    return _value_iteration(mdp, reward, soft_maximum, tolerance, entropy, jax.nn.softmax)


def _soft_forward(tolerance: float, mdp: FiniteMDP, reward: Array):
    q = _soft_q_values(tolerance, mdp, reward)
    return q, (mdp, reward, q)


def _soft_backward(tolerance: float, residual: Any, cotangent: Any) -> Any:
    """The gradient of soft values: expected visits under the soft policy (the paper's Lemma)."""
    mdp, reward, q = residual
    policy = jax.nn.softmax(q)
    pushed = mdp.discount * push_forward(mdp, cotangent)
    visits: Array = discounted_visits(tolerance, mdp, policy, pushed)
    by_reward = cotangent + policy * moving(mdp, visits)[:, None]
    if reward.ndim == 1:
        by_reward = by_reward.sum(-1) + jnp.where(mdp.terminal, visits, 0.0)
    return None, by_reward


_soft_q_values.defvjp(_soft_forward, _soft_backward)
