"""Demonstrators of known precision and bias, and the experts they are made from.

- `simulate`: demonstrators of a finite MDP, and the truth about them.
- `critics`: demonstrators who act by a trained critic; `policies`: trained policies; `experts`: how either is trained.
"""

from irleed.simulation.critics import CriticDemonstrator, draw_demonstrators, load_critic, teacher, to_demonstrations
from irleed.simulation.mdp import Truth, simulate

__all__ = [
    "CriticDemonstrator", "Truth", "draw_demonstrators", "load_critic", "simulate", "teacher", "to_demonstrations",
]  # fmt: skip
