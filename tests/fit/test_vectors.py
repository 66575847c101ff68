"""Skill of demonstrators whose actions are vectors: the opposite, the random, the off, the few and the fast."""

import numpy as np
import pytest

from irleed.algorithms.iq import OfflineIrleed
from irleed.analysis.curation import curate
from irleed.data import Demonstrations, Episode
from irleed.fit.networks import fit_networks
from irleed.fit.posterior import Posterior, evidence, posterior
from irleed.fit.vectors import MOST_VOTES, Measure, presence
from irleed.model.residuals import residuals, tempo

pytestmark = pytest.mark.optax
STEPS = 40


def judged(seed, *, noise=0.1, speed=1.0, offset=0.0, turn=0.0, random=(), episodes=(12,) * 5, slips=None) -> Posterior:
    """What is made of five people beside a policy that does the right thing; numbers around 0, and a gripper."""
    generator, people = np.random.default_rng(seed), 5
    noise, speed, offset, turn = (np.broadcast_to(each, people) for each in (noise, speed, offset, turn))
    episode = np.repeat(np.arange(sum(episodes)), STEPS)
    who = np.repeat(np.repeat(np.arange(people), episodes), STEPS)
    if 1 in episodes:  # ten transitions of whoever has one episode
        kept = np.concatenate([np.flatnonzero(who == i)[: 10 if n == 1 else None] for i, n in enumerate(episodes)])
        who, episode = who[kept], episode[kept]
    mean = generator.uniform(-0.5, 0.5, (len(who), 2))
    sine, cosine = np.sin(np.radians(turn))[who], np.cos(np.radians(turn))[who]
    turned = np.stack([cosine * mean[:, 0] - sine * mean[:, 1], sine * mean[:, 0] + cosine * mean[:, 1]], 1)
    action = speed[who][:, None] * (turned + noise[who][:, None] * generator.normal(size=mean.shape))
    action[:, 0] += offset[who]
    uniform = generator.uniform(-1, 1, mean.shape)
    action = np.where(np.isin(who, random)[:, None], uniform, action)
    columns = [mean, action, np.ones_like(mean)]
    if slips is not None:
        closed = generator.uniform(size=len(who)) < 0.5
        columns.append(np.log(np.where(closed[:, None], [[0.02, 0.98]], [[0.98, 0.02]])))
        columns.append((closed ^ (generator.uniform(size=len(who)) < np.array(slips)[who])).astype(float))
    weight = np.ones(len(who))
    found = Measure(weight, who, episode, people)(*columns)
    return posterior([evidence(found, weight, who, [episode], people)])


def test_skill_is_1_as_the_others_0_at_random_and_minus_1_for_the_opposite():
    found = judged(0, noise=0.02, speed=[1, 1, -1, 1, 1], random=[3])
    np.testing.assert_allclose(found.skill, [1, 1, -1, 0, 1], atol=0.1)
    precision = found.precision(0.5)
    assert precision[2] < 0.1 * precision[[0, 1, 4]].min()


def test_noise_is_lack_of_skill():
    found = judged(1, noise=[0.05, 0.1, 0.2, 0.4, 0.8])
    assert list(np.argsort(-found.skill)) == list(np.argsort(-found.precision(0.5))) == [0, 1, 2, 3, 4]
    assert found.skill[0] > 0.95 and found.skill[4] < 0.5


def test_speed_is_no_lack_of_skill():
    found = judged(2, speed=[0.5, 0.8, 1.0, 1.4, 2.0])
    assert np.ptp(found.skill) < 0.03 and np.ptp(np.log(found.precision(0.5))) < 0.3


@pytest.mark.parametrize("change", [{"turn": [0, 0, 6, 0, 0]}, {"offset": [0, 0, 0.05, 0, 0]}], ids=["turn", "offset"])
def test_who_is_off_is_not_first(change):
    found = judged(3, noise=0.02, **change)
    assert found.skill.argmin() == 2 and found.skill[2] > 0.9


def test_ten_transitions_are_near_the_mean_with_a_wide_interval():
    found = judged(4, noise=[0.1, 0.3, 0.2, 0.2, 0.1], episodes=(12, 12, 1, 12, 12))
    others = np.delete(found.skill, 2)
    assert others.min() < found.skill[2] < others.max()
    assert found.deviation[2] > 2 * np.delete(found.deviation, 2).max()


def test_a_gripper_that_slips_or_does_the_opposite_is_lack_of_skill():
    found = judged(5, slips=[0.0, 0.03, 0.03, 0.15, 1.0])
    assert list(np.argsort(-found.skill)[[0, 3, 4]]) == [0, 3, 4]
    assert found.skill[:4].min() > 0.8 and found.skill[4] < 0.6


def test_tempo_is_positive_and_the_opposite_is_bias():
    generator = np.random.default_rng(6)
    who, mean = np.repeat(np.arange(5), 400), generator.uniform(-0.5, 0.5, (2000, 2))
    sign = np.array([1.0, 1, -1.3, 1, 1])[who][:, None]
    given = mean, sign * mean + 0.05 * generator.normal(size=mean.shape), np.ones_like(mean), who, np.arange(2000) // 40
    assert tempo(*given, 5).gain == pytest.approx([1, 1, 1.3, 1, 1], abs=0.05)
    found, _ = residuals(*given, 5)
    assert found.bias.argmax() == 2 and found.log_precision.argmin() == 2


def test_everyone_has_one_vote_in_each_situation_within_limits():
    who = np.repeat([0, 1, 2], [500, 100, 2])
    votes, shared = presence(np.zeros(602, int), who, 3)
    assert votes[:500].sum() == pytest.approx(votes[500:600].sum())
    assert votes[-1] == pytest.approx(MOST_VOTES * 3 / 602)
    assert np.ptp(shared) < 1e-9
    votes, shared = presence(np.arange(602) // 300, who, 3)  # the first in one situation, all in the other
    assert votes[0] < votes[499] and shared[0] < shared[499]


def reaching(speeds, noise=0.05, episodes=12, seed=0) -> Demonstrations:
    """A place on a line that is to be driven to 0, by velocities; NaN: at random."""
    generator, made = np.random.default_rng(seed), []
    for who, speed in enumerate(speeds):
        for _ in range(episodes):
            place, obs, action = generator.uniform(-1, 1), [], []
            for _ in range(15):
                obs.append([place, 1.0])
                best = speed * np.clip(-0.6 * place, -0.5, 0.5) + noise * generator.normal()
                action.append([generator.uniform(-1, 1) if np.isnan(speed) else np.clip(best, -1, 1)])
                place = float(np.clip(place + action[-1][0], -1, 1))
            obs.append([place, 1.0])
            made.append(Episode(np.float32(obs), np.float32(action), False, f"{who}"))
    return Demonstrations.from_episodes(made)


SMALL = OfflineIrleed.continuous(hidden=(32,), steps=1_500, bias_hidden=None, learning_rate=3e-3)


def test_one_who_does_the_opposite_neither_leads_nor_misleads():
    data = reaching([1, 1, -1, 1])
    found = fit_networks(data, SMALL, members=1)
    assert found.expertise.ranking[-1] == "2" and found.expertise.skill[2] < 0 < found.expertise.skill[[0, 1, 3]].min()
    assert found.expertise.precision.argmin() == 2 and found.expertise.weight[2] < 0.01
    assert found.expertise.bias.argmax() == 2
    acted = found.policy.predict(np.float32([[-0.5, 1], [0.5, 1]]), deterministic=True)[0][:, 0]
    np.testing.assert_allclose(acted, [0.3, -0.3], atol=0.08)
    assert found.episode_skill is not None
    assert found.episode_skill[data.owner == 2].max() < found.episode_skill[data.owner != 2].min()
    assert curate(data, found).weight[data.owner == 2].max() < 0.1


def test_one_who_is_random_is_last_and_the_equally_good_weigh_the_same():
    data = reaching([1, 1, 1, np.nan], noise=0.1)
    found = fit_networks(data, SMALL, members=1)
    assert found.expertise.ranking[-1] == "3" and found.expertise.skill[3] < 0.3
    weight = curate(data, found).weight[data.owner != 3]
    assert weight.sum() ** 2 / (weight**2).sum() > 0.8 * len(weight)
