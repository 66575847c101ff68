"""Finite MDPs.

- `model`: `FiniteMDP`, with transition tables that list successors.
- `builders`: MDPs from `.npz` files, gridworlds, the paper's among them, and Gymnasium's tabular environments.
"""

from irleed.envs.mdp.builders import Gridworld, from_gymnasium, gridworld, load_mdp, paper_gridworld, save_mdp
from irleed.envs.mdp.model import FiniteMDP, SparseMatrix

__all__ = [
    "FiniteMDP",
    "Gridworld",
    "SparseMatrix",
    "from_gymnasium",
    "gridworld",
    "load_mdp",
    "paper_gridworld",
    "save_mdp",
]
