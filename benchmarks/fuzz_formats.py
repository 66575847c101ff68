"""Damage files of every format at random, and count what the reader makes of them.

Each trial changes a sound file: a few bits or bytes, a cut end, or two stretches that change places. The reader must
refuse it with a `DataError` or read it; anything else, a crash or ten seconds without an answer is a failure. A silent
wrong read cannot be told from a right one where a format has no checksums; how many were read is printed.
"""

import collections
import json
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from irleed.data import Demonstrations, Episode, lazy, load, save
from irleed.data.formats import imitation
from irleed.errors import DataError

PATIENCE = 10  # seconds


@dataclass(frozen=True)
class Config:
    """Damage files, and print a row for each format."""

    trials: int = 10_000
    """For each format."""
    formats: tuple[str, ...] = ()
    """Which; all by default."""
    large: bool = False
    """Read as files that are too much for memory: later, where the format allows it."""
    seed: int = 0
    """Where the random numbers start."""


def sample() -> Demonstrations:
    """Two people, three episodes."""
    random = np.random.default_rng(0)
    return Demonstrations.from_episodes(
        [
            Episode(random.normal(size=(n + 1, 3)), random.integers(0, 4, n), n == 4, who, random.normal(size=n))
            for n, who in ((4, "anna"), (6, "ben"), (3, "anna"))
        ]
    )


def npz(path: Path) -> None:
    """Ours."""
    save(sample(), path)


def iq_learn(path: Path) -> None:
    """A pickled dict."""
    parts = sample().split()
    columns = {
        "states": [list(np.asarray(e.obs)[:-1]) for e in parts],
        "next_states": [list(np.asarray(e.obs)[1:]) for e in parts],
        "actions": [np.asarray(e.action) for e in parts],
        "dones": [[False] * (len(np.asarray(e.action)) - 1) + [True] for e in parts],
    }
    path.write_bytes(pickle.dumps(columns))


def csv(path: Path) -> None:
    """A table as text."""
    lines = ["episode,demonstrator,obs_0,obs_1,obs_2,action"]
    for number, episode in enumerate(sample().split()):
        obs, action = np.asarray(episode.obs), [*np.asarray(episode.action).tolist(), ""]
        lines += [
            f"{number},{episode.demonstrator},{','.join(map(str, row))},{a}" for row, a in zip(obs, action, strict=True)
        ]
    path.write_text("\n".join(lines) + "\n")


def parquet(path: Path) -> None:
    """A table of columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = sample()
    columns = {"episode": data.episode, "obs": list(data.observation), "action": data.action}
    pq.write_table(pa.table(columns), path, write_page_checksum=True)


def robomimic(path: Path) -> None:
    """HDF5, a group for each episode."""
    import h5py

    with h5py.File(path, "w") as file:
        for number, episode in enumerate(sample().split()):
            group, obs = file.create_group(f"data/demo_{number}"), np.asarray(episode.obs)
            group["actions"], group["obs/state"], group["next_obs/state"] = episode.action, obs[:-1], obs[1:]
            group["dones"] = np.zeros(len(obs) - 1, int)


def d4rl(path: Path) -> None:
    """HDF5, flat."""
    import h5py

    data = sample()
    with h5py.File(path, "w") as file:
        file["observations"], file["actions"], file["rewards"] = data.observation, data.action, data.reward
        file["next_observations"], file["terminals"] = data.next_observation, data.terminated | data.truncated


def imitation_folder(path: Path) -> None:
    """A folder of Arrow files."""
    imitation.write(sample(), path)


def lerobot(path: Path) -> None:
    """A folder of Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = sample()
    frame = np.arange(data.transitions) - data.start[data.episode]
    columns = {"observation.state": list(data.observation), "action": list(np.eye(4)[data.action])}
    columns |= {"episode_index": data.episode, "frame_index": frame, "index": np.arange(data.transitions)}
    features = {name: {"dtype": "float32", "shape": [3], "names": None} for name in columns}
    head = {"codebase_version": "v3.0", "total_frames": 13, "total_episodes": 3, "features": features}
    (path / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    (path / "meta" / "info.json").write_text(json.dumps(head))
    about = pa.table({"episode_index": [0, 1, 2], "length": [4, 6, 3]})
    pq.write_table(about, path / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    pq.write_table(pa.table(columns), path / "data" / "chunk-000" / "file-000.parquet", write_page_checksum=True)


def minari(path: Path) -> None:
    """A folder with an HDF5 file."""
    import gymnasium as gym
    import minari as library
    from minari.data_collector.episode_buffer import EpisodeBuffer

    os.environ["MINARI_DATASETS_PATH"] = str(path.parent / "library")
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=np.asarray(e.obs, np.float32),
            actions=np.asarray(e.action),
            rewards=list(np.asarray(e.reward)),
            terminations=[False] * len(np.asarray(e.action)),
            truncations=[False] * (len(np.asarray(e.action)) - 1) + [True],
        )
        for i, e in enumerate(sample().split())
    ]
    spaces = {"observation_space": gym.spaces.Box(-9, 9, (3,)), "action_space": gym.spaces.Discrete(4)}
    library.create_dataset_from_buffers("fuzz/test-v0", buffers, **spaces)
    shutil.move(path.parent / "library" / "fuzz" / "test-v0", path)


def atari_grand_challenge(path: Path) -> None:
    """A folder of pictures and texts."""
    from PIL import Image

    random = np.random.default_rng(0)
    for episode, rows in ((1, 4), (2, 3)):
        screens, texts = path / "screens" / "qbert" / str(episode), path / "trajectories" / "qbert"
        screens.mkdir(parents=True)
        texts.mkdir(parents=True, exist_ok=True)
        lines = [f"{t},{10 * t},{10 * t},{int(t == rows - 1)},{t}" for t in range(rows)]
        head = ["db traj id : 1", "frame,reward,score,terminal,action"]
        (texts / f"{episode}.txt").write_text("\n".join([*head, *lines]) + "\n")
        for t in range(rows):
            Image.fromarray(random.integers(0, 256, (8, 6, 3), np.uint8)).save(screens / f"{t}.png")


MAKERS: dict[str, Callable[[Path], None]] = {
    "npz": npz, "iq_learn": iq_learn, "csv": csv, "parquet": parquet, "robomimic": robomimic, "d4rl": d4rl,
    "imitation": imitation_folder, "lerobot": lerobot, "minari": minari,
    "atari_grand_challenge": atari_grand_challenge,
}  # fmt: skip


def damaged(random: np.random.Generator, content: bytes) -> bytes:
    """The content with one kind of damage."""
    changed, size = bytearray(content), len(content)
    kind = random.integers(4)
    if kind == 0:
        return content[: random.integers(size)]
    if kind == 1:
        changed[random.integers(size)] ^= 1 << int(random.integers(8))
    elif kind == 2:
        for at in random.integers(0, size, random.integers(1, 9)):
            changed[at] = random.integers(256)
    else:
        length = int(random.integers(1, max(2, size // 4)))
        a, b = (int(x) for x in random.integers(0, size - length + 1, 2))
        changed[a : a + length], changed[b : b + length] = changed[b : b + length], changed[a : a + length]
    return bytes(changed)


def late(*_: object) -> None:
    """What the alarm calls."""
    raise TimeoutError


def fuzz(name: str, trials: int, seed: int, folder: Path) -> collections.Counter:
    """Outcomes of so many trials."""
    random, outcomes = np.random.default_rng(seed), collections.Counter()
    path = folder / name
    MAKERS[name](path)
    load(path)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for trial in range(trials):
        file = files[trial % len(files)]
        content = file.read_bytes()
        file.write_bytes(damaged(random, content))
        signal.alarm(PATIENCE)
        try:
            np.asarray(load(path).obs)
            outcomes["read"] += 1
        except DataError:
            outcomes["refused"] += 1
        except BaseException as error:  # a failure of the reader, to be counted
            outcomes[f"FAILED {type(error).__name__}: {str(error)[:60]}"] += 1
        finally:
            signal.alarm(0)
            file.write_bytes(content)
    return outcomes


def main(config: Config) -> None:
    """Damage and print."""
    signal.signal(signal.SIGALRM, late)
    lazy.LARGE = 1 if config.large else lazy.LARGE
    for name in config.formats or tuple(MAKERS):
        with tempfile.TemporaryDirectory() as folder:
            print(name, dict(fuzz(name, config.trials, config.seed, Path(folder))), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Config))
