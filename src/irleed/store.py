"""The run directory: checked before the work starts, written atomically when it ends."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from irleed._npz import CORRUPT
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
    """Write a JSON file, whole or not at all."""
    with beside(path) as file:
        file.write(json.dumps(value, indent=1, allow_nan=False).encode())


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
    wanted = json.loads(json.dumps(fingerprint))
    differ = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    if differ:
        got = ", ".join(f"{key} {found.get(key)}" for key in differ)
        expected = ", ".join(f"{key} {wanted.get(key)}" for key in differ)
        raise ConfigError(
            problem(f"{path}, made with other settings", got=got, expected=expected, remedy="choose another --out")
        )
    return arrays


@contextlib.contextmanager
def beside(path: Path) -> Iterator[BinaryIO]:
    """Write beside, then rename: a reader sees the old file or the new one, never half of one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
