"""The demo on CartPole, with less training, through the same code; that on a gridworld is in test_cli."""

import io
import json
import re
import shutil
from html.parser import HTMLParser

import jax
import numpy as np
import pytest
from rich.console import Console

from irleed.cli import main
from irleed.cli.demo import against_truth, bundled, cartpole, highest, to_gauge
from irleed.data import load
from irleed.errors import ConfigError
from irleed.fit.options import OFFLINE
from irleed.model.expertise import Expertise
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.results import METHODS

pytestmark = pytest.mark.optax
SHORT = {"members": 2, "steps": 40}
REST = " intervals hold the true value:\nthey say how much data and training vary, not how far training falls short."
# What to type for the run of a method that the demo leaves behind.
AGAIN = ("--members", "2", "--steps", "40", "--resume")


class Tags(HTMLParser):
    """The tags that a page opens."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.add(tag)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The demo's folder, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("demo") / "out", io.StringIO()
    with jax.numpy_dtype_promotion("standard"):
        cartpole(folder, 0, Console(file=printed, width=80), **SHORT)
    return folder, printed.getvalue()


def test_it_prints_who_is_how_good_beside_the_truth(told):
    _, printed = told
    interval = r"\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]"
    skill = r"-?\d+\.\d\d \[-?\d+\.\d\d, -?\d+\.\d\d\]"
    line = rf"^ (\w+) +{skill} +{interval} +(\d+\.\d\d) +\d+\.\d\d +(\d+) +(\d+) *$"
    rows = re.findall(line, printed, re.MULTILINE)
    assert sorted(rows) == [
        ("biased", "5.62", "10", "116"), ("good", "2.81", "0", "303"),
        ("noisy", "0.56", "0", "52"), ("random", "0.11", "0", "16"),
    ]  # fmt: skip


def test_it_prints_what_everyone_earned_as_the_runs_have_it(told):
    folder, printed = told
    rows = dict(re.findall(r"^ (\w[\w -]*?)  +\d+ +(\d+) \[", printed, re.MULTILINE))
    assert list(rows) == [
        "good",
        "biased",
        "noisy",
        "random",
        *(f"policy of {METHODS[method]}" for method in OFFLINE),
    ]
    for method in OFFLINE:
        name = METHODS[method]
        found = json.loads((folder / method / "fit.json").read_text())
        assert rows[f"policy of {name}"] == f"{found['returns'][0]['mean']:.0f}"
    assert "Highest mean return: " in printed and f"{folder}/report.html" in printed


def test_it_leaves_data_runs_and_a_report_that_is_html(told):
    folder, _ = told
    assert {path.name for path in folder.iterdir()} == {"demonstrations.npz", "report.html", *OFFLINE}
    for method in OFFLINE:
        names = {path.name for path in (folder / method).iterdir()}
        assert {"run.json", "fit.json", "data.json", "policy.safetensors", "expertise.png"} <= names
    assert load(folder / "demonstrations.npz").names == bundled()[0].names
    text, page = (folder / "report.html").read_text(encoding="utf-8"), Tags()
    page.feed(text)
    assert text.startswith("<!DOCTYPE html>") and {"html", "table", "svg"} <= page.opened
    assert all(f"Run {method}" in text for method in OFFLINE)


@pytest.mark.parametrize(("method", "settings"), [("irleed", ("--ends", "failure")), ("bc", ())])
def test_a_run_of_the_demo_is_one_of_fit(told, tmp_path, capsys, method, settings):
    """The same settings, or --resume would refuse it; and the same answer."""
    folder, _ = told
    run = shutil.copytree(folder / method, tmp_path / "run")
    before = json.loads((run / "fit.json").read_text())
    command = ("fit", folder / "demonstrations.npz", "--algorithm", method, *settings, *AGAIN)
    main([*map(str, command), "--out", str(run), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] == 40 and found["members"] == 2
    assert found["expertise"] == before["expertise"]


def test_a_second_demo_goes_on_with_the_first_and_not_with_another(told):
    folder, printed = told
    again = io.StringIO()
    cartpole(folder, 0, Console(file=again, width=80), **SHORT)
    assert again.getvalue() == printed
    with pytest.raises(ConfigError, match=r"started with other settings.*seed 0.*seed 1"):
        cartpole(folder, 1, Console(file=again), **SHORT)


def test_a_folder_that_cannot_be_written_is_refused_first(tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SystemExit, match="2"):
            main(["demo", "--out", str(folder)])
        printed, said = capsys.readouterr()
        assert printed == "" and said.startswith(f"irleed: output folder {folder}") and said.count("\n") == 1


def test_what_is_said_follows_the_figures():
    rows = tuple(
        ReturnEstimate(who, 5, mean, mean - 2, mean + 2) for who, mean in (("a", 10.0), ("b", 13.0), ("c", 1.0))
    )
    assert highest(rows) == "Highest mean return: b; its interval overlaps with those of a."
    assert highest(rows[::2]) == "Highest mean return: a; no other interval reaches it."
    alone = ReturnEstimate("d", 1, 0.0, np.nan, np.nan)  # one episode says nothing of the mean
    assert highest((*rows[::2], alone)).endswith("overlaps with those of d.")


def test_orders_and_intervals_that_are_wrong_are_called_so():
    ones = np.ones(2)
    precision = {"precision": np.array([2.0, 0.5]), "precision_low": ones * 0.4, "precision_high": ones * 2.1}
    others = dict.fromkeys(("transitions", "bias", "bias_low", "bias_high", "log_likelihood", "weight"), ones)
    expertise = Expertise(names=("a", "b"), **precision, **others)
    np.testing.assert_allclose(to_gauge([4.0, 1.0]), [2.0, 0.5])
    assert (
        "\n".join(against_truth(expertise, [4.0, 1.0]))
        == "The true order of precision is a, b: that found here. 2 of 2" + REST
    )
    assert (
        "\n".join(against_truth(expertise, [1.0, 9.0]))
        == "The true order of precision is b, a: not that found here. 0 of 2" + REST
    )
