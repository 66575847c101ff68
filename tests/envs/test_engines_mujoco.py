"""The engine mujoco does what Gymnasium's environments do, to the last bit, and leaves nothing behind."""

import sys

import gymnasium
import numpy as np
import pytest

pytest.importorskip("mujoco.batch")

from irleed.envs.engines import TASKS, mujoco_lanes
from irleed.envs.host import make_host
from irleed.envs.step import Bounds
from irleed.errors import ConfigError

LANES, CLOCK = 5, 40


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Gymnasium's models have MuJoCo write a log where one works."""
    monkeypatch.chdir(tmp_path)


def refusal(*arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        make_host(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def answers(engine, steps: int):
    """Everything that an engine says: two beginnings with a seed and without, many steps, then a beginning again."""
    generator, space = np.random.default_rng(0), engine.single_action_space
    seen = [engine.reset(seed=7)[0].copy(), engine.reset()[0].copy()]
    for _ in range(steps):
        actions = generator.uniform(space.low, space.high, (LANES, *space.shape)).astype(np.float32)
        obs, reward, terminated, truncated, info = engine.step(actions)
        over = np.flatnonzero(terminated | truncated)
        seen += [obs.copy(), reward.copy(), terminated.copy(), truncated.copy(), over]
        seen += [np.array(info["final_obs"][lane]) for lane in over]
    seen += [engine.reset()[0].copy(), engine.reset(seed=1)[0].copy()]
    engine.close()
    return seen


@pytest.mark.parametrize("env_id", TASKS)
def test_every_step_is_gymnasiums(env_id):
    """Observations, rewards and ends, over episodes that end by the task (where it can) and by the clock."""
    ours = mujoco_lanes(env_id, LANES, 2, {"max_episode_steps": CLOCK})
    theirs = gymnasium.make_vec(env_id, LANES, "sync", {"autoreset_mode": "SameStep"}, max_episode_steps=CLOCK)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    seen, expected = answers(ours, 300), answers(theirs, 300)
    for one, other in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    flags = [part for part in seen if part.dtype == bool]
    terminated, truncated = np.array(flags[::2]), np.array(flags[1::2])
    assert terminated.any() == (env_id != "HalfCheetah-v5") and truncated.any()
    assert (terminated | truncated).sum() > 10


def test_an_episode_has_a_thousand_steps(tmp_path):
    """As Gymnasium has them registered; and what MuJoCo thinks of the model is written nowhere."""
    for env_id in TASKS:
        assert gymnasium.spec(env_id).max_episode_steps == 1000
    host = make_host("HalfCheetah-v5", 2, "mujoco", workers=1)
    truncated = [host.step(np.zeros((2, 6), np.float32)).truncated for _ in range(1001)]
    assert np.flatnonzero(np.any(truncated, 1)).tolist() == [999] and truncated[999].all()
    host.close()
    assert not list(tmp_path.iterdir())


def test_steps_are_canonical_and_the_same_with_any_number_of_threads():
    """What follows the end of an episode is not taken for its last sight."""
    hosts = [make_host("Hopper-v5", 4, "mujoco", seed=3, workers=threads) for threads in (0, 1, 3)]
    assert isinstance(hosts[0].actions, Bounds) and hosts[0].observation_shape == (11,)
    generator, ends = np.random.default_rng(1), 0
    for _ in range(80):
        actions = generator.uniform(-1, 1, (4, 3)).astype(np.float32)
        steps = [host.step(actions) for host in hosts]
        for other in steps[1:]:
            np.testing.assert_array_equal(steps[0].next_obs, other.next_obs)
        over = steps[0].terminated
        ends += over.sum()
        np.testing.assert_array_equal(hosts[0].obs[~over], steps[0].next_obs[~over])
        assert (np.abs(hosts[0].obs[over][:, 5:]) <= 5e-3 + 1e-9).all()  # slow again, as a beginning is
        assert (np.abs(steps[0].next_obs[over][:, 5:]) > 0.01).any(1).all()
    assert ends > 4
    for host in hosts:
        host.close()


@pytest.mark.parametrize(
    "env_id, options, parts",
    [
        ("Humanoid-v5", {}, ("environment Humanoid-v5", "Hopper-v5", "gymnasium")),
        ("Hopper-v5", {"ctrl_cost_weight": 0.0}, ("environment Hopper-v5", "ctrl_cost_weight", "gymnasium")),
        ("Hopper-v5", {"max_episode_steps": 0}, ("environment Hopper-v5", "max_episode_steps")),
        ("Hopper-v5", {"autoreset": "next_step"}, ("autoreset of mujoco", "same_step")),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(env_id, options, parts):
    message = refusal(env_id, 2, "mujoco", **options)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("absent", ["mujoco", "mujoco.batch"])
def test_a_missing_or_old_library_is_named(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    assert "irleed[envs]" in refusal("Hopper-v5", 1, "mujoco")
