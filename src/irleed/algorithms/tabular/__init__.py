"""IRLEED in finite MDPs; maximum-entropy IRL is its special case.

- `irleed`: the maximum a posteriori estimate, over `curvature` (Newton's method) and `posterior` (widths, intervals).
- `paper_protocol`: the paper's protocol, step by step.
- `planning` and `visitation`: policies of rewards, and visits of policies; `linear` has the linear maps below both.
"""

from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Published
from irleed.algorithms.tabular.planning import Averaged, Soft

__all__ = ["Averaged", "Irleed", "Published", "Soft"]
