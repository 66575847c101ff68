"""Whatever is wrong with a command's input is one line on standard error, status 2, and nothing written."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from jax.errors import JaxRuntimeError

from irleed.algorithms.tabular.visitation import tabulate
from irleed.cli import main
from irleed.cli.data import InspectCommand
from irleed.data import Demonstrations, Episode, load, save
from irleed.envs.mdp import load_mdp

# Three states in a row, of which the last ends the episode; action 0 stays, action 1 moves on.
ROW = {
    "format": "irleed-mdp",
    "version": 1,
    "transitions": np.stack([np.eye(3), np.eye(3)[[1, 2, 2]]], axis=1),
    "initial": [1.0, 0.0, 0.0],
    "discount": 0.9,
    "terminal": [False, False, True],
    "reward": [0.0, 0.0, 1.0],
}


def two_walk(states: list[int], actions: list[int]) -> Demonstrations:
    return Demonstrations.from_episodes([Episode(states, actions, True, name) for name in ("anna", "ben")])


@pytest.fixture
def sound(tmp_path):
    """A folder with an MDP and demonstrations that belong together."""
    np.savez(tmp_path / "mdp.npz", **ROW)
    save(two_walk([0, 1, 2], [1, 1]), tmp_path / "data.npz")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refusal(capsys, folder: Path, *arguments: object) -> str:
    """The one line that a command leaves which was given bad input; it writes nothing, and prints nothing else."""
    before = contents(folder)
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert re.fullmatch(r"irleed: .*got .*, expected .*; .*\n", shown.err), "one line, and no traceback"
    assert shown.out == ""
    assert contents(folder) == before
    return shown.err


def fit_refusal(capsys, folder: Path, data: str = "data.npz", mdp: str = "mdp.npz") -> str:
    return refusal(capsys, folder, "fit", folder / data, "--mdp", folder / mdp, "--out", folder / "run")


def test_the_sound_files_are_not_refused(sound, capsys):
    """What the tests below change, and nothing else, is what is wrong there."""
    main(["inspect", str(sound / "data.npz")])
    assert "4 transitions in 2 episodes" in capsys.readouterr().out
    tabulated = tabulate(load(sound / "data.npz"), load_mdp(sound / "mdp.npz")[0])
    assert tabulated.episodes.tolist() == [1, 1]


@pytest.mark.parametrize("which", ["data", "mdp"])
@pytest.mark.parametrize(
    ("kind", "phrase"),
    [
        ("missing", "no such file"),
        ("folder", "a folder"),
        ("empty", "an empty file"),
        ("cut", "damaged archive"),
        ("text", "starts with b'stat'"),
        ("foreign", "entries observations"),
        ("other", "format: got irleed-"),
    ],
)
def test_files_that_are_none(sound, capsys, which, kind, phrase):
    path, other = sound / f"{which}.npz", sound / ("mdp.npz" if which == "data" else "data.npz")
    whole = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "foreign":
        np.savez(path, observations=np.zeros(3))
    elif kind != "missing":
        path.write_bytes(
            {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"state,action", "other": other.read_bytes()}[kind]
        )
    assert phrase in fit_refusal(capsys, sound)
    if which == "data":
        assert phrase in refusal(capsys, sound, "inspect", path)


@pytest.mark.parametrize(
    ("states", "actions", "phrase"),
    [
        ([0, 1, 3], [1, 1], "demonstrator 'anna', episode 0, step 2, observation: got 3"),
        ([0, -1, 2], [1, 1], "observation: got -1"),
        ([0, 1, 2], [1, 2], "step 1, action: got 2"),
        ([0, 1, 2], [1, -1], "action: got -1"),
        ([0.0, 0.5, 2.0], [1, 1], "observation: got 0.5"),
        ([0, 2], [1], "step 0: got state 2 after action 1 in state 0"),
        ([0, 1, 2, 2], [1, 1, 1], "step 2: got an action in terminal state 2"),
    ],
)
def test_data_that_do_not_belong_to_the_mdp(sound, capsys, states, actions, phrase):
    save(two_walk(states, actions), sound / "data.npz")
    assert phrase in fit_refusal(capsys, sound)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"names": ["anna", "ben", "carl"]}, "demonstrator 2 ('carl'): got no transitions"),
        ({"names": ["anna", "anna"]}, "'anna' twice"),
        ({"names": ["anna", "b\nen"]}, "names[1]"),
        ({"reward": [0.0, np.nan, 0.0, 1.0]}, "episode 0, step 1, reward: got nan"),
        ({"terminated": [False] * 4}, "neither terminated nor truncated"),
    ],
    ids=str,
)
def test_data_that_contradict_themselves(sound, capsys, changes, phrase):
    with np.load(sound / "data.npz") as archive:
        entries = {name: archive[name] for name in archive.files}
    np.savez(sound / "data.npz", **(entries | changes))
    assert phrase in fit_refusal(capsys, sound)
    assert phrase in refusal(capsys, sound, "inspect", sound / "data.npz")


def with_entry(probability: float) -> np.ndarray:
    table = ROW["transitions"].copy()
    table[0, 0, :2] = 1 - probability, probability
    return table


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"transitions": 0.9 * ROW["transitions"]}, "P(. | s=0, a=0): got a sum of 0.9"),
        ({"transitions": with_entry(-0.5)}, "P(s'=0 | s=0, a=0): got 1.5"),
        ({"transitions": with_entry(np.nan)}, "P(s'=0 | s=0, a=0): got nan"),
        ({"initial": [1.0, 0.0, 0.5]}, "initial distribution"),
        ({"initial": [np.nan, 0.0, 1.0]}, "initial distribution"),
        ({"discount": 1.0}, "discount: got 1.0, expected a number in (0, 1)"),
        ({"discount": 0.0}, "discount: got 0.0"),
        ({"discount": -0.5}, "discount: got -0.5"),
        ({"discount": np.nan}, "discount: got nan"),
        ({"reward": [0.0, np.nan, 1.0]}, "reward[1]: got nan"),
        ({"features": np.full((3, 2), np.inf)}, "features[0, 0]: got inf"),
    ],
    ids=str,
)
def test_mdps_that_are_none(sound, capsys, changes, phrase):
    np.savez(sound / "mdp.npz", **(ROW | changes))
    assert phrase in fit_refusal(capsys, sound)
    data = sound / "new" / "data.npz"
    assert phrase in refusal(capsys, sound, "simulate", "--mdp", sound / "mdp.npz", "--out", data)


def test_the_mdp_must_be_given_once(sound, capsys):
    data, out = sound / "data.npz", ("--out", sound / "run")
    neither = refusal(capsys, sound, "fit", data, *out)
    both = refusal(capsys, sound, "fit", data, "--mdp", sound / "mdp.npz", "--env", "FrozenLake-v1", *out)
    assert "the MDP: got neither, expected --mdp FILE or --env ID" in neither and "got both" in both
    assert "got neither" in refusal(capsys, sound, "simulate", *out)


@pytest.mark.parametrize(
    ("environment", "discount", "phrase"),
    [
        ("NoSuchLake-v1", "0.9", "environment NoSuchLake-v1: got NameNotFound"),
        ("CartPole-v1", "0.9", "environment CartPole-v1: got spaces"),
        ("FrozenLake-v1", "1", "discount: got 1.0"),
        ("FrozenLake-v1", "nan", "discount: got nan"),
    ],
)
def test_environments_that_will_not_do(sound, capsys, environment, discount, phrase):
    source = ("--env", environment, "--discount", discount)
    assert phrase in refusal(capsys, sound, "fit", sound / "data.npz", *source, "--out", sound / "run")
    assert phrase in refusal(capsys, sound, "simulate", *source, "--out", sound / "new.npz")


def test_places_that_cannot_be_written(sound, capsys):
    """A file in the folder's place, as whoever runs the tests may be allowed everything else."""
    (sound / "file").write_text("kept")
    fit = ("fit", sound / "data.npz", "--mdp", sound / "mdp.npz")
    small = ("--estimator", "map", "--seeds", "1", "--settings", "3:3", "--size", "2")
    for folder in (sound / "file", sound / "file" / "below", sound / "file" / "be\nlow"):
        for command in (fit, ("demo",), ("demo", "--gridworld"), ("experiment", "gridworld", *small)):
            refusal(capsys, sound, *command, "--out", folder)
    for path in (sound, sound / "file" / "data.npz"):
        refusal(capsys, sound, "simulate", "--mdp", sound / "mdp.npz", "--demonstrations", "1", "--out", path)


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        (("--settings", "nonsense"), "--settings: got 'nonsense', expected precision:accuracy"),
        (("--settings", "3"), "--settings: got '3'"),
        (("--settings", "3:3", "3:nan"), "--settings: got '3:nan'"),
        (("--settings", "inf:3"), "--settings: got 'inf:3'"),
        (("--settings", "0:3"), "--settings: got '0:3'"),
        (("--seeds", "0"), "--seeds: got 0, expected 1 or more"),
        (("--seeds", "-3"), "--seeds: got -3"),
        (("--lanes", "0"), "--lanes: got 0"),
        (("--size", "1"), "--size: got 1"),
        (("--slip", "1.5"), "slip: got 1.5"),
    ],
    ids=str,
)
def test_experiments_that_cannot_be_run(tmp_path, capsys, settings, phrase):
    assert phrase in refusal(capsys, tmp_path, "experiment", "gridworld", *settings, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    "settings",
    [("--demonstrators", "0"), ("--demonstrations", "0"), ("--horizon", "-1"), ("--accuracy", "nan")],
    ids=str,
)
def test_simulations_that_cannot_be_run(sound, capsys, settings):
    message = refusal(capsys, sound, "simulate", "--mdp", sound / "mdp.npz", *settings, "--out", sound / "a" / "b.npz")
    assert f"simulate, {settings[0][2:]}: got" in message


def test_words_that_no_command_knows(tmp_path, capsys):
    for arguments in (["nonsense"], ["fit"], ["inspect", "a", "--colour", "red"], ["experiment", "nonsense"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2 and "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    ["--seeds", "--steps", "--members", "--online-steps", "--demonstrations", "--every", "--episodes", "--workers"],
)
def test_control_experiments_that_cannot_be_run(tmp_path, capsys, name):
    assert name in refusal(capsys, tmp_path, "experiment", "control", name, 0, "--out", tmp_path / "run")


def four_numbers(action: list, size: int = 4) -> Demonstrations:
    """Demonstrations without an MDP; those with four numbers a step could be CartPole's."""
    episodes = [Episode(np.zeros((3, size)), action, True, name) for name in ("anna", "ben")]
    return Demonstrations.from_episodes(episodes)


@pytest.mark.parametrize(
    ("action", "size", "settings", "phrase"),
    [
        ([0.5, 0.5], 4, (), "actions: got 0.5 in all of them as number 0, expected numbers that differ"),
        ([0.5, 1.0], 4, ("--env", "CartPole-v1"), "actions: got 1 numbers each, expected one whole number each"),
        ([0, 2], 4, ("--env", "CartPole-v1"), "actions: got 2, expected 0 to 1, the environment's"),
        ([0, 1], 3, ("--env", "CartPole-v1"), "observations: got shape (3,), expected (4,)"),
        ([0, 1], 4, ("--env", "NoSuchPole-v1"), "environment NoSuchPole-v1: got NameNotFound"),
        ([0, 1], 3, ("--env", "Pendulum-v1"), "actions: got one whole number each, expected 1 numbers"),
        ([0, 1], 4, ("--env", "ALE/Pong-v5"), "pip install 'irleed[envs]'"),
        (
            [0, 1],
            4,
            ("--env", "CartPole-v1", "--algorithm", "bc"),
            "--algorithm: got bc, expected irleed or iq or sqil",
        ),
        ([0, 1], 4, ("--env", "CartPole-v1", "--algorithm", "ileed"), "--algorithm: got ileed, expected"),
        ([0, 1], 4, ("--env", "CartPole-v1", "--steps", "100"), "--steps: got 100, expected 501 or more"),
        ([0, 1], 4, ("--algorithm", "sqil"), "--algorithm: got sqil, expected irleed or iq or ileed or bc"),
        ([0, 1], 4, ("--algorithm", "maxent"), "--algorithm: got maxent"),
        ([0, 1], 4, ("--members", "0"), "--members: got 0, expected 1 or more"),
        ([0, 1], 4, ("--steps", "0"), "steps: got 0, expected 1 or more"),
        ([0, 1], 4, ("--algorithm", "bc", "--ends", "failure"), "--ends: got failure, expected no such setting"),
        ([0, 1], 4, ("--planner", "averaged"), "--planner: got averaged, expected no such setting"),
        ([0, 1], 4, ("--discount", "0.5"), "--discount: got 0.5, expected no such setting"),
    ],
    ids=str,
)
def test_networks_that_cannot_be_fitted(tmp_path, capsys, monkeypatch, action, size, settings, phrase):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed
    save(four_numbers(action, size=size), tmp_path / "data.npz")
    assert phrase in refusal(capsys, tmp_path, "fit", tmp_path / "data.npz", *settings, "--out", tmp_path / "run")


def test_networks_see_no_file_of_nan_and_write_to_no_file(tmp_path, capsys):
    save(four_numbers([0, 1]), tmp_path / "data.npz")
    (tmp_path / "file").write_text("kept")
    assert "output folder" in refusal(capsys, tmp_path, "fit", tmp_path / "data.npz", "--out", tmp_path / "file")
    with np.load(tmp_path / "data.npz") as archive:
        entries = {name: archive[name] for name in archive.files}
    np.savez(tmp_path / "data.npz", **(entries | {"obs": np.full_like(entries["obs"], np.nan)}))
    message = refusal(capsys, tmp_path, "fit", tmp_path / "data.npz", "--out", tmp_path / "run")
    assert "episode 0, step 0, obs[0]: got nan, expected a finite number" in message


@pytest.mark.parametrize("settings", [("--algorithm", "bc"), ("--members", "3"), ("--steps", "9")], ids=str)
def test_settings_of_networks_mean_nothing_in_an_mdp(sound, capsys, settings):
    fit = ("fit", sound / "data.npz", "--mdp", sound / "mdp.npz", "--out", sound / "run")
    assert f"{settings[0]}: got {settings[1]}" in refusal(capsys, sound, *fit, *settings)


@pytest.mark.parametrize(
    "setting, said",
    [
        (("--seed", "9" * 23), "64 bits"),
        (("--set", "hidden=99999999999999"), "1 to 65536"),
        (("--set", "hidden=" + "8," * 39 + "8"), "at most 31 layers"),
        (("--set", "batch_size=" + "9" * 23), "batch_size: got 9999"),
        (("--steps", "9" * 23), "steps: got 9999"),
        (("--members", "999999999"), "at most 10,000"),
    ],
    ids=["seed", "units", "layers", "batch", "steps", "members"],
)
def test_numbers_too_large_for_a_fit_are_refused_at_once(tmp_path, capsys, setting, said):
    obs = np.random.default_rng(0).normal(size=(20, 2))
    parts = [Episode(obs, (obs[:-1, 0] > 0).astype(int), True, name) for name in ("anna", "ben")]
    save(Demonstrations.from_episodes(parts), tmp_path / "data.npz")
    assert said in refusal(capsys, tmp_path, "fit", tmp_path / "data.npz", *setting)


@pytest.mark.parametrize("error", [MemoryError(), JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")])
def test_too_little_memory_is_one_line(tmp_path, monkeypatch, capsys, error):
    def exhausted(*_):
        raise error

    monkeypatch.setattr(InspectCommand, "run", exhausted)
    with pytest.raises(SystemExit) as ended:
        main(["inspect", str(tmp_path)])
    said = capsys.readouterr().err
    assert ended.value.code == 1 and said.startswith("irleed: out of memory") and said.count("\n") == 1


def test_simulate_has_the_flag_that_a_refused_file_of_an_mdp_names(capsys, sound, monkeypatch):
    monkeypatch.setattr("irleed._io.arrays.ALWAYS", 0)
    words = "simulate", "--mdp", sound / "mdp.npz", "--out", sound / "made.npz", "--expansion"
    assert "raise the limit with --expansion" in refusal(capsys, sound, *words, "0.01")
    main([str(word) for word in (*words, "100")])
    assert (sound / "made.npz").exists()
