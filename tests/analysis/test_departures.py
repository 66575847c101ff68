"""Where demonstrators depart from the shared policy: by hand, even samples, frames, and the projection."""

import json
from base64 import b64decode

import matplotlib.image
import numpy as np
import pytest

from irleed.analysis.departures import APART, TOP, departures, frame, write
from irleed.data import Demonstrations, Episode
from irleed.data.transitions import Inputs
from irleed.model.actions import Softmax
from irleed.model.networks import Mlp
from irleed.policies.base import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy

SLOPE = 2.0


def policy() -> EnsemblePolicy:
    """Two actions; of the first number of an observation, x, action 1 has log odds of 2 x."""
    inputs = Inputs(np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32))
    weight = np.array([[[0.0, SLOPE], [0.0, 0.0]]], np.float32)
    network = Mlp(inputs=inputs, weights=(weight,), offsets=(np.zeros((1, 2), np.float32),), activation="relu")
    return EnsemblePolicy(Actor(network, Softmax(np.ones(1, np.float32))))


def shown(steps: int = 40, people: int = 2) -> Demonstrations:
    """The first does what is likelier, the others what is less likely."""
    random = np.random.default_rng(0)
    episodes = []
    for n in range(2 * people):
        obs = random.normal(size=(steps + 1, 2)).astype(np.float32)
        likelier = (obs[:-1, 0] > 0).astype(np.int64)
        episodes.append(Episode(obs, likelier if n % people == 0 else 1 - likelier, True, n % people, np.ones(steps)))
    return Demonstrations.from_episodes(episodes, [f"person {n}" for n in range(people)])


def by_hand(x: np.ndarray, action: np.ndarray) -> np.ndarray:
    """-log pi(a|s) - H(pi(.|s))."""
    one = 1 / (1 + np.exp(-SLOPE * x))
    both = np.stack([1 - one, one], -1)
    return -np.log(both[np.arange(len(x)), action]) + (both * np.log(both)).sum(-1)


def test_departures_are_surprise_beyond_the_usual():
    data = shown()
    found = departures(data, policy())
    x = np.asarray(data.observation, float)[:, 0]
    wanted = by_hand(x, np.asarray(data.action))
    mean = [wanted[data.demonstrator == who].mean() for who in (0, 1)]
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-5)
    assert mean[0] < 0 < mean[1] and [someone["who"] for someone in found["people"]] == [1, 0]
    first = found["people"][0]["situations"][0]
    own = np.flatnonzero(data.demonstrator == 1)
    at = own[wanted[own].argmax()]
    assert (first["episode"], first["step"]) == (data.episode[at], at - data.start[data.episode[at]])
    np.testing.assert_allclose(first["departure"], wanted[at], rtol=1e-5)
    assert first["action"] == data.action[at] == 1 - first["likeliest"]
    np.testing.assert_allclose(first["probability"] + first["likeliest_probability"], 1, rtol=1e-6)
    np.testing.assert_allclose(first["observation"], data.observation[at])


def test_situations_are_of_different_moments():
    for someone in departures(shown(), policy())["people"]:
        moments = [(situation["episode"], situation["step"]) for situation in someone["situations"]]
        assert len(moments) <= TOP
        for n, (episode, step) in enumerate(moments):
            assert all(episode != other or abs(step - then) >= APART for other, then in moments[:n])


def test_points_are_few_even_and_projected():
    data = shown(steps=1000, people=3)
    found = departures(data, policy())
    who, place = np.array(found["points"]["who"]), np.array(found["points"]["place"])
    assert np.bincount(who).tolist() == [200, 200, 200] and place.shape == (600, 2)
    # Two independent numbers of the same spread: each component has half, and none is lost.
    np.testing.assert_allclose(found["explained"], [0.5, 0.5], atol=0.1)
    assert found == departures(data, policy()), "the same each time"


def test_people_beyond_what_is_looked_at_have_no_mean_of_nothing(monkeypatch):
    monkeypatch.setattr("irleed.analysis.departures.MOST_LOOKED_AT", 2)
    found = departures(shown(people=3), policy())
    assert len(found["mean"]) == 3 and np.isfinite(found["mean"]).all()


@pytest.mark.parametrize(
    "observation,picture",
    [
        (np.arange(48, dtype=np.uint8).reshape(4, 4, 3), lambda o: o),
        (np.arange(300).astype(np.uint8).reshape(3, 10, 10), lambda o: o.transpose(1, 2, 0)),
        (np.arange(16, dtype=np.uint8).reshape(4, 4), lambda o: o),
        (np.arange(64, dtype=np.uint8).reshape(4, 4, 4), lambda o: o[..., -1]),
        (np.arange(400).astype(np.uint8).reshape(4, 10, 10), lambda o: o[-1]),
        (np.zeros((200, 100, 3), np.uint8), lambda o: o[::3, ::3]),
        (np.zeros((8, 8, 3), np.float32), None),
        (np.zeros((4, 8, 8, 3), np.uint8), None),
        (np.zeros((9, 8, 8), np.uint8), None),
        (np.zeros(4, np.uint8), None),
    ],
)
def test_frames_of_images_alone(observation, picture, tmp_path):
    found = frame(observation)
    if picture is None:
        assert found is None
        return
    assert found is not None
    (tmp_path / "frame.png").write_bytes(b64decode(found.split(",")[1]))
    read = (matplotlib.image.imread(tmp_path / "frame.png") * 255).round().astype(np.uint8)
    np.testing.assert_array_equal(read, picture(observation).squeeze())


def test_what_is_written_beside_a_fit(tmp_path):
    data = shown()
    write(tmp_path, data, policy())
    found = json.loads((tmp_path / "data.json").read_text())
    assert found["facts"]["episodes"] == 4 and [row["who"] for row in found["returns"]] == ["person 0", "person 1"]
    assert json.loads((tmp_path / "departures.json").read_text())["looked_at"] == data.transitions
    (tmp_path / "table").mkdir()
    write(tmp_path / "table", data, TabularPolicy(np.full((2, 2), 0.5)))
    assert not (tmp_path / "table" / "departures.json").exists()
