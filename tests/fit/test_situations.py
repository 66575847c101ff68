"""Skill by situation: the weak are found where they are weak, and nobody is called weak who is only noisy."""

import numpy as np
import pytest

from irleed import fit, gridworld
from irleed.algorithms.iq import OfflineIrleed
from irleed.data import Demonstrations, Episode
from irleed.errors import ConfigError
from irleed.fit.consensus import situations as alike
from irleed.fit.shrinkage import shrunk
from irleed.fit.situations import Situations, by_situation
from irleed.runs.reader import read_fit

NAMES = "position", "velocity"


def everywhere(random):
    return lambda position, velocity: random


def upwards(position, velocity):
    """Random actions where velocity is positive, and no others."""
    return float(velocity > 0)


def car(random, episodes, seed=0, length=200):
    """MountainCar by people who accelerate in the direction of motion, but for random actions.

    Columns by name, as a judge who knows the task has them: 1 is possible, and a wrong action realises -1/2.
    """
    rng = np.random.default_rng(seed)
    rows, number = [], 0
    for who, (chance, count) in enumerate(zip(random, episodes, strict=True)):
        for _ in range(count):
            position, velocity = rng.uniform(-0.6, -0.4), 0.0
            for _ in range(length):
                best = 2 if velocity >= 0 else 0
                action = rng.integers(3) if rng.random() < chance(position, velocity) else best
                rows.append((position, velocity, 1.0 if action == best else -0.5, who, number))
                velocity = np.clip(velocity + 0.001 * (action - 1) - 0.0025 * np.cos(3 * position), -0.07, 0.07)
                position = np.clip(position + velocity, -1.2, 0.6)
                if position >= 0.5:
                    break
            number += 1
    position, velocity, realised, who, recording = np.array(rows).T
    return {
        "obs": np.stack([position, velocity], 1), "realised": realised, "who": who.astype(int),
        "recording": recording.astype(int),
    }  # fmt: skip


def found(columns, names=NAMES):
    size = len(columns["who"])
    given = {"possible": np.ones(size), "weight": np.ones(size)} | columns
    given = given if "similar" in given else given | {"similar": alike(columns["obs"])}
    return by_situation(**given, features=names)


def kept(columns, chosen):
    return {name: values[chosen] for name, values in columns.items()}


@pytest.fixture(scope="module")
def people():
    return car([everywhere(0.1), everywhere(0.3), upwards, everywhere(0.5), everywhere(0.2)], [10] * 5)


def test_who_is_weak_somewhere_is_found_there(people):
    result = found(people)
    weak = result.supported[2] < 0
    here = np.any([belongs(result.names[place], people["obs"]) for place in np.flatnonzero(weak)], 0)
    assert np.mean(here == (people["obs"][:, 1] > 0)) > 0.97
    assert np.abs(result.skill[2, weak]).max() < 0.3 and (result.skill_high[2, weak] < result.mean[2]).all()
    assert (np.delete(result.supported, 2, 0) == 0).all()
    np.testing.assert_allclose(result.share.sum(), 1.0)


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_weak_are_found_again_and_again(seed):
    result = found(car([everywhere(0.1), upwards, everywhere(0.3), everywhere(0.5)], [10] * 4, seed))
    assert 0.4 < result.share[result.supported[1] < 0].sum() < 0.65
    assert all("velocity" in result.names[place] for place in np.flatnonzero(result.supported[1] < 0))


def test_those_who_differ_in_noise_alone_are_not_called_weak_anywhere():
    cells = [
        found(car([everywhere(p) for p in np.linspace(0.1, 0.7, 5)], [6] * 5, seed)).supported for seed in range(8)
    ]
    assert np.mean(np.concatenate([each.ravel() for each in cells]) != 0) <= 0.05


def test_what_is_harder_for_all_makes_nobody_weak():
    columns = car([everywhere(p) for p in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)], [10] * 6)
    rng = np.random.default_rng(0)
    hard = (columns["obs"][:, 0] < -0.6) & (rng.random(len(columns["who"])) < 0.4)
    columns["realised"] = np.where(hard, rng.choice([1.0, -0.5], len(hard), p=[1 / 3, 2 / 3]), columns["realised"])
    result = found(columns)
    assert (result.supported == 0).all()


def test_ten_transitions_support_nothing(people):
    who, velocity = people["who"], people["obs"][:, 1]
    few = np.flatnonzero((who == 2) & (velocity > 0))[:10]
    result = found(kept(people, np.sort(np.r_[np.flatnonzero(who != 2), few])))
    assert (result.supported[2] == 0).all()


def test_someone_who_has_never_been_there_is_unknown(people):
    never = (people["who"] == 0) & (people["obs"][:, 1] > -0.01)
    result = found(kept(people, ~never))
    unseen = result.transitions[0] == 0
    assert unseen.any() and (result.supported[0, unseen] == 0).all()
    np.testing.assert_allclose(result.skill[0, unseen], result.expected[0, unseen], atol=0.05)
    width = result.skill_high - result.skill_low
    assert width[0, unseen].min() > 2 * np.median(width[1])


def test_a_thousand_still_frames_are_not_a_thousand_decisions():
    columns = car([everywhere(0.2)] * 5, [10] * 5)
    wrong = (columns["who"] == 0) & (columns["realised"] < 0) & (columns["obs"][:, 1] > 0.02)
    frame = np.flatnonzero(wrong)[5]
    still = {name: np.insert(values, [frame] * 1000, values[frame], 0) for name, values in columns.items()}
    assert (found(still).supported == 0).all()


def test_two_who_are_told_apart_where_they_differ(people):
    pair = kept(people, np.isin(people["who"], (1, 2)))
    result = found(pair | {"who": pair["who"] - 1})
    assert (result.supported[0] == 0).all() and (result.supported[1] != 0).any()


def test_the_order_of_demonstrators_makes_no_difference(people):
    order = np.array([3, 0, 4, 1, 2])
    result, other = found(people), found(people | {"who": order[people["who"]]})
    assert result.names == other.names
    np.testing.assert_allclose(result.skill, other.skill[order], atol=1e-8)
    np.testing.assert_array_equal(result.supported, other.supported[order])


def test_intervals_of_skill_hold():
    """Everyone's random actions depend on where they are, by chance."""
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        chance = np.clip(np.linspace(0.15, 0.6, 8)[:, None, None] + 0.15 * rng.normal(size=(8, 2, 2)), 0, 1)
        random = [lambda x, v, own=own: own[int(v > 0), int(x > -0.5)] for own in chance]
        columns = car(random, [10] * 8, seed)
        position, velocity = columns["obs"].T
        true = 1 - chance[columns["who"], (velocity > 0).astype(int), (position > -0.5).astype(int)]
        result = found(columns)
        for place, name in enumerate(result.names):
            here = belongs(name, columns["obs"])
            for who in range(8):
                own = here & (columns["who"] == who)
                if own.sum() > 20:
                    low, high = result.skill_low[who, place], result.skill_high[who, place]
                    inside.append(low <= true[own].mean() <= high)
    assert 0.85 <= np.mean(inside) <= 0.98


def belongs(name, obs):
    """The situations that a name says."""
    inside = np.ones(len(obs), bool)
    for feature, *words in (part.split() for part in name.split(", ")):
        values = obs[:, NAMES.index(feature)]
        low = float(words[1]) if words[0] == "from" else float(words[2]) if words[0] == "at" else -np.inf
        high = float(words[3]) if words[0] == "from" else float(words[1]) if words[0] == "below" else np.inf
        inside &= (low <= values) & (values < high)
    return inside


def test_features_without_names_are_entries_of_obs(people):
    assert "obs[1] below 0" in found(people, ()).names
    shaped = people | {"obs": people["obs"].reshape(-1, 1, 2)}
    assert "obs[0, 1] below 0" in found(shaped, ()).names


def test_flags_are_named_by_their_value(people):
    flag = (people["obs"][:, 1] >= 0).astype(float)
    result = found(people | {"obs": flag[:, None], "similar": flag.astype(int)}, ("moves right",))
    assert set(result.names) == {"moves right = 0", "moves right = 1"}


@pytest.mark.parametrize("obs", [np.ones((300, 2)), np.random.default_rng(0).random((300, 20, 20, 3))])
def test_observations_without_features_to_name_have_no_situations(obs):
    who = np.arange(300) % 3
    columns = {"obs": obs, "realised": np.ones(300), "who": who, "recording": who}
    assert found(columns, ()) is None


def test_thresholds_far_from_zero_are_said_in_full(people):
    obs = people["obs"] * 1000 + [0.0, 1.7e9]
    result = found(people | {"obs": obs})
    assert any("velocity" in name for name in result.names)
    shares = [belongs(name, obs).mean() for name in result.names]
    np.testing.assert_allclose(shares, result.share, atol=0.002)


@pytest.mark.parametrize("change", ["nothing possible", "two transitions", "one each"])
def test_too_little_to_look_at_has_no_situations(people, change):
    few = {"nothing possible": 100, "two transitions": 2, "one each": 5}[change]
    columns = kept(people, np.arange(few)) | {"who": np.arange(few) % (2 if few != 5 else 5)}
    columns |= {"possible": np.zeros(few) if few == 100 else np.ones(few), "similar": np.zeros(few, int)}
    assert found(columns | {"recording": columns["who"]}) is None


def test_a_demonstrator_without_any_weight_is_where_the_others_are(people):
    result = found(people | {"weight": (people["who"] != 3).astype(float)})
    assert (result.supported[3] == 0).all() and 0.3 < result.mean[3] < 0.95
    assert (result.skill_high - result.skill_low)[3].min() > 0.3


def test_one_demonstrator_alone_has_no_situations(people):
    alone = kept(people, people["who"] == 0)
    assert found(alone) is None


def test_plain_values_are_for_json(people):
    told = found(people).to_dict()
    assert {len(told[name]) for name in ("mean", "expected", "low", "supported")} == {5}
    assert all(isinstance(sign, int) for row in told["supported"] for sign in row)


def test_deviations_vanish_where_nothing_supports_them_and_stay_where_it_does():
    rng = np.random.default_rng(0)
    noise = 0.05 * rng.normal(size=(10, 6))
    nothing = shrunk(noise, np.full((10, 6), 0.05**2))
    assert np.abs(nothing.average).max() < 0.03
    noise[4, 2] -= 0.8
    one = shrunk(noise, np.full((10, 6), 0.05**2))
    np.testing.assert_allclose(one.average[4, 2], noise[4, 2], atol=0.02)
    assert one.quantile(0.95)[4, 2] < -0.6
    np.testing.assert_allclose(one.below(one.quantile(0.95))[4, 2], 0.95, atol=1e-6)
    others = np.delete(one.average.ravel(), 4 * 6 + 2)
    assert np.abs(others).max() < 0.1


@pytest.mark.optax
def test_a_fit_has_situations_named_by_features_in_the_units_of_the_data(tmp_path):
    """Times in seconds since 1970 are centred for single precision; the report says them as they are."""
    rng = np.random.default_rng(0)
    made = []
    for who, random in enumerate((0.0, 0.1, 0.2, 1.0)):
        for _ in range(12):
            time = rng.integers(0, 2, 31).astype(float)
            action = np.where(rng.random(30) < random, rng.integers(0, 2, 30), time[:-1]).astype(int)
            made.append(Episode(np.stack([1.7e9 + time, rng.normal(size=31)], 1), action, False, f"{who}"))
    data = Demonstrations.from_episodes(made)
    small = OfflineIrleed(hidden=(8,), steps=100, batch_size=32)
    found = fit(data, algorithm=small, members=2, feature_names=["time", "noise"], out=tmp_path / "run")
    assert isinstance(found.situations, Situations) and len(found.situations.names) >= 2
    first = [name.partition(",")[0] for name in found.situations.names if name.startswith("time")]
    said = [float(name.split()[-1]) for name in first]
    assert all(1.6e9 < value < 1.8e9 for value in said)
    run = read_fit(tmp_path / "run")
    assert run.strengths is not None and run.strengths.names == found.situations.names
    with pytest.raises(ConfigError, match="--feature-names.*1 names.*2, one for each number"):
        fit(data, algorithm=small, feature_names=["time"])


def test_names_of_features_are_refused_in_an_mdp():
    data = Demonstrations.from_episodes([Episode(np.array([0, 1, 3]), np.array([0, 2]), True, "ann")])
    with pytest.raises(ConfigError, match="feature-names"):
        fit(data, gridworld(2, 2, goals={3: 1.0}), feature_names=["state"])
