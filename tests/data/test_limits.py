"""Files that take far more memory than their size are refused before they are decompressed, unless the user says so."""

import io
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irleed._io import arrays as _arrays
from irleed.cli import main
from irleed.data import Demonstrations, Episode, ReadOptions, load, save
from irleed.data.io import LAYOUT
from irleed.envs.mdp import gridworld, load_mdp, save_mdp
from irleed.errors import ConfigError, DataError

MB = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One MiB is enough for every file, so that bombs in these tests can be small."""
    monkeypatch.setattr(_arrays, "ALWAYS", MB)


def refusal(path, *reading) -> str:
    with pytest.raises(DataError) as caught:
        load(path, *reading)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def walk(length=3, zeros=1) -> Demonstrations:
    """One episode, its observations all zero."""
    obs = np.zeros((length + 1, zeros))
    return Demonstrations.from_episodes([Episode(obs, np.arange(length) % 2, True, "anna")])


def npy(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def archive(path, extra: Mapping[str, bytes] = MappingProxyType({}), method: int = zipfile.ZIP_DEFLATED):
    """A file as `save` writes it, compressed by any method, and with more entries."""
    save(walk(), path)
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()} | dict(extra)
    with zipfile.ZipFile(path, "w", method) as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return path


def test_a_large_array_of_zeros_is_refused_and_read_once_the_limit_is_lifted(tmp_path):
    save(walk(zeros=MB), tmp_path / "bomb.npz")
    message = refusal(tmp_path / "bomb.npz")
    assert "bomb.npz, obs: got 33,5" in message and "raise the limit with --expansion" in message
    assert load(tmp_path / "bomb.npz", ReadOptions(expansion=1e4)).obs.shape == (4, MB)


def test_the_limit_is_a_setting_of_the_commands(tmp_path, capsys):
    save(walk(zeros=MB), tmp_path / "bomb.npz")
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path / "bomb.npz")])
    assert "--expansion" in capsys.readouterr().err
    main(["inspect", str(tmp_path / "bomb.npz"), "--expansion", "1e4", "--json"])
    assert '"transitions": 3' in capsys.readouterr().out
    for wrong in (-1.0, 0.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match=f"expansion: got {wrong}, expected more than 0, at most 1e9"):
            ReadOptions(expansion=wrong)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_entries_are_stored_or_deflated(tmp_path, method):
    """Others pack a gigabyte into a kilobyte, and take as long as they like."""
    message = refusal(archive(tmp_path / "data.npz", method=method))
    assert f"an entry of compression type {method}" in message and "stored or deflated" in message


def test_encrypted_entries_are_refused(tmp_path):
    content = bytearray(archive(tmp_path / "data.npz").read_bytes())
    for start, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(start) + place] |= 1
    (tmp_path / "data.npz").write_bytes(content)
    assert "an encrypted entry" in refusal(tmp_path / "data.npz")


def test_names_are_checked_before_anything_is_decompressed(tmp_path):
    """The contents are damaged: whoever read them would say so."""
    path = archive(tmp_path / "data.npz", {"more.npy": npy(np.zeros(MB))})
    content = bytearray(path.read_bytes())
    place = content.index(b"more.npy")
    content[place + 20 : place + 40] = bytes(20)
    path.write_bytes(content)
    assert "remove 'more'" in refusal(path)


def test_a_directory_that_lies_about_sizes_gets_nothing_past(tmp_path):
    """What an entry holds beyond its claim is not decompressed; where the two places differ, neither is believed."""
    path = archive(tmp_path / "data.npz", {"obs.npy": npy(np.zeros((4, MB)))})
    with zipfile.ZipFile(path) as file:
        entry = file.getinfo("obs.npy")
    true, false = (size.to_bytes(4, "little") for size in (entry.file_size, 160))
    content = path.read_bytes()
    directory = content.index(b"PK\1\2")
    path.write_bytes(content[:directory] + content[directory:].replace(true, false))
    assert "damaged in 'obs.npy'" in refusal(path)
    path.write_bytes(content.replace(true, false))
    assert "damaged in 'obs.npy'" in refusal(path)


def test_entries_inside_each_other_are_refused(tmp_path):
    """The same compressed bytes could otherwise stand for many arrays."""
    path = archive(tmp_path / "data.npz")
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\1\2")
    first, second = (content.index(name, directory) - 46 for name in (b"obs.npy", b"row.npy"))
    content[second + 10 : second + 28] = content[first + 10 : first + 28]
    content[second + 42 : second + 46] = content[first + 42 : first + 46]
    path.write_bytes(content)
    assert "damaged in" in refusal(path)


@pytest.mark.parametrize("name, descr, shape", [("names", "<U0", (1 << 30,)), ("obs", "<f8", (1 << 30,))])
def test_a_shape_without_its_bytes_is_refused(tmp_path, name, descr, shape):
    """Before memory for it is set aside: of entries of no size there could be any number."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    path = archive(tmp_path / "data.npz", {f"{name}.npy": stream.getvalue()})
    assert f"{name}: got no readable array (0 bytes for " in refusal(path)


def test_no_more_names_than_transitions(tmp_path):
    """A name of two letters takes 8 bytes in an array and 60 as text."""
    names = npy(np.array(["ab"] * 30))
    assert "names: got 30 names, expected at most one a transition, 3" in refusal(
        archive(tmp_path / "data.npz", {"names.npy": names})
    )


def test_mdp_files_have_the_same_limit(tmp_path):
    save_mdp(gridworld(2, 2, goals={3: 1.0}).mdp, tmp_path / "mdp.npz")
    with np.load(tmp_path / "mdp.npz") as file:
        entries = dict(file)
    np.savez_compressed(tmp_path / "mdp.npz", **entries | {"features": np.zeros((4, MB))})  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="features: got 33,.* bytes in memory from.*--expansion"):
        load_mdp(tmp_path / "mdp.npz")
    assert load_mdp(tmp_path / "mdp.npz", 1e4)[0].feature_count == MB
    np.savez_compressed(tmp_path / "mdp.npz", **entries | {"features": np.zeros((4, MB // 6), "u1")})  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="--expansion"):  # eight times as much in double precision
        load_mdp(tmp_path / "mdp.npz")


BOMBS = """
import resource, sys
from irleed.data import load
from irleed.errors import DataError
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
for path in sys.argv[1:]:
    try:
        load(path)
    except DataError as error:
        assert "--expansion" in str(error), error
    else:
        raise AssertionError(path)
print(peak() - before)
"""


def test_the_memory_of_a_process_stays_bounded(tmp_path):
    """Half a gigabyte to be had from each of three files of less than 1 MB."""
    size = 1 << 26
    entries = dict.fromkeys(LAYOUT.required, np.zeros(1))
    entries |= {"format": np.array(LAYOUT.format), "version": np.array(1), "obs": np.zeros(size)}
    np.savez_compressed(tmp_path / "a.npz", **entries)  # pyright: ignore[reportArgumentType]
    part = pa.table({"episode": np.zeros(MB, int), "obs": np.zeros(MB), "action": np.zeros(MB)})
    with pq.ParquetWriter(tmp_path / "a.parquet", part.schema) as writer:
        writer.write_table(pa.concat_tables([part] * (size // MB)), size)
    block = np.zeros(1000)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"states": [[block] * (size // 1000)]}))
    paths = sorted(map(str, tmp_path.iterdir()))
    found = subprocess.run([sys.executable, "-c", BOMBS, *paths], capture_output=True, text=True, check=True)
    assert len(paths) == 3 and max(os.path.getsize(path) for path in paths) < 1_000_000
    assert float(found.stdout) < 400


def test_text_of_characters_that_do_not_exist_is_refused(tmp_path):
    """Python cannot make text of it, and says so with a SystemError."""
    path = archive(tmp_path / "data.npz", {"names.npy": npy(np.array([0x110000], "<u4").view("<U1"))})
    assert "names: got no readable array (invalid characters)" in refusal(path)


def test_what_a_parquet_file_says_of_its_columns_counts(tmp_path):
    """Three bytes are enough to describe one, and Arrow takes hundreds for it."""
    empty = pa.table({str(number): pa.array([], pa.int8()) for number in range(1000)})
    pq.write_table(empty, tmp_path / "data.parquet", compression="none", store_schema=False)
    assert "bytes in memory from" in refusal(tmp_path / "data.parquet")
    assert "got 0 rows" in refusal(tmp_path / "data.parquet", ReadOptions(expansion=1000.0))


@pytest.mark.parametrize("name", ["reward", "episode", "names"])
def test_a_bomb_in_a_column_of_a_large_file_is_refused(tmp_path, name):
    """The limit is a multiple of the file's size; columns have one value a transition, whatever it is."""
    large = {"obs.npy": npy(np.random.default_rng(0).normal(size=(4, MB // 8))), f"{name}.npy": npy(np.zeros(MB))}
    assert f"{name}: got 8,388,736 bytes, expected at most" in refusal(archive(tmp_path / "data.npz", large))
