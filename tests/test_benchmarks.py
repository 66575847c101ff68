"""The benchmarks of what survives still reach into the command as it is."""

import dataclasses
import sys
from pathlib import Path

import pytest

from irleed.fit.defaults import network_algorithm

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


@pytest.mark.skipif(sys.platform == "win32", reason="kill.py forks")
@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("continuous", [False, True])
def test_runs_to_be_killed_and_damaged_have_settings_that_exist(online, continuous):
    import bitflips
    import kill

    made = network_algorithm("irleed", online=online, continuous=continuous, ends="neutral", steps=400)
    names = {field.name for each in (made, getattr(made, "learner", made)) for field in dataclasses.fields(each)}
    chosen = [word.partition("=")[0] for word in (kill.PLAYED if online else kill.SMALL) if "=" in word]
    assert "hidden" in chosen and set(chosen) <= names
    assert set(bitflips.RUNS) <= set(kill.KINDS)
