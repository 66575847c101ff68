"""The benchmarks of what survives still reach into the command as it is."""

import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


@pytest.mark.skipif(sys.platform == "win32", reason="kill.py forks")
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("continuous", [False, True])
def test_runs_to_be_killed_are_small_and_learn(monkeypatch, online, continuous):
    import kill

    from irleed.rollout import host

    command = importlib.import_module("irleed.cli.fit")
    monkeypatch.setattr(command, "network_algorithm", command.network_algorithm)  # put back at the end
    monkeypatch.setattr(host, "LEAST_PART", host.LEAST_PART)
    kill.make_small()
    made = command.network_algorithm("irleed", online=online, continuous=continuous, ends="neutral", steps=400)
    assert (getattr(made, "learner", made)).hidden == (16,)
    assert not online or made.learning_starts < made.steps
