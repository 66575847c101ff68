r"""The objective of inverse soft Q-learning for one transition.

Values $q = \beta_i(Q + \alpha\epsilon_i)/T$ are the logits of demonstrator $i$'s policy, $V$ is their log partition
($\log\sum_a \exp q$ for discrete actions), and the reward they imply is $r = q(s, a) - \gamma V(s')$. Maximum-entropy
inverse RL maximises $E[r] - \psi(r) - E[V(s) - \gamma V(s')]$ over the demonstrations, with $\psi$ a penalty on large
rewards. Over the same transitions, the first and last terms are the log-likelihood of the actions:
$q(s, a) - V(s) = \log\pi_i(a|s)$.
"""

import equinox as eqx
import jax.numpy as jnp

from irleed._typing import Array, Float, Scalar


class Terms(eqx.Module):
    """The terms of the objective, of one transition or of a batch."""

    log_likelihood: Float[Array, "*B"]  # q(s, a) - V(s)
    reward: Float[Array, "*B"]  # r = q(s, a) - discount V(s')
    value_step: Float[Array, "*B"]  # V(s) - discount V(s')


def terms(
    q_tm1: Float[Array, "*B"], v_tm1: Float[Array, "*B"], v_t: Float[Array, "*B"], discount_t: Float[Array, "*B"]
) -> Terms:
    r"""The terms of a transition.

    **Arguments:**

    - `q_tm1`: $q(s, a)$, the logit of the action taken.
    - `v_tm1`, `v_t`: the soft values of $s$ and of $s'$.
    - `discount_t`: $\gamma$, or 0 where $s'$ is terminal. A truncated episode goes on.
    """
    return Terms(q_tm1 - v_tm1, q_tm1 - discount_t * v_t, v_tm1 - discount_t * v_t)


def demonstration_loss(term: Terms, penalty: Scalar) -> Float[Array, "*B"]:
    r"""$-\log\pi_i(a|s) + c\,r^2$: the value term is taken over the demonstrations themselves, as offline."""
    return -term.log_likelihood + penalty * term.reward**2


def mixed_loss(demonstrated: Terms, replayed: Terms, penalty: Scalar, fraction: Scalar) -> Float[Array, "*B"]:
    r"""$-r$ of a demonstrated transition, and $V(s) - \gamma V(s') + c\,r^2$ mixed with those of a replayed one.

    Any fraction is valid: $E[V(s) - \gamma V(s')]$ is the same under any policy.
    """
    value = (1 - fraction) * demonstrated.value_step + fraction * replayed.value_step
    size = (1 - fraction) * demonstrated.reward**2 + fraction * replayed.reward**2
    return -demonstrated.reward + value + penalty * size


def bias_penalty(bias: Float[Array, "*B A"]) -> Float[Array, "*B"]:
    r"""$\mathrm{mean}_a\,\epsilon_i(s, a)^2$: what all biases share belongs to Q."""
    return jnp.mean(bias**2, -1)
