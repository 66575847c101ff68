"""Episodes and their returns, and demonstrators made from a critic, where the answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
from probes import delay

from irleed.data.transitions import Inputs
from irleed.envs.jax import CartPole
from irleed.model.actions import Softmax
from irleed.model.networks import Mlp
from irleed.policies.base import Actor
from irleed.rollout import DeviceBackend
from irleed.rollout.evaluation import play, returns
from irleed.simulation.critics import BiasKind, CriticDemonstrator, draw_demonstrators, to_demonstrations


def linear(weights: list[list[float]]) -> Mlp:
    table = jnp.asarray(weights, jnp.float32)
    return Mlp(Inputs.plain(table[:, 0]), (table,), (jnp.zeros(table.shape[1], jnp.float32),))


# Push towards where the pole falls: position, velocity, angle, turning.
BALANCE = linear([[0.0, 0.0], [0.0, 0.0], [-1.0, 1.0], [-0.5, 0.5]])


def test_an_episode_ends_where_it_ends():
    """A policy that always pushes right soon drops the pole; steps after that are not alive."""
    env = CartPole()
    played = jax.jit(lambda key: play(key, env, lambda _, obs: jnp.asarray(1, jnp.int32)))(jax.random.key(0))
    length = int(played.alive.sum())
    assert 5 < length < 20 and played.total == length
    assert bool(played.terminated[length - 1]) and not np.any(played.terminated[: length - 1])
    assert np.all(played.alive[:length]) and not np.any(played.alive[length:])
    np.testing.assert_array_equal(played.obs[1:length], played.next_obs[: length - 1])


def test_returns_of_a_greedy_and_of_a_drawn_policy():
    policy = Actor(BALANCE, Softmax(jnp.asarray(1.0, jnp.float32)))
    both = jax.jit(lambda key: [returns(key, CartPole(), policy, 8, greedy=g) for g in (True, False)])
    greedy, drawn = both(jax.random.key(0))
    assert np.mean(greedy) > 150 > np.mean(drawn)  # logits this small are as good as a coin


def test_the_likeliest_action_is_that_of_the_largest_output():
    probe = delay()
    policy = Actor(linear([[1.0, -1.0]]), Softmax(jnp.asarray(2.0, jnp.float32)))
    obs = jnp.asarray(probe.observations[0]) + 1
    assert policy.act(jax.random.key(0), obs, greedy=True) == 0
    drawn = jax.vmap(lambda key: policy.act(key, obs))(jax.random.split(jax.random.key(0), 4000))
    expected = jax.nn.sigmoid(-4.0 * obs[0])
    np.testing.assert_allclose(np.mean(drawn), expected, atol=0.02)


def test_an_infinite_precision_takes_the_largest_value_and_none_is_a_coin():
    obs = jnp.asarray([0.0, 0.0, 0.1, 0.1], jnp.float32)
    keys = jax.random.split(jax.random.key(0), 500)
    for precision, share in ((np.inf, 1.0), (0.0, 0.5)):
        person = CriticDemonstrator.draw(jax.random.key(1), BALANCE, precision, 0.0)
        person = CriticDemonstrator(person.critic, person.bias, jnp.asarray(precision, jnp.float32), person.bias_scale)
        drawn = jax.vmap(lambda key, person=person: person.act(key, obs))(keys)
        np.testing.assert_allclose(np.mean(drawn), share, atol=0.07)


def test_a_data_set_of_demonstrators():
    """Whole episodes, end to end, with the returns they really have; a scaled bias changes what is done."""
    backend = DeviceBackend(CartPole())

    def play_all(bias):
        people = jax.jit(lambda key: draw_demonstrators(key, BALANCE, jnp.inf, bias, 3))(jax.random.key(0))
        return backend.play(jax.random.key(1), people, CriticDemonstrator.act, 4)

    played = play_all(0.0)
    data = to_demonstrations(played)
    assert data.demonstrators == 3 and data.episodes == 12
    np.testing.assert_allclose(np.reshape(data.returns(), (3, 4)), played.total, rtol=1e-6)
    assert np.all(data.length[~np.add.reduceat(data.terminated, data.start)] == backend.env.horizon)
    assert np.mean(play_all(100.0).total) < np.mean(played.total)


def test_demonstrators_are_drawn_each_on_their_own():
    """Precisions are uniform below the limit, and nobody shares a bias."""
    people = jax.jit(lambda key: draw_demonstrators(key, BALANCE, 4.0, 30.0, 200))(jax.random.key(0))
    assert 0 <= np.min(people.precision) and 3.9 < np.max(people.precision) <= 4
    np.testing.assert_allclose(np.mean(people.precision), 2.0, atol=0.3)
    assert len(np.unique(people.bias.weights[0][:, 0, 0])) == 200


def test_biases_are_networks_of_the_kind_asked_for():
    kind = BiasKind((16, 8), "elu")
    people = draw_demonstrators(jax.random.key(0), BALANCE, 4.0, 30.0, 3, kind)
    assert [weight.shape[-1] for weight in people.bias.weights] == [16, 8, 2] and people.bias.activation == "elu"
    usual = draw_demonstrators(jax.random.key(0), BALANCE, 4.0, 30.0, 3)
    assert usual.bias.weights[0].shape[-1] == 128 and usual.bias.activation == "relu"
    np.testing.assert_array_equal(usual.precision, people.precision)
