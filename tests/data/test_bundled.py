"""The demonstrations that come with the package are what the documentation says made them."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from irleed.cli import main
from irleed.cli.demo import bundled
from irleed.data import load

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"


def test_the_command_of_the_page_makes_the_bundled_file_again(tmp_path):
    """To rounding: another processor adds up otherwise in the last digit. Compiled as for users, who do the same."""
    (written,) = re.findall(r"^irleed (simulate .*?--out cartpole.npz)$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    words = shlex.split(written.replace("\\\n", " "))
    as_users = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "irleed", *words[:-1], str(tmp_path / "cartpole.npz")]
    subprocess.run(command, check=True, capture_output=True, env=as_users)
    made, (data, truth) = load(tmp_path / "cartpole.npz"), bundled()
    assert made.names == data.names
    for column in ("action", "row", "terminated", "truncated", "demonstrator", "episode", "reward"):
        np.testing.assert_array_equal(getattr(made, column), getattr(data, column), err_msg=column)
    np.testing.assert_allclose(made.obs, data.obs, atol=1e-3)
    assert json.loads((tmp_path / "cartpole.truth.json").read_text()) == truth


def test_its_truth_is_that_of_its_demonstrators():
    data, truth = bundled()
    assert data.names == ("good", "biased", "noisy", "random") and np.bincount(data.owner).tolist() == [5] * 4
    np.testing.assert_allclose(truth["precision"], [0.5, 1.0, 0.1, 0.02])
    assert truth["bias_scale"] == [0.0, 10.0, 0.0, 0.0]
    earned = np.asarray(data.returns())
    np.testing.assert_allclose(truth["returns"], [earned[data.owner == i].mean() for i in range(4)], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        (("--names", "a", "b"), "--names: got 2 of them, expected one for each of the 5"),
        (("--precision", "1", "2", "--names", "a", "a"), "--names: got a, a, expected each once"),
        (("--precision", "1", "2", "--demonstrators", "3"), "--demonstrators: got 3"),
        (("--precision", "1", "-2"), "--precision: got -2.0, expected 0 or more"),
        (("--bias-scale", "1", "2"), "--bias-scale: got 2 of them"),
        (("--bias-scale", "nan"), "--bias-scale: got"),
    ],
    ids=str,
)
def test_demonstrators_that_cannot_be_simulated(tmp_path, capsys, settings, phrase):
    source = ("--env", "CartPole-v1", "--critic", "cartpole", "--out", str(tmp_path / "new.npz"))
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", *source, *settings])
    assert phrase in capsys.readouterr().err and not list(tmp_path.iterdir())
