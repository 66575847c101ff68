"""One process at a time writes to a folder, and locks of dead processes do not block; what is not replaced."""

import errno
import json
import os
import platform
import stat
import subprocess
import sys

import pytest

from irleed._io import files as _files
from irleed._io.files import beside, locked
from irleed.errors import ConfigError

HOLD = """
import sys
from pathlib import Path
from irleed._io import files as _files
if sys.argv[2] == "file":
    _files._flock = lambda handle: None
with _files.locked(Path(sys.argv[1]), "run"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["system", "file"])
def kind(request, monkeypatch):
    """Locks of the operating system, and those that are a file's existence, where there are no others."""
    if request.param == "file":
        monkeypatch.setattr(_files, "_flock", lambda handle: None)
    elif _files.fcntl is None:
        pytest.skip("no flock here")
    return request.param


@pytest.fixture
def holder(kind, tmp_path):
    """Another process that holds the lock."""
    arguments = [sys.executable, "-c", HOLD, str(tmp_path / "lock"), kind]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def refusal(path) -> str:
    with pytest.raises(ConfigError) as caught, locked(path, "run"):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_living_process_keeps_others_out_and_is_named(holder, tmp_path, kind):
    before = (tmp_path / "lock").read_bytes()
    for _ in range(2):
        said = refusal(tmp_path / "lock")
        assert said.startswith(f"run: got process {holder.pid} on {platform.node()} writing to it, expected no other")
        assert (f"remove {tmp_path / 'lock'}" in said) == (kind == "file")
    assert (tmp_path / "lock").read_bytes() == before
    holder.communicate("\n", timeout=30)
    assert not (tmp_path / "lock").exists(), "nothing is left after a clean end"
    with locked(tmp_path / "lock", "run") as left:
        assert not left


def test_the_lock_of_a_killed_process_is_taken_over(holder, tmp_path):
    holder.kill()
    holder.wait()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "run") as left:
        assert left and json.loads((tmp_path / "lock").read_text()) == {"pid": os.getpid(), "host": platform.node()}
    assert list(tmp_path.iterdir()) == []


def test_the_same_process_cannot_hold_it_twice(kind, tmp_path):
    with locked(tmp_path / "lock", "run"):
        assert f"process {os.getpid()}" in refusal(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"pid": "x"}', b'{"pid": 1, "host": "elsewhere"}', b"[" * 999]
)
def test_where_only_the_file_can_tell_one_that_may_be_held_blocks(tmp_path, monkeypatch, content):
    """A process on another machine cannot be looked for; the line says what to remove."""
    monkeypatch.setattr(_files, "_flock", lambda handle: None)
    (tmp_path / "lock").write_bytes(content)
    assert f"remove {tmp_path / 'lock'}" in refusal(tmp_path / "lock")


@pytest.mark.skipif(_files.fcntl is None, reason="no flock here")
def test_whatever_a_file_says_that_nobody_has_locked_is_left_over(tmp_path):
    (tmp_path / "lock").write_bytes(b"\xff[")
    with locked(tmp_path / "lock", "run") as left:
        assert left
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    if _files.fcntl is None:
        pytest.skip("no flock here")

    def unsupported(*_):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(_files.fcntl, "flock", unsupported)
    with locked(tmp_path / "lock", "run"):
        assert "remove" in refusal(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not _files.NO_LINK, reason="links are followed here")
def test_a_link_is_not_followed(tmp_path):
    """In a folder from somebody else it could lead to any file of the user's, which would be written over."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError), locked(tmp_path / "lock", "run"):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_lock_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_files.os, "write", full)
    with pytest.raises(OSError), locked(tmp_path / "lock", "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_releases_it(kind, tmp_path):
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "lock", "run"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_no_error_at_the_end(kind, tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run" / "lock", "run"):
        (tmp_path / "run" / "lock").unlink()
        (tmp_path / "run").rmdir()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_in_its_place_is_not_waited_for(kind, tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(OSError, match="a pipe or device in place of the lock file"), locked(tmp_path / "lock", "run"):
        pass
    assert (tmp_path / "lock").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are POSIX's")
def test_a_device_or_pipe_is_not_replaced(tmp_path):
    """`--out /dev/null` by an administrator would put a file in its place, for every program of the machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="a device or pipe"), beside(tmp_path / name):
            pass
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and len(os.listdir(tmp_path)) == 2
