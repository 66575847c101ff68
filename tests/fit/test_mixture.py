"""Episodes grouped into people: those who differ are told apart, and it is said where there are fewer."""

import json

import numpy as np
import pytest

import irleed
from irleed.data import Demonstrations, Episode, ReadOptions, save
from irleed.envs.mdp import FiniteMDP
from irleed.errors import ConfigError, DataError
from irleed.fit import mixture
from irleed.runs.reader import read_fit

pytestmark = pytest.mark.optax
LEFT_RIGHT = (0.95, 0.05, 0.5)  # how often each one does what leads to the middle


def walks(habits, episodes=6, length=30, seed=0, vectors=False):
    """A line to be driven to its middle; people take turns, and a habit is the probability of the right action."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(episodes):
        for who, habit in enumerate(habits):
            place, obs, actions = rng.uniform(-1, 1), [], []
            for _ in range(length):
                obs.append([place, 1.0])
                if vectors:
                    action = np.clip(-0.4 * place + habit + 0.1 * rng.normal(), -1, 1)
                    actions.append([action])
                    place = float(np.clip(place + 0.5 * action, -1.5, 1.5))
                else:
                    right = int(place < 0)
                    actions.append(right if rng.random() < habit else 1 - right)
                    place = float(np.clip(place + (0.2 if actions[-1] else -0.2) + 0.05 * rng.normal(), -1.5, 1.5))
            obs.append([place, 1.0])
            action = np.array(actions, np.float32) if vectors else np.array(actions)
            made.append(Episode(np.array(obs, np.float32), action, False, f"{who}"))
    return Demonstrations.from_episodes(made)


def right(found, data):
    """The share of episodes that are the right person's; people are numbered by their first episodes."""
    return (found.owner == data.owner).mean()


def nameless(data):
    return data.by_owner(np.zeros(data.episodes, int), ("everyone",))


@pytest.fixture(scope="module", autouse=True)
def small():
    """Fewer widths and shorter training, for time's sake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "WIDTHS", (0.1, 0.6))
        patch.setattr(mixture, "SHARED", {"hidden": (16,), "steps": 1_000, "batch_size": 64, "anneal_lr": False})
        yield


@pytest.fixture(scope="module")
def three():
    data = walks(LEFT_RIGHT)
    return data, mixture.of_networks(nameless(data), 3)


def test_people_who_differ_are_told_apart(three):
    data, found = three
    assert right(found, data) >= 0.9
    assert found.names == ("person 1", "person 2", "person 3")
    np.testing.assert_allclose(found.probability.sum(1), 1, rtol=1e-5)
    assert found.probability.max(1).mean() > 0.9
    assert not any("do not support" in warning for warning in found.warnings)


def test_fewer_people_explain_less(three):
    _, found = three
    assert list(found.log_likelihood) == ["1", "2", "3"]
    one, two, three_of_them = found.log_likelihood.values()
    assert one < two - 10 < three_of_them - 15


def test_too_many_people_are_doubted():
    found = mixture.of_networks(nameless(walks((0.8, 0.8))), 3)
    assert any("do not support 3 people" in warning for warning in found.warnings)


def test_vectors_of_people_with_an_offset():
    data = walks((0.0, 0.2), vectors=True)
    found = mixture.of_networks(nameless(data), 2)
    assert right(found, data) >= 0.9


def corridor():
    """Seven states in a row, with a step to either side."""
    states = np.repeat(np.arange(7), 2)
    action = np.tile([0, 1], 7)
    after = np.clip(states + 2 * action - 1, 0, 6)
    return FiniteMDP.from_transitions(
        states, action, after, np.ones(14), actions=2, initial=np.full(7, 1 / 7), discount=0.9
    )


def in_corridor(chances, episodes=8, length=12, seed=0):
    rng, made = np.random.default_rng(seed), []
    for _ in range(episodes):
        for who, chance in enumerate(chances):
            state, actions = [int(rng.integers(7))], []
            for _ in range(length):
                actions.append(int(rng.random() < chance))
                state.append(int(np.clip(state[-1] + 2 * actions[-1] - 1, 0, 6)))
            made.append(Episode(np.array(state), np.array(actions), False, f"{who}"))
    return Demonstrations.from_episodes(made)


def test_in_an_mdp_people_are_told_apart_by_what_they_pursue():
    data, mdp = in_corridor((0.95, 0.05)), corridor()
    found = irleed.fit(nameless(data), mdp, demonstrators=2)
    assert found.people is not None
    assert right(found.people, data) >= 0.9
    assert found.expertise.names == ("person 1", "person 2")


def test_one_person_and_as_many_as_episodes():
    data = nameless(walks((1.0, 0.0), episodes=2))
    assert mixture.of_networks(data, 1).names == ("person 1",)
    found = mixture.of_networks(data, 4)
    assert found.probability.shape[0] == 4 and len(found.names) == found.probability.shape[1] <= 4


def test_the_same_seed_gives_the_same_people():
    data = nameless(walks((1.0, 0.3), episodes=3))
    first, again = (mixture.of_networks(data, 2, seed=3).probability for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grouped")
    data = walks(LEFT_RIGHT)
    save(nameless(data), folder / "data.npz")
    given = {"algorithm": "bc", "steps": 20, "members": 1, "demonstrators": 3, "out": folder / "run"}
    return data, folder, irleed.fit(folder / "data.npz", **given)


def test_a_run_keeps_the_probabilities(run):
    _, folder, found = run
    answer = json.loads((folder / "run" / "fit.json").read_text())
    assert np.shape(answer["people"]["probability"]) == (18, 3)
    assert answer["config"]["demonstrators"] == "3"
    kept = read_fit(folder / "run").grouping
    assert kept is not None
    np.testing.assert_array_equal(kept.owner, found.people.owner)
    page = (folder / "run" / "report.html").read_text()
    assert "How certain it is who acted" in page and "--demonstrators 3" in page


@pytest.mark.parametrize("by_folder", [True, False])
def test_curate_weighs_the_episodes_of_the_people_that_were_found(run, by_folder):
    _, folder, found = run
    curated = irleed.curate(folder / "data.npz", folder / "run" if by_folder else found)
    assert [row["operator"] for row in curated.rows()] == [f"person {who + 1}" for who in found.people.owner]
    assert [row["probability of person 2"] for row in curated.rows()] == found.people.probability[:, 1].tolist()


def test_validate_knows_the_people_that_were_found(run):
    _, folder, _ = run
    scores = {f"person {number}": float(number) for number in (1, 2, 3)}
    assert irleed.validate(folder / "run", scores, out=None).names == ("person 1", "person 2", "person 3")


def test_damaged_probabilities_are_refused(run, tmp_path):
    _, _, found = run
    found.save(tmp_path / "run")
    path = tmp_path / "run" / "fit.json"
    answer = json.loads(path.read_text())
    answer["people"]["probability"][0] = [0.5, 0.5, 7]
    answer.pop("checksum", None)
    path.write_text(json.dumps(answer))
    with pytest.raises(DataError, match="probability"):
        read_fit(tmp_path / "run")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"demonstrators": 19}, "--demonstrators: got 19, expected 1 to 18, the number of episodes"),
        ({"demonstrators": 0}, "expected 1 or more"),
        ({"demonstrators": 2, "reading": ReadOptions(demonstrator="episode")}, "--demonstrator episode"),
        ({"demonstrators": 2, "env": "CartPole-v1"}, "--no-online"),
    ],
)
def test_numbers_of_people_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ConfigError, match=said):
        irleed.fit(walks(LEFT_RIGHT), **given)
