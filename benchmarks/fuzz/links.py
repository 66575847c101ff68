"""Hostile folders: links that leave them, folders in themselves, pipes, devices and endless files in place of files."""

import contextlib
import os
import shutil
import socket
from pathlib import Path

from fuzz import bombs, values
from fuzz.case import Case


def files(folder: Path) -> list[Path]:
    """The regular files in a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def is_small(path: Path) -> bool:
    """Is it a regular file that can be read as a whole? An earlier mutation may have made another thing of it."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 26


def folders(folder: Path) -> list[Path]:
    """The folders in a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())


def file_elsewhere(case: Case, folder: Path) -> None:
    """A file is a link to a sound file outside."""
    if found := files(folder):
        path = case.pick(found)
        case.note(path.name)
        target = case.outside / f"moved-{path.name}"
        shutil.move(path, target)
        path.symlink_to(case.pick((target, os.path.relpath(target, path.parent))))


def folder_elsewhere(case: Case, folder: Path) -> None:
    """A folder is a link to a sound folder outside."""
    if found := folders(folder):
        path = case.pick(found)
        case.note(path.name)
        target = case.outside / f"moved-{path.name}"
        shutil.move(path, target)
        path.symlink_to(case.pick((target, os.path.relpath(target, path.parent))), target_is_directory=True)


def secret_in_place(case: Case, folder: Path) -> None:
    """A file is a link to something else outside."""
    if found := files(folder):
        path = case.pick(found)
        path.unlink()
        path.symlink_to(case.outside / case.pick(("secret.txt", "secret.bin")))


def in_itself(case: Case, folder: Path) -> None:
    """A folder has a link to one above it."""
    inside = [folder, *folders(folder)]
    name = case.pick(("baselines", "data", "chunk-000", "chunk-001", "loop", "1", "episodes", "checkpoints"))
    link = case.pick(inside) / name
    if not os.path.lexists(link):
        link.symlink_to(case.pick(("..", ".", "../..", str(folder))), target_is_directory=True)


def loop(case: Case, folder: Path) -> None:
    """A file or folder is a link to itself."""
    if found := files(folder) + folders(folder):
        path = case.pick(found)
        case.note(path.name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(path.name)


def no_file(case: Case, folder: Path) -> None:
    """A pipe, socket, device, folder or nothing in place of a file."""
    if found := files(folder):
        path = case.pick(found)
        _replace(case, path)


def _replace(case: Case, path: Path) -> None:
    kind = case.pick(("pipe", "pipe", "zero", "random", "terminal", "socket", "folder", "nothing", "empty", "dangling"))
    case.note(f"{path.name}: {kind}")
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket has to be short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir(here)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind != "nothing":
        devices = {"zero": "/dev/zero", "random": "/dev/urandom", "terminal": "/dev/tty", "dangling": "nowhere"}
        path.symlink_to(devices[kind])


def endless(case: Case, folder: Path) -> None:
    """A file is gigabytes long and takes no room on disk."""
    if found := files(folder):
        path = case.pick(found)
        case.note(path.name)
        bombs.sparse(path, case.pick((1 << 32, 1 << 36)))


def exchanged(case: Case, folder: Path) -> None:
    """Two files have each other's places."""
    found = files(folder)
    if len(found) > 1:
        one, other = (found[int(n)] for n in case.random.permutation(len(found))[:2])
        between = one.rename(one.with_name(f"{one.name}.moved"))
        other.rename(one)
        between.rename(other)


def doubled(case: Case, folder: Path) -> None:
    """A file or folder is there again under another name."""
    if found := files(folder) + folders(folder):
        path = case.pick(found)
        name = case.pick(("file-001.parquet", "chunk-001", "2", "3.txt", ".hidden", "copy", "file-999999999.parquet"))
        new = path.parent / name
        large = any(not is_small(file) for file in (path, *path.rglob("*")) if file.is_file())  # files of nothing
        if not os.path.lexists(new) and not large:
            with contextlib.suppress(shutil.Error):  # pipes are left out
                shutil.copytree(path, new, symlinks=True) if path.is_dir() else shutil.copyfile(path, new)


def crowded(case: Case, folder: Path) -> None:
    """Thousands of files, or one with a hostile name."""
    place = case.pick([folder, *folders(folder)])
    if case.chance(0.5):
        for number in range(1000):
            (place / f"{number}.txt").touch()
        return
    name = values.text_without_zero(case).replace("/", "_").encode("utf-8", "surrogatepass")[:200]
    if name not in (b".", b"..", b""):
        Path(os.fsdecode(os.path.join(os.fsencode(place), name))).write_text("x")


def cut(case: Case, folder: Path) -> None:
    """A file ends early."""
    if found := files(folder):
        path = case.pick(found)
        os.truncate(path, int(case.random.integers(0, path.stat().st_size + 1)))


FOLDERS = (
    file_elsewhere, file_elsewhere, folder_elsewhere, secret_in_place, in_itself, in_itself, loop, no_file, no_file,
    endless,
    exchanged, doubled, crowded, cut,
)  # fmt: skip


def alone(case: Case, path: Path) -> None:
    """What is given is no file of its own, but what a single file can be replaced by; a link out is the user's."""
    kind = case.pick(("pipe", "endless", "empty", "folder"))
    case.note(f"given: {kind}")
    if kind == "endless":
        bombs.sparse(path, case.pick((1 << 32, 1 << 36)))
        return
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    else:
        path.mkdir()
