"""Simulated demonstrators of known precision and bias, and the experts they are derived from.

- `mdp`: demonstrators in a finite MDP.
- `critics`: demonstrators who act by a trained critic; trained critics and policies, and how they are trained.
"""

from irleed.simulation.critics import (
    CriticDemonstrator,
    draw_demonstrators,
    load_critic,
    load_teacher,
    to_demonstrations,
)
from irleed.simulation.mdp import Truth, simulate

__all__ = [
    "CriticDemonstrator", "Truth", "draw_demonstrators", "load_critic", "simulate", "load_teacher", "to_demonstrations",
]  # fmt: skip
