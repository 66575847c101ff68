"""The run directory is checked before the work, and no file in it is ever half written."""

import json
import os
import stat

import pytest

from irleed.errors import ConfigError
from irleed.store import prepare, write_json


def test_a_folder_is_made_with_its_parents_and_left_empty(tmp_path):
    assert prepare(str(tmp_path / "runs" / "mine")) == tmp_path / "runs" / "mine"
    assert list((tmp_path / "runs" / "mine").iterdir()) == []


def test_what_is_in_the_folder_stays(tmp_path):
    (tmp_path / "kept").write_text("x")
    prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_place_that_cannot_be_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("long" * 100)):
        with pytest.raises(ConfigError) as caught:
            prepare(folder)
        message = str(caught.value)
        assert str(folder) in message and "--out" in message and "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_without_permission_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        prepare(tmp_path / "closed")


def test_json_is_read_back_equal(tmp_path):
    value = {"name": "Zoë", "numbers": [1, 2.5, None], "nested": {"yes": True}}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_others_may_read_the_file_as_far_as_the_umask_lets_them(tmp_path):
    """A temporary file is closed to others; what it becomes must not be."""
    before = os.umask(0o027)
    try:
        write_json(tmp_path / "a.json", {})
        assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027, "the umask is as it was"
    finally:
        os.umask(before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()], ids=repr)
def test_what_is_no_json_leaves_the_old_file_and_nothing_else(tmp_path, value):
    write_json(tmp_path / "a.json", {"old": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "a.json", {"fine": 1, "wrong": value})
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"old": 1})

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "a.json", {"new": 1})
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
