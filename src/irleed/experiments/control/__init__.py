"""The paper's second experiment: CartPole and LunarLander with three demonstrators of uneven quality (Table 1).

For each of four settings, low or high precision and low or high accuracy, and each seed, three demonstrators drawn from
a trained critic record some episodes; every method learns from the same transitions; its final policy is evaluated.
"""

from irleed.experiments.control.protocol import ControlConfig, check, sweep
from irleed.experiments.control.results import diverged, tables, write

__all__ = ["ControlConfig", "check", "diverged", "sweep", "tables", "write"]
