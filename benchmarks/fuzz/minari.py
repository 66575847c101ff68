"""Hostile Minari folders: HDF5 or Arrow, with metadata that lie."""

import json
import shutil
from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np

from fuzz import hdf5, links, pictures, values
from fuzz.case import Case

SPACE = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-9.0] * 3, "high": [9.0] * 3}
METADATA = {
    "total_episodes": 3, "total_steps": 13, "data_format": "hdf5", "observation_space": json.dumps(SPACE),
    "action_space": json.dumps({"type": "Discrete", "dtype": "int64", "start": 0, "n": 4}),
    "dataset_id": "fuzz/test-v0",
    "minari_version": "0.5.4", "author": ["anna"], "env_spec": None,
}  # fmt: skip
SPACES = (
    {"type": "Box", "dtype": "float32", "shape": [1 << 40], "low": 0.0, "high": 1.0}, {"type": "Discrete", "n": -1,
    "start": 0},
    {"type": "Tuple", "subspaces": [SPACE] * 3}, {"type": "Dict", "subspaces": {"a": SPACE, "b": SPACE}},
    {"type": "Nothing"},
    {"type": "Text", "max_length": 1 << 30, "min_length": 0, "charset": "abc"}, {"type": "MultiDiscrete",
    "nvec": [4] * 3},
    {"type": "Graph", "node_space": SPACE, "edge_space": SPACE}, {"type": "MultiBinary", "n": [1 << 20, 1 << 10]},
    {"type": "Discrete", "dtype": "int64", "start": -(2**62), "n": 2**62}, {"type": "Sequence", "feature_space": SPACE},
    {"type": "Box", "dtype": "O", "shape": [3], "low": [0] * 3, "high": [1] * 3}, {"type": "Box", "dtype": "uint8",
    "shape": [8, 6, 3],
     "low": np.zeros((8, 6, 3)).tolist(), "high": np.full((8, 6, 3), 255).tolist()}, {"type": "OneOf",
     "subspaces": [SPACE]}, [], None,
)  # fmt: skip


def spaces(case: Case, said: dict) -> None:
    """A space that does not fit the data, or that is enormous."""
    key, space = case.pick(("observation_space", "action_space")), case.pick(SPACES)
    depth = case.pick((0, 0, 0, 50, 2000))
    case.note(f"{key}: {str(space)[:40]}, {depth} deep")
    for _ in range(depth):
        space = {"type": "Tuple", "subspaces": [space]}
    try:
        said[key] = json.dumps(space)
    except RecursionError:
        said[key] = "[" * 5000


def environment(case: Case, said: dict) -> None:
    """The environment that the data name is code somewhere, or the spaces are missing, so that it would be made."""
    spec = {
        "id": "x-v0",
        "entry_point": case.pick(("os:system", "subprocess:Popen", "this:x")),
        "kwargs": {"command": "id", "args": "id"},
    }
    said["env_spec"] = json.dumps(spec)
    said["eval_env_spec"] = json.dumps(spec)
    if case.chance(0.7):
        said.pop(case.pick(("observation_space", "action_space")), None)


def claims(case: Case, said: dict) -> None:
    """Numbers of episodes and steps, the format and other facts are other ones."""
    key = case.pick(
        (
            "total_episodes",
            "total_steps",
            "data_format",
            "jpeg_encoding",
            "author",
            "dataset_id",
            "minari_version",
            "requirements",
        )
    )
    said[key] = case.pick(
        (0, -1, 1 << 40, "hdf5", "arrow", "parquet", True, 1e9, "../../x", None, values.name(case), [values.name(case)])
    )
    case.note(f"{key} = {ascii(said[key])[:30]}")


def hostile_pictures(case: Case, path: Path) -> None:
    """Observations are pictures, as Minari stores those of image spaces."""
    said = json.loads((path / "data" / "metadata.json").read_text())
    said |= {"observation_space": json.dumps(SPACES[-4]), "jpeg_encoding": True}
    (path / "data" / "metadata.json").write_text(json.dumps(said))
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        for number, part in enumerate(values.sample()):
            name, rows = f"episode_{number}/observations", len(part["obs"])
            if name in file:
                del file[name]
            encoded = [np.frombuffer(pictures.sound(8, 6, "JPEG", row), np.uint8) for row in range(rows)]
            if number == 0 or case.chance(0.3):
                encoded[int(case.random.integers(rows))] = np.frombuffer(pictures.hostile(case, 8, 6), np.uint8)
            made = file.create_dataset(name, (rows,), h5py.vlen_dtype(np.uint8))
            for row, data in enumerate(encoded):
                made[row] = data


def _metadata(case: Case, path: Path) -> None:
    """metadata.json says what is not so."""
    said = json.loads((path / "data" / "metadata.json").read_text())
    case.mutate(said, (spaces, spaces, environment, claims, claims))
    (path / "data" / "metadata.json").write_text(json.dumps(said))


def _metadata_text(case: Case, path: Path) -> None:
    """metadata.json is hostile JSON."""
    place = path / "data" / "metadata.json"
    values.write_json(case, place, json.loads(place.read_text()))


def _file(case: Case, path: Path) -> None:
    """The HDF5 file is hostile."""
    hdf5.mutate(case, path / "data" / "main_data.hdf5")


def _folder(case: Case, path: Path) -> None:
    """The folder is hostile."""
    case.mutate(path, links.FOLDERS, 2)


def sound(path: Path) -> None:
    """A data set as Minari writes it."""
    (path / "data").mkdir(parents=True)
    (path / "data" / "metadata.json").write_text(json.dumps(METADATA))
    with h5py.File(path / "data" / "main_data.hdf5", "w", track_order=True) as file:
        for number, part in enumerate(values.sample()):
            group, steps = file.create_group(f"episode_{number}"), len(part["action"])
            group["observations"], group["actions"] = part["obs"].astype(np.float32), part["action"]
            group["rewards"], group["terminations"] = part["reward"], np.zeros(steps, bool)
            group["truncations"] = np.arange(steps) == steps - 1
            group["infos/x"] = np.zeros(steps + 1)
            group["infos/operator"] = np.array([part["name"].encode()] * (steps + 1))
            group.attrs.update(id=number, total_steps=steps, seed=0)


def columnar(case: Case, path: Path) -> None:
    """The same in Arrow or Parquet, a folder for each episode, written by Minari itself."""
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    kind = case.pick(("arrow", "parquet"))
    box, choice = gym.spaces.Box(-9, 9, (3,)), gym.spaces.Discrete(4)
    shutil.rmtree(path)
    path.mkdir()
    storage = MinariStorage.new(path / "data", box, choice, None, kind)
    buffers = [
        EpisodeBuffer(
            id=number, observations=part["obs"].astype(np.float32), actions=part["action"],
            rewards=part["reward"].tolist(),
            terminations=[False] * len(part["action"]), truncations=[False] * (len(part["action"]) - 1) + [True],
            infos={"operator": [part["name"]] * len(part["obs"])},
        )
        for number, part in enumerate(values.sample())
    ]  # fmt: skip
    storage.update_episodes(buffers)
    storage.update_metadata({"dataset_id": "fuzz/test-v0", "minari_version": "0.5.4"})
    case.note(kind)


def minari(case: Case) -> Path:
    """A hostile folder."""
    path = case.home / "given"
    sound(path)
    if case.chance(0.15):
        columnar(case, path)
        changes = (_metadata, _metadata_text, _folder, _folder)
    else:
        changes = (_file, _file, _file, _metadata, _metadata_text, hostile_pictures, hostile_pictures)
    case.mutate(path, changes)
    if case.chance(0.3):
        _folder(case, path)
    hdf5.choices(case)
    return path
