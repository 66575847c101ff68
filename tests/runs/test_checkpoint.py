"""Checkpoints: what is read is what was written, bit for bit; what is damaged is passed over; others' are refused."""

import errno
import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from irleed._io import files as _files
from irleed.errors import ConfigError, DataError
from irleed.runs.checkpoint import FORMAT, VERSION, Checkpointer, Stopped
from irleed.runs.logging import LIBRARIES, History, TensorBoard, library

TOTAL = 5


def state(seed: int = 0) -> dict:
    """Leaves of every kind that a run has: numbers of several types and shapes, flags, keys; of JAX and of NumPy."""
    generator = np.random.default_rng(seed)
    odd = np.array([np.nan, -0.0, np.inf, 1e-45], np.float32)
    return {
        "weights": (jnp.asarray(generator.normal(size=(3, 2)), jnp.float32), jnp.zeros((0, 2), jnp.float32)),
        "count": jnp.asarray(2**31 - 1, jnp.int32),
        "image": jnp.asarray(generator.integers(0, 256, (2, 4, 4)), jnp.uint8),
        "flag": jnp.asarray([True, False]),
        "odd": odd,
        "double": np.asarray(1 / 3),
        "key": jax.random.split(jax.random.key(seed), 3),
        "other key": jax.random.key(seed, impl="rbg"),
        "nothing": None,
    }


def equal(one, other) -> bool:
    def same(a, b) -> bool:
        if a.dtype != b.dtype or a.shape != b.shape or type(a) is not type(b):
            return False
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return np.asarray(a).tobytes() == np.asarray(b).tobytes()

    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return jax.tree.structure(one) == jax.tree.structure(other) and all(same(*both) for both in leaves)


def checkpointer(folder, fingerprint: str = "mine", every: float | None = 0.0, **settings) -> Checkpointer:
    return Checkpointer(folder, fingerprint, every=every, **settings)


def kept(folder, steps=(1, 2), **settings) -> Checkpointer:
    """A run that has come to these steps, its state that of its step."""
    made = checkpointer(folder, **settings)
    assert made.restore(state()) is None
    for step in steps:
        made.save(state(step), step, TOTAL, {"loss": 1.0 / step})
    return made


def names(folder) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_what_is_read_is_what_was_written(tmp_path):
    kept(tmp_path)
    found, step = checkpointer(tmp_path).restore(state())
    assert step == 2 and equal(found, state(2)) and not equal(found, state(1))
    found["odd"][0] = 1.0  # an array of NumPy's can be written to, as before


def test_shapes_alone_are_enough_of_a_template(tmp_path):
    """A run that goes on need not be begun to know what it looks like."""
    kept(tmp_path)
    template = {name: part for name, part in state().items() if name not in ("odd", "double")}
    with pytest.raises(ConfigError):  # but all of it
        checkpointer(tmp_path).restore(template)
    shapes = jax.eval_shape(lambda: {name: part for name, part in state().items() if name in template})
    found, _ = checkpointer(tmp_path).restore({**state(), **shapes})
    assert equal(found, state(2))


def test_the_last_two_are_kept(tmp_path):
    kept(tmp_path, (1, 2, 3, 4))
    assert names(tmp_path) == ["000000003.safetensors", "000000004.safetensors"]


def spoil(path, how: str) -> None:
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-3] ^= 1  # a bit of an array
    contents = {
        "cut": whole[: len(whole) // 2], "empty": b"", "flipped": bytes(flipped), "other": b"something else" * 9,
        "header": whole.replace(b'\\"step\\": 2', b'\\"step\\": 3'),
    }  # fmt: skip
    assert contents[how] != whole
    path.write_bytes(contents[how])


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "other", "header"])
def test_a_damaged_one_is_passed_over_for_the_one_before(tmp_path, how):
    kept(tmp_path)
    told = []
    spoil(tmp_path / "checkpoints" / "000000002.safetensors", how)
    again = checkpointer(tmp_path, warn=told.append)
    found, step = again.restore(state())
    assert step == 1 and equal(found, state(1))
    assert len(told) == 1 and "000000002.safetensors" in told[0] and "after step 1" in told[0] and "\n" not in told[0]
    again.save(state(2), 2, TOTAL, {})
    assert checkpointer(tmp_path).restore(state())[1] == 2, "it is written anew"
    assert names(tmp_path) == ["000000001.safetensors", "000000002.safetensors"]


def test_a_damaged_one_of_a_later_step_does_not_outlive_those_that_follow(tmp_path):
    kept(tmp_path, (2, 4))
    spoil(tmp_path / "checkpoints" / "000000004.safetensors", "cut")
    again = checkpointer(tmp_path, warn=lambda text: None)
    again.restore(state())
    again.save(state(3), 3, TOTAL, {})
    assert names(tmp_path) == ["000000002.safetensors", "000000003.safetensors"]


def refused(folder, template=None, fingerprint: str = "mine") -> str:
    with pytest.raises(ConfigError) as caught:
        checkpointer(folder, fingerprint).restore(state() if template is None else template)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    return str(caught.value)


def test_nothing_but_damaged_ones_is_an_error_that_names_them(tmp_path):
    kept(tmp_path)
    for name in names(tmp_path):
        spoil(tmp_path / "checkpoints" / name, "cut")
    assert all(name in refused(tmp_path) for name in names(tmp_path))


def test_others_are_refused(tmp_path):
    kept(tmp_path)
    assert "got another fingerprint, expected a checkpoint of this run" in refused(tmp_path, fingerprint="other")
    assert "got another ['count']" in refused(tmp_path, state() | {"count": jnp.asarray(1.0, jnp.float32)})
    assert "got another ['count']" in refused(tmp_path, state() | {"count": jnp.zeros(1, jnp.int32)})
    assert "got another ['more']" in refused(tmp_path, state() | {"more": jnp.zeros(1)})
    assert "got another ['flag']" in refused(tmp_path, {**state(), "flag": None})


def test_one_of_a_newer_version_is_refused(tmp_path):
    kept(tmp_path, (1,))
    path = tmp_path / "checkpoints" / "000000001.safetensors"
    header = {"format": "irleed-checkpoint", "version": 2}
    save_file(load_file(path), path, metadata={"irleed": json.dumps(header)})
    assert "got version 2, expected at most 1; install a newer irleed" in refused(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_a_write_that_fails_is_one_line_and_leaves_what_was_there(tmp_path, monkeypatch, number):
    made = kept(tmp_path)

    def full(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(_files.os, "fsync", full)
        with pytest.raises(
            ConfigError, match=f"got {os.strerror(number)}, expected .* continue with --resume"
        ) as caught:
            made.save(state(3), 3, TOTAL, {})
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["000000001.safetensors", "000000002.safetensors"]
    assert checkpointer(tmp_path).restore(state())[1] == 2


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    made = kept(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    (tmp_path / "checkpoints").rmdir()
    with pytest.raises(ConfigError, match="No such file or directory"):
        made.save(state(3), 3, TOTAL, {})
    (tmp_path / "checkpoints").write_text("a file in its place")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        checkpointer(tmp_path).restore(state())


def test_what_a_kill_left_half_written_is_swept_away(tmp_path):
    kept(tmp_path)
    (tmp_path / "checkpoints" / ".irleed-0123abcd-000000003.safetensors.part").write_bytes(b"half")
    (tmp_path / "checkpoints" / "notes.txt").write_text("of the user")
    assert checkpointer(tmp_path).restore(state())[1] == 2
    assert names(tmp_path) == ["000000001.safetensors", "000000002.safetensors", "notes.txt"]


def test_seldom_by_default_but_at_the_end(tmp_path):
    kept(tmp_path, (1, 2), every=None)
    assert names(tmp_path) == []
    kept(tmp_path, (1, TOTAL), every=None)
    assert names(tmp_path) == ["000000005.safetensors"]


def test_a_run_that_is_asked_to_stop_does_so_after_a_checkpoint(tmp_path):
    made = kept(tmp_path, (1,), every=None)
    made.stop = True
    with pytest.raises(Stopped, match="stopped after step 3 of 5"):
        made.save(state(3), 3, TOTAL, {})
    assert checkpointer(tmp_path).restore(state())[1] == 3
    made.save(state(5), 5, TOTAL, {})  # the end is no interruption


def test_history_goes_on_from_the_checkpoint(tmp_path):
    """Lines of steps that will be done again are dropped, and a line that was cut."""
    path = tmp_path / "history.jsonl"
    with kept(tmp_path, (1, 2), logs=[History(path)]) as made:
        made.save(state(3), 3, TOTAL, {"loss": float("nan")})
    whole = path.read_text()
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3] and lines[1]["loss"] == 0.5 and lines[2]["loss"] is None
    assert all({"seconds", "rate"} <= set(line) for line in lines)
    spoil(tmp_path / "checkpoints" / "000000003.safetensors", "cut")
    path.write_text(whole + '{"step": 4, "lo')
    with checkpointer(tmp_path, logs=[History(path)], warn=lambda text: None) as again:
        assert again.restore(state())[1] == 2 and again.earlier > 0
        again.save(state(3), 3, TOTAL, {"loss": 7.0})
    after = path.read_text().splitlines()
    assert after[:2] == whole.splitlines()[:2] and [json.loads(line)["step"] for line in after] == [1, 2, 3]
    assert json.loads(after[2])["loss"] == 7 and json.loads(after[2])["seconds"] >= lines[1]["seconds"]


def test_tensorboard_is_told(tmp_path):
    pytest.importorskip("tensorboardX", reason="the extra irleed[log]")
    with kept(tmp_path, (1, 2), logs=[TensorBoard(tmp_path / "tensorboard")]):
        pass
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert events.read_bytes().count(b"loss") == 2


def test_a_log_whose_library_is_missing_is_refused_by_the_name_of_the_extra(monkeypatch):
    for log, name in LIBRARIES.items():
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigError, match=rf"--log {log}: got {name} not installed.*irleed\[log\]"):
            library(log)


@pytest.mark.parametrize("name,value", [("step", "2"), ("step", -1), ("step", 1.5), ("step", 10**30), ("step", None),
                                        ("seconds", "1"), ("seconds", -1.0), ("seconds", float("nan"))])  # fmt: skip
def test_headers_with_right_checksums_may_be_forged(tmp_path, name, value):
    kept(tmp_path)
    path = tmp_path / "checkpoints" / "000000002.safetensors"
    arrays = load_file(path)
    header = {"format": FORMAT, "version": VERSION, "fingerprint": "mine", "step": 2, "seconds": 1.0, name: value}
    signed = json.dumps({**header, "checksum": _files.digest(header, arrays)})
    save_file(arrays, path, metadata={"irleed": signed})
    told = []
    assert checkpointer(tmp_path, warn=told.append).restore(state())[1] == 1
    assert "its header is not that of a checkpoint" in told[0]


def test_headers_without_end_are_damaged(tmp_path):
    kept(tmp_path)
    path = tmp_path / "checkpoints" / "000000002.safetensors"
    save_file(load_file(path), path, metadata={"irleed": "[" * 200_000})
    assert checkpointer(tmp_path, warn=lambda text: None).restore(state())[1] == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_what_is_no_file_is_passed_over(tmp_path, kind):
    """A pipe would be waited for, and a link may lead anywhere."""
    kept(tmp_path)
    path = tmp_path / "checkpoints" / "000000002.safetensors"
    path.rename(tmp_path / "elsewhere")
    {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda at: os.symlink(tmp_path / "elsewhere", at)}[kind](path)
    assert checkpointer(tmp_path, warn=lambda text: None).restore(state())[1] == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_history_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(DataError, match="device or pipe"):
        History(tmp_path / "history.jsonl").begin(0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").symlink_to(tmp_path / "new")
    with pytest.raises(DataError, match="out of its folder"):
        History(tmp_path / "run" / "history.jsonl").begin(0)
    assert not (tmp_path / "new").exists()
    (tmp_path / "deep.jsonl").write_text("[" * 200_000 + "\n")
    history = History(tmp_path / "deep.jsonl")
    history.begin(0)
    history.close()
    assert (tmp_path / "deep.jsonl").read_text() == ""
