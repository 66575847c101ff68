"""IRLEED and IQ-Learn in the form that suits data and purpose."""

import dataclasses

from irleed.algorithms.iq.gaussian_q import GaussianQ
from irleed.algorithms.iq.online import OnlineSoftQ
from irleed.algorithms.iq.sac import Sac
from irleed.algorithms.iq.soft_q import SoftQ

# Where biases are networks, up to this many demonstrators have one each; more share a trunk with this many outputs.
OWN_NETWORKS, RANK = 16, 8


def suitable(
    demonstrators: int,
    *,
    online: bool = False,
    iq: bool = False,
    survival: bool = False,
    continuous: bool = False,
) -> SoftQ | OnlineSoftQ | GaussianQ | Sac:
    """IRLEED, or IQ-Learn, with biases for so many demonstrators; see `SoftQ.survival` and `Sac.ends`."""
    changes: dict[str, object] = {"learn_precision": False, "learn_bias": False} if iq else {}
    if (continuous or survival) and demonstrators > OWN_NETWORKS:
        changes |= {"rank": RANK}
    if continuous and online:
        return dataclasses.replace(Sac(ends="failure" if survival else "learnt"), **changes)
    if continuous:
        return dataclasses.replace(GaussianQ(), **changes)
    if online:
        playing = OnlineSoftQ.survival() if survival else OnlineSoftQ()
        return dataclasses.replace(playing, learner=dataclasses.replace(playing.learner, **changes))
    return dataclasses.replace(SoftQ.survival() if survival else SoftQ(), **changes)
