"""`fit_networks` and `irleed fit` where actions are numbers: what comes out, its file, and what is refused."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

from irleed.algorithms.baselines import BehaviourCloning, Ileed
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, SacIrleed
from irleed.analysis.curation import curate
from irleed.cli import main
from irleed.data import Demonstrations, Episode, save
from irleed.envs.step import Bounds
from irleed.errors import DataError, SpaceError
from irleed.fit.defaults import network_algorithm
from irleed.fit.networks import fit_networks
from irleed.fit.validation import check, clipped
from irleed.policies import load_policy
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import HostBackend

pytestmark = pytest.mark.optax

SMALL = {"hidden": (16,), "steps": 300, "batch_size": 32}
SPREAD = {"steady": 0.1, "shaky": 1.0}


def demonstrations(shape=(3,), scale: float = 0.8) -> Demonstrations:
    """Torques that turn against the speed, by two people of whom one is steady; observations as Pendulum's."""
    generator = np.random.default_rng(0)
    episodes = []
    for name, spread in SPREAD.items():
        for _ in range(4):
            obs = generator.uniform(-1, 1, (31, *shape)).astype(np.float32)
            action = -scale * obs[:-1, -1:] + scale * spread * generator.normal(size=(30, 1))
            action = np.clip(action, -2, 2).astype(np.float32)
            reward = -np.abs(action[:, 0])
            episodes.append(Episode(obs=obs, action=action, demonstrator=name, terminated=False, reward=reward))
    return Demonstrations.from_episodes(episodes)


@pytest.fixture(scope="module")
def found():
    return fit_networks(
        demonstrations(), OfflineIrleed.continuous(**SMALL, learning_rate=3e-3, precision_learning_rate=1e-2), members=2
    )


def test_who_is_steady_is_found_and_the_policy_acts_within_bounds(found):
    assert isinstance(found.policy.actions, Bounds) and found.policy.size == 2
    assert found.expertise.ranking == ("steady", "shaky")
    assert np.all(np.isfinite(found.expertise.log_likelihood)) and np.all(found.expertise.bias >= 0)
    obs = demonstrations().obs[:50]
    best, _ = found.policy.predict(obs, deterministic=True)
    one, _ = found.policy.predict(obs[3], deterministic=True)
    drawn, _ = found.policy.predict(obs, seed=1)
    np.testing.assert_allclose(best[3], one, rtol=5e-7)  # to rounding
    assert best.shape == (50, 1) and not np.array_equal(best, drawn)
    assert np.abs(drawn).max() <= np.abs(found.policy.members.head.half).max()
    assert np.corrcoef(best[:, 0], -obs[:, -1])[0, 1] > 0.9
    summary = found.summary()
    assert summary["members"] == 2 and json.dumps(summary)


def test_a_policy_is_saved_and_loaded_by_what_the_file_says(found, tmp_path):
    path, obs = tmp_path / "policy.safetensors", demonstrations().obs[:5]
    found.policy.save(path)
    again = load_policy(path)
    assert isinstance(again, EnsemblePolicy) and again.actions == found.policy.actions
    np.testing.assert_array_equal(again.predict(obs, True)[0], found.policy.predict(obs, True)[0])
    action = np.zeros((5, 1), np.float32)
    np.testing.assert_array_equal(again.log_likelihood(obs, action), found.policy.log_likelihood(obs, action))
    broken = bytearray(path.read_bytes())
    path.write_bytes(bytes(broken[: len(broken) // 2]))
    with pytest.raises(DataError, match="a saved policy"):
        load_policy(path)


def test_bounds_are_the_environments_or_come_from_the_data():
    within = demonstrations(scale=0.3)
    within = dataclasses.replace(within, action=np.clip(within.action, -0.9, 0.9))
    assert check(within, OfflineIrleed.continuous(), None, 1) == Bounds([-1.0], [1.0])
    beyond = check(demonstrations(), OfflineIrleed.continuous(), None, 1)
    assert beyond.low < demonstrations().action.min() and beyond.high > demonstrations().action.max()


@pytest.mark.parametrize(
    ("change", "algorithm", "message"),
    [
        ({"action": np.ones((240, 1), np.float32)}, OfflineIrleed.continuous(), "1 in all of them as number 0"),
    ],
    ids=["constant"],
)
def test_what_cannot_be_fitted_is_refused(change, algorithm, message):
    with pytest.raises(SpaceError, match=message):
        check(dataclasses.replace(demonstrations(), **change), algorithm, None, 1)


def test_actions_are_held_against_the_environment():
    """By how much they are out of bounds is said, and clipping offered; other dimensions and choices are refused."""
    backend, data = HostBackend("Pendulum-v1"), demonstrations()
    try:
        assert check(data, SacIrleed(), backend, 1) == Bounds([-2.0], [2.0])
        wild = dataclasses.replace(data, action=np.where(np.arange(240)[:, None] == 7, 2.5, data.action))
        with pytest.raises(SpaceError, match=r"number 0 out of bounds by 0.5.*--clip"):
            check(wild, SacIrleed(), backend, 1)
        assert check(clipped(wild, backend.actions), SacIrleed(), backend, 1) == Bounds([-2.0], [2.0])
        with pytest.raises(SpaceError, match="2 numbers each, expected 1 numbers"):
            check(dataclasses.replace(data, action=np.repeat(data.action, 2, 1) * [1, 0.5]), SacIrleed(), backend, 1)
        choices = dataclasses.replace(data, action=(data.action[:, 0] > 0).astype(np.int32))
        with pytest.raises(SpaceError, match="one whole number each, expected 1 numbers"):
            check(choices, OfflineIrleed(), backend, 1)
    finally:
        backend.close()


def test_the_algorithm_suits_the_actions():
    make = functools.partial(network_algorithm, continuous=True)
    assert make() == OfflineIrleed.continuous() and make("iq") == OfflineIrleed.continuous(**IQ_LEARN)
    assert make(online=True) == SacIrleed() and make("iq", online=True) == SacIrleed.iq()
    assert make(online=True, ends="failure") == SacIrleed(ends="failure")
    assert make("bc") == BehaviourCloning.continuous() and make("ileed") == Ileed.continuous()


def test_agents_play_and_are_tried():
    agent = SacIrleed(hidden=(8,), steps=60, batch_size=8, buffer_size=60, learning_starts=20)
    backend = HostBackend("Pendulum-v1")
    try:
        found = fit_networks(demonstrations(), agent, backend=backend, members=2)
    finally:
        backend.close()
    assert [row.who for row in found.returns][:2] == ["policy, greedy actions", "policy, sampled actions"]
    assert all(np.isfinite(row.mean) for row in found.returns)


def test_the_command_fits_and_what_it_wrote_can_be_curated(tmp_path, capsys):
    data = demonstrations()
    save(data, tmp_path / "data.npz")
    main(["fit", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"), "--steps", "300", "--members", "2"])
    assert "steady" in capsys.readouterr().out
    weights = curate(data, tmp_path / "run")
    steady = weights.weight[weights.owner == 0].mean()
    assert steady > weights.weight[weights.owner == 1].mean()
    for algorithm in ("bc", "ileed", "iq"):
        main(["fit", str(tmp_path / "data.npz"), "--steps", "20", "--members", "1", "--algorithm", algorithm])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ends", "failure"], "--ends: got failure, expected no such setting with continuous actions and no --env"),
        (["--env", "CartPole-v1"], "expected (4,), the environment's"),
        (["--env", "Pendulum-v1", "--algorithm", "sqil", "--steps", "600"], "Sqil, which is for one whole number each"),
    ],
)
def test_the_command_refuses_in_one_line(options, message, tmp_path, capsys):
    save(demonstrations(), tmp_path / "data.npz")
    with pytest.raises(SystemExit, match="2"):
        main(["fit", str(tmp_path / "data.npz"), *options])
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_the_policy_that_plays_is_the_one_that_predicts(found):
    obs = demonstrations().obs[:4]
    played = [found.policy.actor.act(jax.random.key(0), each, greedy=True) for each in obs]
    np.testing.assert_allclose(played, found.policy.predict(obs, deterministic=True)[0], rtol=1e-5)
