"""IRLEED on inverse soft Q-learning; IQ-Learn is the special case of precision 1 and bias 0, see `iq` of each class.

This is the generalised objective of the paper's Appendix A, Eq. (14), with rewards implied by a soft Q network.

- `OfflineIrleed` learns from demonstrations alone, with discrete actions or vectors.
- `OnlineIrleed` (discrete actions) and `SacIrleed` (vectors) also act in an environment.
- `irleed` has the objective of one transition and the two for discrete actions, `actor_critic` the last.
"""

from irleed.algorithms.iq.actor_critic import SacIrleed
from irleed.algorithms.iq.irleed import IQ_LEARN, OfflineIrleed, OnlineIrleed

__all__ = ["IQ_LEARN", "OfflineIrleed", "OnlineIrleed", "SacIrleed"]
