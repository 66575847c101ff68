"""Experts trained on the true reward, from which demonstrators are simulated; IRLEED itself does not need them."""

from irleed.algorithms.experts.sac import SacExpert
from irleed.algorithms.experts.soft_q import SoftQExpert

__all__ = ["SacExpert", "SoftQExpert"]
