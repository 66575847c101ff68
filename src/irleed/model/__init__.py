"""The paper's model: demonstrators with a precision and a bias, and what is known about them.

- `demonstrators`: precision, bias, their gauge and priors (Eq. 6).
- `actions`: distributions of discrete actions and of vectors, and how a precision and a bias change them.
- `mixed`: distributions of vectors some of whose entries are choices, the head for any actions, and demonstrators of
  vectors as noise around a shared policy.
- `residuals`: their precision, bias and gain, by how their actions differ from the shared policy's.
- `networks`: perceptrons, and biases made of them.
- `expertise`: the answer about the demonstrators.
"""

from irleed.model.actions import ActionDistribution, Categorical, SquashedGaussian
from irleed.model.demonstrators import Demonstrators, Prior, gauge, perceived
from irleed.model.expertise import Expertise
from irleed.model.mixed import Mixed
from irleed.model.networks import Mlp

__all__ = [
    "ActionDistribution",
    "Categorical",
    "Demonstrators",
    "Expertise",
    "Mixed",
    "Mlp",
    "Prior",
    "SquashedGaussian",
    "gauge",
    "perceived",
]
