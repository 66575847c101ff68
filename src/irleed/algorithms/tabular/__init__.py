"""IRLEED in finite MDPs, Eqs. (2)-(10) of the paper; maximum-entropy IRL is its special case (the Remark on IRL).

- `irleed`: the converged estimate, over `curvature` (Newton's method) and `posterior` (widths of priors, intervals).
- `paper_protocol`: the published protocol.
- `planning`: the values and policies of a reward. `visitation`: visits, returns and counts of a policy or of data.
"""

from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Published
from irleed.algorithms.tabular.planning import Averaged, Soft

__all__ = ["Averaged", "Irleed", "Published", "Soft"]
