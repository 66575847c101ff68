"""A film is of the episode that it says it is, and where there can be none, a line says why."""

import io
import json
import sys

import gymnasium
import numpy as np
import pytest
from PIL import Image

from irleed.analysis.recordings import MOST_FRAMES, animated, strip, write
from irleed.data.transitions import Inputs
from irleed.model.actions import Softmax
from irleed.model.networks import Mlp
from irleed.policies.base import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy

pytest.importorskip("pygame")


def balancing() -> EnsemblePolicy:
    """Pushes a cart to where its pole leans and turns."""
    inputs = Inputs(np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32))
    weight = np.array([[[0, 0], [0, 0], [0, 1], [0, 0.5]]], np.float32)
    network = Mlp(inputs=inputs, weights=(weight,), offsets=(np.zeros((1, 2), np.float32),), activation="relu")
    return EnsemblePolicy(Actor(network, Softmax(np.ones(1, np.float32))))


def by_hand(env_id: str, policy: EnsemblePolicy | TabularPolicy, seed: int) -> tuple[int, float]:
    """Steps and return of the same episode, without anything of ours around it."""
    env = gymnasium.make(env_id)
    seen, total, steps, over = env.reset(seed=seed)[0], 0.0, 0, False
    while not over:
        observation = np.asarray(seen, np.float32) if isinstance(policy, EnsemblePolicy) else int(seen)
        action = int(np.asarray(policy.predict(observation, deterministic=True)[0]))
        seen, reward, terminated, truncated, _ = env.step(action)
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    env.close()
    return steps, total


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("seed", [0, 3])
def test_it_is_the_episode_of_that_seed(tmp_path, env_id, seed):
    right = np.tile([0.0, 0.0, 1.0, 0.0], (16, 1))
    policy = balancing() if env_id.startswith("CartPole") else TabularPolicy(right)
    write(tmp_path, env_id, policy, seed)
    told = json.loads((tmp_path / "film.json").read_text())
    assert (told["steps"], told["return"]) == by_hand(env_id, policy, seed)
    with Image.open(tmp_path / "film.webp") as film:
        assert film.n_frames <= told["frames"] == -(-told["steps"] // told["every"]) + 1 <= MOST_FRAMES
        assert max(film.size) == 240
        changed = [_pixels(film, n) for n in (0, film.n_frames - 1)]
    assert np.abs(changed[0] - changed[1]).max() > 100, "it ends elsewhere than it starts"
    with Image.open(tmp_path / "film.png") as still:
        assert still.size[1] == film.size[1] and still.size[0] > film.size[0]


def _pixels(film: Image.Image, n: int) -> np.ndarray:
    film.seek(n)
    return np.asarray(film.convert("RGB"), float)


def test_where_there_can_be_none_a_line_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    write(tmp_path, "CartPole-v1", balancing(), 0)
    assert [path.name for path in tmp_path.iterdir()] == ["film.json"]
    reason = json.loads((tmp_path / "film.json").read_text())["reason"]
    assert "pygame is not installed" in reason and "\n" not in reason


def test_what_is_too_large_is_made_coarser_or_refused(monkeypatch):
    random = np.random.default_rng(0)
    frames = [Image.fromarray(random.integers(0, 256, (64, 64, 3), np.uint8)) for _ in range(6)]
    fine = len(animated(frames))
    monkeypatch.setattr("irleed.analysis.recordings.MOST_BYTES", fine - 1)
    assert len(animated(frames)) < fine
    monkeypatch.setattr("irleed.analysis.recordings.MOST_BYTES", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        animated(frames)
    with Image.open(io.BytesIO(strip(frames[:2]))) as still:
        assert still.size == (64 + 4 + 64, 64)
