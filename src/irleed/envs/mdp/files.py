"""Finite MDPs as `.npz` files.

| array | shape | |
|---|---|---|
| `format`, `version` | scalars | `"irleed-mdp"` and 1 |
| `state`, `action`, `successor`, `probability` | `[M]` each | the transitions, one entry each; or instead: |
| `transitions` | `[S, A, S]` | the same as a dense table `P[s, a, s']` |
| `initial` | `[S]` | where episodes start |
| `discount` | scalar | in (0, 1) |
| `terminal` | `[S]`, boolean | optional: where episodes end |
| `features` | `[S, F]` or `[S, A, F]` | optional: what rewards are made of; default: one indicator a state |
| `reward` | `[S]` or `[S, A]` | optional: the truth, if known |
| `actions` | scalar | optional: how many actions, where not all occur |
| `shape` | `[2]` | optional: rows and columns, if states are the cells of a grid, to draw them as a map |

`numpy.savez(path, format="irleed-mdp", version=1, transitions=P, initial=start, discount=0.9)` writes one by hand.
"""

import os

import numpy as np

from irleed._io.npz import Layout, printable, read_npz, write_npz
from irleed.data.limits import EXPANSION, Budget
from irleed.envs.mdp.model import FiniteMDP
from irleed.errors import DataError

LISTED = ("state", "action", "successor", "probability")
LAYOUT = Layout(
    format="irleed-mdp",
    version=1,
    holds="a finite MDP",
    required=("initial", "discount"),
    optional=("terminal", "features", "reward", "actions", "shape", *LISTED, "transitions"),
    writer="irleed.envs.mdp.save_mdp",
)
KINDS = {"terminal": ("b", "boolean"), "actions": ("iu", "whole number"), "shape": ("iu", "whole number")}


def load_mdp(path: str | os.PathLike[str], expansion: float = EXPANSION) -> tuple[FiniteMDP, tuple[int, int] | None]:
    """Read an MDP, and the rows and columns of its grid if it has one.

    More than `expansion` times the size of the file is refused before it is decompressed, see `ReadOptions`.
    """
    budget, where = Budget(expansion), printable(path)
    budget.admit(path)
    arrays = read_npz(path, LAYOUT, budget.take)
    budget.take(where, sum(8 * array.size - array.nbytes for array in arrays.values()))  # once in double precision
    _check_kinds(where, arrays)
    settings = {name: arrays.get(name) for name in ("initial", "terminal", "features", "reward")}
    settings |= {"discount": float(arrays["discount"]), "where": where}
    if "transitions" in arrays:
        mdp = FiniteMDP.from_dense(arrays["transitions"], **settings)
    else:
        actions = int(arrays["actions"]) if "actions" in arrays else None
        mdp = FiniteMDP.from_transitions(*(arrays[name] for name in LISTED), actions=actions, **settings)
    return mdp, _shape(f"{where}, shape", arrays.get("shape"), mdp.states)


def save_mdp(mdp: FiniteMDP, path: str | os.PathLike[str], shape: tuple[int, int] | None = None) -> None:
    """Write an MDP; `shape` is the rows and columns of a gridworld. The file appears whole or not at all."""
    arrays = dict(zip(LISTED, mdp.transitions(), strict=True))
    arrays |= {
        name: getattr(mdp, name) for name in ("initial", "terminal", "discount", "features", "reward", "actions")
    }
    write_npz(path, LAYOUT, arrays | {"shape": _shape("shape", shape, mdp.states)})


def _check_kinds(where: str, arrays: dict[str, np.ndarray]) -> None:
    """That transitions are given in one of the two ways, and that arrays hold numbers."""
    given = [name for name in (*LISTED, "actions", "transitions") if name in arrays]
    if given not in (list(LISTED), [*LISTED, "actions"], ["transitions"]):
        raise DataError(
            where,
            got=f"the dynamics as {', '.join(given) or 'nothing'}",
            expected=f"either {', '.join(LISTED)} (and perhaps actions) or transitions",
            remedy="give one of the two, whole",
        )
    for name, array in arrays.items():
        kinds, word = KINDS.get(name, ("iuf", "number"))
        scalar = name in ("discount", "actions")
        if array.dtype.kind not in kinds or (scalar and array.ndim):
            raise DataError(
                f"{where}, {name}",
                got=f"{array.dtype} of shape {array.shape}",
                expected=f"a {word}" if scalar else f"{word}s",
                remedy="convert it",
            )


def _shape(where: str, shape, states: int) -> tuple[int, int] | None:
    if shape is None:
        return None
    if np.shape(shape) != (2,) or min(shape) < 1 or int(shape[0]) * int(shape[1]) != states:
        raise DataError(
            where,
            got=np.asarray(shape).tolist(),
            expected=f"rows and columns that make {states} cells",
            remedy="mend it or leave it out",
        )
    return int(shape[0]), int(shape[1])
