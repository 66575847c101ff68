r"""Demonstrators of known precision and bias made from a critic, for environments without a transition model.

Demonstrator $i$ acts by $\pi_i(a|s) \propto \exp(\beta_i(Q(s,a) + \alpha\epsilon_i(s,a)))$ with $Q$ a trained critic
and $\epsilon_i$ a network as it was initialised; an infinite precision means the largest value. These are the paper's.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key, Scalar
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.envs.step import AbstractEnv
from irleed.evaluate import Played, play
from irleed.iq.networks import Mlp

BIAS_HIDDEN = (128, 128)


class CriticDemonstrator(eqx.Module):
    """One demonstrator."""

    critic: Mlp
    bias: Mlp
    precision: Float[Array, ""]  # infinite: always the largest value
    bias_scale: Float[Array, ""]

    @classmethod
    def draw(cls, key: Key, critic: Mlp, max_precision: Scalar, bias_scale: Scalar) -> "CriticDemonstrator":
        r"""$\beta \sim U(0, \texttt{max\_precision})$, and a fresh bias network."""
        precision_key, bias_key = jax.random.split(key)
        sizes = (critic.weights[0].shape[0], *BIAS_HIDDEN, critic.weights[-1].shape[-1])
        precision = jax.random.uniform(precision_key, (), jnp.float32) * max_precision
        bias = Mlp.init(bias_key, sizes, "relu")
        return cls(critic, bias, jnp.asarray(precision, jnp.float32), jnp.asarray(bias_scale, jnp.float32))

    def act(self, key: Key, observation: Float[Array, "..."]) -> Int[Array, ""]:
        """An action in one situation."""
        value = self.critic(observation) + self.bias_scale * self.bias(observation)
        hard = jnp.isinf(self.precision)
        drawn = jax.random.categorical(key, jnp.where(hard, 1.0, self.precision) * value)
        return jnp.where(hard, jnp.argmax(value), drawn)


def play_demonstrators(
    key: Key,
    env: AbstractEnv,
    critic: Mlp,
    max_precision: Scalar,
    bias_scale: Scalar,
    demonstrators: int,
    episodes: int,
) -> tuple[CriticDemonstrator, Played]:
    """Draw demonstrators and let them play: arrays with leading axes D and D, E."""

    def one(own_key):
        draw_key, play_key = jax.random.split(own_key)
        person = CriticDemonstrator.draw(draw_key, critic, max_precision, bias_scale)
        return person, jax.vmap(lambda each: play(each, env, person.act))(jax.random.split(play_key, episodes))

    return jax.vmap(one)(jax.random.split(key, demonstrators))


def to_demonstrations(played: Played) -> Demonstrations:
    """Episodes with leading axes D, E as a data set."""
    played = jax.tree.map(np.asarray, played)
    episodes = []
    for person, own in enumerate(played.alive):
        for number, alive in enumerate(own):
            obs, last = played.obs[person, number][alive], played.next_obs[person, number][alive][-1:]
            episodes.append(
                Episode(
                    obs=np.concatenate([obs, last]),
                    action=played.action[person, number][alive],
                    terminated=bool(played.terminated[person, number][alive][-1]),
                    demonstrator=person,
                    reward=played.reward[person, number][alive],
                )
            )
    return Demonstrations.from_episodes(episodes, where="simulated data")


def true_returns(played: Played) -> Float[Array, " D"]:
    """Mean return of each demonstrator's episodes."""
    return jnp.mean(jnp.sum(jnp.where(played.alive, played.reward, 0.0), -1), -1)
