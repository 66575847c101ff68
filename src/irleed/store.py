"""The run directory: checked before the work starts, written atomically when it ends."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

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


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
