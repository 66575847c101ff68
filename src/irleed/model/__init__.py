"""The paper's model: demonstrators with a precision and a bias, and the estimates of both.

- `demonstrators`: precision, bias, their gauge and priors (Eq. 6).
- `actions`: distributions of discrete actions and of vectors, and how a precision and a bias change them.
- `mixed`: distributions of vectors some of whose entries are choices, the head for any actions, and demonstrators of
  vectors as noise around a shared policy.
- `residuals`: their precision, bias and gain, by how their actions differ from the shared policy's.
- `networks`: multilayer perceptrons, and bias networks.
- `expertise`: the estimates for every demonstrator.
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
