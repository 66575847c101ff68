"""The command line: what each command prints and writes. What it refuses is in `test_refusals`."""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import pytest

from irleed.cli import main, parsed
from irleed.data import Demonstrations, Episode, load, save
from irleed.envs.mdp import load_mdp
from irleed.policies.tabular import TabularPolicy

# As the demo plans: fits of the same size and kind then share one compiled program.
AS_THE_DEMO = ("--planner", "averaged", "--endless")


def call(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def has_figures(folder: Path, *names: str) -> bool:
    """Whether these figures are there, as PNG and as PDF."""
    kinds = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-"}
    return all((folder / f"{n}.{k}").read_bytes().startswith(start) for n in names for k, start in kinds.items())


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of the demo on a gridworld, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    with contextlib.redirect_stdout(io.StringIO()) as printed, jax.numpy_dtype_promotion("strict"):
        call("demo", "--gridworld", "--out", folder)
    return folder, printed.getvalue()


def test_the_demo_learns_a_policy_better_than_its_teachers(demo):
    _, printed = demo
    returns = {who: float(value) for who, value in re.findall(r"│ ([\w -]+?) +│ +([\d.]+) │", printed)}
    assert returns["policy of IRLEED"] > returns["mean demonstrator"] > returns["worst demonstrator"]
    assert returns["policy of IRLEED"] > returns["policy of maximum-entropy IRL"]


def test_the_demo_leaves_data_an_mdp_and_figures(demo):
    folder, printed = demo
    assert {path.name for path in folder.iterdir()} == {
        "demonstrations.npz", "mdp.npz", "expertise.png", "expertise.pdf", "rewards.png", "rewards.pdf",
    }  # fmt: skip
    assert has_figures(folder, "expertise", "rewards")
    assert load(folder / "demonstrations.npz").demonstrators == 5
    assert load_mdp(folder / "mdp.npz")[1] == (7, 7)
    assert f"irleed fit {folder}/demonstrations.npz --mdp {folder}/mdp.npz" in printed


def test_fit_on_the_demos_data_finds_what_the_demo_found(demo, tmp_path, capsys):
    folder, printed = demo
    call("fit", folder / "demonstrations.npz", "--mdp", folder / "mdp.npz", *AS_THE_DEMO, "--out", tmp_path / "run")
    shown = capsys.readouterr().out
    found = json.loads((tmp_path / "run" / "fit.json").read_text())
    assert f"estimated order: {', '.join(found['ranking'])}" in " ".join(printed.split())
    assert f"wrote {tmp_path / 'run'}\n" in shown and all(name in shown for name in found["ranking"])
    assert found["config"]["planner"] == "averaged" and found["converged"] is True
    assert np.shape(found["bias"]) == (5, 49) and len(found["weights"]) == 49
    assert has_figures(tmp_path / "run", "expertise", "maps")
    table = TabularPolicy.load(tmp_path / "run" / "policy.safetensors").probabilities
    assert table.shape == (49, 4)
    np.testing.assert_allclose(table.sum(-1), 1)


def test_maximum_entropy_irl_takes_all_for_equal_experts(demo, capsys):
    folder, _ = demo
    data = folder / "demonstrations.npz"
    call("fit", data, "--mdp", folder / "mdp.npz", *AS_THE_DEMO, "--algorithm", "maxent", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [row["precision"] for row in found["expertise"]] == [1.0] * 5
    assert [row["bias"] for row in found["expertise"]] == [0.0] * 5
    assert [row["transitions"] for row in found["expertise"]] == np.bincount(load(data).demonstrator).tolist()
    assert len(found["weights"]) == 49 and found["converged"] is True


def test_the_baseline_in_an_mdp_is_that_algorithm(demo, tmp_path, capsys):
    """And what both earn is what the demo says."""
    folder, printed = demo
    data = folder / "demonstrations.npz"
    settings = (data, "--mdp", folder / "mdp.npz", *AS_THE_DEMO, "--out", tmp_path / "run")
    call("fit", *settings, "--baselines")
    shown = " ".join(capsys.readouterr().out.split())
    earned = dict(re.findall(r"policy of ([\w -]+?) +│ +([\d.]+) │", printed))
    assert shown.count("computed") == 2 and "Highest mean return" in shown
    for name, method in (("IRLEED", tmp_path / "run"), ("maximum-entropy IRL", tmp_path / "run/baselines/maxent")):
        returns = json.loads((method / "fit.json").read_text())["returns"]
        # The demo counts to a hundred steps; here, as far as anyone went, which is a little less.
        np.testing.assert_allclose(returns[1]["mean"], float(earned[name]), atol=0.02)
        assert f"{name} {returns[0]['mean']:.2f} {returns[1]['mean']:.2f}" in shown


def test_what_is_simulated_can_be_fitted(demo, tmp_path, capsys):
    """Through files from end to end; the true precisions are told apart."""
    folder, _ = demo
    data, run = tmp_path / "new" / "data.npz", tmp_path / "run"
    call("simulate", "--mdp", folder / "mdp.npz", *AS_THE_DEMO, "--out", data, "--seed", "1", "--accuracy", "10")
    truth = json.loads((tmp_path / "new" / "data.truth.json").read_text())
    assert f"wrote {data}: {load(data).transitions} transitions in 200 episodes\n" in capsys.readouterr().out
    assert truth["weights"] == load_mdp(folder / "mdp.npz")[0].reward.tolist() and np.shape(truth["bias"]) == (5, 49)
    call("fit", data, "--mdp", folder / "mdp.npz", *AS_THE_DEMO, "--json", "--out", run)
    found = json.loads(capsys.readouterr().out)  # nothing but JSON, even where files are written
    assert json.loads((run / "fit.json").read_text())["expertise"] == found["expertise"]
    estimated = np.log([row["precision"] for row in found["expertise"]])
    assert np.corrcoef(estimated, np.log(truth["precision"]))[0, 1] > 0.8


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Demonstrations on a frozen lake, whose reward is by state and action."""
    path = tmp_path_factory.mktemp("lake") / "data.npz"
    with contextlib.redirect_stdout(io.StringIO()), jax.numpy_dtype_promotion("strict"):
        call("simulate", "--env", "FrozenLake-v1", "--out", path, "--demonstrators", "2", "--demonstrations", "3")
    return path


def test_simulate_where_rewards_belong_to_actions(lake):
    data, truth = load(lake), json.loads(lake.with_suffix(".truth.json").read_text())
    assert truth["weights"] is None and np.shape(truth["bias"]) == (2, 16) and len(truth["precision"]) == 2
    assert (data.demonstrators, data.episodes) == (2, 6)


def test_fit_with_every_episode_its_own_demonstrator(lake, tmp_path, capsys):
    """In an environment of Gymnasium, which has no grid to draw."""
    call(
        "fit", lake, "--env", "FrozenLake-v1", "--discount", "0.9", "--planner", "averaged",
        "--demonstrator", "episode", "--json", "--out", tmp_path,
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["expertise"]] == [f"episode {i}" for i in range(6)]
    assert [row["transitions"] for row in found["expertise"]] == load(lake).length.tolist()
    # The film itself where there is what draws it.
    assert {path.name for path in tmp_path.iterdir()} - {"film.webp", "film.png"} == {
        "fit.json", "policy.safetensors", "expertise.png", "expertise.pdf", "data.json", "run.json", "film.json",
        "report.html",
    }  # fmt: skip


def test_inspect_as_text_and_as_json(lake, capsys):
    call("inspect", lake)
    text = capsys.readouterr().out
    assert f"{load(lake).transitions} transitions in 6 episodes\n" in text and "observation: dtype int32" in text
    call("inspect", lake, "--json")
    summary = json.loads(capsys.readouterr().out)
    assert summary["transitions"] == load(lake).transitions
    assert [row["episodes"] for row in summary["demonstrators"]] == [3, 3]


def test_inspect_shows_hostile_names_as_text(tmp_path, capsys):
    names = ["[b]a[/b]", "[/x]"]
    save(Demonstrations.from_episodes([Episode([0, 0], [0], True, name) for name in names]), tmp_path / "data.npz")
    call("inspect", tmp_path / "data.npz")
    text = capsys.readouterr().out
    assert all(name in text for name in names) and "note: the observation never changes" in text


COMMANDS = (
    "demo",
    "inspect",
    "fit",
    "evaluate",
    "report",
    "curate",
    "export",
    "simulate",
    "expert",
    "doctor",
    "experiment",
)
HELPED = [(), *((name,) for name in COMMANDS), *(("experiment", name) for name in ("gridworld", "control", "hopper"))]


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fills_the_screen_and_no_more(capsys, monkeypatch, columns):
    """tyro keeps the line breaks of docstrings, and prints a description as one line, however long."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in HELPED:
        with pytest.raises(SystemExit, match="0"):
            call(*words, "--help")
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= columns, words


@dataclass
class Probe:
    """Settings."""

    value: int = 0
    """One line ends
    here, and goes on."""


def test_a_docstring_of_several_lines_is_one_paragraph(capsys):
    with pytest.raises(SystemExit, match="0"):
        parsed(Probe, ["--help"], "probe")
    assert "One line ends here, and goes on." in capsys.readouterr().out
    assert parsed(Probe, ["--value", "3"], "probe") == Probe(3)


def test_completions_are_not_broken_into_lines(capsys):
    with pytest.raises(SystemExit, match="^$"):
        call("--tyro-print-completion", "bash")
    (spec,) = re.findall(r"^COMPLETION_SPEC = (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert set(COMMANDS) <= set(ast.literal_eval(spec)["subcommands"])


def test_nothing_is_said_once_nobody_reads():
    """As with `| head`: no traceback."""
    with subprocess.Popen(
        [sys.executable, "-m", "irleed", "fit", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b"" and command.wait() == 1


def test_a_source_tree_that_is_not_installed_says_so_in_one_line():
    """As where the package's metadata are missing."""
    missing = (
        "import importlib.metadata as m, runpy\n"
        "known = m.version\n"
        "def version(name):\n"
        "    if name == 'irleed': raise m.PackageNotFoundError(name)\n"
        "    return known(name)\n"
        "m.version = version\n"
        "runpy.run_module('irleed', run_name='__main__')"
    )
    ended = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stdout == "" and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("irleed: not installed (") and "pip install -e ." in ended.stderr


@pytest.fixture(scope="module")
def experiments(tmp_path_factory):
    """The same small experiment twice, and with another seed."""
    folder = tmp_path_factory.mktemp("experiment")
    settings = ("--estimator", "both", "--seeds", "2", "--settings", "3:3", "--size", "4")
    with contextlib.redirect_stdout(io.StringIO()) as printed, jax.numpy_dtype_promotion("strict"):
        for name, seed in (("one", 0), ("same", 0), ("other", 1)):
            call("experiment", "gridworld", *settings, "--seed", seed, "--out", folder / name)
    return folder, printed.getvalue()


def test_an_experiment_writes_results_and_figures(experiments):
    folder, printed = experiments
    results = json.loads((folder / "one" / "results.json").read_text())
    assert set(results) == {
        "version",
        "experiment",
        "config",
        "rows",
        "summary",
        "paper",
        "seconds",
        "device",
        "checksum",
    }
    assert results["experiment"] == "gridworld" and results["config"]["settings"] == ["3:3"]
    assert {(row["method"], row.get("estimator")) for row in results["rows"]} == {
        ("demonstrators", None), ("irleed", "map"), ("maxent", "map"), ("irleed", "published"), ("maxent", "published"),
    }  # fmt: skip
    for row in results["rows"]:
        assert {"setting", "method", "mean", "std", "ci_low", "ci_high", "seeds"} <= set(row)
        assert row["setting"] == {"max_precision": 3.0, "accuracy": 3.0} and row["seeds"] == 2
        assert row["ci_low"] <= row["mean"] <= row["ci_high"] and -1e-9 <= row["mean"] <= 1 + 1e-9
    assert has_figures(folder / "one", "figure2", "figure3_map", "figure3_published")
    assert "the paper" in printed and f"wrote {folder / 'one'}\n" in printed


def test_same_seed_same_rows(experiments):
    folder, _ = experiments
    one, same, other = (
        json.dumps(json.loads((folder / name / "results.json").read_text())["rows"])
        for name in ("one", "same", "other")
    )
    assert one == same != other


def test_the_control_experiment_writes_results_beside_the_papers(tmp_path, capsys):
    """A run far too short to learn much, but through every part."""
    few = ("--tasks", "cartpole", "--seeds", 2, "--steps", 30, "--online-steps", 505, "--episodes", 2)
    methods = ("irleed", "bc", "bc_best", "irleed_online", "sqil")
    with jax.numpy_dtype_promotion("standard"):
        call("experiment", "control", "--out", tmp_path / "run", *few, "--settings", "LL", "HL", "--methods", *methods)
    printed = capsys.readouterr().out
    assert "IRLEED online" in printed and "(1.56)" in printed and "(1.55)" in printed  # the paper's own figures
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    rows = {(r["setting"]["precision"] + r["setting"]["accuracy"], r["method"], r.get("evaluation")): r
            for r in results["rows"]}  # fmt: skip
    assert {m for _, m, _ in rows} == {"demonstrators", *methods} and len(rows) == 2 * (1 + 5 * 2)
    own, best = rows["LL", "irleed", "greedy"], rows["LL", "demonstrators", None]["best"]
    assert own["relative_low"] <= own["relative"] <= own["relative_high"] and own["seeds"] == 2
    assert own["ci_low"] <= own["mean"] <= own["ci_high"]
    np.testing.assert_allclose(own["relative"], own["mean"] / best, rtol=1e-6)
    assert results["summary"]["cartpole_diverged_sqil"] == 0 and has_figures(tmp_path / "run", "returns_cartpole")
    # Compared with those that learn in the same way, and with no oracle.
    compared = {key.rpartition("_")[0] for key in results["summary"] if "_minus_" in key}
    assert compared == {"cartpole_irleed_minus_bc", "cartpole_irleed_online_minus_sqil"}
