"""A saved file loads equal; any other file is refused in one line; a failed write leaves nothing behind."""

import errno
import os
import zipfile

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from irleed.data import Demonstrations, Episode, load, save
from irleed.errors import ConfigError, DataError


def played(seed: int = 0, lengths=(3, 2), people: int = 2, rewards: bool = True, obs_type="f4", obs_shape=(2,)):
    """Random demonstrations."""
    random = np.random.default_rng(seed)
    episodes = [
        Episode(
            obs=(50 * random.standard_normal((length + 1, *obs_shape))).astype(obs_type),
            action=random.integers(0, 4, length),
            terminated=bool(random.random() < 0.5),
            demonstrator=i % people,
            reward=random.standard_normal(length) if rewards else None,
        )
        for i, length in enumerate(lengths)
    ]
    return Demonstrations.from_episodes(episodes, [f"Zoë {i}" for i in range(people)])


def same(one: Demonstrations, other: Demonstrations) -> bool:
    """Equal names, values and types."""
    mine, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    alike = (a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    return len(mine) == len(theirs) and one.names == other.names and all(alike)


def refusal(path, error: type[Exception] = DataError, call=load, *args) -> str:
    """The message of the error, which is one line and names the file."""
    with pytest.raises(error) as caught:
        call(*args, path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(str(path) if str(path).isprintable() else repr(str(path)))
    assert "expected" in message
    return message


def written(path, drop=(), **changes):
    """A file as `save` writes it, with entries dropped and changed."""
    save(played(), path)
    with np.load(path) as archive:
        entries = {key: archive[key] for key in archive.files if key not in drop} | changes
    np.savez(path, **entries)
    return path


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.data(),
    st.booleans(),
    st.sampled_from(["f4", "f8", "i1", "i8", "?"]),
    st.sampled_from([(), (3,), (2, 3)]),
    st.booleans(),
)
def test_what_is_saved_is_loaded(tmp_path_factory, seed, lengths, choice, rewards, obs_type, obs_shape, compress):
    people = choice.draw(st.integers(1, len(lengths)))
    data = played(seed, lengths, people, rewards, obs_type, obs_shape)
    path = tmp_path_factory.mktemp("round") / "data.npz"
    save(data, path, compress=compress)
    assert same(load(path), data)
    assert same(load(str(path)), data)


def test_numpy_alone_reads_the_documented_layout(tmp_path):
    save(played(), tmp_path / "data.npz")
    with np.load(tmp_path / "data.npz", allow_pickle=False) as archive:
        assert archive["format"] == "irleed-demonstrations"
        assert archive["version"] == 1
        assert archive["names"].tolist() == ["Zoë 0", "Zoë 1"]
        np.testing.assert_array_equal(archive["obs"], played().obs)
        np.testing.assert_array_equal(archive["row"], [0, 1, 2, 4, 5])
        assert set(archive.files) == {
            "format", "version", "obs", "row", "action", "terminated", "truncated", "demonstrator", "episode", "names",
            "reward",
        }  # fmt: skip


def test_the_same_data_make_the_same_bytes(tmp_path):
    for name in ("one.npz", "two.npz"):
        save(played(), tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a file, compressed and not, and a place for spoilt copies."""
    folder = tmp_path_factory.mktemp("fuzz")
    contents = []
    for compress in (True, False):
        save(played(), folder / "sound.npz", compress=compress)
        contents.append((folder / "sound.npz").read_bytes())
    return contents, folder / "spoilt.npz"


def loads_equal_or_is_refused(path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        assert same(load(path), played())
    except DataError as error:
        message = str(error)
    else:
        return
    assert len(message.splitlines()) == 1
    assert message.startswith(str(path))


@settings(max_examples=300)
@given(st.integers(0, 1), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_harmless(sound, kind, position, bit):
    contents, path = sound
    content = bytearray(contents[kind])
    content[int(position * len(content))] ^= 1 << bit
    loads_equal_or_is_refused(path, bytes(content))


def test_a_shape_that_was_tampered_with_is_noticed(tmp_path):
    """Half of the numbers would load without complaint, but for the checksum over all of them."""
    path = tmp_path / "data.npz"
    save(played(lengths=(3000, 2)), path, compress=False)
    path.write_bytes(path.read_bytes().replace(b"(3004, 2)", b"(3004, 1)"))
    assert "'obs.npy'" in refusal(path)


def test_an_entry_that_a_damaged_directory_hides_is_missed(sound):
    """The rewards are optional, and last: were they not counted, they would silently be gone."""
    contents, path = sound
    content = bytearray(contents[0])
    before_last = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    content[before_last + 32] = 64  # the length of a comment that swallows the next record
    path.write_bytes(content)
    assert "'directory'" in refusal(path)


@settings(max_examples=100)
@given(st.integers(0, 1), st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=40))
@example(0, 0.0, b"PK\x03\x04")
def test_overwritten_bytes_are_noticed_or_harmless(sound, kind, position, patch):
    contents, path = sound
    at = int(position * len(contents[kind]))
    loads_equal_or_is_refused(path, contents[kind][:at] + patch + contents[kind][at + len(patch) :])


@settings(max_examples=100)
@given(st.integers(0, 1), st.floats(0, 1, exclude_max=True))
def test_a_cut_file_is_refused(sound, kind, fraction):
    contents, path = sound
    path.write_bytes(contents[kind][: int(fraction * len(contents[kind]))])
    refusal(path)


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (b"", "an empty file"),
        (b"episode,step,action\n", "got 0 rows of 'episode', 'step', 'action'"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "got a cut or damaged file"),
        (b"PK\x03\x04 and no more", "a cut or damaged archive"),
    ],
)
def test_other_content_is_refused(tmp_path, content, phrase):
    (tmp_path / "data.npz").write_bytes(content)
    assert phrase in refusal(tmp_path / "data.npz")


def test_what_is_no_file_is_refused(tmp_path):
    for name in ("missing.npz", "missing.hdf5", "a\0b"):  # whatever it would have been
        assert "got no such file or folder, expected a file or folder of demonstrations" in refusal(tmp_path / name)
    assert "no such file" in refusal(tmp_path / "miss\ning.npz")
    assert "a folder" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / ("long" * 100))
    os.mkfifo(tmp_path / "pipe")
    assert "a device or pipe" in refusal(tmp_path / "pipe")
    with pytest.raises(DataError):
        load("zero\0byte")


def test_foreign_archives_are_refused_with_both_lists_of_entries(tmp_path):
    np.savez(tmp_path / "foreign.npz", observations=np.zeros(3), acts=np.zeros(2))
    message = refusal(tmp_path / "foreign.npz")
    for name in ("observations", "acts", "obs", "row", "action", "demonstrator", "reward"):
        assert name in message
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")
    assert "word/document.xml" in refusal(tmp_path / "other.zip")
    np.savez(tmp_path / "many.npz", *[np.zeros(1)] * 500)
    assert len(refusal(tmp_path / "many.npz")) < 600 + len(str(tmp_path))


def test_missing_and_unknown_entries_are_refused(tmp_path):
    assert "'rewards'" in refusal(written(tmp_path / "a.npz", drop=("reward",), rewards=np.zeros(5)))
    message = refusal(written(tmp_path / "b.npz", drop=("truncated",)))
    assert "truncated" in message.split("expected")[1]
    assert "truncated" not in message.split("expected")[0]


@pytest.mark.parametrize(
    ("changes", "phrases"),
    [
        ({"version": np.array(2)}, ["version", "got 2", "newer irleed"]),
        ({"version": np.array(0)}, ["version", "got 0", "whole number"]),
        ({"version": np.array(1.0)}, ["version", "whole number"]),
        ({"version": np.array(2), "new": np.zeros(3)}, ["version", "newer irleed"]),
        ({"format": np.array("other")}, ["format", "got other"]),
        ({"format": np.array(["irleed-demonstrations"] * 99)}, ["format"]),
        ({"obs": np.array([None, {}], object)}, ["obs", "no objects"]),
        ({"format": np.array(None, object)}, ["format", "no objects"]),
        ({"names": np.array([b"a", b"b"])}, ["names", "|S1", "text"]),
        ({"names": np.array("ab")}, ["names", "shape ()", "text"]),
        ({"names": np.array(["a", "a"])}, ["names", "'a' twice"]),
        ({"row": np.zeros(5)}, ["row", "float64", "int32"]),
        ({"row": np.zeros((5, 2), int)}, ["row", "(5, 2)"]),
        ({"obs": np.array(1.0)}, ["obs", "shape ()"]),
        ({"obs": np.zeros((7, 2), "M8[s]")}, ["obs", "datetime64"]),
        ({"obs": np.full((7, 2), np.nan)}, ["episode 0, step 0, obs[0]", "nan"]),
        ({"reward": np.array(["1"] * 5)}, ["reward", "<U1"]),
        ({"action": np.zeros(6)}, ["action 6", "row 5"]),
    ],
    ids=str,
)
def test_wrong_entries_are_refused_by_name(tmp_path, changes, phrases):
    message = refusal(written(tmp_path / "data.npz", **changes))
    for phrase in phrases:
        assert phrase in message


def test_nothing_in_a_file_is_ever_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    refusal(written(tmp_path / "data.npz", obs=np.array([Trap()], object)))
    assert not (tmp_path / "sprung").exists()


def test_unwritable_places_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "no" / "data.npz", tmp_path / "file" / "data.npz", tmp_path / ("long" * 100)):
        refusal(path, ConfigError, save, played())
    with pytest.raises(ConfigError):
        save(played(), "zero\0byte")
    os.mkfifo(tmp_path / "pipe")
    assert "device" in refusal(tmp_path / "pipe", ConfigError, save, played())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "pipe"]


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failure):
    def half(stream, **entries):
        stream.write(b"PK\x03\x04half")
        raise failure

    path = tmp_path / "data.npz"
    save(played(1), path)
    monkeypatch.setattr(np, "savez_compressed", half)
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        save(played(2), path)
    monkeypatch.undo()
    assert same(load(path), played(1))
    assert list(tmp_path.iterdir()) == [path]


def test_saving_goes_through_a_link_and_over_an_old_file(tmp_path):
    real, link = tmp_path / "real.npz", tmp_path / "link.npz"
    save(played(1), real)
    link.symlink_to(real)
    save(played(2), link)
    assert link.is_symlink()
    assert same(load(real), played(2))


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    data = played()
    data.obs[2, 1] = np.nan
    assert "episode 0, step 2, obs[1]" in refusal(tmp_path / "data.npz", DataError, save, data)
    assert list(tmp_path.iterdir()) == []
