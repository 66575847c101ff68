"""The width of a Gaussian prior, learnt from what it is a prior of."""

import equinox as eqx
import jax.numpy as jnp

from irleed._typing import Array, Float, Scalar

# A width is learnt as if this many more parameters had been seen, of the smallest variance allowed.
PRIOR_PARAMETERS = 1.0
LARGEST_INVERSE = 1e4
# A step on the log scale is this long at most.
LONGEST_STEP = 1.5
# MacKay's iteration creeps; this much longer steps still do not swing.
LENGTHENED = 1.5


class Width(eqx.Module):
    """An inverse variance on its way to MacKay's fixed point, on a log scale."""

    inverse: Float[Array, ""]
    step: Float[Array, ""]  # the last one

    @classmethod
    def starting(cls, inverse: Scalar) -> "Width":
        """Not yet learnt."""
        return cls(jnp.asarray(inverse, float), jnp.asarray(jnp.inf, float))

    def learn(self, values: Float[Array, "..."], determined: Float[Array, ""]) -> "Width":
        """One step, given the current values and how many of them the data determine."""
        proposal = (determined + PRIOR_PARAMETERS) / (jnp.sum(values**2) + PRIOR_PARAMETERS / LARGEST_INVERSE)
        step = jnp.clip(LENGTHENED * jnp.log(proposal / self.inverse), -LONGEST_STEP, LONGEST_STEP)
        return Width(self.inverse * jnp.exp(step), step)

    def limited(self, largest: Float[Array, ""]) -> "Width":
        """The same, or the largest inverse variance there may be, and the step to that."""
        inverse = jnp.minimum(self.inverse, largest)
        return Width(inverse, self.step + jnp.log(inverse / self.inverse))

    def to_gain(self, determined: Float[Array, ""]) -> Float[Array, ""]:
        """Log evidence that the last step gained, to second order."""
        return 0.5 * determined * self.step**2
