"""All formats: how hostile files of each are made, and how they are read."""

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fuzz import arrow, crafter, hdf5, lerobot, links, minari, pickles, policies, readers, runs, tables, zips
from fuzz.case import Case
from fuzz.harness import Format

# What readers import when they need it: once, before processes are forked, and not again in each of them.
WARM = ("pandas", "pyarrow.csv", "pyarrow.compute", "pyarrow.parquet", "datasets", "minari", "av.video.reformatter",
        "rich._emoji_codes", "importlib.readers", "matplotlib.figure")  # fmt: skip

FORMATS = {
    form.name: form
    for form in (
        Format("npz", zips.npz, readers.demonstrations),
        Format("mdp", zips.mdp_npz, readers.mdp),
        Format("iq_learn", pickles.iq_learn, readers.demonstrations),
        Format("csv", tables.csv_table, readers.demonstrations),
        Format("scores", tables.scores, readers.scores),
        Format("parquet", tables.parquet, readers.demonstrations),
        Format("imitation", arrow.imitation, readers.demonstrations),
        Format("d4rl", hdf5.d4rl, readers.demonstrations),
        Format("robomimic", hdf5.robomimic, readers.demonstrations),
        Format("minari", minari.minari, readers.demonstrations),
        Format("lerobot", lerobot.lerobot, readers.demonstrations),
        Format("atari", lerobot.atari, readers.demonstrations),
        Format("crafter", crafter.crafter, readers.demonstrations),
        Format("policy", policies.policy, readers.policy),
        Format("run", runs.run, readers.folder_of_run),
        Format("export", runs.exported, readers.policy),
    )
}


def warm() -> None:
    """Import what readers import."""
    for name in WARM:
        importlib.import_module(name)


def damaged(form: Format) -> Format:
    """The same format, of sound files with bits flipped, bytes changed, ends cut off or stretches exchanged."""
    return Format(form.name, partial(_damaged, form.make), form.read)


def _damaged(make: Callable[[Case], Path], case: Case) -> Path:
    case.sound = True
    path = make(case)
    case.sound = False
    folder = path if path.is_dir() else path.parent
    file = case.pick(links.files(folder))
    case.note(f"damaged {file.relative_to(folder)}")
    file.write_bytes(damage(case, file.read_bytes()))
    return path


def damage(case: Case, content: bytes) -> bytes:
    """The content with one kind of damage."""
    random, changed, size = case.random, bytearray(content), len(content)
    kind = int(random.integers(4)) if size else -1
    if kind == 0:
        del changed[int(random.integers(size)) :]
    elif kind == 1:
        changed[random.integers(size)] ^= 1 << int(random.integers(8))
    elif kind == 2:
        for at in random.integers(0, size, random.integers(1, 9)):
            changed[at] = random.integers(256)
    elif kind == 3:
        length = int(random.integers(1, max(2, size // 4)))
        a, b = (int(x) for x in random.integers(0, size - length + 1, 2))
        changed[a : a + length], changed[b : b + length] = changed[b : b + length], changed[a : a + length]
    return bytes(changed)
