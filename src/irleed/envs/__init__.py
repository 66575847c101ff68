"""Environments of three kinds behind one time step.

- `step`: the canonical time step, action spaces, and the interface of environments in JAX.
- `mdp`: finite MDPs, gridworlds, and Gymnasium's tabular environments.
- `jax`: CartPole in pure JAX.
- `host`: many lanes of an environment of Gymnasium, envpool, ALE or MuJoCo; `engines` makes them.
"""

from irleed.envs.step import AbstractEnv, Actions, Bounds, Transition

__all__ = ["AbstractEnv", "Actions", "Bounds", "Transition"]
