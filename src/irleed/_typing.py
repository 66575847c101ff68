"""Axis letters and array aliases used in every annotation.

Axes: ``S`` states, ``A`` actions, ``F`` features, ``D`` demonstrators, ``N`` transitions, ``R`` rows of
observations, ``K`` slots of a padded list, ``T`` time steps. Functions describe one problem; seeds and settings are
added outside by ``jax.vmap``.
"""

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray, Shaped

# Values at rest (a data set, an MDP, a fitted policy) are NumPy arrays; inside a traced function they are JAX's.
Array = jax.Array | np.ndarray
Key = PRNGKeyArray
Scalar = Float[Array, ""] | float

__all__ = ["Array", "Bool", "Float", "Int", "Key", "Scalar", "Shaped"]
