"""`irleed fit` where there is no MDP: what it prints and writes, offline and online."""

import contextlib
import io
import json
import sys

import jax
import numpy as np
import pytest

from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.cli import main
from irleed.data import Demonstrations, Episode, save
from irleed.errors import DivergedError
from irleed.fit.networks import TWO, fit_networks
from irleed.policies.ensemble import EnsemblePolicy
from irleed.report.page import page
from irleed.runs.reader import read_run

pytestmark = pytest.mark.optax


@pytest.fixture(scope="module")
def poles(tmp_path_factory):
    """A file of what could be CartPole's, of two who push to and fro for a while."""
    generator, path = np.random.default_rng(0), tmp_path_factory.mktemp("poles") / "data.npz"
    shown = [(generator.normal(size=(9, 4)).astype(np.float32), generator.integers(0, 2, 8)) for _ in range(4)]
    save(
        Demonstrations.from_episodes(
            [
                Episode(obs, action, True, "anna" if n < 2 else "ben", np.ones(8))
                for n, (obs, action) in enumerate(shown)
            ]
        ),
        path,
    )
    return path


def call(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def test_fit_without_an_mdp_writes_what_a_fit_writes(poles, tmp_path, capsys):
    call("fit", poles, "--steps", 20, "--members", 2, "--out", tmp_path / "run")
    shown = capsys.readouterr()
    assert "anna" in shown.out and "ben" in shown.out and f"wrote {tmp_path / 'run'}\n" in shown.out
    assert "fit: 20/20" in shown.err, "progress, on standard error"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "fit.json", "policy.safetensors", "expertise.png", "expertise.pdf", "data.json", "departures.json",
        "run.json", "history.jsonl", "checkpoints", "report.html",
    }  # fmt: skip
    found = json.loads((tmp_path / "run" / "fit.json").read_text())
    assert found["config"]["algorithm"] == "irleed" and found["members"] == 2 and found["steps"] == 20
    assert [row["name"] for row in found["expertise"]] == ["anna", "ben"] and found["returns"] == []
    assert len(found["history"]) == 20 and found["warnings"][0] == TWO
    assert all("at chance" in each for each in found["warnings"][1:])
    policy = EnsemblePolicy.load(tmp_path / "run" / "policy.safetensors")
    assert policy.predict(np.zeros((3, 4)), deterministic=True)[0].shape == (3,)


def test_every_episode_its_own_demonstrator(poles, capsys):
    """Behaviour cloning knows no bias, and says nothing about it."""
    call("fit", poles, "--steps", 20, "--members", 2, "--demonstrator", "episode", "--algorithm", "bc", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["expertise"]] == [f"episode {i}" for i in range(4)]
    assert all(row["bias"] is None and row["precision"] == 1 for row in found["expertise"])


@pytest.fixture(scope="module")
def compared(poles, tmp_path_factory):
    """A run with its baselines, where they are tried, and what was printed."""
    run = tmp_path_factory.mktemp("compared") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as printed, jax.numpy_dtype_promotion("standard"):
        short = ("--steps", 510, "--members", 2)
        call("fit", poles, "--env", "CartPole-v1", *short, "--baselines", "--out", run)
    return run, printed.getvalue()


def test_fit_in_an_environment_plays_and_tells_returns(compared):
    shown = compared[1]
    assert "policy, greedy actions" in shown and "policy, sampled actions" in shown
    assert "8.00 [8.00, 8.00]" in shown, "the demonstrators' returns"


def test_baselines_are_runs_inside_the_run_and_beside_it_on_screen_and_page(compared):
    run, printed = compared
    kept = {path.name: json.loads((path / "fit.json").read_text()) for path in (run / "baselines").iterdir()}
    assert set(kept) == {"iq", "ileed", "bc"} and all(found["members"] == 2 for found in kept.values())
    lines = [line.split() for line in printed.partition("Beside other methods")[2].splitlines()]
    rows = {line[0]: line[1] for line in lines if len(line) > 6}
    own = json.loads((run / "fit.json").read_text())
    for name, found in {"IRLEED": own, "IQ-Learn": kept["iq"], "ILEED": kept["ileed"], "cloning": kept["bc"]}.items():
        assert rows[name] == f"{found['returns'][0]['mean']:.2f}"
    assert "Highest mean return: " in printed
    # What learnt by playing says where; what did not can be fitted again without.
    assert [kept[name]["config"]["env"] for name in ("iq", "ileed", "bc")] == ["CartPole-v1", "None", "None"]
    shown = page([read_run(run)])
    assert "IRLEED and IQ-Learn learnt in the environment, the others from the data alone" in shown
    assert all(f">{name}</th>" in shown for name in ("IRLEED", "IQ-Learn", "ILEED", "cloning"))


def test_a_finished_run_gets_its_baselines_later_and_one_that_diverged_is_named(poles, tmp_path, capsys, monkeypatch):
    def diverged(data, algorithm, **settings):
        if isinstance(algorithm, BehaviourCloning):
            raise DivergedError("training", got="nothing", expected="something", remedy="try again")
        return fit_networks(data, algorithm, **settings)

    monkeypatch.setattr(sys.modules["irleed.fit.door"], "fit_networks", diverged)
    fit = ("fit", poles, "--steps", 20, "--members", 2, "--out", tmp_path / "run")
    call(*fit)
    before = (tmp_path / "run" / "policy.safetensors").read_bytes()
    call(*fit, "--resume", "--baselines", "--json")
    shown = capsys.readouterr()
    assert set(json.loads(shown.out.partition("wrote")[2].partition("\n")[2])["baselines"]) == {"iq", "ileed"}
    assert "warning: cloning: training: got nothing, expected something; try again\n" in shown.err
    assert (tmp_path / "run" / "policy.safetensors").read_bytes() == before
    assert "their training did not finish: cloning." in page([read_run(tmp_path / "run")])


def test_training_that_led_nowhere_is_status_one_and_one_line(poles, capsys, monkeypatch):
    def diverged(*given, **settings):
        raise DivergedError("training", got="nothing", expected="something", remedy="try again")

    monkeypatch.setattr(sys.modules["irleed.fit.door"], "fit_networks", diverged)
    with pytest.raises(SystemExit) as ended:
        call("fit", poles)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "irleed: training: got nothing, expected something; try again\n"
