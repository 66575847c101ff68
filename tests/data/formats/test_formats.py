"""Files are told apart by content, whatever they are called; folders of files are joined."""

import json

import h5py
import numpy as np
import pytest

from irleed.cli import main
from irleed.data import ReadOptions, load, save
from irleed.data.io import FORMATS, recognise
from irleed.errors import ConfigError, DataError
from irleed.policies.tabular import TabularPolicy

TABLE = "episode,demonstrator,obs,action\n0,anna,0,1\n0,anna,1,0\n0,anna,0,\n1,ben,1,1\n1,ben,0,\n"


def robomimic(path):
    """Four demonstrations of one observation and one action, two operators."""
    with h5py.File(path, "w") as file:
        for number in range(4):
            group = file.create_group(f"data/demo_{number}")
            group["actions"], group["dones"] = np.array([0, 1, 0]), np.array([0, 0, 1])
            group["obs/state"], group["next_obs/state"] = np.array([0, 1, 0]), np.array([1, 0, 1])
        for operator, names in {"better": [b"demo_0", b"demo_2"], "worse": [b"demo_1", b"demo_3"]}.items():
            file[f"mask/{operator}_operator_1"] = np.array(names)
    return path


def test_content_decides_and_names_do_not_matter(tmp_path):
    (tmp_path / "table.hdf5").write_text(TABLE)
    data = load(tmp_path / "table.hdf5")
    assert data.names == ("anna", "ben") and data.length.tolist() == [2, 1] and data.action.tolist() == [1, 0, 1]
    save(data, tmp_path / "ours.csv")
    assert load(tmp_path / "ours.csv").names == ("anna", "ben")
    found = recognise(robomimic(tmp_path / "demos.pkl"))
    assert found is not None and found.name == "robomimic HDF5"
    assert load(tmp_path / "demos.pkl").names == ("better_operator_1", "worse_operator_1")


def test_no_format_takes_what_is_none_of_them(tmp_path):
    (tmp_path / "text").write_text("nothing of the kind")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for name in ("text", "empty", "folder", "nowhere"):
        assert not [kind.name for kind in FORMATS if kind.recognises(tmp_path / name)]


def test_every_episode_may_be_its_own_demonstrator(tmp_path):
    (tmp_path / "table.csv").write_text(TABLE)
    assert load(tmp_path / "table.csv", ReadOptions("episode")).names == ("episode 0", "episode 1")


def test_files_of_a_folder_are_their_demonstrators(tmp_path):
    rows = TABLE.replace("demonstrator,", "").replace("anna,", "").replace("ben,", "")
    for name in ("zoe", "carl"):
        (tmp_path / f"{name}.csv").write_text(rows)
    (tmp_path / "notes.txt").write_text("read me")
    data = load(tmp_path)
    assert data.names == ("carl", "zoe") and data.owner.tolist() == [0, 0, 1, 1]
    (tmp_path / "pair.csv").write_text(TABLE)
    assert load(tmp_path).names == ("carl", "pair, anna", "pair, ben", "zoe")


def test_a_folder_of_nothing_and_choices_that_mean_nothing_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("read me")
    with pytest.raises(DataError, match="a folder with no file that is known, expected files of Minari"):
        load(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    with pytest.raises(DataError, match="no column 'player'.*'demonstrator'"):
        load(tmp_path / "table.csv", ReadOptions("player"))
    save(load(tmp_path / "table.csv"), tmp_path / "ours.npz")
    for reading in (ReadOptions("player"), ReadOptions(obs=("state",)), ReadOptions(action="act")):
        with pytest.raises(ConfigError, match="leave the choice out"):
            load(tmp_path / "ours.npz", reading)
    with pytest.raises(DataError, match="minari download nobody/has-v0"):
        load("minari:nobody/has-v0")


def test_curation_of_a_robomimic_file_is_two_masks_in_a_copy(tmp_path):
    source, run = robomimic(tmp_path / "demos.hdf5"), tmp_path / "run"
    run.mkdir()
    TabularPolicy(np.array([[0.5, 0.5], [0.5, 0.5]])).save(run / "policy.safetensors")
    unknown = dict.fromkeys(("precision_low", "precision_high", "bias", "log_likelihood", "weight"))
    rows = [
        {"name": f"{word}_operator_1", "precision": value, "transitions": 2, **unknown}
        for word, value in {"better": 2.0, "worse": 1.0}.items()
    ]
    fit = {"expertise": rows, "config": {"reading": {"demonstrator": "data"}}, "steps": 1, "seconds": 1.0}
    (run / "fit.json").write_text(json.dumps(fit))
    before = source.read_bytes()
    main(["curate", str(source), "--run", str(run), "--out", str(tmp_path / "copy.hdf5")])
    assert source.read_bytes() == before
    with h5py.File(tmp_path / "copy.hdf5") as file:
        kept, dropped = ([name.decode() for name in file[f"mask/irleed_{part}"][:]] for part in ("keep", "drop"))
    assert kept == ["demo_0", "demo_2"] and dropped == ["demo_1", "demo_3"]
    main(["curate", str(source), "--run", str(run), "--out", str(tmp_path / "all.hdf5"), "--share", "1"])
    with h5py.File(tmp_path / "all.hdf5") as file:
        assert len(file["mask/irleed_keep"]) == 4 and "irleed_drop" not in file["mask"]
