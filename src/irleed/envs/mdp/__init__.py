"""Finite MDPs.

- `model`: `FiniteMDP`, with transition tables that list successors; `validation` checks what one is made from.
- `files`: MDPs as `.npz` files.
- `gridworld`: gridworlds, the paper's among them; `toy_text`: Gymnasium's tabular environments.
"""

from irleed.envs.mdp.files import load_mdp, save_mdp
from irleed.envs.mdp.gridworld import Gridworld, gridworld, paper_gridworld
from irleed.envs.mdp.model import FiniteMDP, SparseMatrix
from irleed.envs.mdp.toy_text import from_gymnasium

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
