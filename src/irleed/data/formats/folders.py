"""Files in folders that others made: regular files, and none that a symbolic link takes from outside the folder."""

import json
from pathlib import Path
from typing import Any

from irleed._io.npz import printable
from irleed.data.formats.base import refuse

LARGEST_JSON = 1 << 25  # bytes: a description of a data set takes kilobytes; parsed, JSON takes up to 20 times as much


def inside(folder: Path, path: Path) -> Path:
    """The path; refused if a symbolic link in it leads out of the folder, or to itself.

    The folder may be a link itself: that is what the user named.
    """
    try:
        there = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links that lead to each other
        there = False
    if not there:
        refuse(path, "a link that leads out of its folder", f"files in {printable(folder)}", "copy what it leads to")
    return path


def regular(folder: Path, path: Path) -> Path:
    """The path of a file in a folder; refused if it is missing, outside, or a pipe or device, which could block."""
    try:
        if inside(folder, path).is_file():
            return path
        got = "a pipe or device" if path.exists() and not path.is_dir() else "no file"
    except (OSError, ValueError):
        got = "a path that cannot be looked up"
    refuse(path, got, "a file", "copy the folder again")


def read_json(folder: Path, path: Path) -> Any:
    """What a JSON file of a folder holds. Raises the errors of reading and parsing, and refuses as `regular` does."""
    if regular(folder, path).stat().st_size > LARGEST_JSON:
        refuse(path, f"{path.stat().st_size:,} bytes", f"at most {LARGEST_JSON:,}", "check that it is the right file")
    return json.loads(path.read_bytes())
