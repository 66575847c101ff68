"""The command `irleed curate`: weights and filtered copies, in the formats that training programs read."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from irleed._io.files import beside
from irleed._io.text import cell, csv_cell, say
from irleed.analysis.curation import Curation, curate, read_run
from irleed.data import Demonstrations, load, save
from irleed.data.formats import imitation, lerobot, minari, robomimic
from irleed.data.limits import EXPANSION
from irleed.errors import ConfigError

KEEP, DROP = "irleed_keep", "irleed_drop"  # masks in a robomimic file


@dataclass(frozen=True)
class CurateCommand:
    """Weigh episodes by what a fit says of them, and write weights or a filtered copy; the source stays as it is."""

    data: tyro.conf.Positional[Path]
    """The demonstrations that were fitted."""
    run_folder: Annotated[Path, tyro.conf.arg(name="run")]
    """The folder of the fit (`irleed fit DATA --out FOLDER`)."""
    out: Path | None = None
    """What to write, by its ending. .csv or .parquet: a row of weights for each episode; .npz: the episodes to keep;
    .hdf5: a copy of a robomimic file with the masks irleed_keep and irleed_drop; none: a folder with the episodes to
    keep, of a Minari data set as such, else in the layout of the library imitation."""
    share: float = 0.5
    """Episodes of most weight are kept until they have this share of all transitions."""
    other_data: bool = False
    """Weigh data that the run was not fitted to: new episodes of the same demonstrators."""
    expansion: float = EXPANSION
    """How many times its own size a file of the data may take in memory, as in `irleed fit`."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Weigh, print, and write what was asked for."""
        run = read_run(self.run_folder, self.expansion)
        data = load(self.data, run.reading)
        found = curate(data, run, self.share, other_data=self.other_data)
        if self.out is not None:
            _write(self.data, self.out, data, found)
        if self.json:
            print(json.dumps(found.rows(), indent=1))
        else:
            console.print(_table(found))
        if self.out is not None:
            say(Console(stderr=True) if self.json else console, f"wrote {self.out}")


def _table(found: Curation, limit: int = 30) -> Table:
    """A row for each demonstrator, those of most weight first."""
    table = Table(title="What to keep", box=SIMPLE_HEAD, pad_edge=False, caption="weight 1 is the average transition's")
    for heading in ("demonstrator", "episodes", "kept", "precision", "bias", "weight"):
        table.add_column(heading, justify="left" if heading == "demonstrator" else "right", no_wrap=True)
    rows = []
    for who, name in enumerate(found.names):
        own = found.owner == who
        weight = float(np.average(found.weight[own], weights=found.steps[own]))
        kept = int(found.keep[own].sum())
        rows.append((weight, name, int(own.sum()), kept, found.precision[who], found.bias[who]))
    for weight, name, episodes, kept, precision, bias in sorted(rows, key=lambda row: -row[0])[:limit]:
        table.add_row(cell(name), str(episodes), str(kept), f"{precision:.2f}", f"{bias:.2f}", f"{weight:.2f}")
    if len(rows) > limit:
        table.add_row(f"and {len(rows) - limit} more")
    return table


def _write(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    """By the ending of the name; nothing that is there is written over."""
    if out.exists():
        raise ConfigError(f"--out {out}", got="what exists", expected="a new name", remedy="choose another")
    if not out.parent.is_dir():
        got, remedy = f"no folder {out.parent}", "make it first"
        raise ConfigError(f"--out {out}", got=got, expected="a folder that exists", remedy=remedy)
    writers: dict[str, Callable[[Path, Path, Demonstrations, Curation], None]] = {
        ".csv": _csv,
        ".parquet": _parquet,
        ".npz": _npz,
        ".hdf5": _masks,
        ".h5": _masks,
        "": _folder,
    }
    if out.suffix not in writers:
        expected = ", ".join(ending or "a folder" for ending in writers)
        raise ConfigError(f"--out {out}", got=out.suffix, expected=expected, remedy="choose one of them")
    try:
        writers[out.suffix](source, out, data, found)
    except OSError as error:
        got, remedy = error.strerror or str(error), "choose another place"
        raise ConfigError(f"--out {out}", got=got, expected="a place to write", remedy=remedy) from error


def _csv(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    """Names that a spreadsheet would take for formulas get an apostrophe; programs join on the episode's number."""
    rows = found.rows()
    with beside(out) as binary, open(os.dup(binary.fileno()), "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({key: csv_cell(value) for key, value in row.items()} for row in rows)


def _parquet(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    rows = found.rows()
    columns = {name: [row[name] for row in rows] for name in rows[0] if name not in ("episode", "quality_score")}
    lerobot.write_weights(out, [row["episode"] for row in rows], [row["quality_score"] for row in rows], **columns)


def _npz(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    save(_kept(data, found), out)


def _masks(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    masks: dict[str, list[str]] = {KEEP: [], DROP: []}
    for name, keep in zip(robomimic.demo_names(source), found.keep, strict=True):
        masks[KEEP if keep else DROP].append(name)
    robomimic.write_masks(source, out, {mask: names for mask, names in masks.items() if names})


def _folder(source: Path, out: Path, data: Demonstrations, found: Curation) -> None:
    if minari.FORMAT.recognises(source):
        minari.write(source, out, np.flatnonzero(found.keep).tolist())
    else:
        imitation.write(_kept(data, found), out)


def _kept(data: Demonstrations, found: Curation) -> Demonstrations:
    return data.take(np.flatnonzero(found.keep))
