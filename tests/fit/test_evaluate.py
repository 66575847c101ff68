"""`irleed evaluate`: returns of policies of every kind; environments that do not suit are refused in one line."""

import json
import sys

import jax
import numpy as np
import pytest

import irleed
from irleed.algorithms.iq import OfflineIrleed, SacIrleed
from irleed.cli import main
from irleed.envs.jax import CartPole
from irleed.rollout import HostBackend, greedy_action

pytestmark = pytest.mark.optax

POLE = OfflineIrleed(hidden=(4,), steps=3)


def episodes(shape: int, vectors: bool = False) -> irleed.Demonstrations:
    """Noise, by two, with a reward of 1 a step."""
    random = np.random.default_rng(0)
    shown = []
    for number in range(4):
        action = random.uniform(-2, 2, (5, 1)).astype(np.float32) if vectors else random.integers(0, 2, 5)
        obs = random.normal(size=(6, shape)).astype(np.float32)
        shown.append(irleed.Episode(obs, action, True, "ab"[number % 2], np.ones(5)))
    return irleed.Demonstrations.from_episodes(shown)


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    """A run of networks that never saw an environment."""
    folder = tmp_path_factory.mktemp("pole") / "run"
    with jax.numpy_dtype_promotion("standard"):
        return folder, irleed.fit(episodes(4), algorithm=POLE, members=2, out=folder)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A run of tables, on a lake that is not slippery."""
    folder, world = tmp_path_factory.mktemp("lake"), irleed.from_gymnasium("FrozenLake-v1", 0.95, is_slippery=False)
    data, _ = irleed.simulate(0, world, demonstrators=2, demonstrations=5, max_precision=9.0)
    irleed.fit(data, world, out=folder / "run")
    return folder / "run"


def test_a_policy_learnt_offline_is_evaluated_as_it_acts(pole):
    """A folder and a fit are the same; demonstrators stand beside; returns are those of the environment by hand."""
    folder, fit = pole
    rows = irleed.evaluate(folder, "CartPole-v1", episodes=4, seed=3)
    assert [row.who for row in rows] == ["policy, greedy actions", "policy, sampled actions", "a", "b"]
    assert irleed.evaluate(fit, "CartPole-v1", episodes=4, seed=3) == rows
    assert irleed.evaluate(fit, "CartPole-v1", episodes=4, seed=4) != rows
    assert [row.episodes for row in rows] == [4, 4, 2, 2] and [row.mean for row in rows[2:]] == [5.0, 5.0]
    backend = HostBackend("CartPole-v1")
    actor = jax.tree.map(lambda leaf: np.asarray(leaf)[None], fit.policy.actor)
    earned = backend.returns(jax.random.fold_in(jax.random.key(3), 0), actor, greedy_action, 4)
    backend.close()
    assert rows[0].mean == earned.mean() and rows[0].low < rows[0].mean < rows[0].high


def test_an_environment_in_jax_does_too(pole):
    rows = irleed.evaluate(pole[1], CartPole(), episodes=3)
    assert all(1 < row.mean <= 500 for row in rows[:2])


def test_actions_are_clipped_where_the_environment_has_narrower_bounds():
    """A policy learnt offline has bounds a little wider than the data."""
    fit = irleed.fit(episodes(3, vectors=True), algorithm=OfflineIrleed.continuous(hidden=(4,), steps=3), members=2)
    assert fit.policy.actions.high > 2
    rows = irleed.evaluate(fit, "Pendulum-v1", episodes=2)
    assert all(-2000 < row.mean < 0 for row in rows[:2])


def test_one_learnt_in_an_environment_is_evaluated_like_any_other(tmp_path):
    agent = SacIrleed(hidden=(4,), steps=40, batch_size=4, buffer_size=40, learning_starts=20)
    fit = irleed.fit(episodes(3, vectors=True), env="Pendulum-v1", clip=True, algorithm=agent, members=1)
    assert [row["step"] for row in fit.history] == [40] and np.isfinite(fit.history[0]["loss"])
    rows = irleed.evaluate(fit, "Pendulum-v1", episodes=2)
    assert all(-2000 < row.mean < 0 for row in rows[:2])


def test_tables_act_where_observations_are_their_states(lake, capsys):
    """Returns are the chance to reach the goal: exactly that of the table, to the error of the mean."""
    main(["evaluate", str(lake), "--env", "FrozenLake-v1", "--episodes", "200", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["env"] == "FrozenLake-v1" and [row["episodes"] for row in found["returns"][:2]] == [200, 200]
    table = np.asarray(irleed.load_policy(lake / "policy.safetensors").probabilities)
    state, action, successor, chance = irleed.from_gymnasium("FrozenLake-v1", 0.95).transitions()
    dense = np.zeros((16, 4, 16))
    dense[state, action, successor] = chance
    for row, policy in zip(found["returns"], (np.eye(4)[table.argmax(-1)], table), strict=False):
        here = np.eye(16)[0]
        for _ in range(100):
            here = np.einsum("s,sa,sat->t", here, policy, dense)
        goal = here[15]
        assert abs(row["mean"] - goal) < 4 * max(np.sqrt(goal * (1 - goal) / 200), 0.01)
    main(["evaluate", str(lake), "--env", "FrozenLake-v1", "--episodes", "2"])
    assert "policy, greedy actions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN", "--env", "NoSuchPole-v1"], "environment NoSuchPole-v1: got NameNotFound"),
        (["RUN", "--env", "ALE/Pong-v5"], "pip install 'irleed[envs]'"),
        (
            ["RUN", "--env", "Acrobot-v1"],
            "Acrobot-v1: got shape (6,), expected shape (4,), the policy's",
        ),
        (["RUN", "--env", "FrozenLake-v1"], "observations of FrozenLake-v1: got shape (16,)"),
        (["LAKE", "--env", "CartPole-v1"], "observations of CartPole-v1: got shape (4,), expected the numbers of 16"),
        (["nowhere", "--env", "CartPole-v1"], "nowhere: got nothing, expected a run directory"),
        (["RUN", "--env", "CartPole-v1", "--episodes", "0"], "--episodes: got 0, expected 1 or more"),
    ],
)
def test_what_does_not_suit_is_refused_in_one_line(pole, lake, words, said, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed
    places = {"RUN": str(pole[0]), "LAKE": str(lake)}
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", *(places.get(word, word) for word in words)])
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_other_actions_are_refused(pole):
    with pytest.raises(irleed.SpaceError, match="actions of .*: got 1 numbers each, expected 2 choices, the policy's"):
        irleed.evaluate(irleed.fit(episodes(3), algorithm=POLE, members=1), "Pendulum-v1")
