"""The run directory: checked before the work starts, written atomically, and known again when a run goes on."""

import dataclasses
import json
import platform
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from irleed._io import CORRUPT, beside, digest, sweep, write_json
from irleed.data.demonstrations import Demonstrations
from irleed.errors import ConfigError, problem
from irleed.runs.checkpoint import FOLDER, writing

RUN, FORMAT, VERSION = "run.json", "irleed-run", 1
COLUMNS = ("obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "reward")


@dataclass(frozen=True)
class Run:
    """What a run is, as its folder says."""

    folder: Path
    identity: str
    fingerprint: str  # of its settings and data
    notes: tuple[str, ...] = ()  # what the user should know when it goes on


def prepare(folder: str | Path) -> Path:
    """Make the folder, and make sure that it can be written to, before hours of work depend on it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".json.probe___"):  # swept, if it is left
            pass
    except OSError as error:
        raise ConfigError(
            problem(
                f"output folder {folder}",
                got=error.strerror or str(error),
                expected="a folder that can be written to",
                remedy="choose another with --out",
            )
        ) from error
    return folder


def keep(path: Path, fingerprint: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a part of a result beside what it depends on; see `kept`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with beside(path) as file:
        np.savez(file, **{**arrays, "fingerprint": np.asarray(json.dumps(fingerprint))})  # pyright: ignore[reportArgumentType]


def kept(path: Path, fingerprint: Mapping[str, object]) -> dict[str, np.ndarray] | None:
    """What `keep` wrote, or None if there is nothing; what depends on other settings is refused."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = dict(file)
        found = dict(json.loads(str(arrays.pop("fingerprint"))))
    except CORRUPT as error:
        raise ConfigError(
            problem(
                str(path), got=str(error), expected="a part of a result", remedy="remove it, or choose another --out"
            )
        ) from error
    _same(f"{path}, made with other settings", found, fingerprint)
    return arrays


def open_run(folder: str | Path, config: Mapping[str, object], data: str, *, resume: bool) -> Run:
    """Begin a run in a folder, or go on with the one that is there: that of the same settings and data alone."""
    folder = prepare(folder)
    with writing(folder):
        sweep(folder, "*.json*")
        there = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    if RUN not in there:
        # A folder that holds other things is no run, and checkpoints without their run are half of one.
        if FOLDER in there or (resume and there):
            got, expected = f"{', '.join(sorted(there)[:5])}, and no {RUN}", "a run, or an empty folder"
            remedy = "copy it again, or choose another --out"
            raise ConfigError(problem(f"run {folder}", got=got, expected=expected, remedy=remedy))
        return _begun(folder, config, data)
    record = _record(folder / RUN)
    found, wanted = {**record["config"], "data": record["data"]}, {**config, "data": data}
    _same(f"run {folder}, begun with other settings or data", found, wanted)
    if not resume:
        remedy = "add --resume to go on with it, or choose another --out"
        raise ConfigError(problem(f"run {folder}", got="a run of these settings", expected="none", remedy=remedy))
    changed = [f"{name} {record['versions'].get(name)}" for name, own in _versions().items()
               if record["versions"].get(name) != own]  # fmt: skip
    note = f"{folder} was begun with {', '.join(changed)}: what follows may differ in the last digits"
    return Run(folder, str(record["id"]), digest([config, data], {}), (note,) if changed else ())


def _begun(folder: Path, config: Mapping[str, object], data: str) -> Run:
    identity = secrets.token_hex(4)
    record = {"format": FORMAT, "version": VERSION, "id": identity, "created": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    with writing(folder):
        write_json(folder / RUN, {**record, "versions": _versions(), "data": data, "config": dict(config)})
    return Run(folder, identity, digest([config, data], {}))


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
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        record = f"what cannot be read ({' '.join(str(error).split())})"
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("version"), int):
        _no_run(path, record if isinstance(record, str) else "something else")
    if record["version"] > VERSION:
        got, remedy = f"version {record['version']}", "install a newer irleed to go on with this run"
        raise ConfigError(problem(str(path), got=got, expected=f"at most {VERSION}", remedy=remedy))
    if not all(isinstance(record.get(name), dict) for name in ("config", "versions")) or "data" not in record:
        _no_run(path, "half of one")
    return record


def _no_run(path: Path, got: str) -> NoReturn:
    remedy = "copy it again, or choose another --out"
    raise ConfigError(problem(str(path), got=got, expected="the settings of a run", remedy=remedy))


def _same(where: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Refuse what was made otherwise, by what differs."""
    wanted = json.loads(json.dumps(wanted))
    differ = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if differ:
        got, expected = (", ".join(f"{key} {_short(side.get(key))}" for key in differ) for side in (found, wanted))
        raise ConfigError(problem(where, got=got, expected=expected, remedy="choose another --out"))


def _short(value: object) -> str:
    """Of a checksum, its beginning."""
    text = str(value)
    return f"{text[:8]}..." if len(text) == 64 and text.isalnum() else text


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("irleed", "jax", "numpy")} | {"python": platform.python_version()}
