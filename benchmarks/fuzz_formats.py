"""Read hostile files of every format, and count what the readers make of them.

    python benchmarks/fuzz_formats.py                               # 2,000 structured attacks on each format
    python benchmarks/fuzz_formats.py --formats npz d4rl --cases 100
    python benchmarks/fuzz_formats.py --formats npz --case 17       # one case again, with its files kept and its error
    python benchmarks/fuzz_formats.py --damaged                     # flipped bits, cut ends and the like instead

Each case is a valid container with hostile content, made from the seed by combining mutations: bombs, links, loops,
pipes, pictures that start programs, pickles that run code, names, numbers, types and shapes of all sorts. It is read in
a process of its own, which must load it or refuse it with a one-line `IrledError`. A failure is anything else: another
exception, ten seconds without an answer, more than 1.5 GB of memory, a program started, a file outside the case opened,
control characters or a secret in what is printed. The exit status is 1 if there is one. For Linux.
"""

import collections
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

os.environ |= {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "HF_HUB_OFFLINE")}
os.environ |= {"JAX_PLATFORMS": "cpu", "HF_HUB_DISABLE_TELEMETRY": "1"}

import tyro  # noqa: E402
from fuzz import harness  # noqa: E402
from fuzz.formats import FORMATS, damaged, warm  # noqa: E402


@dataclass(frozen=True)
class Config:
    """Read hostile files, and print a row for each format."""

    cases: int = 2000
    """For each format."""
    formats: tuple[str, ...] = ()
    """Which; all by default."""
    seed: int = 0
    """Of the random numbers; a case depends on it, its format and its number alone."""
    workers: int = 1
    """Cases that are read at the same time."""
    small: bool = False
    """Make bombs of megabytes: a run of few cases then takes seconds."""
    case: int | None = None
    """Run this case alone, print its error and keep its files."""
    damaged: bool = False
    """Damage sound files at random instead."""


def outcomes(form: harness.Format, config: Config, store: Path) -> Iterator[harness.Outcome]:
    """Of all cases of a format, in any order."""
    tasks = [(form, config.seed, number, store, config.small) for number in range(config.cases)]
    with get_context("fork").Pool(config.workers) as pool:
        yield from pool.imap_unordered(_run, tasks)


def _run(task: tuple[harness.Format, int, int, Path, bool]) -> harness.Outcome:
    return harness.run(*task[:4], small=task[4])


def row(name: str, found: list[harness.Outcome]) -> str:
    """A line of the table."""
    kinds = collections.Counter(outcome.kind for outcome in found)
    slowest = max(found, key=lambda outcome: outcome.seconds)
    largest = max(found, key=lambda outcome: outcome.megabytes)
    counts = (len(found), kinds["refused"], kinds["loaded"], kinds["failed"], kinds["unmade"])
    return (
        f"{name:12}" + "".join(f"{count:9,}" for count in counts)
        + f"  {slowest.seconds:6.1f} s ({slowest.number})  {largest.megabytes:6,.0f} MB ({largest.number})"
    )  # fmt: skip


def details(found: list[harness.Outcome], config: Config) -> Iterator[str]:
    """Each distinct failure, with the first case that has it."""
    groups: dict[str, list[harness.Outcome]] = {}
    for outcome in sorted(found, key=lambda outcome: outcome.number):
        if outcome.failures:
            groups.setdefault(outcome.signature, []).append(outcome)
        elif outcome.kind == "unmade":
            groups.setdefault("unmade: " + outcome.message.strip().rpartition("\n")[2], []).append(outcome)
    for signature, same in sorted(groups.items(), key=lambda group: -len(group[1])):
        first = same[0]
        yield f"  {signature} ({len(same)} cases of {first.format})"
        for each in same[:3]:
            yield f"    --seed {config.seed} --case {each.number}: {' > '.join(each.applied)}"
            yield f"        {' | '.join(each.failures) or each.message[-200:]}"


def main(config: Config) -> int:
    """Run, print, and return the exit status."""
    warm()
    platform.processor()  # asks a program, once
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
    unknown = set(config.formats) - set(FORMATS)
    if unknown:
        sys.exit(f"no format {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    chosen = {name: FORMATS[name] for name in config.formats or FORMATS}
    if config.damaged:
        chosen = {name: damaged(form) for name, form in chosen.items()}
    status = 0
    with tempfile.TemporaryDirectory(prefix="irleed-fuzz-") as folder:
        store = Path(folder)
        (store / "scratch").mkdir()
        os.environ |= {"TMPDIR": str(store / "scratch"), "HF_HOME": str(store / "scratch")}
        os.environ |= {"MPLCONFIGDIR": str(store / "scratch"), "XDG_CACHE_HOME": str(store / "scratch")}
        tempfile.tempdir = str(store / "scratch")
        if config.case is not None:
            keep = Path(tempfile.mkdtemp(prefix="irleed-case-", dir="/tmp"))
            for form in chosen.values():
                print(harness.run(form, config.seed, config.case, store, small=config.small, keep=keep / form.name))
            print(f"files are kept in {keep}")
            return 0
        print(f"{'format':12}    cases  refused   loaded   failed   unmade    slowest (case)     memory (case)")
        for name, form in chosen.items():
            found = list(outcomes(form, config, store))
            print(row(name, found), flush=True)
            for line in details(found, config):
                print(line, flush=True)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config)))
