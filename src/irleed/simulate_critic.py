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
from irleed.evaluate import Played
from irleed.iq.networks import Activation, Mlp


class BiasKind(eqx.Module):
    """What networks biases are: sizes of the hidden layers, and what is between them."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    activation: Activation = eqx.field(static=True, default="relu")


USUAL = BiasKind()


class CriticDemonstrator(eqx.Module):
    """One demonstrator."""

    critic: Mlp
    bias: Mlp
    precision: Float[Array, ""]  # infinite: always the largest value
    bias_scale: Float[Array, ""]

    @classmethod
    def draw(
        cls, key: Key, critic: Mlp, max_precision: Scalar, bias_scale: Scalar, kind: BiasKind = USUAL
    ) -> "CriticDemonstrator":
        r"""$\beta \sim U(0, \texttt{max\_precision})$, and a fresh bias network."""
        precision_key, bias_key = jax.random.split(key)
        precision = jax.random.uniform(precision_key, (), jnp.float32) * max_precision
        bias = Mlp.init(bias_key, critic.inputs, (*kind.hidden, critic.weights[-1].shape[-1]), kind.activation)
        return cls(critic, bias, jnp.asarray(precision, jnp.float32), jnp.asarray(bias_scale, jnp.float32))

    def act(self, key: Key, observation: Float[Array, "..."]) -> Int[Array, ""]:
        """An action in one situation."""
        value = self.critic(observation) + self.bias_scale * self.bias(observation)
        hard = jnp.isinf(self.precision)
        drawn = jax.random.categorical(key, jnp.where(hard, 1.0, self.precision) * value)
        return jnp.where(hard, jnp.argmax(value), drawn)


def draw_demonstrators(
    key: Key,
    critic: Mlp,
    max_precision: Scalar,
    bias_scale: Scalar,
    demonstrators: int,
    kind: BiasKind = USUAL,
) -> CriticDemonstrator:
    """So many, along a leading axis D."""
    draw = jax.vmap(lambda own: CriticDemonstrator.draw(own, critic, max_precision, bias_scale, kind))
    return draw(jax.random.split(key, demonstrators))


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
