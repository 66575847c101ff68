"""How fast a large file of images opens, how much memory that takes, and how fast batches of it are read.

A D4RL-style HDF5 file of 84 x 84 images is written to a temporary folder. First it is opened in a fresh process, which
prints the seconds and the growth of resident memory. Then batches of stacked frames are read, and in the same run the
same rows in the same order with h5py alone: the ratio of the two is what counts.

    git worktree add ../before v0.1.0 && python benchmarks/large_data.py --beside ../before/src

opens the file, and smaller ones of other formats, in turns with another version as well, in fresh processes.
"""

import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tyro

SIDE = 84
LENGTH = 1000  # steps of an episode


@dataclasses.dataclass(frozen=True)
class Config:
    """Write a file, open it, read batches, and print a line for each."""

    gigabytes: float = 10
    """Size of the images."""
    chunk: int = 0
    """Images in a chunk of the file; 0: one block without chunks."""
    batch: int = 256
    """Transitions in a batch."""
    frames: int = 4
    """Frames that an observation is made of."""
    batches: int = 100
    """How many batches are timed."""
    inspect: bool = False
    """Time `summarise` as well, which sees every image."""
    beside: Path | None = None
    """The folder `src` of another version: files are opened by both in turns."""
    turns: int = 15
    """How often."""
    folder: Path = Path(tempfile.gettempdir())
    """Where there is room for the file."""


def write(path: Path, config: Config) -> int:
    """Images of noise, in blocks of one episode; returns how many."""
    import h5py

    steps = max(2, round(config.gigabytes * 1e9 / SIDE**2 / LENGTH)) * LENGTH
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (LENGTH + 251, SIDE, SIDE), np.uint8)
    with h5py.File(path, "w") as file:
        chunks = (config.chunk, SIDE, SIDE) if config.chunk else None
        images = file.create_dataset("observations", (steps, SIDE, SIDE), "u1", chunks=chunks)
        for number, start in enumerate(range(0, steps, LENGTH)):
            images[start : start + LENGTH] = noise[number % 251 :][:LENGTH]
        file["actions"] = random.integers(0, 6, steps)
        file["terminals"] = np.zeros(steps, bool)
        file["timeouts"] = np.arange(steps) % LENGTH == LENGTH - 1
    return steps


OPEN = """
import sys, time
from pathlib import Path
from irleed.data import load, summarise
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
before, clock = resident(), time.perf_counter()
data = load(sys.argv[1])
print(f"open: {time.perf_counter() - clock:.2f} s, resident memory +{resident() - before:.0f} MB")
if sys.argv[2] == "True":
    clock = time.perf_counter()
    summarise(data)
    peak = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")][0]
    print(f"summarise: {time.perf_counter() - clock:.1f} s, peak +{int(peak.split()[1]) / 1e3 - before:.0f} MB")
"""


TURN = """
import sys, time
from irleed.data import load
load(sys.argv[1]) if len(sys.argv) > 2 else None  # what is imported on the way
clock, used = time.perf_counter(), time.process_time()
load(sys.argv[1])
print(time.perf_counter() - clock, time.process_time() - used)
"""


def smaller(folder: Path) -> dict[str, Path]:
    """Files of other formats: a million steps each of 8 numbers, and a folder of 300 episodes."""
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    from irleed.data import Demonstrations, Episode, save
    from irleed.data.formats import imitation

    random, steps, length = np.random.default_rng(0), 1_000_000, 1000
    obs, action = random.normal(size=(steps, 8)).astype(np.float32), random.integers(0, 4, steps)
    parts = [slice(n, n + length) for n in range(0, 300 * length, length)]
    episodes = [Episode(obs[p.start : p.stop + 1], action[p], True, "abc"[n % 3]) for n, p in enumerate(parts)]
    data = Demonstrations.from_episodes(episodes)
    save(data, folder / "data.npz")
    imitation.write(data, folder / "imitation")
    columns = {f"obs_{n}": obs[:, n] for n in range(8)} | {"action": action, "episode": np.arange(steps) // length}
    table = pa.table(columns)
    pq.write_table(table, folder / "data.parquet")
    csv.write_csv(table.slice(0, steps // 10), folder / "data.csv")
    with h5py.File(folder / "robomimic.hdf5", "w") as file:
        for n, part in enumerate(parts):
            demo = file.create_group(f"data/demo_{n}")
            demo.create_dataset("obs/state", data=obs[part], compression="gzip")
            demo["actions"], demo["dones"] = obs[part, :2], np.arange(length) == length - 1
            demo.attrs["num_samples"] = length
    names = ("data.npz", "imitation", "data.parquet", "data.csv", "robomimic.hdf5")
    return {name: folder / name for name in names}


def compared(paths: dict[str, Path], beside: Path, turns: int) -> None:
    """Open each file by this version and another one in turns; print the ratios of their times."""
    ours = Path(__file__).resolve().parents[1] / "src"
    for name, path in paths.items():
        took: dict[Path, list[list[float]]] = {beside: [], ours: []}
        for source in [beside, ours] * turns:
            environment = os.environ | {"PYTHONPATH": str(source)}
            words = [sys.executable, "-c", TURN, str(path), "again"]
            ran = subprocess.run(words, check=True, env=environment, capture_output=True, text=True)
            took[source].append([float(word) for word in ran.stdout.split()])
        before, after = (np.median(took[source], 0) for source in (beside, ours))
        ratio = after / before
        print(
            f"{name}: {1e3 * after[0]:.0f} ms, {1e3 * before[0]:.0f} ms by the other version: "
            f"ratio {ratio[0]:.2f}, of processor time {ratio[1]:.2f}",
            flush=True,
        )


def raw(path: Path, drawn: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The rows of each batch with h5py alone, each once and in rising order, neighbours at once."""
    import h5py

    with h5py.File(path, "r") as file:
        images = file["observations"]
        for rows in drawn:
            edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
            yield np.concatenate([images[rows[a] : rows[b - 1] + 1] for a, b in itertools.pairwise(edges)])


class Watched:
    """Observations that remember which rows were read, and how long that took."""

    def __init__(self, obs):
        self.obs, self.shape, self.dtype, self.rows, self.seconds = obs, obs.shape, obs.dtype, [], 0.0

    def __getitem__(self, rows):
        clock = time.perf_counter()
        values = self.obs[rows]
        self.seconds += time.perf_counter() - clock
        self.rows.append(rows)
        return values


def read(path: Path, config: Config) -> None:
    """Time batches and raw reading in turns, the same rows in both."""
    import jax

    from irleed.data import Batches, load

    data = load(path)
    watched = Watched(data.obs)
    batches = Batches(dataclasses.replace(data, obs=watched), config.batch, config.frames)
    list(batches.ahead(jax.random.split(jax.random.key(0), 3)))  # compiled, and the file opened
    watched.seconds, ours, theirs, frames = 0.0, 0.0, 0.0, 0
    for block in range(5):
        keys = jax.random.split(jax.random.key(block + 1), config.batches // 5)
        watched.rows = []
        clock = time.perf_counter()
        for batch in batches.ahead(keys):
            jax.block_until_ready(batch)
        ours += time.perf_counter() - clock
        clock = time.perf_counter()
        frames += sum(len(values) for values in raw(path, watched.rows))
        theirs += time.perf_counter() - clock
    size = frames * SIDE**2 / 1e9
    print(f"h5py alone: {size / theirs:.2f} GB/s")
    print(f"the same rows, in the thread of the batches: ratio {theirs / watched.seconds:.2f}")
    print(f"batches of {config.frames} frames, ready on {jax.devices()[0]}: ratio {theirs / ours:.2f}")


def main(config: Config) -> None:
    """Write, open, read."""
    with tempfile.TemporaryDirectory(dir=config.folder) as folder:
        path = Path(folder) / "images.hdf5"
        steps = write(path, config)
        print(f"{steps} images, {path.stat().st_size / 1e9:.1f} GB", flush=True)
        if config.beside is not None:
            compared({path.name: path} | smaller(Path(folder)), config.beside.resolve(), config.turns)
            return
        subprocess.run([sys.executable, "-c", OPEN, str(path), str(config.inspect)], check=True)
        read(path, config)


if __name__ == "__main__":
    main(tyro.cli(Config))
