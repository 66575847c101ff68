r"""The two linear maps of a policy in an MDP, each the other's transpose, with derivatives of any order.

`policy_value` sums what lies ahead, $x = b + \gamma P_\pi x$; `discounted_visits` sums where one goes,
$y = b + \gamma P_\pi^\top y$. The derivative of one is an application of the other, so reverse mode needs nothing else.
The MDP itself is a constant here: no derivative with respect to dynamics or discount is defined.

Small dense matrices are inverted by `inverse`, safe and quick under `vmap` on every platform.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Scalar
from irleed.envs.mdp import FiniteMDP


@jax.custom_batching.custom_vmap
def inverse(matrix: Float[Array, "S S"]) -> Float[Array, "S S"]:
    """The inverse of one matrix; a batch is inverted one by one on the CPU and at once elsewhere.

    On the CPU a batched LAPACK call shares work with the very threads it runs on; two such calls at a time can wait for
    each other for ever. One by one is as fast for small matrices and cannot.
    """
    return jnp.linalg.inv(matrix)


@inverse.def_vmap
def _(axis_size, in_batched, matrix):
    batch = jax.lax.platform_dependent(
        matrix, cpu=lambda m: jax.lax.map(inverse, m), default=lambda m: jax.vmap(jnp.linalg.inv)(m)
    )
    return batch, True


@jax.custom_batching.custom_vmap
def eigenvalues_and_vectors(matrix: Float[Array, "S S"]) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
    """Eigenvalues and eigenvectors (as columns) of one symmetric matrix; batched as `inverse` is."""
    return tuple(jnp.linalg.eigh(matrix))


@eigenvalues_and_vectors.def_vmap
def _(axis_size, in_batched, matrix):
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


def _successor(mdp, value):
    return mdp.forward.product(value).reshape(mdp.states, mdp.actions)


@jax.custom_vjp
def push_forward(mdp: FiniteMDP, flow: Float[Array, "S A"]) -> Float[Array, " S"]:
    """Where a flow out of states and actions arrives: the transpose of `expected_successor`."""
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

    def spread(visits):
        return mdp.discount * mdp.backward.product((policy * moving(mdp, visits)[:, None]).reshape(-1))

    return _solve(spread, source, tolerance * (1 - mdp.discount), _total)  # the norm in which this map contracts


def _value_forward(tolerance, mdp, policy, reward):
    value = policy_value(tolerance, mdp, policy, reward)
    return value, (mdp, policy, value)


def _value_backward(tolerance, residual, cotangent):
    mdp, policy, value = residual
    visits: Array = discounted_visits(tolerance, mdp, policy, cotangent)  # pyright: ignore[reportAssignmentType]
    return None, mdp.discount * moving(mdp, visits)[:, None] * expected_successor(mdp, value), visits


def _visits_forward(tolerance, mdp, policy, source):
    visits = discounted_visits(tolerance, mdp, policy, source)
    return visits, (mdp, policy, visits)


def _visits_backward(tolerance, residual, cotangent):
    mdp, policy, visits = residual
    value = policy_value(tolerance, mdp, policy, cotangent)
    return None, mdp.discount * moving(mdp, visits)[:, None] * expected_successor(mdp, value), value


policy_value.defvjp(_value_forward, _value_backward)
discounted_visits.defvjp(_visits_forward, _visits_backward)


def one_step(mdp: FiniteMDP, policy: Policy) -> StateMap:
    r"""$\gamma P_\pi$, as a function of what is to come."""
    return lambda value: mdp.discount * moving(mdp, sum_over_actions(policy * _successor(mdp, value)))


def sum_over_actions(by_action: Float[Array, "S A"]) -> Float[Array, " S"]:
    """The sum over the last axis, written out for few actions: XLA's reductions of short axes are slow on the CPU."""
    if by_action.shape[-1] > UNROLLED_ACTIONS:
        return jnp.sum(by_action, -1)
    return functools.reduce(jnp.add, [by_action[:, a] for a in range(by_action.shape[-1])])


def moving(mdp: FiniteMDP, by_state: Float[Array, " S"]) -> Float[Array, " S"]:
    """Zero in terminal states, from which nothing follows."""
    return jnp.where(mdp.terminal, 0.0, by_state)


def _largest(vector: Float[Array, " S"]) -> Float[Array, ""]:
    return jnp.max(jnp.abs(vector))


def _total(vector: Float[Array, " S"]) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(vector))


def krylov(ahead: StateMap, source: Float[Array, " S"], relative: float, absolute: Scalar) -> Float[Array, " S"]:
    """Solve x = source + ahead(x) by BiCGSTAB, well or badly: several times faster than iterating, but no promises."""
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
    """Solve x = source + ahead(x), a contraction by `norm`: iterate from what `krylov` found, if only to confirm it."""
    euclidean = tolerance / jnp.sqrt(float(source.size)) if norm is _total else tolerance
    guess = krylov(ahead, source, 1e-14, euclidean)
    return fixed_point(lambda x: source + ahead(x), guess, tolerance, norm)


def fixed_point(
    function: StateMap,
    start: Float[Array, " S"],
    tolerance: Array | float,
    norm: Callable[[Float[Array, " S"]], Float[Array, ""]] = _largest,
) -> Float[Array, " S"]:
    """Apply `function` until it moves the vector by no more than `tolerance`, or than rounding does; both by `norm`."""
    rounding = 8 * jnp.finfo(start.dtype).eps  # large values would swing for ever within it

    def unsettled(carry):
        value, previous, sweep = carry
        return (norm(value - previous) > jnp.maximum(tolerance, rounding * norm(value))) & (sweep < MAX_SWEEPS)

    def sweep(carry):
        value, _, count = carry
        return function(value), value, count + 1

    return jax.lax.while_loop(unsettled, sweep, (function(start), start, 0))[0]


def _resolvent(mdp: FiniteMDP, policy: Policy) -> Float[Array, "S S"]:
    """The inverse of ``1 - discount P``; its condition number is at most (1 + discount) / (1 - discount)."""
    step = mdp.forward.dense(mdp.states).reshape(mdp.states, mdp.actions, mdp.states)
    step = jnp.einsum("sa,sat->st", jnp.where(mdp.terminal[:, None], 0.0, policy), step)
    return inverse(jnp.eye(mdp.states, dtype=step.dtype) - mdp.discount * step)
