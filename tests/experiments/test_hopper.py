"""The Hopper experiment: its policies, its data, a small run from end to end, and going on with it."""

import dataclasses
import json

import jax
import numpy as np
import pytest

pytest.importorskip("mujoco")

from irleed.errors import ConfigError
from irleed.experiments import hopper
from irleed.experiments.hopper import HopperConfig
from irleed.rollout import HostBackend, greedy_action, sampled_action
from irleed.runs.results import read_results

pytestmark = pytest.mark.optax


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Very short runs of three methods."""
    folder = tmp_path_factory.mktemp("hopper")
    settings = {"pairs": 300, "steps": 1_400, "every": 700, "offline_steps": 20, "workers": 2}
    config = HopperConfig(
        out=folder, seeds=2, sources=("A", "ABC"), methods=("irleed_online", "irleed", "bc"), **settings
    )
    small = {name: dataclasses.replace(method, hidden=(8,), batch_size=8) for name, method in hopper.METHODS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hopper, "METHODS", small)
        outcome = hopper.sweep(config, lambda *done, **figures: None)
        results = hopper.write(config, outcome)
        again = hopper.sweep(config, lambda *done, **figures: pytest.fail("nothing is left to do"))
    return config, outcome, results, again


@pytest.mark.parametrize(("teachers", "act", "episodes"), [("sac", greedy_action, 4), ("iq", sampled_action, 8)])
def test_the_policies_are_as_good_as_they_are_said_to_be(teachers, act, episodes):
    """In order, and near what the paper's earned."""
    backend = HostBackend(hopper.ENV_ID, 2)
    try:
        returns = []
        for name in hopper.POLICIES:
            actor = jax.tree.map(lambda leaf: np.asarray(leaf)[None], hopper.policy_of(teachers, name).actor)
            returns.append(backend.returns(jax.random.key(0), actor, act, episodes).mean())
    finally:
        backend.close()
    assert returns[0] > 2500 and returns[0] > returns[1] > 1000 and 150 < returns[2] < 300


def test_data_sets_are_those_of_their_sources():
    data = hopper.demonstrate(jax.random.key(0), 250, 1)
    assert data.names == ("A", "B", "C") and np.bincount(data.demonstrator).tolist() == [250, 250, 250]
    stacked = hopper.data_sets(data, ("B", "ABC"), 2)
    assert stacked.size.tolist() == [250, 250, 750, 750]
    assert set(np.asarray(stacked.demonstrator[0])[:250].tolist()) == {1}
    starts = np.asarray(data.observation)[data.start]
    assert {tuple(row) for row in np.asarray(stacked.initial[2])} == {tuple(row) for row in starts.astype(np.float32)}


def test_a_small_run_from_end_to_end(finished):
    config, outcome, results, _ = finished
    assert outcome.lanes["irleed_online"].returns.shape == (2, 2, 2) and outcome.lanes["bc"].returns.shape == (2, 2, 1)
    assert np.all(np.isfinite(outcome.lanes["irleed_online"].returns))
    written = json.loads((config.out / "results.json").read_text())
    assert written.pop("checksum")
    assert read_results(config.out / "results.json").rows == results.rows and (config.out / "curves.png").exists()
    assert {row["method"] for row in written["rows"]} == {"demonstrators", "irleed_online", "irleed", "bc"}
    low, mean, high = written["summary"]["irleed_minus_bc_ABC"]
    assert low <= mean <= high
    assert written["paper"]["iq_online"]["A"] == pytest.approx(2153, abs=1)
    assert "cloning" in str([row for row in hopper.tables(results).columns[0].cells])


def test_what_is_done_is_not_done_again(finished):
    _, outcome, _, again = finished
    for name, lanes in outcome.lanes.items():
        np.testing.assert_array_equal(again.lanes[name].returns, lanes.returns)


def test_other_settings_are_refused(finished):
    config, *_ = finished
    with pytest.raises(ConfigError, match="made with other settings"):
        hopper.sweep(dataclasses.replace(config, pairs=200), lambda *done, **figures: None)


@pytest.mark.parametrize(
    ("change", "flag"), [({"seeds": 0}, "--seeds"), ({"steps": 1000}, "--steps"), ({"methods": ()}, "--methods")]
)
def test_impossible_settings_are_refused(change, flag, tmp_path):
    with pytest.raises(ConfigError, match=flag):
        hopper.check(HopperConfig(out=tmp_path, **change))


def test_runs_that_diverge_are_told_and_stop_nobody(tmp_path, monkeypatch):
    """Their policies have no actions; what they earn by doing nothing counts, and no file has what is no number."""
    lost = {
        name: dataclasses.replace(hopper.METHODS[name], hidden=(8,), batch_size=8, **{rate: np.inf})
        for name, rate in (("irleed_online", "actor_learning_rate"), ("irleed", "learning_rate"))
    }
    monkeypatch.setattr(hopper, "METHODS", lost)
    settings = {"pairs": 300, "steps": 1_400, "every": 700, "offline_steps": 20, "workers": 2}
    config = HopperConfig(out=tmp_path, seeds=1, sources=("ABC",), methods=("irleed_online", "irleed"), **settings)
    hopper.write(config, hopper.sweep(config, lambda *done, **figures: None))
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["summary"]["diverged_irleed_online"] == results["summary"]["diverged_irleed"] == 1
    earned = [row["mean"] for row in results["rows"] if row["method"] != "demonstrators"]
    assert len(earned) == 2 and all(0 < each < 500 for each in earned)
