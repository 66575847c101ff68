"""Files that appear whole or not at all: what is not replaced."""

import os
import stat

import pytest

from irleed._io.files import beside


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are POSIX's")
def test_a_device_or_pipe_is_not_replaced(tmp_path):
    """`--out /dev/null` by an administrator would put a file in its place, for every program of the machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="a device or pipe"), beside(tmp_path / name):
            pass
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and len(os.listdir(tmp_path)) == 2
