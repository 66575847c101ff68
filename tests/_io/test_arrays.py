"""One implementation of `.npz` files for every kind: what is stricter than any kind's own tests say."""

import zipfile

import numpy as np
import pytest

from irleed._io.arrays import Budget, Layout, read_npz, write_npz
from irleed._io.text import printable
from irleed.errors import DataError

LAYOUT = Layout(format="shapes", version=3, holds="shapes", required=("a",), optional=("b",), writer="draw")


def test_what_is_none_is_left_out(tmp_path):
    write_npz(tmp_path / "x.npz", LAYOUT, {"a": [1.0, 2.0], "b": None})
    arrays = read_npz(tmp_path / "x.npz", LAYOUT, Budget())
    assert list(arrays) == ["a"] and arrays["a"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_versions_are_read(tmp_path, version):
    np.savez(tmp_path / "x.npz", format="shapes", version=version, a=np.arange(3))
    assert read_npz(tmp_path / "x.npz", LAYOUT, Budget())["a"].tolist() == [0, 1, 2]


def test_python_objects_are_never_written(tmp_path):
    with pytest.raises(DataError, match="x.npz, a: got Python objects, expected numbers or text"):
        write_npz(tmp_path / "x.npz", LAYOUT, {"a": np.array([{}], object)})
    assert list(tmp_path.iterdir()) == []


def test_an_entry_that_is_there_twice_is_refused(tmp_path):
    """Two programs might each believe another of the two."""
    write_npz(tmp_path / "x.npz", LAYOUT, {"a": [1.0]})
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.npy", archive.read("a.npy"))
    with pytest.raises(DataError, match="remove 'a'"):
        read_npz(tmp_path / "x.npz", LAYOUT, Budget())


def test_a_message_shows_any_path_on_one_line():
    assert printable("plain.npz") == "plain.npz"
    assert printable("two\nlines") == r"'two\nlines'"
