"""Tables of episodes' scores, for `irleed validate` and `irleed experiment people`, from data that have rewards."""

import csv
import io
import os
from pathlib import Path

from irleed._io.files import beside, writing
from irleed._io.text import csv_cell, printable
from irleed.data import Demonstrations, ReadOptions, load
from irleed.data.formats import refuse
from irleed.data.io import recognise


def write_scores(source: str | Path, out: str | Path, reading: ReadOptions | None = None) -> None:
    """Write a CSV file with the return of each episode in `source`, and what its format knows besides."""
    place, reading = Path(source), ReadOptions() if reading is None else reading
    kind = recognise(place)
    if kind is not None and kind.scores is not None:
        table = kind.scores(place, reading)
    else:
        table = of_rewards(load(source, reading), source)
    with writing(out, "choose another file"), beside(Path(os.path.realpath(out))) as file:
        file.write(table.encode())


def of_rewards(data: Demonstrations, where: str | Path = "data") -> str:
    """The table of episode returns; data without rewards are refused."""
    returns = data.returns()
    if returns is None:
        refuse(printable(where), "no rewards", "rewards, whose sums are the scores", "write the table by hand")
    text, count = io.StringIO(), [0] * data.demonstrators
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("demonstrator", "episode_of_demonstrator", "steps", "return"))
    for steps, owner, score in zip(data.length.tolist(), data.owner.tolist(), returns.tolist(), strict=True):
        rows.writerow((csv_cell(data.names[owner]), count[owner], steps, score))
        count[owner] += 1
    return text.getvalue()
