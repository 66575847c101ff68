"""Does a run survive kill -9? And what do checkpoints and logs cost?

    python benchmarks/kill.py                 # 200 kills, of six kinds of runs in turn
    python benchmarks/kill.py --kills 20 --only online mdp
    python benchmarks/kill.py --cost          # of checkpoints and logs in a default fit, in % of its time

Every kill is `irleed fit` in a process of its own, killed at a random moment and run again with --resume. One in four
is killed anywhere between its start and its end; one in four after a random part of the training, within the time that
the next part and its checkpoint take; the others in the final writes: after a random one of the files that come after
the training, within the time until the next one. Networks are small, and checkpoints are written after every part.

Every file of a run that went on must equal that of a run that nobody killed, byte for byte, except for what is named in
VOLATILE (times, the run's id, and checksums over them), and there must be no other files: no temporary ones and no
lock. After each kill, before the run goes on, `irleed report` must be able to read it, or refuse it in one line. For
systems with fork.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

# A process is killed many times before it has compiled all that it needs, unless that was done before.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "irleed-kill-compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402

from irleed.cli import main as irleed
from irleed.data import Demonstrations, Episode, save
from irleed.errors import DataError
from irleed.rollout import backends
from irleed.runs.reader import read_run

KEPT = ("--members", "2", "--checkpoint-every", "0")
# Most of the time is to be spent on killing, not on learning.
SMALL = ("--set", "hidden=16", "--set", "batch_size=32")
PLAYED = (*SMALL, "--set", "learning_starts=100", "--set", "buffer_size=1000")
KINDS = {
    "offline": ("choices.npz", "--steps", "300", *KEPT, *SMALL),
    "continuous": ("numbers.npz", "--steps", "100", *KEPT, *SMALL),
    "online": ("choices.npz", "--env", "CartPole-v1", "--steps", "1000", *KEPT, *PLAYED),
    "online-continuous": ("numbers.npz", "--env", "Pendulum-v1", "--steps", "400", *KEPT, *PLAYED),
    "mdp": ("states.npz", "--env", "FrozenLake-v1"),
    "baselines": ("choices.npz", "--steps", "60", "--baselines", *KEPT, *SMALL),
}
LEAST_PART = 100  # steps of a part that is played
TRAINING = re.compile(r"checkpoints/|(run\.json|history\.jsonl)$")  # files that are not of the final writes
LONGEST_GAP = 2.0  # seconds between two files of the final writes: other methods are trained between some
VOLATILE = {
    "run.json": ("id", "created", "checksum"),
    "fit.json": ("seconds", "checksum", "config.out", "files.history.jsonl"),
    "history.jsonl": ("seconds", "rate"),
    "checkpoint": ("seconds", "checksum"),
}


def demonstrations(home: Path, episodes: int = 4, steps: int = 30) -> None:
    """Three who choose by one number that they see, each less consistently than the one before: choices and numbers."""
    generator = np.random.default_rng(0)
    choices, numbers = [], []
    for number in range(3 * episodes):
        obs = generator.normal(size=(steps + 1, 4)).astype(np.float32)
        wanted = obs[:-1, 2] + number % 3 * generator.normal(size=steps)
        common = {"terminated": True, "demonstrator": "abc"[number % 3], "reward": np.ones(steps)}
        choices.append(Episode(obs, (wanted > 0).astype(np.int32), **common))
        numbers.append(Episode(obs[:, :3], np.clip(wanted, -2, 2).astype(np.float32)[:, None], **common))
    save(Demonstrations.from_episodes(choices), home / "choices.npz")
    save(Demonstrations.from_episodes(numbers), home / "numbers.npz")


def started(said: Path, arguments: tuple[str, ...]) -> int:
    """A process that runs a command; what it says goes to a file."""
    child = os.fork()
    if child:
        return child
    status = 0
    try:
        file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(file, stream)
        irleed(list(arguments))
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        status = 70
    finally:
        sys.stdout.flush()
        os._exit(status)


def fit(folder: Path, kind: str) -> int:
    """A process that fits, or goes on with, a run of this kind."""
    data, *settings = KINDS[kind]
    given = ("fit", str(folder.parent / data), "--out", str(folder), *settings, "--resume")
    return started(folder.with_suffix(".txt"), given)


def ended(child: int) -> int:
    """How it ended: a status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def is_over(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@dataclasses.dataclass
class Example:
    """A run that nobody killed: what it comes to, and when it does what."""

    outcome: dict[str, Any]
    seconds: float
    parts: list[float]  # seconds of each part of the training
    final: list[tuple[str, float]]  # files of the final writes, in order, and the seconds until the next one

    @classmethod
    def of(cls, folder: Path, seconds: float) -> "Example":
        """By the times of its files."""
        times = sorted((path.stat().st_mtime_ns / 1e9, str(path.relative_to(folder))) for path in files(folder))
        after = [(time, name) for time, name in times if not TRAINING.search(name)]
        later = [time for time, _ in after[1:]] + [after[-1][0]]
        lines = (folder / "history.jsonl").read_text().splitlines() if (folder / "history.jsonl").exists() else []
        total = [0.0, *(json.loads(line)["seconds"] for line in lines)]
        final = [(name, min(then - now, LONGEST_GAP)) for (now, name), then in zip(after, later, strict=True)]
        return cls(outcome(folder), seconds, np.diff(total).tolist(), final)


def wait(child: int, folder: Path, draw: random.Random, example: Example) -> str:
    """Until a random moment of a run; says which."""
    how = draw.random()
    if how < 0.25:
        moment, come, where = draw.uniform(0, example.seconds), lambda: True, "the start"
    elif how < 0.5 and example.parts:
        part = draw.randrange(len(example.parts))
        moment = draw.uniform(0, 1.5 * max(example.parts[part], 0.02))

        def come() -> bool:
            with contextlib.suppress(OSError):
                return (folder / "history.jsonl").read_bytes().count(b"\n") >= part
            return False

        where = f"part {part}"
    else:
        name, gap = draw.choice(example.final)
        moment, come, where = draw.uniform(0, 1.5 * gap), (folder / name).exists, name
    while not come() and not is_over(child):
        time.sleep(0.0002)
    time.sleep(moment)
    return f"{moment:.4f} s after {where}"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def outcome(folder: Path) -> dict[str, Any]:
    """What every file of a run comes to, by its path; but for what is volatile, and the page, which has it in it."""
    return {str(path.relative_to(folder)): content(path) for path in files(folder) if path.name != "report.html"}


def content(path: Path) -> Any:
    if path.parent.name == "checkpoints" and path.suffix == ".safetensors":
        with safe_open(str(path), framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = json.loads(file.metadata()["irleed"])
        plain = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
        return plain | {"": without(header, VOLATILE["checkpoint"])}
    if path.name == "history.jsonl":
        return [without(json.loads(line), VOLATILE[path.name]) for line in path.read_text().splitlines()]
    if path.name in VOLATILE:
        return without(json.loads(path.read_text()), VOLATILE[path.name])
    return path.read_bytes()


def without(value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The same without these keys; those of an inner object after a dot."""
    found = {key: each for key, each in value.items() if key not in names}
    for name in names:
        outer, _, inner = name.partition(".")
        if inner and outer in found:
            found[outer] = {key: each for key, each in found[outer].items() if key != inner}
    return found


def readable(folder: Path) -> str:
    """Whether a run that was killed is read by the report, or refused in one line."""
    try:
        read_run(folder)
    except DataError as error:
        return "refused in one line" if "\n" not in str(error) else "refused in several lines"
    return "whole"


def examples(home: Path, kinds: list[str]) -> dict[str, Example]:
    """A run of each kind, and a second one that shows that they come to the same."""
    found = {}
    for kind in kinds:
        for name in ("first", "again"):  # the first also fills the cache of compiled programs
            began = time.monotonic()
            if ended(fit(home / f"{kind}-{name}", kind)) != 0:
                sys.exit((home / f"{kind}-{name}.txt").read_text())
            seconds = time.monotonic() - began
        found[kind] = Example.of(home / f"{kind}-again", seconds)
        same = differing(outcome(home / f"{kind}-first"), found[kind].outcome)
        names = len(found[kind].outcome)
        print(f"{kind}: {seconds:.1f} s, {names} files; again: {same or 'equal'}", flush=True)
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The files that differ or that only one of two runs has."""
    return ", ".join(sorted(name for name in {*one, *other} if one.get(name) != other.get(name)))


def kill(kinds: list[str], kills: int, seed: int) -> bool:
    """Kill so many runs, and tell how they fared."""
    draw, counts = random.Random(seed), Counter()
    backends.LEAST_PART = LEAST_PART
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        demonstrations(home)
        made = "simulate", "--env", "FrozenLake-v1", "--demonstrators", "2", "--demonstrations", "10"
        ended(started(home / "states.txt", (*made, "--out", str(home / "states.npz"))))
        expected = examples(home, kinds)
        for number in range(kills):
            kind = kinds[number % len(kinds)]
            folder = home / f"{kind}-{number}"
            child = fit(folder, kind)
            moment = wait(child, folder, draw, expected[kind])
            os.kill(child, signal.SIGKILL)
            counts[f"{kind}: killed"] += ended(child) == -signal.SIGKILL
            counts[f"{kind}: in the middle of a write"] += any(folder.rglob(".irleed-*.part"))
            counts[f"{kind}: in the final writes"] += any((folder / name).exists() for name, _ in expected[kind].final)
            counts[f"{kind}: read by the report: {readable(folder)}"] += 1
            again = ended(fit(folder, kind))
            wrong = differing(outcome(folder), expected[kind].outcome) if again == 0 else f"status {again}"
            counts[f"{kind}: went on and equal in every file"] += not wrong
            counts["failed"] += bool(wrong)
            if wrong:
                print(f"{kind} {number}, killed {moment}: {wrong}; {folder.with_suffix('.txt').read_text()[-500:]}")
            if (number + 1) % 12 == 0:
                print(f"{number + 1} of {kills}, {counts['failed']} failed", flush=True)
    print("\n".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return not counts["failed"]


def cost() -> None:
    """The time that a default fit spends on checkpoints and logs, offline and online."""
    from irleed.runs import checkpoint

    spent = [0.0]
    keep = checkpoint.Checkpointer.save

    def timed(self, *given):
        began = time.perf_counter()
        keep(self, *given)
        spent[0] += time.perf_counter() - began

    checkpoint.Checkpointer.save = timed  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as place:
        demonstrations(Path(place), 10, 100)
        for kind, settings in (("offline", ()), ("online", ("--env", "CartPole-v1"))):
            spent[0], folder = 0.0, Path(place) / kind
            began = time.perf_counter()
            irleed(["fit", str(Path(place) / "choices.npz"), "--out", str(folder), *settings])
            whole = time.perf_counter() - began
            sizes = sum(path.stat().st_size for path in folder.glob("checkpoints/*")) / 2e6
            print(f"{kind}: {whole:.1f} s, {spent[0]:.2f} s ({100 * spent[0] / whole:.2f} %) of it for checkpoints "
                  f"of {sizes:.1f} MB and logs")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="kinds of runs")
    chosen = parser.parse_args()
    if chosen.cost:
        cost()
    else:
        sys.exit(0 if kill(chosen.only, chosen.kills, chosen.seed) else 1)
