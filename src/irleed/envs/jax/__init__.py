"""Environments in pure JAX.

- `cartpole`: CartPole, equal to Gymnasium's.
- `probes`: small environments whose soft values are known, to test algorithms on.
"""

from irleed.envs.jax.cartpole import CartPole, CartPoleState
from irleed.envs.jax.probes import CONTINUOUS_PROBES, PROBES, ContinuousProbe, Probe

__all__ = ["CONTINUOUS_PROBES", "PROBES", "CartPole", "CartPoleState", "ContinuousProbe", "Probe"]
