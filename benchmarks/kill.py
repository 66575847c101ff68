"""Does a run survive kill -9? And what do checkpoints and logs cost?

    python benchmarks/kill.py                 # 200 kills, of offline and online runs in turn
    python benchmarks/kill.py --kills 20 --offline
    python benchmarks/kill.py --cost          # of checkpoints and logs in a default fit, in % of its time

Every kill is `irleed fit` in a process of its own, killed at a random moment and run again with --resume: one in four
anywhere between its start and its end, the others after a random part of the training, within the time that the next
part and its checkpoint take. Checkpoints are written after every part, so that many kills fall into a write. What
must be equal to the run that nobody killed, bit for bit: policy.safetensors, the expertise in fit.json, and every array
of the last checkpoint: parameters, optimiser, replay buffer, losses. For systems with fork.
"""

import argparse
import contextlib
import json
import os
import random
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
from safetensors.numpy import load_file  # noqa: E402

from irleed.cli import main as irleed
from irleed.data import Demonstrations, Episode, save

KINDS = {
    "offline": ("--steps", "300"),
    "online": ("--env", "CartPole-v1", "--steps", "4000"),
}
PART_SECONDS = {100: 0.02, 4: 1.0}  # about, by the number of parts: of an offline run, of an online one
SHORT = ("--seeds", "2", "--checkpoint-every", "0", "--resume")


def demonstrations(path: Path, episodes: int, steps: int) -> None:
    """Three who choose by the pole's angle, each less consistently than the one before."""
    generator = np.random.default_rng(0)
    shown = []
    for number in range(3 * episodes):
        obs = generator.normal(size=(steps + 1, 4)).astype(np.float32)
        action = (obs[:-1, 2] + number % 3 * generator.normal(size=steps) > 0).astype(np.int32)
        shown.append(Episode(obs, action, True, "abc"[number % 3], np.ones(steps)))
    save(Demonstrations.from_episodes(shown), path)


def started(folder: Path, arguments: tuple[str, ...]) -> int:
    """A process that runs `irleed fit`; what it says goes to a file beside the folder."""
    child = os.fork()
    if child:
        return child
    status = 0
    try:
        said = os.open(folder.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(said, stream)
        irleed(["fit", str(folder.parent / "data.npz"), "--out", str(folder), *arguments])
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        status = 70
    finally:
        sys.stdout.flush()
        os._exit(status)


def ended(child: int) -> int:
    """How it ended: a status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait(child: int, folder: Path, draw: random.Random, seconds: float, parts: int) -> str:
    """Until a random moment of a run; says which."""
    if draw.random() < 0.25:
        moment = draw.uniform(0, seconds)
        time.sleep(moment)
        return f"after {moment:.3f} s"
    part, moment = draw.randrange(parts), draw.uniform(0, 1.5 * PART_SECONDS[parts])
    while part and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with contextlib.suppress(OSError):
            if (folder / "history.jsonl").read_bytes().count(b"\n") >= part:
                break
        time.sleep(0.0005)
    time.sleep(moment)
    return f"{moment:.3f} s after part {part}"


def outcome(folder: Path) -> dict[str, Any]:
    """What a run has come to."""
    last = max((folder / "checkpoints").glob("[0-9]*.safetensors"))
    return {
        "policy": (folder / "policy.safetensors").read_bytes(),
        "expertise": json.loads((folder / "fit.json").read_text())["expertise"],
        "steps": [json.loads(line)["step"] for line in (folder / "history.jsonl").read_text().splitlines()],
        "state": {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in load_file(last).items()},
    }


def kill(kinds: list[str], kills: int, seed: int) -> bool:
    """Kill so many runs, and tell how they fared."""
    draw, counts = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        demonstrations(home / "data.npz", 4, 30)
        expected: dict[str, dict[str, Any]] = {}
        seconds: dict[str, float] = {}
        for kind in kinds:
            for name in ("first", "again"):  # the first also fills the cache of compiled programs
                began = time.monotonic()
                if ended(started(home / f"{kind}-{name}", (*KINDS[kind], *SHORT))) != 0:
                    sys.exit((home / f"{kind}-{name}.txt").read_text())
                seconds[kind] = time.monotonic() - began
            expected[kind] = outcome(home / f"{kind}-first")
            print(f"{kind}: {seconds[kind]:.1f} s; again equal: {outcome(home / f'{kind}-again') == expected[kind]}")
        for number in range(kills):
            kind = kinds[number % len(kinds)]
            folder = home / f"{kind}-{number}"
            child = started(folder, (*KINDS[kind], *SHORT))
            moment = wait(child, folder, draw, seconds[kind], len(expected[kind]["steps"]))
            os.kill(child, signal.SIGKILL)
            counts[f"{kind}: killed"] += ended(child) == -signal.SIGKILL
            counts[f"{kind}: in the middle of a write"] += any(folder.rglob(".*.????????"))
            counts[f"{kind}: with a checkpoint"] += any(folder.glob("checkpoints/[0-9]*.safetensors"))
            again = ended(started(folder, (*KINDS[kind], *SHORT)))
            counts[f"{kind}: resumed"] += again == 0
            equal = again == 0 and outcome(folder) == expected[kind]
            counts[f"{kind}: equal, bit for bit"] += equal
            counts["failed"] += not equal
            if not equal:
                said = folder.with_suffix(".txt").read_text()
                print(f"{kind} {number}, killed {moment}: status {again}; {said}")
            if (number + 1) % 10 == 0:
                print(f"{number + 1} of {kills}: {dict(counts)}", flush=True)
    print("\n".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return not counts["failed"]


def cost() -> None:
    """The time that a default fit spends on checkpoints and logs, offline and online."""
    from irleed.runs import checkpoint

    spent = [0.0]
    keep = checkpoint.Keeper.save

    def timed(self, *given):
        began = time.perf_counter()
        keep(self, *given)
        spent[0] += time.perf_counter() - began

    checkpoint.Keeper.save = timed  # pyright: ignore[reportAttributeAccessIssue]
    with tempfile.TemporaryDirectory() as place:
        demonstrations(Path(place) / "data.npz", 10, 100)
        for kind, settings in (("offline", ()), ("online", ("--env", "CartPole-v1"))):
            spent[0], folder = 0.0, Path(place) / kind
            began = time.perf_counter()
            irleed(["fit", str(Path(place) / "data.npz"), "--out", str(folder), *settings])
            whole = time.perf_counter() - began
            sizes = sum(path.stat().st_size for path in folder.glob("checkpoints/*")) / 2e6
            print(f"{kind}: {whole:.1f} s, {spent[0]:.2f} s ({100 * spent[0] / whole:.2f} %) of it for checkpoints "
                  f"of {sizes:.1f} MB and logs")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--cost", action="store_true")
    which = parser.add_mutually_exclusive_group()
    for each in KINDS:
        which.add_argument(f"--{each}", dest="kinds", action="store_const", const=[each], default=list(KINDS))
    chosen = parser.parse_args()
    if chosen.cost:
        cost()
    else:
        sys.exit(0 if kill(chosen.kinds, chosen.kills, chosen.seed) else 1)
