"""The paper's first experiment: five demonstrators of uneven quality in a gridworld (Figures 2 and 3).

`sweep` runs what a `GridworldConfig` asks for; `write` makes results.json and the figures of it, `tables` shows them.
"""

from irleed.experiments.gridworld.config import GridworldConfig, check
from irleed.experiments.gridworld.protocol import sweep
from irleed.experiments.gridworld.results import summarise, tables, write

__all__ = ["GridworldConfig", "check", "summarise", "sweep", "tables", "write"]
