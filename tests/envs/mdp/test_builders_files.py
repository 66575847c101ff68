"""An MDP survives its file, and a file that is none is refused in one line that names it."""

import zipfile

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.envs.mdp import FiniteMDP, gridworld, load_mdp, save_mdp
from irleed.errors import ConfigError, DataError

P = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]])
DENSE = {
    "format": "irleed-mdp",
    "version": 1,
    "transitions": P,
    "initial": np.array([1.0, 0.0]),
    "discount": 0.9,
}
LISTED = {
    "format": "irleed-mdp",
    "version": 1,
    "state": [0, 1],
    "action": [0, 0],
    "successor": [1, 0],
    "probability": [1.0, 1.0],
    "initial": [1, 0],
    "discount": 0.9,
}


def table(generator: np.random.Generator, *shape: int, given: bool) -> np.ndarray | None:
    return generator.normal(size=shape) if given else None


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.integers(0, 2))
def test_round_trip(tmp_path_factory, random_mdp, seed, with_features, with_reward, terminals):
    generator = np.random.default_rng(seed)
    mdp = random_mdp(
        seed,
        states=6,
        terminals=terminals,
        features=table(generator, 6, 3, 2, given=with_features),
        reward=table(generator, 6, given=with_reward),
    )
    path = tmp_path_factory.mktemp("round") / "world.npz"
    save_mdp(mdp, path, shape=(2, 3))
    loaded, shape = load_mdp(path)
    assert eqx.tree_equal(mdp, loaded, typematch=True)
    assert shape == (2, 3)
    assert [file.name for file in path.parent.iterdir()] == ["world.npz"], "nothing is left beside it"


def test_a_gridworld_and_an_mdp_without_terminals(tmp_path):
    world = gridworld(3, 2, goals={5: 1.0}, slip=0.2, obstacles=[2])
    for mdp in (world.mdp, world.mdp.without_terminals()):
        save_mdp(mdp, tmp_path / "a.npz")
        loaded, shape = load_mdp(str(tmp_path / "a.npz"))
        assert eqx.tree_equal(mdp, loaded, typematch=True) and shape is None


def test_files_written_by_hand(tmp_path):
    np.savez(tmp_path / "dense.npz", **DENSE)
    mdp, _ = load_mdp(tmp_path / "dense.npz")
    assert eqx.tree_equal(mdp, FiniteMDP.from_dense(P, initial=[1, 0], discount=0.9), typematch=True)
    np.savez(tmp_path / "listed.npz", **LISTED, terminal=[False, True], shape=[1, 2])
    mdp, shape = load_mdp(tmp_path / "listed.npz")
    assert (mdp.states, mdp.actions, shape) == (2, 1, (1, 2)) and mdp.terminal.tolist() == [False, True]


def refused(path) -> str:
    with pytest.raises(DataError) as caught:
        load_mdp(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


@pytest.mark.parametrize(
    "arrays, mentions",
    [
        ({"weights": np.ones(3)}, "got entries weights, expected format, version, initial, discount and perhaps"),
        ({}, "got entries none"),
        (DENSE | {"format": "irleed-demonstrations"}, "got irleed-demonstrations, expected 'irleed-mdp'"),
        (DENSE | {"format": ["a", "b"]}, "format: got ['a' 'b'], expected 'irleed-mdp'"),
        (DENSE | {"version": 2}, "version: got 2, expected at most 1; install a newer irleed"),
        (DENSE | {"version": "one"}, "version: got one, expected a whole number from 1 to 1"),
        (DENSE | {"terminals": [1]}, "remove 'terminals'"),
        (
            {"format": "irleed-mdp", "version": 1, "transitions": P},
            "got entries format, version, transitions, expected format, version, initial, discount and perhaps",
        ),
        (DENSE | LISTED, "the dynamics as state, action, successor, probability, transitions, expected either"),
        (DENSE | {"actions": 2}, "the dynamics as actions, transitions"),
        ({name: LISTED[name] for name in LISTED if name != "successor"}, "as state, action, probability, expected"),
        ({name: DENSE[name] for name in DENSE if name != "transitions"}, "the dynamics as nothing"),
        (DENSE | {"terminal": [1]}, "terminal: got int64 of shape (1,), expected booleans"),
        (DENSE | {"discount": "0.9"}, "discount: got <U3 of shape (), expected a number"),
        (DENSE | {"discount": [0.9]}, "discount"),
        (DENSE | {"discount": 1.0}, "discount: got 1.0"),
        (DENSE | {"initial": ["a", "b"]}, "initial"),
        (DENSE | {"initial": [0.5, 0.4]}, "initial distribution"),
        (DENSE | {"transitions": P * 1j}, "transitions: got complex128"),
        (DENSE | {"transitions": P / 2}, "P(. | s=0, a=0): got a sum of 0.5"),
        (DENSE | {"transitions": P[0]}, "transitions: got shape (2, 2)"),
        (DENSE | {"reward": [np.nan, 0]}, "reward[0]"),
        (DENSE | {"features": [1.0, 2.0]}, "features"),
        (DENSE | {"shape": [2, 2]}, "shape: got [2, 2], expected rows and columns that make 2 cells"),
        (DENSE | {"shape": [-1, -2]}, "shape"),
        (DENSE | {"shape": [2]}, "shape"),
        (DENSE | {"shape": [1.0, 2.0]}, "shape: got float64"),
        (LISTED | {"state": [0, 2]}, "state in row 1: got 2"),
        (LISTED | {"action": [0, 2**53]}, "actions: got 9007199254740993 for 2 states"),
        (LISTED | {"actions": 2**31}, "actions: got 2147483648 for 2 states"),
        (LISTED | {"action": [0.0, 0.0]}, "action: got float64"),
        (LISTED | {"actions": [1]}, "actions: got int64 of shape (1,), expected a whole number"),
        (DENSE | {"reward": np.array([{}, None])}, "reward: got no readable array"),
    ],
)
def test_wrong_content_is_refused(tmp_path, arrays, mentions):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert mentions in refused(tmp_path / "bad.npz")


def test_what_is_no_npz_file_is_refused(tmp_path):
    assert "no such file" in refused(tmp_path / "missing.npz")
    assert "a folder" in refused(tmp_path)
    for name, content, mentions in (
        ("empty.npz", b"", "an empty file"),
        ("text.npz", b"state,action\n0,1\n", "a file that starts with b'stat'"),
        ("pickle.npz", b"\x80\x04K\x01.", "a file that starts with b'\\x80"),
        ("short.npz", b"P", "a file that starts with b'P'"),
        ("zip.npz", b"PK\x03\x04 and nothing else", "a cut or damaged archive"),
    ):
        (tmp_path / name).write_bytes(content)
        assert mentions in refused(tmp_path / name)
    np.save(tmp_path / "one.npy", P)
    assert "a file that starts with b'\\x93NUM'" in refused(tmp_path / "one.npy")
    with zipfile.ZipFile(tmp_path / "foreign.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "readme.txt" in refused(tmp_path / "foreign.npz")


def test_truncated_and_damaged_files_are_refused_or_read_rightly(tmp_path):
    """Every length, and many flipped bytes; where a flip hits what nobody reads, the MDP is still the same."""
    path = tmp_path / "whole.npz"
    mdp = gridworld(2, 2, goals={3: 1.0}).mdp
    save_mdp(mdp, path)
    whole, broken = path.read_bytes(), tmp_path / "broken.npz"
    for length in range(0, len(whole), 37):
        broken.write_bytes(whole[:length])
        refused(broken)
    generator = np.random.default_rng(0)
    for position in generator.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << int(generator.integers(8))
        broken.write_bytes(damaged)
        try:
            loaded, _ = load_mdp(broken)
        except DataError as error:
            assert str(broken) in str(error) and "\n" not in str(error)
        else:
            assert eqx.tree_equal(loaded, mdp, typematch=True)


def test_what_cannot_be_written_is_said_in_one_line(tmp_path):
    mdp = gridworld(2, 2, goals={3: 1.0}).mdp
    (tmp_path / "file").write_bytes(b"kept")
    for path in (
        "/",
        ".",
        tmp_path,
        tmp_path / "no" / "such.npz",
        tmp_path / "file" / "below.npz",
        tmp_path / ("x" * 300),
    ):
        with pytest.raises(ConfigError) as caught:
            save_mdp(mdp, path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(DataError, match="shape: got \\[3, 3\\], expected rows and columns that make 4 cells"):
        save_mdp(mdp, tmp_path / "a.npz", shape=(3, 3))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    old, new = (gridworld(2, columns, goals={3: 1.0}).mdp for columns in (2, 3))
    save_mdp(old, path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        save_mdp(new, path)
    assert eqx.tree_equal(load_mdp(path)[0], old, typematch=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
