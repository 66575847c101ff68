"""Does a damaged run ever change an answer without a word?

    python benchmarks/bitflips.py                 # 500 bit flips, in three kinds of runs in turn
    python benchmarks/bitflips.py --flips 60 --only mdp

Every flip is one random bit of a random file of a run directory: policies, answers, checkpoints, histories, pictures,
films, and the same of the baselines inside. What `curate` says of every episode and the whole page of `report` are then
made again. Each must be refused in one line, or be what they were before the flip. For systems with fork.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kill import KINDS, demonstrations, ended, files, fit, started

from irleed.analysis.curation import curate
from irleed.data import load
from irleed.errors import IrleedError
from irleed.report.page import page
from irleed.runs.reader import read_run

RUNS = ("online", "baselines", "mdp")  # with a film, with other methods, with tables and maps


def answers(folder: Path) -> dict[str, object]:
    """What is said of a run: by each command its answer, or the line by which it refuses."""
    data = load(folder.parent / KINDS[folder.name][0])
    makes = {
        "curate": lambda: curate(data, folder).rows(),
        "report": lambda: page([read_run(folder)]),
    }
    found: dict[str, object] = {}
    for name, make in makes.items():
        try:
            found[name] = make()
        except IrleedError as error:
            found[name] = error
    return found


def judged(before: object, after: object) -> str:
    """What a flip has done to an answer."""
    if isinstance(after, IrleedError):
        return "refused" if "\n" not in str(after) else "REFUSED IN SEVERAL LINES"
    return "unchanged" if after == before else "CHANGED"


def flip(folder: Path, draw: random.Random, before: dict[str, object]) -> dict[str, str]:
    """Flip a bit, look, and put it back; what came of each answer, and of which file."""
    path = draw.choice(files(folder))
    whole = path.read_bytes()
    bit = draw.randrange(8 * len(whole)) if whole else 0
    path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
    try:
        after = answers(folder)
    except Exception as error:
        after = dict.fromkeys(before, f"{type(error).__name__}: {error}")
    finally:
        path.write_bytes(whole)
    found = {name: judged(before[name], after[name]) for name in before}
    if any(each.isupper() for each in found.values()):
        print(f"bit {bit} of {path.relative_to(folder)}: {found}; {str(after)[:300]}")
    return {"file": path.name if path.suffix != ".safetensors" else f"{path.parent.name}/*{path.suffix}", **found}


def main(kinds: list[str], flips: int, seed: int) -> bool:
    """Flip so many bits, and print what came of it; whether all went well."""
    draw, counts, by_file = random.Random(seed), Counter(), Counter()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        demonstrations(home)
        made = "simulate", "--env", "FrozenLake-v1", "--demonstrators", "2", "--demonstrations", "10"
        ended(started(home / "states.txt", (*made, "--out", str(home / "states.npz"))))
        for kind in kinds:
            if ended(fit(home / kind, kind)) != 0:
                sys.exit((home / f"{kind}.txt").read_text())
        before = {kind: answers(home / kind) for kind in kinds}
        for number in range(flips):
            kind = kinds[number % len(kinds)]
            found = flip(home / kind, draw, before[kind])
            file = found.pop("file")
            counts.update(f"{name}: {each}" for name, each in found.items())
            by_file[f"{file}: {', '.join(f'{name} {each}' for name, each in found.items())}"] += 1
    print("\n".join(f"{name}: {count}" for name, count in sorted(by_file.items())))
    print("\n".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return not any(name.split(": ")[1].isupper() for name in counts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="kinds of runs")
    chosen = parser.parse_args()
    sys.exit(0 if main(chosen.only, chosen.flips, chosen.seed) else 1)
