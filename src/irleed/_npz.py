"""Reading and writing `.npz` files that carry their format's name and version; never pickle, never half a file."""

import errno
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irleed.errors import DataError, problem

ZIP_OPENINGS = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of one without members


def read_npz(
    path: str | os.PathLike,
    format: str,
    version: int,
    *,
    required: Iterable[str] = (),
    optional: Iterable[str] | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of a file, without its `format` and `version`. Any failure is a `DataError` that names the file.

    Versions up to `version` are read. `required` names must be there; unless `optional` is None, nothing else may be.
    """
    path = Path(path)
    found = _read(path)
    _check_format(path, found, format, version)
    arrays = {name: array for name, array in found.items() if name not in ("format", "version")}
    _check_names(path, set(arrays), set(required), None if optional is None else set(optional))
    return arrays


def write_npz(path: str | os.PathLike, arrays: Mapping[str, object], format: str, version: int) -> None:
    """Write `arrays`, leaving out those that are None: beside the file, then renamed, so that no reader sees half."""
    path = Path(path)
    columns: dict[str, Any] = {name: np.asarray(values) for name, values in arrays.items() if values is not None}
    for name, array in columns.items():
        if array.dtype.hasobject:
            raise DataError(
                problem(f"{path}, {name}", got="Python objects", expected="numbers or text", remedy="convert it")
            )
    beside = path.parent / f".{path.name[:100]}.{uuid.uuid4().hex}"
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            with beside.open("xb") as file:
                np.savez_compressed(file, format=np.array(format), version=np.array(version), **columns)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise DataError(
            problem(str(path), got=_reason(error), expected="a file that can be written", remedy="choose another path")
        ) from error


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            opening = file.read(4)
    except OSError as error:
        raise DataError(
            problem(str(path), got=_reason(error), expected="a readable .npz file", remedy="check the path")
        ) from error
    if opening not in ZIP_OPENINGS:
        got = "another kind of file" if opening else "an empty file"
        raise DataError(
            problem(str(path), got=got, expected="an .npz file, a zip archive of arrays", remedy="write it again")
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            found = {name: loaded[name] for name in loaded.files}
    except Exception as error:  # what a damaged archive raises depends on which byte is wrong
        raise _unreadable(path, error) from error
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise DataError(
                problem(f"{path}, {name}", got="no array", expected=".npy members only", remedy="use numpy.savez")
            )
    return found


def _unreadable(path: Path, error: Exception) -> DataError:
    if "allow_pickle" in str(error):
        return DataError(
            problem(
                str(path),
                got="Python objects (pickle)",
                expected="arrays of numbers or text",
                remedy="convert them before saving; pickles are never read",
            )
        )
    return DataError(
        problem(
            str(path),
            got=f"a damaged archive ({_one_line(error)})",
            expected="a complete .npz file",
            remedy="copy or write it again",
        )
    )


def _check_format(path: Path, found: dict[str, np.ndarray], format: str, version: int) -> None:
    if "format" not in found or "version" not in found:
        raise DataError(
            problem(
                str(path),
                got=f"arrays {_listed(found)}",
                expected=f"format '{format}' and version {version} among them",
                remedy="add these two, or check that this is the right file",
            )
        )
    named = str(found["format"].item()) if found["format"].ndim == 0 else f"an array of shape {found['format'].shape}"
    if named != format:
        raise DataError(
            problem(
                f"{path}, format",
                got=_one_line(named),
                expected=f"'{format}'",
                remedy="check that this is the right file",
            )
        )
    stamp = found["version"]
    if stamp.ndim != 0 or stamp.dtype.kind not in "iu" or not 1 <= int(stamp) <= version:
        got = int(stamp) if stamp.ndim == 0 and stamp.dtype.kind in "iu" else f"{stamp.dtype} of shape {stamp.shape}"
        raise DataError(
            problem(
                f"{path}, version",
                got=got,
                expected=f"a whole number from 1 to {version}",
                remedy="install a newer irleed, or save the file with this one",
            )
        )


def _check_names(path: Path, found: set[str], required: set[str], optional: set[str] | None) -> None:
    missing = required - found
    foreign = set() if optional is None else found - required - optional
    if missing or foreign:
        also = f", and optionally {_listed(optional)}" if optional else ""
        raise DataError(
            problem(
                str(path),
                got=f"arrays {_listed(found)}",
                expected=f"{_listed(required)}{also}",
                remedy=f"add {_listed(missing)}" if missing else f"remove {_listed(foreign)}",
            )
        )


def _listed(names: Iterable[str], limit: int = 20) -> str:
    names = sorted(_one_line(name) for name in names)
    shown = ", ".join(names[:limit]) or "none"
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or _one_line(error)).lower()


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:200]
