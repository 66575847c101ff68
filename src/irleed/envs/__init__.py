"""Environments, three kinds of them behind one time step.

- `step`: the canonical time step, what actions there are, and the interface of environments in JAX.
- `mdp`: finite MDPs, with gridworlds and Gymnasium's tabular environments.
- `jax`: environments in pure JAX: CartPole, and probes whose values are known.
- `host`: environments of Gymnasium, envpool, ALE and MuJoCo, many lanes that step together.
"""

from irleed.envs.step import AbstractEnv, Actions, Bounds, Transition

__all__ = ["AbstractEnv", "Actions", "Bounds", "Transition"]
