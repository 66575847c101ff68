"""results.json: one type of row, written and read; every experiment's kept results make a report."""

import json
import re
from pathlib import Path

import pytest

from irleed.errors import DataError
from irleed.report.page import page
from irleed.runs.reader import read_run
from irleed.runs.results import DEMONSTRATED, Results, Row, method_name, read_results

KEPT = Path(__file__).parents[2] / "docs" / "results"
# What the benchmark programs keep there has other contents, and no experiment.
RESULTS = [path for path in sorted(KEPT.glob("*/*.json")) if "experiment" in json.loads(path.read_text())]


def results(*rows: Row, **changes) -> Results:
    values = {"summary": {"difference": [0.1, 0.2, 0.3]}, "paper": {}, "seconds": 3.0, "device": "cpu"} | changes
    return Results("control", {"seeds": 3}, rows, **values)


ROWS = (
    Row({"env": "cartpole", "precision": "L"}, DEMONSTRATED, 20.0, best=30.0),
    Row({"env": "cartpole", "precision": "L"}, "irleed", 45.0, 2.0, 43.0, 47.0, 3, "greedy", None, None, 1.5, 1.4, 1.6),
    Row({"max_precision": 3.0, "accuracy": "inf"}, "maxent", 0.5, 0.1, 0.4, 0.6, 3, "policy", "map"),
)


def test_what_is_written_is_read(tmp_path):
    whole = results(*ROWS, seconds_by_part={"irleed": 2.0}, curves={"irleed": {"A": [1.0]}}, warnings=("one diverged",))
    whole.write(tmp_path)
    assert read_results(tmp_path / "results.json") == whole
    results(*ROWS[:1], seconds=None).write(tmp_path)
    assert read_results(tmp_path / "results.json") == results(*ROWS[:1], seconds=None)


def test_version_1_is_read(tmp_path):
    """There, the interval of a row with a relative return was that of the relative return, and Hopper's rows had no
    evaluation."""
    relative = {"method": "iq", "evaluation": "greedy", "mean": 40, "relative": 1.5, "ci_low": 1.4, "ci_high": 1.6}
    hopper = {"method": "iq_online", "mean": 400.0, "ci_low": 300.0, "ci_high": 500.0}
    rows = [{"setting": {"source": "A"}, "seeds": 3, **row} for row in (relative, hopper)]
    rows.append({"setting": {"source": "A"}, "method": "demonstrator", "mean": 500.0})
    plain = {"experiment": "hopper", "config": {}, "rows": rows, "summary": {}, "seconds": 1.0}
    (tmp_path / "results.json").write_text(json.dumps(plain))
    first, second, last = read_results(tmp_path / "results.json").rows
    assert (first.relative_low, first.relative, first.relative_high, first.ci_low) == (1.4, 1.5, 1.6, None)
    assert (second.ci_low, second.ci_high, second.evaluation) == (300, 500, "greedy")
    assert last.method == DEMONSTRATED and not last.learnt and second.learnt


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": []}, "rows: got none"),
        ({"version": 3}, "install a newer irleed"),
        (
            {"rows": [{"setting": {}, "method": "iq", "mean": "high", "seeds": 1}]},
            "mean: got 'high', expected a number",
        ),
        ({"rows": [{"setting": {"env": []}, "method": "iq", "mean": 1, "seeds": 1}]}, "env: got a list"),
        ({"rows": [{"setting": {}, "method": "iq", "mean": 1, "ci_low": 2, "ci_high": 1}]}, "low end first"),
        ({"rows": [{"setting": {}, "method": "iq", "mean": 1, "ci_low": 2}]}, "low end first"),
    ],
)
def test_edited_results_are_refused_in_one_line(tmp_path, change, said):
    plain = {"version": 2, "experiment": "control", "config": {}, "rows": [], "summary": {}, "seconds": 1.0}
    (tmp_path / "results.json").write_text(json.dumps(plain | change))
    with pytest.raises(DataError) as caught:
        read_run(tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_kept_results_make_a_report(path, tmp_path):
    """Of every experiment: all its methods are on the page."""
    (tmp_path / "results.json").write_bytes(path.read_bytes())
    run = read_run(tmp_path)
    shown = page([run])
    found = read_results(path)
    assert found.experiment == "people" or {row.evaluation for row in found.rows if row.learnt} >= {"greedy"}
    assert all(method_name(row.method) in shown for row in found.rows)
    assert found.experiment == path.parent.name and f"irleed experiment {found.experiment}" in shown


def test_lists_in_a_summary_are_intervals_of_differences_or_numbers(tmp_path):
    summary = {"irleed_minus_iq_ABC": [1.0, 2.0, 4.0], "irleed_log_precision": [3.0, -1.0, -2.0]}
    results(*ROWS[:2], summary=summary).write(tmp_path)
    shown = page([read_run(tmp_path)])
    assert "3, −1, −2" in shown and "2.00 [1.00, 4.00]" in re.sub("<.*?>", "", shown)


def test_all_experiments_are_among_the_kept():
    assert {path.parent.name for path in RESULTS} == {"gridworld", "control", "hopper", "people"}


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("irleed", "IRLEED"),
        ("irleed_failure_online", "IRLEED online, failure"),
        ("iq_paper", "IQ-Learn as published"),
        ("bc_best", "cloning of the best third"),
        ("iq_survival_online", "IQ-Learn online survival"),
        ("demonstrators", "demonstrators"),
    ],
)
def test_names_of_methods(method, name):
    assert method_name(method) == name
