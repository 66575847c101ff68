"""What strangers wrote into data, runs and policies is text on screen, in CSV, in model cards and in commands."""

import csv
import json
import shlex

import numpy as np
import pytest
from rich.console import Console

from irleed._io.files import CHECKSUM, write_signed
from irleed._io.text import say
from irleed.cli import main
from irleed.cli.runs import returns_table
from irleed.data import Demonstrations, Episode, save
from irleed.export import export
from irleed.model.expertise import Expertise
from irleed.policies.tabular import TabularPolicy
from irleed.report.page import command as command_of
from irleed.report.page import page
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.directory import open_run
from irleed.runs.reader import read_run

# Names that files of demonstrations may have: printable, each doing something in a place that is careless.
NAMES = ("=cmd|'/C calc'!A0", "[bold]:x:[/bold]", "<script>alert(1)</script>")
ESCAPE = "\x1b[2J\x1b[31mred\u202e\nirleed: all is well"
LONG = "a" * 10_000_000


def run_folder(path, names=NAMES, **config: object):
    """A run as `irleed fit` leaves it, as far as it is read, and its data beside it."""
    path.mkdir()
    TabularPolicy(np.full((2, 2), 0.5)).save(path / "policy.safetensors")
    row = {"precision": 1.0, "precision_low": 0.9, "precision_high": 1.1, "transitions": 3, "weight": 0.5, "bias": None}
    expertise = [{"name": name, **row, "log_likelihood": -0.7} for name in names]
    reading = {"demonstrator": "data", "obs": [], "action": None}
    config = {"reading": reading, "data": "data.npz", "algorithm": "irleed", **config}
    fit = {"version": 1, "config": config, "expertise": expertise, "steps": 7, "seconds": 1.5, "warnings": [ESCAPE]}
    (path / "fit.json").write_text(json.dumps(fit))
    return path


def data_of(path, names=NAMES):
    episodes = [Episode(np.array([0, 1, 0]), np.array([0, 1]), True, name) for name in names]
    save(Demonstrations.from_episodes(episodes), path)
    return path


def printed(table, capsys) -> str:
    Console(width=400, force_terminal=False).print(table)
    return capsys.readouterr().out


def test_tables_show_names_as_they_are(capsys):
    ones = np.ones(3)
    columns = (field for field in Expertise.__dataclass_fields__ if field not in ("names", "offset"))
    expertise = Expertise(names=NAMES, **dict.fromkeys(columns, ones))
    for table in (expertise.table(), returns_table(tuple(ReturnEstimate(name, 5, 1.0, 0.5, 1.5) for name in NAMES))):
        shown = printed(table, capsys)
        assert all(name in shown for name in NAMES)
    assert "<script>" not in expertise._repr_html_()


def test_long_names_take_a_line_and_stay_different(capsys):
    rows = tuple(ReturnEstimate(name, 5, 1.0, 0.5, 1.5) for name in (LONG, f"{LONG[1:]}b"))
    shown = [line for line in printed(returns_table(rows), capsys).splitlines() if "aaa" in line]
    assert len(shown) == 2 and shown[0] != shown[1] and max(map(len, shown)) < 200


@pytest.mark.parametrize("command", ["inspect", "curate"])
def test_commands_print_names_without_markup_or_pictures(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    data, run = data_of(tmp_path / "data.npz"), run_folder(tmp_path / "run")
    main([command, str(data), *(["--run", str(run)] if command == "curate" else [])])
    assert "[bold]:x:[/bold]" in capsys.readouterr().out


def test_paths_are_printed_without_pictures(tmp_path, capsys):
    data, run = data_of(tmp_path / "data.npz"), run_folder(tmp_path / "run")
    main(["curate", str(data), "--run", str(run), "--out", str(tmp_path / ":x:.csv")])
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path}/:x:.csv\n")


def test_formulas_in_csv_are_text_and_rows_still_join(tmp_path):
    data, run = data_of(tmp_path / "data.npz"), run_folder(tmp_path / "run")
    main(["curate", str(data), "--run", str(run), "--out", str(tmp_path / "weights.csv")])
    with (tmp_path / "weights.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["operator"] for row in rows] == [f"'{NAMES[0]}", *NAMES[1:]]
    assert [int(row["episode"]) for row in rows] == [0, 1, 2], "numbers are as they were"
    assert all(float(row["log_likelihood"]) < 0 for row in rows)


def test_what_run_json_says_does_nothing_to_the_terminal(tmp_path, capsys):
    """The versions of the libraries that a run was begun with are told when it goes on with others."""
    data = data_of(tmp_path / "data.npz", ("anna", "ben"))
    mdp = {"format": "irleed-mdp", "version": 1, "initial": [1.0, 0.0], "discount": 0.9, "terminal": [False, False]}
    np.savez(tmp_path / "mdp.npz", **mdp, transitions=np.full((2, 2, 2), 0.5), reward=[0.0, 1.0])
    fit = ["fit", str(data), "--mdp", str(tmp_path / "mdp.npz"), "--out", str(tmp_path / "run"), "--json"]
    main(fit)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["versions"]["jax"] = ESCAPE
    del record[CHECKSUM]
    write_signed(tmp_path / "run" / "run.json", record)
    with open_run(tmp_path / "run", record["config"], record["data"], resume=True) as run:
        notes = run.notes
    capsys.readouterr()
    say(Console(width=80), *notes)
    shown = capsys.readouterr().out
    assert "all is well" in shown and shown.count("\n") == 1 and shown[:-1].isprintable()


def test_model_cards_are_markdown_of_ours_alone(tmp_path):
    run = run_folder(tmp_path / "run", (*NAMES, ESCAPE, LONG), algorithm="<b>\n# mine")
    values = {"shape": [], "dtype": "<img src=x onerror=alert(1)>\n\n# mine", "min": 0, "max": 1}
    about = {"transitions": 6, "episodes": 3, "demonstrators": [], "warnings": [ESCAPE, "- [x] <i>"]}
    data = {"version": 1, "facts": about | {"observation": values, "action": values}, "returns": []}
    (run / "data.json").write_text(json.dumps(data))
    odd = {"`x` | <script>\n": "y\n\n# mine", "x" * 2000: LONG}
    (run / "run.json").write_text(json.dumps({"version": 1, "versions": {"<b>\n": ESCAPE}, "config": odd}))
    export(run, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\n# mine" not in card and "<script" not in card and "<img" not in card and "<b>" not in card
    assert all(line.isprintable() for line in card.replace("\u202f", " ").split("\n")) and len(card) < 50_000


def test_shapes_that_are_html_are_refused(tmp_path, capsys):
    run = run_folder(tmp_path / "run")
    values = {"shape": ["<img src=x>"], "dtype": "int64", "min": 0, "max": 1}
    about = {"transitions": 6, "episodes": 3, "demonstrators": [], "warnings": [], "observation": values}
    (run / "data.json").write_text(json.dumps({"version": 1, "facts": about | {"action": values}, "returns": []}))
    with pytest.raises(SystemExit):
        main(["export", str(run), "--out", str(tmp_path / "out")])
    assert "shape: got a list, expected a list of numbers" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["$(touch owned)", "a\nrm -rf ~", ESCAPE, "it's; ls"])
def test_commands_to_copy_are_one_quoted_line(tmp_path, text):
    command = command_of(read_run(run_folder(tmp_path / "run", data=text, demonstrator=text)))
    assert command.isprintable()
    if text.isprintable():
        assert shlex.split(command)[2] == text
    in_python = command_of(read_run(run_folder(tmp_path / "other", python=text)))
    assert in_python.startswith("# in Python: ") and in_python.isprintable()


def test_reports_stay_small_whatever_names_they_show(tmp_path):
    """With names of ten megabytes in every place that a run has."""
    run = run_folder(tmp_path / "run", (LONG, f"{LONG}b"), env=LONG, algorithm=LONG, data=LONG)
    shown = page([read_run(run)])
    assert len(shown) < 500_000 and "\x1b" not in shown and "\u202e" not in shown


@pytest.mark.parametrize(
    "command",
    [
        ["demo"],
        ["simulate"],
        ["expert"],
        ["fit", "data.npz"],
        ["curate", "data.npz", "--run", "run"],
        ["report", "run"],
        ["export", "run"],
        ["experiment", "gridworld"],
        ["experiment", "control"],
        ["experiment", "hopper"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("out", [["--out", ""], ["--out="], ["--out", " "]], ids=str)
def test_no_place_to_write_is_refused(tmp_path, monkeypatch, capsys, command, out):
    """An empty path would be the folder that the user is in."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*command, *out])
    shown = capsys.readouterr()
    assert ended.value.code == 2 and not list(tmp_path.iterdir()) and not shown.out
    assert shown.err.startswith("irleed: --out: got an empty text, expected") and shown.err.count("\n") == 1
