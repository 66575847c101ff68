"""The paper's second experiment: CartPole and LunarLander with three demonstrators of uneven quality (Table 1).

For each of four settings, low or high precision and low or high accuracy, and each seed: three demonstrators drawn from
a trained critic play some episodes; every method learns from the same transitions; the last policy of each plays.
`sweep` runs what a `ControlConfig` asks for; `write` makes results.json and the figures of it, `tables` shows them.
"""

from irleed.experiments.control.config import ControlConfig, check
from irleed.experiments.control.protocol import sweep
from irleed.experiments.control.results import diverged, tables, write

__all__ = ["ControlConfig", "check", "diverged", "sweep", "tables", "write"]
