"""Finite data that a fit without care would answer with nonsense: outliers, units, offsets, and too few of them."""

import dataclasses
import json

import numpy as np
import pytest

from irleed.algorithms.iq import OfflineIrleed, SacIrleed
from irleed.cli import main
from irleed.data import Demonstrations, Episode, lazy, save, summarise
from irleed.data.lazy import InMemory, LazyRows
from irleed.envs.step import Bounds
from irleed.errors import SpaceError
from irleed.fit.networks import TWO, fit_networks
from irleed.fit.result import Fit
from irleed.fit.validation import check, prepared
from irleed.policies import load_policy
from irleed.rollout import HostBackend

pytestmark = pytest.mark.optax

SPREADS = {"a": 0.05, "b": 0.15, "c": 0.4, "d": 1.0}
STEERED = OfflineIrleed.continuous(hidden=(32,), steps=2_000, learning_rate=3e-3, precision_learning_rate=2e-2)
CHOSEN = OfflineIrleed(hidden=(16,), steps=600, learning_rate=5e-3, precision_learning_rate=2e-2)


def steering() -> Demonstrations:
    """1,440 continuous actions of four demonstrators, the first the most precise."""
    random = np.random.default_rng(0)
    episodes = []
    for name, spread in SPREADS.items():
        for _ in range(10):
            obs = random.uniform(-1, 1, (37, 3))
            action = np.clip(0.6 * obs[:-1, -1:] + 0.3 * spread * random.normal(size=(36, 1)), -1, 1)
            episodes.append(Episode(obs=obs, action=action, demonstrator=name, terminated=False))
    return Demonstrations.from_episodes(episodes)


def choosing(steps: int = 36, episodes: int = 10) -> Demonstrations:
    """One of two actions, by the sign of the first of two numbers."""
    random = np.random.default_rng(0)
    found = []
    for name, skill in {"good": 0.95, "bad": 0.65}.items():
        for _ in range(episodes):
            obs = random.uniform(-1, 1, (steps + 1, 2))
            best = (obs[:-1, 0] > 0).astype(int)
            action = np.where(random.random(steps) < skill, best, 1 - best)
            found.append(Episode(obs=obs, action=action, demonstrator=name, terminated=False))
    return Demonstrations.from_episodes(found)


def moved(data: Demonstrations, offset: float, scale: float) -> Demonstrations:
    return dataclasses.replace(data, obs=offset + scale * data.obs)


def with_action(data: Demonstrations, row: int, value: float) -> Demonstrations:
    action = data.action.copy()
    action[row] = value
    return dataclasses.replace(data, action=action)


@pytest.fixture(scope="module")
def plain() -> Fit:
    return fit_networks(choosing(), CHOSEN, members=2)


@pytest.mark.parametrize(
    ("scale", "outlier"), [(1.0, None), (1.0, 1000.0), (0.001, None), (0.001, 1.0)], ids=["plain", "1000", "mm", "both"]
)
def test_the_ranking_does_not_depend_on_an_outlier_or_the_unit_of_actions(scale, outlier):
    """One action of 1000 of the best demonstrator made them the worst; millimetres made everyone alike."""
    data = steering()
    data = dataclasses.replace(data, action=scale * data.action)
    data = data if outlier is None else with_action(data, 77, outlier)
    found = fit_networks(data, STEERED, members=2)
    assert found.expertise.ranking == tuple("abcd")
    assert found.expertise.precision[0] > 20 * found.expertise.precision[3]
    left_out = [each for each in found.warnings if "left out of the fit" in each]
    assert len(left_out) == (outlier is not None) and found.expertise.transitions.sum() == 1440 - len(left_out)
    assert any("far narrower than" in each for each in found.warnings) == (scale < 1)
    acted, _ = found.policy.predict(data.obs, deterministic=True)
    assert np.corrcoef(acted[:, 0], data.obs[:, -1])[0, 1] > 0.95 and np.abs(acted).max() <= 1.1 * scale


@pytest.mark.parametrize(("offset", "scale"), [(1e8, 1.0), (0.0, 1e-12), (1.0, 1e-12), (0.0, 1e15)])
def test_where_observations_are_and_how_far_they_spread_changes_nothing(plain, offset, scale, tmp_path):
    """Single precision would have made one number of them all, or taken them for constant."""
    data = moved(choosing(), offset, scale)
    found = fit_networks(data, CHOSEN, members=2)
    np.testing.assert_allclose(found.expertise.precision, plain.expertise.precision, rtol=0.1)
    np.testing.assert_allclose(found.expertise.log_likelihood, plain.expertise.log_likelihood, atol=0.02)
    expected, _ = plain.policy.predict(choosing().obs, deterministic=True)
    chosen, _ = found.policy.predict(data.obs, deterministic=True)
    assert np.mean(chosen == expected) > 0.98
    found.policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(again.predict(data.obs, deterministic=True)[0], chosen)


def test_one_observation_of_a_million_does_not_decide_how_the_others_are_seen(plain):
    data = choosing()
    obs = data.obs.copy()
    obs[7, 0] = 1e6
    found = fit_networks(dataclasses.replace(data, obs=obs), CHOSEN, members=2)
    np.testing.assert_allclose(found.expertise.log_likelihood, plain.expertise.log_likelihood, atol=0.03)
    assert any("observation entry 0: 1e+06 in episode 0, step 7, of 'good'" in each for each in found.warnings)


def test_data_on_disk_are_mended_as_data_in_memory_are(monkeypatch):
    data = moved(choosing(), 1e8, 1.0)
    expected = fit_networks(data, CHOSEN, members=2)
    monkeypatch.setattr(lazy, "MOST", 5_000)  # too large for memory, then
    monkeypatch.setattr(lazy, "check_size", lambda size: None)
    found = fit_networks(dataclasses.replace(data, obs=LazyRows.of(InMemory(data.obs))), CHOSEN, members=2)
    np.testing.assert_allclose(found.expertise.precision, expected.expertise.precision, rtol=1e-3)


def test_ordinary_data_are_handed_on_as_they_are():
    for data, algorithm, actions in ((steering(), STEERED, Bounds([-1.0], [1.0])), (choosing(), CHOSEN, 2)):
        found = prepared(data, algorithm, actions, None)
        assert found.data is data and found.conditioning is None and found.warnings == ()


def test_agents_see_the_observations_of_their_environment():
    """Nothing is subtracted from demonstrations that are learnt from beside played transitions; outliers are moved."""
    data = moved(steering(), 1e8, 1.0)
    found = prepared(data, SacIrleed(), Bounds([-1.0], [1.0]), None)
    assert found.data is data and "before agents play" in found.warnings[0]
    obs = steering().obs.copy()
    obs[7, 0] = 1e6
    found = prepared(dataclasses.replace(data, obs=obs), SacIrleed(), Bounds([-1.0], [1.0]), None)
    assert found.conditioning is None and found.data.obs.max() < 100


def test_an_outlier_within_wide_bounds_of_an_environment_is_left_out_too():
    """Whoever acts in a small part of the bounds is not judged by one action outside of it."""
    data = dataclasses.replace(steering(), action=0.01 * steering().action)
    backend = HostBackend("Pendulum-v1")  # torques from -2 to 2
    backend.observation_shape = (3,)
    try:
        found = prepared(with_action(data, 77, 2.0), STEERED, check(data, STEERED, backend, 1), backend)
    finally:
        backend.close()
    assert found.data.transitions == 1439
    assert any("far narrower than the environment's bounds" in each for each in found.warnings)


def test_actions_that_single_precision_cannot_tell_apart_are_refused():
    data = dataclasses.replace(steering(), action=1e8 + steering().action)
    with pytest.raises(SpaceError, match=r"99999999\S* to 10000000\S* as number 0, .*subtract a constant"):
        check(data, STEERED, None, 1)


def test_nobody_is_ranked_by_one_transition():
    found = fit_networks(choosing(steps=1, episodes=1), dataclasses.replace(CHOSEN, steps=20), members=2)
    assert found.summary()["ranking"] == [] and not found.expertise.ranked.any()
    assert np.isnan(found.expertise.precision_low).all() and np.isnan(found.expertise.bias_high).all()
    assert found.warnings[0].startswith("too few transitions to rank, fewer than 10: 'good' (1), 'bad' (1)")


def test_a_likelihood_at_chance_is_pointed_out(plain):
    data = choosing()
    random = dataclasses.replace(data, action=np.random.default_rng(1).integers(0, 2, data.transitions))
    found = fit_networks(random, CHOSEN, members=2)
    assert any(each.startswith("log likelihood at chance: -0.6") for each in found.warnings)
    assert plain.warnings == (TWO,)  # that there are two demonstrators only


def test_the_command_says_so_everywhere(tmp_path, capsys):
    """Printed by `inspect` and `fit`, in their JSON, in fit.json, and on both pages."""
    data = with_action(steering(), 77, 1000.0)
    save(data, tmp_path / "data.npz")
    path, said = str(tmp_path / "data.npz"), "1 outlier in action entry 0: 1000 in episode 2, step 5, of 'a'"
    main(["inspect", path, "--html", str(tmp_path / "page.html")])
    assert f"note: {said}" in capsys.readouterr().out
    main(["inspect", path, "--json"])
    assert any(said in each for each in json.loads(capsys.readouterr().out)["warnings"])
    main(["fit", path, "--out", str(tmp_path / "run"), "--steps", "20", "--members", "1"])
    assert f"warning: {said}" in capsys.readouterr().err
    assert any(said in each for each in json.loads((tmp_path / "run" / "fit.json").read_text())["warnings"])
    main(["report", str(tmp_path / "run")])
    for page in (tmp_path / "page.html", tmp_path / "run" / "report.html"):
        assert page.read_text().count("1 outlier in action entry 0: 1000 in episode 2") == 1
    assert said in "".join(summarise(data)["warnings"])
