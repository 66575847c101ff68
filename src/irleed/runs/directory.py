"""The run directory: checked before the work starts, written atomically, and known again when a run goes on."""

import contextlib
import dataclasses
import json
import platform
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tokenize import TokenError
from typing import Any

import jax
import numpy as np

from irleed._io.files import beside, digest, sweep, temporary, write_signed, writing
from irleed._io.lock import LOCK, locked
from irleed._io.npz import CORRUPT
from irleed.data.demonstrations import Demonstrations
from irleed.data.formats.base import inside
from irleed.errors import ConfigError
from irleed.runs.checkpoint import FOLDER
from irleed.runs.fields import read_json, refuse

RUN, FORMAT, VERSION = "run.json", "irleed-run", 1
BASELINES = "baselines"  # the folder inside a run that has those of other methods
ANSWER, POLICY, REPORT = "fit.json", "policy.safetensors", "report.html"
# What a run writes besides; in a folder that is not a run, files of these names are somebody's.
WRITTEN = (
    "data.json", "departures.json", "history.jsonl", "film.json", "film.webp", "film.png", "expertise.png",
    "expertise.pdf", "maps.png", "maps.pdf", "validation.json", "validation.png", "validation.pdf", BASELINES,
    "tensorboard", FOLDER, ANSWER, POLICY, REPORT,
)  # fmt: skip
COLUMNS = ("obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "reward")


@dataclass(frozen=True)
class OpenRun:
    """A run that is being written."""

    folder: Path
    identity: str
    fingerprint: str  # of its settings and data
    notes: tuple[str, ...] = ()  # what the user should know when it goes on


def prepare(folder: str | Path) -> Path:
    """Make the folder, and make sure that it can be written to, before hours of work depend on it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = temporary(folder / "probe")
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"output folder {folder}",
            got=error.strerror or str(error),
            expected="a folder that can be written to",
            remedy="choose another with --out",
        ) from error
    return folder


@contextlib.contextmanager
def occupied(folder: str | Path) -> Iterator[Path]:
    """A folder that can be written to, locked against other processes, without what a killed one left half written."""
    folder = prepare(folder)
    with contextlib.ExitStack() as stack:
        with writing(folder, "choose another --out"):
            left = stack.enter_context(locked(folder / LOCK, f"folder {folder}"))
            for each in (folder, *folder.iterdir()) if left else ():  # our lock file in it: the folder is ours
                if each.is_dir() and not each.is_symlink():
                    sweep(each)
        yield folder


def keep(path: Path, fingerprint: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a part of a result beside what it depends on; see `kept`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"fingerprint": np.asarray(json.dumps(fingerprint)), "digest": np.asarray(digest(fingerprint, arrays))}
    with beside(path) as file:
        np.savez(file, **{**arrays, **head})  # pyright: ignore[reportArgumentType]


def kept(path: Path, fingerprint: Mapping[str, object]) -> dict[str, np.ndarray] | None:
    """What `keep` wrote, or None if there is nothing; what depends on other settings is refused."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if sum(entry.file_size for entry in file.zip.infolist()) > path.stat().st_size:
                raise ValueError("entries that are compressed, or lie over each other")
            arrays = dict(file)
        found = dict(json.loads(str(arrays.pop("fingerprint"))))
        written = arrays.pop("digest", None)  # older ones have none
        if written is not None and str(written) != digest(found, arrays):
            raise ValueError("arrays that do not match their checksum")
    except (*CORRUPT, TokenError) as error:  # the latter from NumPy, which parses the headers of arrays
        raise ConfigError(
            str(path), got=str(error), expected="a part of a result", remedy="remove it, or choose another --out"
        ) from error
    _same(f"{path}, made with other settings", found, fingerprint)
    return arrays


@contextlib.contextmanager
def open_run(folder: str | Path, config: Mapping[str, object], data: str, *, resume: bool) -> Iterator[OpenRun]:
    """Begin a run in a folder, or go on with the one that is there: that of the same settings and data alone.

    The folder is locked against other processes inside the `with` block. One that is not a run is refused untouched.
    """
    folder = Path(folder)
    _check_place(folder, resume)
    _check_links(folder)
    prepare(folder)
    with contextlib.ExitStack() as stack:
        with writing(folder):
            stack.enter_context(locked(folder / LOCK, f"run {folder}"))
        run = _continued(folder, config, data, resume) if (folder / RUN).exists() else _begun(folder, config, data)
        with writing(folder):
            sweep(folder)
        yield run


def _check_place(folder: Path, resume: bool) -> None:
    """Refuse a folder with other things in it: it is no run, and checkpoints without their run are half of one."""
    try:
        there = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:  # no folder, or none that can be looked into: `prepare` says so
        return
    odd = sorted(set(there) & set(WRITTEN)) or (sorted(there) if resume else [])
    if RUN not in there and odd:
        got, expected = f"{', '.join(odd[:5])}, and no {RUN}", "a run, or an empty folder"
        remedy = "copy it again, or choose another --out"
        raise ConfigError(f"run {folder}", got=got, expected=expected, remedy=remedy)


def _check_links(folder: Path) -> None:
    """Refuse a run with links that lead out of it: what a run writes, or removes, would be somebody's.

    Pipes and devices are refused as well, before hours of work.
    """
    with writing(folder):
        within = (folder / BASELINES).iterdir() if (folder / BASELINES).is_dir() else ()
        for path in (*(folder / name for name in (RUN, "wandb", *WRITTEN)), *within):
            if inside(folder, path).exists() and not (path.is_file() or path.is_dir()):
                refuse(str(path), "a device or pipe", "a file or a folder", "remove it")


def _continued(folder: Path, config: Mapping[str, object], data: str, resume: bool) -> OpenRun:
    record = _record(folder / RUN)
    found, wanted = {**record["config"], "data": record["data"]}, {**config, "data": data}
    _same(f"run {folder}, begun with other settings or data", found, wanted)
    if not resume:
        remedy = "add --resume to go on with it, or choose another --out"
        raise ConfigError(f"run {folder}", got="a run of these settings", expected="none", remedy=remedy)
    changed = [f"{name} {record['versions'].get(name)}" for name, own in _versions().items()
               if record["versions"].get(name) != own]  # fmt: skip
    note = f"{folder} was begun with {', '.join(changed)}: what follows may differ in the last digits"
    return OpenRun(folder, str(record["id"]), digest([config, data], {}), (note,) if changed else ())


def _begun(folder: Path, config: Mapping[str, object], data: str) -> OpenRun:
    identity = secrets.token_hex(4)
    record = {"format": FORMAT, "version": VERSION, "id": identity, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    with writing(folder):
        write_signed(folder / RUN, {**record, "versions": _versions(), "data": data, "config": dict(config)})
    return OpenRun(folder, identity, digest([config, data], {}))


def fingerprint(data: Demonstrations, *others: Any) -> str:
    """SHA-256 of demonstrations, and of what else there is made of arrays, such as an MDP."""
    arrays = {name: getattr(data, name) for name in COLUMNS if getattr(data, name) is not None}
    for path, leaf in jax.tree_util.tree_leaves_with_path(others):
        arrays[jax.tree_util.keystr(path)] = np.asarray(leaf)
    return digest(list(data.names), arrays)


def plain(module: Any, name: str) -> dict[str, object]:
    """The settings of a module, those of what it is made of included, by their names."""
    if not dataclasses.is_dataclass(module):
        return {name: str(module)}
    flat: dict[str, object] = {name: type(module).__name__}
    for field in dataclasses.fields(module):
        flat |= plain(getattr(module, field.name), f"{name}.{field.name}")
    return flat


def _record(path: Path) -> dict[str, Any]:
    """What run.json says, if it is one."""
    found = read_json(path)
    record = found.plain()
    remedy = "copy it again, or choose another --out"
    if record.get("format") != FORMAT:
        refuse(str(path), "something else", "the settings of a run", remedy)
    found.version(VERSION)
    whole = all(isinstance(record.get(name), dict) for name in ("config", "versions"))
    if not whole or not {"data", "id"} <= set(record):
        refuse(str(path), "half of one", "the settings of a run", remedy)
    return record


def _same(where: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuse what was made otherwise, by what differs."""
    wanted = json.loads(json.dumps(wanted))
    differ = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if differ:
        got, expected = (", ".join(f"{key} {_short(side.get(key))}" for key in differ) for side in (found, wanted))
        raise ConfigError(where, got=got, expected=expected, remedy="choose another --out")


def _short(value: object) -> str:
    """Of a checksum, its beginning."""
    text = str(value)
    return f"{text[:8]}..." if len(text) == 64 and text.isalnum() else text


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("irleed", "jax", "numpy")} | {"python": platform.python_version()}
