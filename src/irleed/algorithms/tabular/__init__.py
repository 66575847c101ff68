"""IRLEED in finite MDPs, Eqs. (2)-(10) of the paper; maximum-entropy IRL is its special case (the Remark on IRL).

- `irleed`: the converged estimate, with intervals. `paper_protocol`: the published protocol.
- `planning`: the values and policies of a reward. `visitation`: visits, returns and counts of a policy or of data.
"""
