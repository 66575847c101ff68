"""The examples run as they stand, and are short."""

import runpy
import sys
from pathlib import Path

import pytest

from irleed.runs.reader import read_fit

pytestmark = pytest.mark.optax

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, monkeypatch, folder: Path, *arguments: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_gridworld(tmp_path, monkeypatch, capsys):
    """Whoever is truly the most precise is said to be, and the arrows lead to the goal."""
    run("gridworld.py", monkeypatch, tmp_path)
    shown = capsys.readouterr().out.splitlines()
    truth = [float(value) for value in shown[0].split("[")[1].rstrip("]").split()]
    found = [float(line.split()[2]) for line in shown[1:4]]
    assert truth.index(max(truth)) == found.index(max(found))
    assert shown[-1].split()[-1] == "●" and set("".join(shown[-4:]).replace(" ", "")) <= set("→↓●")
    assert len(read_fit(tmp_path / "gridworld-run").people) == 3


def test_cartpole(tmp_path, monkeypatch, capsys):
    run("cartpole.py", monkeypatch, tmp_path, "20")
    assert "wrote cartpole.html" in capsys.readouterr().out
    assert "careless" in (tmp_path / "cartpole.html").read_text()


def test_curate(tmp_path, monkeypatch, capsys):
    run("curate.py", monkeypatch, tmp_path)
    shown = capsys.readouterr().out
    assert "greedy action in the first state: right\n" in shown or ": down\n" in shown, "towards the goal"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
