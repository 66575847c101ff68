"""The run directory is checked before the work, and no file in it is ever half written."""

import json
import os
import stat

import numpy as np
import pytest

from irleed.errors import ConfigError
from irleed.runs.directory import keep, kept, prepare, write_json


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()], ids=["nan", "inf", "object"])
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


FINGERPRINT = {"runs": 2, "LL": "1.0 30.0", "hidden": "(64, 64)"}


@pytest.fixture
def part(tmp_path):
    """A part of a result, in a folder that was not there."""
    path = tmp_path / "parts" / "a.npz"
    keep(path, FINGERPRINT, {"greedy": np.arange(6.0).reshape(2, 3), "seconds": np.asarray(1.5)})
    return path


def refused(path, fingerprint) -> str:
    with pytest.raises(ConfigError) as caught:
        kept(path, fingerprint)
    message = str(caught.value)
    assert str(path) in message and "--out" in message and "\n" not in message
    return message


def test_a_part_that_was_kept_is_read_back_equal(part):
    found = kept(part, FINGERPRINT)
    assert set(found) == {"greedy", "seconds"} and found["seconds"] == 1.5
    np.testing.assert_array_equal(found["greedy"], [[0, 1, 2], [3, 4, 5]])
    assert kept(part.with_name("other.npz"), FINGERPRINT) is None
    assert stat.S_IMODE(part.stat().st_mode) & 0o444 == 0o444 & ~os.umask(os.umask(0)), "others may read it"


@pytest.mark.parametrize(
    "changed, named",
    [
        ({"runs": 3}, "got runs 2, expected runs 3"),
        ({"LL": None}, "got LL 1.0 30.0, expected LL None"),
        ({"HH": "inf 0.0"}, "got HH None, expected HH inf 0.0"),
        ({"runs": 3, "hidden": "(8,)"}, "got hidden (64, 64), runs 2, expected hidden (8,), runs 3"),
    ],
    ids=str,
)
def test_a_part_made_with_other_settings_is_refused_by_their_names(part, changed, named):
    wanted = {**FINGERPRINT, **changed}
    assert named in refused(part, {key: value for key, value in wanted.items() if value is not None})


def test_a_part_that_is_damaged_is_refused(part, tmp_path):
    """Cut anywhere, of another kind, or with a fingerprint that is none."""
    whole = part.read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], b"", b"\x80\x04N.", b"something else", whole[:60] + b"!" * 9):
        part.write_bytes(broken)
        refused(part, FINGERPRINT)
    flipped = bytearray(whole)
    flipped[150] ^= 1  # in the numbers of the first array
    part.write_bytes(flipped)
    refused(part, FINGERPRINT)
    for fingerprint in ({}, {"fingerprint": "[1, 2]"}, {"fingerprint": "{"}, {"fingerprint": np.zeros(3)}):
        np.savez(part, greedy=np.zeros(2), **fingerprint)
        refused(part, FINGERPRINT)
    with part.open("wb") as file:
        np.save(file, np.zeros(2))
    refused(part, FINGERPRINT)


def test_an_interrupted_part_leaves_the_old_one_and_nothing_else(part, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keep(part, FINGERPRINT, {"greedy": np.zeros(1)})
    assert kept(part, FINGERPRINT)["greedy"].shape == (2, 3)
    assert [path.name for path in part.parent.iterdir()] == ["a.npz"]
