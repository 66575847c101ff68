"""The fuzzer of the formats sees what it is there to see, and readers stand a few of its cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = [
    pytest.mark.slow,  # half a minute of hostile files, each with a time limit of its own
    pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer watches files as only Linux can"),
]

# Readers that do what no reader may, each with the failure that has to be found.
MISBEHAVING = """
import os, subprocess, sys, tempfile, time
from pathlib import Path
from fuzz import harness
from irleed.errors import DataError

class Unprintable(DataError):
    def __str__(self):
        return self.where

def refusing(text):
    raise Unprintable(text, got="x", expected="y", remedy="fix it")

def swallowing(case, path):
    try:
        bytearray(1 << 45)
    except MemoryError:
        refusing("given: got too much, expected less; make it smaller")

def held(case, path):
    return [bytes(1)] + [b"x" * (1700 << 20)]

READERS = {
    "nothing": lambda case, path: [],
    "a refusal": lambda case, path: refusing("given: got x, expected y; fix it"),
    "ValueError": lambda case, path: [float("x")],
    "program started": lambda case, path: subprocess.run(["true"]),
    "program started, and swallowed": lambda case, path: started(),
    "file outside": lambda case, path: [(case.outside / "secret.txt").open("rb").read(1)],
    "secret: in what was loaded": lambda case, path: [(case.outside / "secret.txt").read_bytes()],
    "file outside was opened": lambda case, path: [os.close(os.open(case.outside / "secret.bin", os.O_RDONLY))] and [],
    "died": lambda case, path: os.kill(os.getpid(), 11),
    "timeout": lambda case, path: time.sleep(60),
    "memory: only the lack": swallowing,
    "memory": held,
    "message: of": lambda case, path: refusing("x" * 100_000),
    "message: with control characters": lambda case, path: refusing("a\\x1b[2J"),
    "printed: control characters": lambda case, path: [sys.stdout.write("\\x1b[2J")] and [],
    "printed: a traceback": lambda case, path: [sys.stderr.write("Traceback (most recent call last):")] and [],
    "network": lambda case, path: __import__("socket").create_connection(("127.0.0.1", 9)),
}

def started():
    try:
        os.system("true")
    except RuntimeError:
        refusing("given: got x, expected y; fix it")

def make(case):
    path = case.home / "given"
    path.write_text("x")
    return path

harness.PATIENCE, harness.BUSY = 2, 1
store = Path(tempfile.mkdtemp())
for number, (name, read) in enumerate(READERS.items()):
    found = harness.run(harness.Format("x", make, read), 0, number, store)
    print(name, found.kind, *found.failures, sep=" | ")
"""


def called(*arguments: str) -> subprocess.CompletedProcess:
    """A process of its own, as cases are forked from it, which those with XLA's threads should not be."""
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(BENCHMARKS), *sys.path]), "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, *arguments], env=settings, capture_output=True, text=True)


def test_the_harness_notices_what_no_reader_may_do():
    """One that saw nothing would pass every reader."""
    ran = called("-c", MISBEHAVING)
    assert ran.returncode == 0, ran.stderr
    lines = dict(line.split(" | ", 1) for line in ran.stdout.splitlines())
    assert lines.pop("nothing") == "loaded" and lines.pop("a refusal") == "refused"
    assert len(lines) == 15
    for expected, found in lines.items():
        assert found.startswith("failed | ") and expected.partition(",")[0] in found, (expected, found)


@pytest.mark.parametrize("arguments", [("--cases", "10"), ("--cases", "3", "--damaged")], ids=["structured", "damaged"])
def test_readers_stand_hostile_files(arguments):
    """A few cases of each format, with small bombs: each loaded or refused in one line, and each could be made."""
    ran = called(str(BENCHMARKS / "fuzz_formats.py"), "--small", *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()[1:] if not line.startswith(" ")]
    assert [row[0] for row in rows] == FORMATS and all(row[1] == arguments[1] for row in rows)


FORMATS = ["npz", "mdp", "iq_learn", "csv", "scores", "parquet", "imitation", "d4rl", "robomimic", "minari", "lerobot",
           "atari", "crafter", "policy", "run", "export"]  # fmt: skip
