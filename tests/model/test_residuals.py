"""Precision, bias and gain by how actions differ from a shared policy's, on data whose truth is known."""

import numpy as np
import pytest

from irleed.model.residuals import Choices, residuals

PEOPLE, EPISODES, STEPS = 5, 12, 40


def simulated(seed: int, *, noise, gain=1.0, offset=0.0, turn=0.0, proportional: bool = True):
    """What the shared policy does, what demonstrators do, who and in which episode."""
    generator = np.random.default_rng(seed)
    noise, gain, offset, turn = (np.broadcast_to(each, PEOPLE) for each in (noise, gain, offset, turn))
    who = np.repeat(np.arange(PEOPLE), EPISODES * STEPS)
    episode = np.repeat(np.arange(PEOPLE * EPISODES), STEPS)
    shared = generator.uniform(-0.5, 0.5, (len(who), 2))
    error = noise[who][:, None] * generator.normal(size=shared.shape)
    sine, cosine = np.sin(np.radians(turn))[who], np.cos(np.radians(turn))[who]
    turned = np.stack([cosine * shared[:, 0] - sine * shared[:, 1], sine * shared[:, 0] + cosine * shared[:, 1]], 1)
    grown = gain[who][:, None]
    action = grown * (turned + error) if proportional else grown * turned + error
    action[:, 0] += offset[who]
    return shared, action, np.ones_like(shared), who, episode, PEOPLE


def test_precision_gain_and_bias_are_recovered():
    noise, gain = np.array([0.05, 0.1, 0.1, 0.2, 0.1]), np.array([1.0, 1.3, 0.8, 1.0, 1.0])
    found, draws = residuals(*simulated(0, noise=noise, gain=gain, offset=[0, 0, 0, 0, 0.1]))
    np.testing.assert_allclose(found.gain / found.gain.mean(), gain / gain.mean(), rtol=0.05)
    np.testing.assert_allclose(found.offset[:4], 0, atol=0.02)
    np.testing.assert_allclose(found.offset[4], [0.1, 0], atol=0.02)
    true = -2 * np.log(noise[:4])
    np.testing.assert_allclose(found.log_precision[:4] - found.log_precision[:4].mean(), true - true.mean(), atol=0.25)
    assert found.bias[4] > 5 * found.bias[:4].max()
    low, high = np.quantile(draws.log_precision, [0.05, 0.95], axis=0)
    assert np.all((low <= found.log_precision + 0.1) & (found.log_precision - 0.1 <= high))


@pytest.mark.parametrize("proportional", [True, False])
def test_speed_is_no_noise(proportional):
    """Whether noise grows with the speed or not."""
    gain = np.array([0.5, 0.8, 1.0, 1.4, 2.0])
    found, _ = residuals(*simulated(1, noise=0.08, gain=gain, proportional=proportional))
    np.testing.assert_allclose(found.log_precision, 0, atol=0.3)
    assert abs(np.corrcoef(found.log_precision, np.log(gain))[0, 1] * found.log_precision.std()) < 0.1
    assert list(np.argsort(found.gain)) == list(range(PEOPLE))


@pytest.mark.parametrize("change", [{"turn": [0, 0, 6, 0, 0]}, {"offset": [0, 0, 0.05, 0, 0]}], ids=["turn", "offset"])
def test_one_who_is_off_among_five_is_found_and_is_last(change):
    found, _ = residuals(*simulated(2, noise=0.02, **change))
    assert found.bias.argmax() == 2 and found.bias[2] > 3 * np.sort(found.bias)[-2]
    assert found.log_precision.argmin() == 2
    np.testing.assert_allclose(np.delete(found.offset, 2, 0), 0, atol=0.01)


def test_biases_that_nothing_supports_vanish():
    found, _ = residuals(*simulated(3, noise=0.1))
    assert np.all(found.bias < 0.1) and np.all(np.abs(found.offset) < 0.01)


def test_other_numbers_for_demonstrators_permute_the_answer():
    shared, action, counted, who, episode, people = simulated(4, noise=[0.05, 0.1, 0.1, 0.2, 0.1], turn=[0, 0, 9, 0, 0])
    order = np.array([3, 0, 4, 1, 2])
    one, _ = residuals(shared, action, counted, who, episode, people)
    other, _ = residuals(shared, action, counted, order[who], episode, people)
    for own, moved in zip(one, other, strict=True):
        np.testing.assert_allclose(moved[order], own, rtol=1e-5, atol=1e-6)


def test_choices_count_beside_numbers_and_alone():
    """Somebody who does the less probable thing more often is less precise."""
    generator = np.random.default_rng(5)
    shared, action, counted, who, episode, people = simulated(5, noise=0.1)
    log_probs = np.log(np.where(generator.uniform(size=(len(who), 1)) < 0.5, [[0.98, 0.02]], [[0.02, 0.98]]))
    slips = generator.uniform(size=len(who)) < np.array([0.0, 0.02, 0.02, 0.05, 0.2])[who]
    chosen = Choices(log_probs, np.where(slips, log_probs.argmin(1), log_probs.argmax(1)))
    both, _ = residuals(shared, action, counted, who, episode, people, [chosen])
    assert both.log_precision.argmin() == 4
    alone, _ = residuals(*(each[:, :0] for each in (shared, action, counted)), who, episode, people, [chosen])
    assert list(np.argsort(-alone.log_precision)[[0, 3, 4]]) == [0, 3, 4]
    np.testing.assert_array_equal(alone.bias, 0)
