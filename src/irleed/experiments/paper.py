"""The paper's published figures, as data to stand beside ours: facts to compare with, never an input to training.

The files under ``published/`` hold the authors' numbers: ``gridworld_121`` (Figure 3), ``table1_control`` (Table 1),
``table2_atari`` (Table 2) and ``hopper_curves`` (Figure 4).
"""

import csv
import importlib.resources
from typing import NamedTuple

import numpy as np

from irleed._typing import Float

# A row is a setting of the largest precision, a column one of the accuracy.
Cells = Float[np.ndarray, "P L"]


class PublishedGridworld(NamedTuple):
    """Figure 3: mean return in each of the 121 data set settings."""

    max_precision: Float[np.ndarray, " P"]  # the largest beta that demonstrators were drawn with
    accuracy: Float[np.ndarray, " L"]  # lambda; infinite: no bias
    demonstrators: Cells
    irl: Cells
    irleed: Cells

    @property
    def improvement(self) -> Cells:
        """Relative improvement of IRLEED over maximum-entropy IRL: 0.3 is 30 %."""
        return self.irleed / self.irl - 1


def gridworld() -> PublishedGridworld:
    """The gridworld experiment's published returns."""
    rows = published("gridworld_121")
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    max_precision, accuracy = np.unique(columns["beta_max"]), np.unique(columns["lambda"])
    order = np.lexsort((columns["lambda"], columns["beta_max"]))  # by row, then by column
    shape = len(max_precision), len(accuracy)
    returns = (columns[name][order].reshape(shape) for name in ("demonstrators", "irl", "irleed"))
    return PublishedGridworld(max_precision, accuracy, *returns)


def published(name: str) -> list[dict[str, str]]:
    """The rows of one of the files, as text by column name."""
    file = importlib.resources.files("irleed.experiments") / "published" / f"{name}.csv"
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
