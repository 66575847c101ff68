"""`irleed fit` where there is no MDP: what it prints and writes, offline and online."""

import json

import numpy as np
import pytest

from irleed.cli import main
from irleed.data import Demonstrations, Episode, save
from irleed.errors import DivergedError
from irleed.iq.ensemble import NetworkPolicy

pytestmark = [pytest.mark.optax, pytest.mark.usefixtures("compiled_quickly")]


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
    call("fit", poles, "--steps", 20, "--seeds", 2, "--out", tmp_path / "run")
    shown = capsys.readouterr()
    assert "anna" in shown.out and "ben" in shown.out and f"wrote {tmp_path / 'run'}\n" in shown.out
    assert "fit: 20/20" in shown.err, "progress, on standard error"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "fit.json", "policy.safetensors", "expertise.png", "expertise.pdf", "data.json", "departures.json",
        "run.json", "history.jsonl", "checkpoints",
    }  # fmt: skip
    found = json.loads((tmp_path / "run" / "fit.json").read_text())
    assert found["config"]["algorithm"] == "irleed" and found["members"] == 2 and found["steps"] == 20
    assert [row["name"] for row in found["expertise"]] == ["anna", "ben"] and found["returns"] == []
    assert len(found["history"]) == 20 and found["warnings"] == []
    policy = NetworkPolicy.load(tmp_path / "run" / "policy.safetensors")
    assert policy.predict(np.zeros((3, 4)), deterministic=True)[0].shape == (3,)


def test_every_episode_its_own_demonstrator(poles, capsys):
    """Behaviour cloning knows no bias, and says nothing about it."""
    call("fit", poles, "--steps", 20, "--seeds", 2, "--demonstrator", "episode", "--algorithm", "bc", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["expertise"]] == [f"episode {i}" for i in range(4)]
    assert all(row["bias"] is None and row["precision"] == 1 for row in found["expertise"])


def test_fit_in_an_environment_plays_and_tells_returns(poles, capsys):
    call("fit", poles, "--env", "CartPole-v1", "--steps", 510, "--seeds", 2)
    shown = capsys.readouterr().out
    assert "policy, likeliest actions" in shown and "policy, drawn actions" in shown
    assert "8.00 [8.00, 8.00]" in shown, "what the demonstrators earned"


def test_training_that_led_nowhere_is_status_one_and_one_line(poles, capsys, monkeypatch):
    def diverged(*given, **settings):
        raise DivergedError("training: got nothing, expected something; try again")

    monkeypatch.setattr("irleed.cli.fit.fit_networks", diverged)
    with pytest.raises(SystemExit) as ended:
        call("fit", poles)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "irleed: training: got nothing, expected something; try again\n"
