"""Run directories as they are found: gone on with, edited, half copied, from newer versions, or none at all."""

import json
from pathlib import Path

import pytest

from irleed.cli import main
from irleed.errors import DataError
from irleed.report.page import report
from irleed.runs.reader import FitRun, read_run


def test_a_run_that_went_on_has_each_step_once(copy):
    folder = copy("networks")
    lines = [{"step": 5, "loss": 3.0}, {"step": 10, "loss": 9.0}, {"step": 10, "loss": 2.0}, {"step": 15, "loss": 1.0}]
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 20, "lo')
    run = read_run(folder)
    assert isinstance(run, FitRun) and run.history == ((5, 3.0), (10, 2.0), (15, 1.0))


@pytest.mark.parametrize(
    "file,changes,said",
    [
        ("fit.json", {"version": 2}, "install a newer irleed"),
        ("run.json", {"version": 7}, "install a newer irleed"),
        ("departures.json", {"version": 2}, "install a newer irleed"),
        ("fit.json", {"expertise": []}, "no demonstrators"),
        ("fit.json", {"expertise": {}}, "expertise: got a dict, expected a list"),
        ("fit.json", {"expertise.0.precision": "high"}, "precision: got 'high', expected a number"),
        ("fit.json", {"expertise.0.precision": -1}, "precision: got -1"),
        ("fit.json", {"expertise.0.precision_low": 1e9}, "low end first"),
        ("fit.json", {"expertise.1": "anna"}, "got 'anna', expected a JSON object"),
        ("fit.json", {"steps": 1.5}, "steps: got 1.5, expected a whole number"),
        ("fit.json", {"config": None}, "config"),
        ("departures.json", {"people.0.who": 99}, "inconsistent numbers"),
        ("departures.json", {"people.0.situations.0.frame": "javascript:alert(1)"}, "a PNG picture"),
        ("departures.json", {"points.who": [0]}, "inconsistent numbers"),
        ("departures.json", {"points.who": [0] * 10_001}, "at most 100 and 10000 points"),
        ("departures.json", {"people": [{"who": 0, "situations": []}] * 101}, "lists of at most 100"),
        ("fit.json", {"files": {"a\0b": "0"}}, "names of files in this folder"),
        ("fit.json", {"files": {"\ud800": "0"}}, "names of files in this folder"),
        ("fit.json", {"files": {"x" * 5000: "0"}}, "names of files in this folder"),
        ("data.json", {"returns": 3}, "returns: got 3, expected a list"),
        ("data.json", {"facts.episodes": None}, "episodes"),
    ],
)
def test_edited_runs_are_refused_in_one_line(copy, tmp_path, file, changes, said):
    folder = copy("networks", file, **changes)
    with pytest.raises(DataError) as caught:
        report(folder, tmp_path / "report.html")
    assert said in str(caught.value) and str(folder) in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 and not (tmp_path / "report.html").exists()


def test_what_is_no_run_is_refused_in_one_line(runs, copy, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    whole = copy("gridworld")
    (tmp_path / "half").mkdir()
    text = (whole / "fit.json").read_text()
    for name, content in (("fit.json", text[: len(text) // 2]), ("policy.safetensors", "")):
        (tmp_path / "half" / name).write_text(content)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text("{}")
    (whole / "policy.safetensors").unlink()
    for name, said in (
        ("nowhere", "got nothing, expected a run directory"),
        ("empty", "no fit.json and no results.json"),
        ("half", "no JSON"),
        ("half/fit.json", "got a file"),
        ("begun", "--resume"),
        ("run", "no policy.safetensors"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["report", str(tmp_path / name), "--out", str(tmp_path / "report.html")])
        shown = capsys.readouterr().err
        assert caught.value.code == 2 and shown.count("\n") == 1 and said in shown, shown


@pytest.mark.parametrize("name", ["fit.json", "history.jsonl", "policy.safetensors", "departures.json", "baselines"])
def test_links_that_lead_out_of_a_run_are_not_followed(copy, tmp_path, name):
    """Somebody's run must not put other files of this machine on a page."""
    folder, outside = copy("networks"), tmp_path / "outside"
    (folder / "baselines" / "bc").mkdir(parents=True)
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(DataError, match="a link that leads out of its folder"):
        read_run(folder)


def test_runs_beside_a_run_have_none_beside_them(copy):
    """Two links to the run itself would be four runs one level deeper, and a million twenty levels deeper."""
    folder = copy("networks")
    (folder / "baselines").mkdir()
    for name in ("bc", "iq"):
        (folder / "baselines" / name).symlink_to("..")
    run = read_run(folder)
    assert isinstance(run, FitRun) and len(run.baselines) == 2
    assert all(not each.baselines for each in run.baselines)


def test_an_experiment_without_greedy_returns_has_no_plots(copy, tmp_path):
    folder = copy("control", "results.json")
    found = json.loads((folder / "results.json").read_text())
    rows = [row for row in found["rows"] if row.get("evaluation") != "greedy"]
    (folder / "results.json").write_text(json.dumps(found | {"rows": rows}))
    report(folder, out=tmp_path / "report.html")
    assert "By greedy actions" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("inner", ["results.json", "baselines/bc/fit.json"])
def test_a_folder_that_may_not_be_searched_is_refused_in_one_line(copy, monkeypatch, inner):
    folder, exists = copy("networks"), Path.exists
    (folder / "baselines" / "bc").mkdir(parents=True, exist_ok=True)

    def refusing(path):
        if path == folder / inner:
            raise PermissionError(13, "Permission denied")
        return exists(path)

    monkeypatch.setattr(Path, "exists", refusing)
    with pytest.raises(DataError, match="Permission denied"):
        read_run(folder)
