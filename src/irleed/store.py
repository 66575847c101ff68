"""The run directory: checked before the work starts, written atomically when it ends."""

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from irleed.errors import ConfigError, problem


def prepare(folder: str | Path) -> Path:
    """Make the folder, and make sure that it can be written to, before hours of work depend on it."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
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


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never half of one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def keep(path: Path, fingerprint: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a part of a result beside what it depends on; see `kept`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **{**arrays, "fingerprint": np.asarray(json.dumps(fingerprint))})  # pyright: ignore[reportArgumentType]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def kept(path: Path, fingerprint: Mapping[str, object]) -> dict[str, np.ndarray] | None:
    """What `keep` wrote, or None if there is nothing; what depends on other settings is refused."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        found = json.loads(str(arrays.pop("fingerprint")))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(
            problem(
                str(path), got=str(error), expected="a part of a result", remedy="remove it, or choose another --out"
            )
        ) from error
    wanted = json.loads(json.dumps(fingerprint))
    differ = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if differ:
        got = ", ".join(f"{key} {found.get(key)}" for key in differ)
        expected = ", ".join(f"{key} {wanted.get(key)}" for key in differ)
        raise ConfigError(
            problem(f"{path}, made with other settings", got=got, expected=expected, remedy="choose another --out")
        )
    return arrays


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
