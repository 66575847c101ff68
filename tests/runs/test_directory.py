"""The run directory is checked before the work, and no file in it is ever half written."""

import json
import os
import stat
import zipfile

import numpy as np
import pytest

from irleed._io.files import LOCK, filling, is_damaged, sweep, write_json, write_signed
from irleed.errors import ConfigError, DataError
from irleed.runs import directory
from irleed.runs.directory import RUN, keep, kept, occupied, open_run, prepare, read_json


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


LIKE_OURS = (
    ".settings.json.abcdefgh", ".run.json.ab12cd_3", ".000000003.safetensors.a_b1c2d3", ".irleed-0123abcd-x.json",
    ".irleed-0123abcg-x.part", "irleed-0123abcd-x.part", ".x.json.probe___", ".irleed-lock.part",
)  # fmt: skip


def test_only_names_that_are_surely_ours_are_swept(tmp_path):
    """Hidden files of a user may look like anything."""
    for name in LIKE_OURS:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".irleed-0123abcd-fit.json.part").write_text("half")
    (tmp_path / ".irleed-0123abcd-folder.part" / "inner").mkdir(parents=True)
    (tmp_path / ".irleed-4567abcd-\n.part").write_text("half")
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(LIKE_OURS)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("own", ["fit.json", "history.jsonl", "film.png", "checkpoints"])
def test_a_folder_that_is_not_ours_is_refused_untouched(tmp_path, own, resume):
    """It has files of names that a run would write over; not even temporary ones are removed from it."""
    for name in (*LIKE_OURS, ".irleed-0123abcd-fit.json.part", own):
        (tmp_path / name).write_text("mine")
    os.utime(tmp_path, (1, 1))
    run = open_run(tmp_path, {}, "data", resume=resume)
    with pytest.raises(ConfigError, match=f"got {own}.*, and no run.json"), run:
        pass
    assert tmp_path.stat().st_mtime == 1 and len(list(tmp_path.iterdir())) == len(LIKE_OURS) + 2


def test_a_run_leaves_other_files_in_its_folder_alone(tmp_path):
    """A job's own output may lie there before the run begins."""
    for name in (*LIKE_OURS, "slurm-1.out"):
        (tmp_path / name).write_text("mine")
    for resume in (False, True):
        with open_run(tmp_path, {}, "data", resume=resume) as run:
            (run.folder / ".irleed-0123abcd-fit.json.part").write_text("left by a kill")
    with open_run(tmp_path, {}, "data", resume=True):
        assert {path.name for path in tmp_path.iterdir()} == {*LIKE_OURS, "slurm-1.out", RUN, LOCK}
    assert {path.name for path in tmp_path.iterdir()} == {*LIKE_OURS, "slurm-1.out", RUN}


def test_a_run_is_one_process_s_at_a_time(tmp_path):
    with open_run(tmp_path, {}, "data", resume=False):
        (tmp_path / ".irleed-0123abcd-fit.json.part").write_text("being written")
        for resume in (False, True):
            second = open_run(tmp_path, {}, "data", resume=resume)
            with pytest.raises(ConfigError, match=f"got process {os.getpid()} on .* expected no other process"), second:
                pass
        assert (tmp_path / ".irleed-0123abcd-fit.json.part").exists()
    with open_run(tmp_path, {}, "data", resume=True):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_an_output_folder_is_one_process_s_at_a_time(tmp_path):
    """That of an experiment; what a killed one left in it and in the folders right inside is removed by the next."""
    (tmp_path / "parts").mkdir()
    ours = [tmp_path / ".irleed-0123abcd-results.json.part", tmp_path / "parts" / ".irleed-0123abcd-a.npz.part"]
    for path in ours:
        path.write_text("half")
    with occupied(tmp_path), pytest.raises(ConfigError, match=f"got process {os.getpid()}"), occupied(tmp_path):
        pass
    assert all(path.exists() for path in ours), "nobody died in it: it may be anybody's folder"
    (tmp_path / LOCK).write_text("of a process that was killed")
    with occupied(tmp_path):
        assert not any(path.exists() for path in ours)
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_content_that_does_not_match_its_checksum_is_found(tmp_path):
    value = {"b": (1, 2.5, None), "a": {"x": "Zoë", 10: 1, 9: 2}, "small": 1e-300, "large": 2**70}
    write_signed(tmp_path / "a.json", value)
    whole = json.loads((tmp_path / "a.json").read_text())
    assert read_json(tmp_path / "a.json").plain() == {key: each for key, each in whole.items() if key != "checksum"}
    assert not is_damaged({"old": "files have none"}) and not is_damaged(whole)
    text = (tmp_path / "a.json").read_bytes()
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a.json").write_bytes(flipped)
        try:
            found = read_json(tmp_path / "a.json").plain()
        except DataError as error:
            assert "a.json" in str(error) and "\n" not in str(error)
        else:
            assert {key: found.get(key) for key in value} == {key: whole[key] for key in value}


def test_json_that_nobody_should_parse_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    for content in (b"[" * 50_000, b'{"a":' * 300 + b"1" + b"}" * 300, b'{"a": ' + b"9" * 5000 + b"}"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.json: got"):
            read_json(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="device or pipe"):
        read_json(path)
    path.unlink()
    path.write_text(json.dumps({"a": 9 * [[]]}))
    monkeypatch.setattr(directory, "MOST_VALUES", 10)  # which may take a hundred times their text
    with pytest.raises(DataError, match="values"):
        read_json(path)


def test_a_part_with_an_entry_more_or_less_is_refused(part):
    """As where a damaged directory of the archive hides one."""
    with np.load(part) as file:
        arrays = dict(file)
    np.savez(part, **{name: array for name, array in arrays.items() if name != "seconds"})
    assert "do not match their checksum" in refused(part, FINGERPRINT)
    np.savez(part, **{name: array for name, array in arrays.items() if name != "digest"})
    assert set(kept(part, FINGERPRINT)) == {"greedy", "seconds"}, "one of an older version"


def test_a_folder_is_filled_whole_or_stays_as_it_was(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".irleed-0123abcd-folder.part").mkdir()
    for folder in (tmp_path / "a" / "b", tmp_path / "empty"):
        with pytest.raises(KeyboardInterrupt), filling(folder) as part:
            (part / "x").write_text("x")
            raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["empty"] and not list((tmp_path / "empty").iterdir())
    for folder in (tmp_path / "a" / "b", tmp_path / "empty"):
        with filling(folder) as part:
            (part / "x").write_text("x")
        assert [path.name for path in folder.iterdir()] == ["x"]


def test_a_folder_whose_files_cannot_be_moved_is_emptied_again(tmp_path, monkeypatch):
    rename = os.rename

    def failing(source, target):
        if target.name == "b":
            raise OSError(28, os.strerror(28))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError), filling(tmp_path / "out") as part:
        (part / "a").write_text("x")
        (part / "b").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_any_length_can_be_written(tmp_path):
    """The temporary name must not be longer than the file system allows where the name itself is not."""
    for name in ("x" * 255, "ü" * 127):
        write_json(tmp_path / name, {})
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("shape", ["(3", "(-1,)", "(2, -3)", "(1e9,)", "(" + "9" * 30 + ",)"])
def test_a_part_whose_arrays_claim_what_cannot_be_is_refused(tmp_path, shape):
    """Their headers are text that NumPy parses; whatever that raises is one line."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("greedy.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    refused(tmp_path / "a.npz", FINGERPRINT)


@pytest.mark.parametrize("name", ["checkpoints", "history.jsonl", "tensorboard", "wandb", "baselines", "baselines/iq"])
def test_a_run_with_links_that_lead_out_of_it_is_not_gone_on_with(tmp_path, name):
    """Files elsewhere would be written, and removed as checkpoints of before."""
    folder, outside = tmp_path / "run", tmp_path / "outside"
    with open_run(folder, {}, "data", resume=False):
        pass
    outside.mkdir()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(outside / "new" if name == "history.jsonl" else outside)
    with (
        pytest.raises(DataError, match="a link that leads out of its folder"),
        open_run(folder, {}, "data", resume=True),
    ):
        pass
    assert not list(outside.iterdir())


def test_a_link_within_a_run_is_no_reason_to_refuse_it(tmp_path):
    with open_run(tmp_path / "run", {}, "data", resume=False):
        pass
    (tmp_path / "run" / "elsewhere").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to("elsewhere")
    (tmp_path / "link").symlink_to("run")
    with open_run(tmp_path / "link", {}, "data", resume=True):
        pass


def test_a_part_that_is_compressed_is_refused(part):
    """Parts are written as they are: one that is not could become any size."""
    np.savez_compressed(part, **dict(np.load(part)), zeros=np.zeros(1 << 20))
    assert "entries that are compressed" in refused(part, FINGERPRINT)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are POSIX's")
@pytest.mark.parametrize("name", ["history.jsonl", "checkpoints", "fit.json"])
def test_a_run_with_a_pipe_in_it_is_refused_before_any_work(tmp_path, name):
    with open_run(tmp_path / "run", {}, "data", resume=False):
        pass
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(DataError, match="a device or pipe"), open_run(tmp_path / "run", {}, "data", resume=True):
        pass
