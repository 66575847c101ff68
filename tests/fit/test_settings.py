"""Settings by name: every one has a meaning, values are read by their type, and what is none is refused in one line."""

import dataclasses
import inspect

import pytest

import irleed
from irleed.algorithms import BehaviourCloning, Ileed, OfflineIrleed, OnlineIrleed, SacIrleed, Sqil
from irleed.algorithms.tabular.irleed import Irleed
from irleed.algorithms.tabular.paper_protocol import Published, SoftQLearning
from irleed.cli import main
from irleed.cli.runs import OWN, FitCommand
from irleed.errors import ConfigError
from irleed.fit.settings import settings_of, with_settings
from irleed.report.page import USUAL

ALGORITHMS = [
    OfflineIrleed(), OfflineIrleed.continuous(), OnlineIrleed(), SacIrleed(), Ileed(), BehaviourCloning(), Sqil(),
    Irleed(), Published(), Published(inference=SoftQLearning()),
]  # fmt: skip


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
def test_every_setting_has_a_meaning_and_its_own_value_back(algorithm):
    found = settings_of(algorithm)
    assert [each.name for each in found if not each.meaning] == []
    assert len({each.name for each in found}) == len(found)
    for each in found:
        text = ",".join(map(str, each.value)) if isinstance(each.value, tuple) else str(each.value)
        assert with_settings(algorithm, {each.name: text}) == algorithm, each.name


def test_settings_of_the_learner_are_settings_but_for_those_it_does_not_use():
    changed = with_settings(OnlineIrleed(), {"penalty": "0.1", "hidden": "8,16", "steps": 7, "batch_size": "9"})
    assert changed.learner == dataclasses.replace(OnlineIrleed().learner, penalty=0.1, hidden=(8, 16))
    assert (changed.steps, changed.batch_size) == (7, 9)
    assert "learner.steps" not in {each.name for each in settings_of(OnlineIrleed())}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("penalti", 1, "--set penalti: got an unknown setting, expected one of hidden, activation, steps"),
        ("penalty", "much", "--set penalty: got 'much', expected a number"),
        ("penalty", True, "expected a number"),
        ("penalty", -1, "OfflineIrleed.penalty: got -1.0, expected 0 or more"),
        ("steps", "1.5", "--set steps: got '1.5', expected a whole number"),
        ("steps", 1.5, "expected a whole number"),
        ("anneal_lr", "maybe", "expected true or false"),
        ("activation", "tanh", "expected 'elu' or 'relu' or 'norm_relu'"),
        ("hidden", "wide", "expected whole numbers such as 64,64"),
        ("bias_hidden", "wide", "expected none or whole numbers such as 64,64"),
        ("bias_learning_rate", "slow", "expected none or a number"),
        ("planner.tolerance", "1", "an unknown setting"),
    ],
)
def test_what_is_no_setting_or_no_value_is_refused_in_one_line(name, value, said):
    with pytest.raises(ConfigError) as caught:
        with_settings(OfflineIrleed(), {name: value})
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_parts_of_an_algorithm_have_settings_by_their_names():
    changed = with_settings(Irleed(), {"planner.tolerance": "1e-6", "prior.bias": 2, "tolerance": 0.1})
    assert (changed.planner.tolerance, changed.prior.bias, changed.tolerance) == (1e-6, 2.0, 0.1)


def test_the_command_lists_settings_and_refuses_what_is_none(tmp_path, capsys):
    main(["fit", "--help-settings"])
    shown = capsys.readouterr().out
    assert all(each.name in shown for algorithm in ALGORITHMS[:4] for each in settings_of(algorithm))
    main(["fit", "--algorithm", "bc", "--help-settings"])
    shown = capsys.readouterr().out
    assert "bc from the data alone, discrete actions" in shown and "penalty" not in shown
    for words, said in (
        (["--help-settings", "--algorithm", "cloning"], "--algorithm: got cloning, expected irleed or maxent"),
        (["nowhere.npz", "--set", "penalty"], "--set penalty: got no value, expected NAME=VALUE"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["fit", *words])
        assert said in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_the_command_has_the_arguments_of_the_function_and_their_defaults():
    flags = {each.name: each.default for each in dataclasses.fields(FitCommand) if each.name not in OWN}
    arguments = {name: each.default for name, each in inspect.signature(irleed.fit).parameters.items()}
    assert {name: arguments[name] for name in flags if name not in ("data", "reading")} == {
        name: default for name, default in flags.items() if name not in ("data", "reading")
    }
    assert set(arguments) - set(flags) == {"settings", "progress", "warn"}
    known = {"demonstrator", "action", "expansion"}  # of the reading
    assert {name: value for name, value in USUAL.items() if name not in known} == {
        name: str(arguments[name]) for name in USUAL if name not in known
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "data.npz", "--seeds", "3"], "--seeds: got a flag of earlier versions, expected --members"),
        (["simulate", "--episodes=3"], "--episodes: got a flag of earlier versions, expected --demonstrations"),
        (["expert", "--rate", "1"], "--rate: got a flag of earlier versions, expected --learning-rate"),
    ],
)
def test_flags_of_earlier_versions_name_the_new_ones(words, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert said in (error := capsys.readouterr().err) and error.count("\n") == 1
