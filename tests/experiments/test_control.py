"""The control experiment goes on where it was stopped, and takes nothing from a run with other settings."""

import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed.algorithms.iq import OfflineIrleed
from irleed.algorithms.training import train_all
from irleed.data import load
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.transitions import Transitions, stack
from irleed.envs.jax import CartPole
from irleed.errors import ConfigError
from irleed.experiments import control
from irleed.experiments.control import protocol
from irleed.experiments.control.protocol import TASKS, Lanes, Outcome, best_third, learn
from irleed.rollout import DeviceBackend, greedy_action, make_backend

pytestmark = pytest.mark.optax


@pytest.fixture
def config(tmp_path) -> control.ControlConfig:
    """Far too short to learn anything."""
    few = {"seeds": 1, "steps": 20, "online_steps": 505, "episodes": 2, "workers": 1}
    return control.ControlConfig(
        tmp_path, tasks=("cartpole",), settings=("LL",), methods=("bc", "bc_best", "sqil"), **few
    )


def sweep(config: control.ControlConfig) -> tuple[Outcome, list[tuple[int, int]]]:
    told = []
    (outcome,) = control.sweep(config, lambda *both: told.append(both))
    return outcome, told


def test_an_interrupted_experiment_goes_on(config, monkeypatch):
    """With the method that it had not come to; the next time nothing is left to do, and the answer is the same."""
    learn, learnt = protocol.learn, []

    def counted(key, backend, method, *rest):
        if len(learnt) == 2:
            learnt.append("interrupted")
            raise KeyboardInterrupt
        learnt.append(type(method).__name__)
        return learn(key, backend, method, *rest)

    monkeypatch.setattr(protocol, "learn", counted)
    with pytest.raises(KeyboardInterrupt):
        sweep(config)
    first, told = sweep(config)
    assert learnt == ["BehaviourCloning", "BehaviourCloning", "interrupted", "Sqil"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert first.returns.shape == (1, 1, 3) and first.lanes["sqil"].log_precision.shape == (1, 1, 3)

    def nothing(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(protocol, "learn", nothing)
    monkeypatch.setattr(protocol, "play_data", nothing)
    again, _ = sweep(config)
    np.testing.assert_array_equal(again.returns, first.returns)
    for name, lanes in first.lanes.items():
        for one, other in zip(jax.tree.leaves(lanes), jax.tree.leaves(again.lanes[name]), strict=True):
            np.testing.assert_array_equal(one, other)
    assert again.seconds["sqil"] == first.seconds["sqil"] > 0 and again.seconds["data"] == first.seconds["data"] > 0
    assert [path.name for path in sorted((config.out / "parts").iterdir())] == [
        f"cartpole-{name}.npz" for name in ("bc", "bc_best", "demonstrations", "returns", "sqil")
    ]
    with pytest.raises(ConfigError, match="got steps 20, expected steps 21"):
        sweep(dataclasses.replace(config, steps=21))


def test_demonstrations_are_kept_as_they_were(config):
    """Several settings and seeds, put together in one file that anyone can read, and taken apart again."""
    config = dataclasses.replace(config, settings=("LL", "HL"), seeds=2)
    task, folder = TASKS["cartpole"], config.out / "parts"
    with contextlib.closing(make_backend(task.env_id, 1)) as backend:
        made, kept = (protocol.make_data(jax.random.key(3), config, task, backend)[0] for _ in range(2))
    for one, other in zip(jax.tree.leaves(made), jax.tree.leaves(kept), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    names = load(folder / "cartpole-demonstrations.npz").names
    assert len(names) == 12 and names[:4] == ("LL 0 0", "LL 0 1", "LL 0 2", "LL 1 0") and names[-1] == "HL 1 2"


def test_what_a_part_depends_on(config):
    """Every setting of the method, those of what it is made of too; not how many processes there are."""
    task = TASKS["cartpole"]
    base = config.fingerprint(task, "irleed_online")
    assert {"penalty", "bias_learning_rate", "replay_fraction", "LL", "runs", "seed", "every", "episodes"} <= set(base)
    assert base["steps"] == "505" and config.fingerprint(task, "irleed") != base
    assert dataclasses.replace(config, workers=7).fingerprint(task, "irleed_online") == base
    for change in ({"seed": 1}, {"seeds": 2}, {"every": 2}, {"episodes": 3}, {"settings": ("HL",)}, {"quick": True}):
        assert dataclasses.replace(config, **change).fingerprint(task, "irleed_online") != base
    more = dataclasses.replace(config, members=2, demonstrations=7)
    assert more.fingerprint(task, "irleed_online") == base, "members are of what learns offline"
    assert more.fingerprint(task, "irleed")["members"] == 2
    (asked,) = more.chosen_tasks
    assert asked == dataclasses.replace(task, episodes=7) and more.fingerprint(asked, "irleed_online") != base
    lander = TASKS["lunarlander"]
    plainer = dataclasses.replace(lander, bias=task.bias)
    assert config.fingerprint(lander, "iq") != config.fingerprint(plainer, "iq"), "what biases are, too"


def _by_the_mean(members, key, obs):
    log_policy = [jax.nn.log_softmax(jax.tree.map(lambda leaf, k=k: leaf[k], members)(obs).logits) for k in range(3)]
    return jnp.argmax(sum(log_policy)).astype(jnp.int32)


def test_members_act_by_the_mean_of_their_log_probabilities():
    """Those that learnt from one data set, and no other; and their precisions are averaged."""
    task, backend = dataclasses.replace(TASKS["cartpole"], episodes=2), DeviceBackend(CartPole())
    method = OfflineIrleed(hidden=(8,), steps=30, learning_rate=3e-2)
    shown, _ = protocol.play_data(jax.random.key(0), task, backend, task.settings[:1], 2)
    assert [own.episodes for own in shown] == [6, 6]
    data, key = stack([Transitions.from_demonstrations(own) for own in shown]), jax.random.key(1)
    found = learn(key, backend, method, data, 5, members=3)
    train_key, greedy_key, _ = jax.random.split(key, 3)
    own = jax.tree.map(lambda leaf: np.repeat(leaf, 3, 0), data)
    state, _ = train_all(method, jax.random.split(train_key, 6), own, 2, 3)

    runs = jax.vmap(method.policy)(state.parameters)
    three = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), runs)
    expected = backend.returns(greedy_key, three, _by_the_mean, 5).mean(1)
    np.testing.assert_allclose(found.greedy, expected)
    assert np.ptp(backend.returns(greedy_key, runs, greedy_action, 5).mean(1)) > 0
    precision = np.asarray(jax.vmap(method.log_precision)(state.parameters, own)).reshape(2, 3, 3)
    np.testing.assert_allclose(found.log_precision, precision.mean(1), rtol=1e-6)
    assert found.diverged.tolist() == [-1, -1]


def test_the_best_third_is_that_of_the_returns():
    episodes = [
        Episode(obs=np.zeros((n + 1, 1), np.float32), action=np.zeros(n, int), terminated=True, demonstrator=n % 2,
                reward=np.full(n, 1.0, np.float32))
        for n in (3, 9, 1, 5, 7, 2)
    ]  # fmt: skip
    best = best_third(Demonstrations.from_episodes(episodes))
    assert np.asarray(best.length).tolist() == [9, 7]


def test_a_run_that_diverged_is_told_and_spoils_no_file(config):
    """Its precisions are no numbers, and those of a run that has learnt nothing are all alike: neither has an order."""
    config = dataclasses.replace(config, seeds=3)
    three = np.array([[1.0, 2.0, 3.0]], np.float32)
    lanes = Lanes(
        greedy=three,
        sampled=three,
        log_precision=np.array([[[0.0, 0.0, 0.0], [np.nan] * 3, [-1.0, 0.0, 1.0]]], np.float32),
        diverged=np.array([[-1, 7, -1]], np.int32),
    )
    returns = np.array([[[10.0, 20.0, 30.0]] * 3], np.float32)
    outcome = Outcome(TASKS["cartpole"], returns, {"irleed": lanes, "bc": lanes}, {"data": 1.0})
    control.write(config, [outcome])
    summary = json.loads((config.out / "results.json").read_text())["summary"]
    assert summary["cartpole_irleed_precision_rank_correlation_LL"] == 1 and summary["cartpole_diverged_bc"] == 1
    assert summary["cartpole_irleed_minus_bc_LL"] == [0, 0, 0]
    told = control.diverged([outcome])
    assert len(told) == 2 and "irleed: 1 runs diverged, the first in setting 0, data set 1, step 7" in told[0]
