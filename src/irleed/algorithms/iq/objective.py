r"""The objective of inverse soft Q-learning for one transition, in natural scale.

Values $q = \beta_i(Q + \alpha\epsilon_i)/T$ are the logits of demonstrator $i$'s policy, $V = \log\sum_a \exp q$, and
the reward they imply is $r = q(s, a) - \gamma V(s')$. Maximum-entropy inverse RL maximises
$E[r] - \psi(r) - E[V(s) - \gamma V(s')]$ over the demonstrations, with $\psi$ a penalty on large rewards. Over the same
transitions, the first and last terms are the log-likelihood of the actions: $q(s, a) - V(s) = \log\pi_i(a|s)$.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from irleed._typing import Array, Float, Int, Scalar


class Terms(eqx.Module):
    """What the objective is made of."""

    log_likelihood: Float[Array, ""]  # q(s, a) - V(s)
    reward: Float[Array, ""]  # r = q(s, a) - discount V(s')
    value_step: Float[Array, ""]  # V(s) - discount V(s')


def terms(q_tm1: Float[Array, " A"], a_tm1: Int[Array, ""], q_t: Float[Array, " A"], discount_t: Scalar) -> Terms:
    r"""The terms of one transition.

    **Arguments:**

    - `q_tm1`, `q_t`: logits in $s$ and in $s'$.
    - `a_tm1`: the action taken in $s$.
    - `discount_t`: $\gamma$, or 0 where the task ended in $s'$. An episode that was cut short goes on.
    """
    v_tm1, v_t = jax.nn.logsumexp(q_tm1), jax.nn.logsumexp(q_t)
    chosen = q_tm1[a_tm1]
    return Terms(chosen - v_tm1, chosen - discount_t * v_t, v_tm1 - discount_t * v_t)


def demonstration_loss(term: Terms, penalty: Scalar) -> Float[Array, ""]:
    r"""$-\log\pi_i(a|s) + c\,r^2$: the value term taken over the demonstrations themselves, as offline."""
    return -term.log_likelihood + penalty * term.reward**2


def mixed_loss(demonstrated: Terms, played: Terms, penalty: Scalar, share: Scalar) -> Float[Array, ""]:
    r"""$-r$ of a demonstrated transition, and $V(s) - \gamma V(s') + c\,r^2$ by a share over a played one beside it.

    Any share is right: $E[V(s) - \gamma V(s')]$ is the same under any policy.
    """
    value = (1 - share) * demonstrated.value_step + share * played.value_step
    size = (1 - share) * demonstrated.reward**2 + share * played.reward**2
    return -demonstrated.reward + value + penalty * size


def initial_value(q_0: Float[Array, " A"], discount: Scalar) -> Float[Array, ""]:
    r"""$(1 - \gamma) V(s_0)$: what $E[V(s) - \gamma V(s')]$ under any policy telescopes to, $s_0$ a first state."""
    return (1 - discount) * jax.nn.logsumexp(q_0)


def bias_penalty(bias: Float[Array, " A"]) -> Float[Array, ""]:
    r"""$\mathrm{mean}_a\,\epsilon_i(s, a)^2$: what all biases share belongs to Q."""
    return jnp.mean(bias**2)
