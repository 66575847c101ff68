"""The paper's Figure 4: Hopper, from an expert, from worse policies, and from all of them together.

`sweep` runs what a `HopperConfig` asks for; `write` makes results.json and the figure of it, `tables` shows them.
"""

from irleed.experiments.hopper.config import HopperConfig, check
from irleed.experiments.hopper.protocol import sweep
from irleed.experiments.hopper.results import tables, write

__all__ = ["HopperConfig", "check", "sweep", "tables", "write"]
