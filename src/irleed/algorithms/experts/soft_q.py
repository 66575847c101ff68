r"""Experts: soft Q-learning on the true reward, $Q \leftarrow r + \gamma\,T \log\sum_a \exp(Q'/T)$.

Nothing of IRLEED needs them; they are what simulated demonstrators are made from.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms.agent import AbstractAgent
from irleed.data.transitions import Inputs, Transitions
from irleed.envs.step import Transition
from irleed.model.actions import View
from irleed.model.networks import Mlp
from irleed.policies.base import SoftmaxPolicy


class Parameters(eqx.Module):
    """The critic, and as many zeros as there are demonstrators: it knows no difference."""

    q: Mlp
    demonstrators: Float[Array, " D"]


class AbstractSoftQ(AbstractAgent):
    """An agent that learns one Q by soft Bellman errors, and knows no demonstrators apart."""

    rate: eqx.AbstractVar[Scalar]
    temperature: eqx.AbstractVar[Scalar]

    def rates(self) -> dict[str, Scalar]:
        """See `AbstractAlgorithm.rates`."""
        return {"q": self.rate, "demonstrators": 0.0}

    def policy(self, parameters: Parameters) -> SoftmaxPolicy:
        """See `AbstractAlgorithm.policy`."""
        return SoftmaxPolicy(parameters.q, jnp.asarray(1 / self.temperature, jnp.float32))

    def log_precision(self, parameters: Parameters, data: Transitions) -> Float[Array, " D"]:
        """All alike."""
        return parameters.demonstrators

    def view(self, parameters: Parameters, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> View:
        """See `AbstractAlgorithm.view`: all alike."""
        values = parameters.q(observation)
        return View.of(values / self.temperature, values)


class SoftCritic(AbstractSoftQ):
    """A soft-Q agent on the true reward.

    - `temperature`: of policy and values; `random`: share of random actions on top.
    - `target_rate`: how fast the target follows, every step.
    - `warm`: steps before the first update.
    - `start`: a critic to go on from, instead of a fresh one.
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    steps: int = eqx.field(static=True, default=100_000)
    batch: int = eqx.field(static=True, default=128)
    decay: bool = eqx.field(static=True, default=True)
    copies: int = eqx.field(static=True, default=1)
    updates: int = eqx.field(static=True, default=1)
    capacity: int = eqx.field(static=True, default=50_000)
    warm: int = eqx.field(static=True, default=1_000)
    rate: Scalar = 3e-4
    discount: Scalar = 0.99
    temperature: Scalar = 0.1
    random: Scalar = 0.05
    target_rate: Scalar = 0.005
    clip: Scalar | None = None
    start: Mlp | None = None

    def parameters(self, key: Key, inputs: Inputs, actions: int, demonstrators: int) -> Parameters:
        """See `AbstractAlgorithm.parameters`."""
        q = Mlp.init(key, inputs, (*self.hidden, actions)) if self.start is None else self.start
        return Parameters(q, jnp.zeros(demonstrators, jnp.float32))

    def loss(
        self, key: Key, parameters: Parameters, target: Parameters, played: Transition, shown: None
    ) -> Float[Array, ""]:
        """See `AbstractAgent.loss`."""

        def one(seen: Transition) -> Float[Array, ""]:
            goal = soft_target(target.q, seen.reward, seen.next_obs, seen.terminated, self.discount, self.temperature)
            return optax.huber_loss(parameters.q(seen.obs)[seen.action], goal, delta=10.0)

        return jnp.mean(jax.vmap(one)(played))


def soft_target(q: Mlp, reward, next_obs, terminated, discount: Scalar, temperature: Scalar) -> Float[Array, ""]:
    r"""$r + \gamma\,T \log\sum_a \exp(Q(s', a)/T)$, and $r$ alone where the task ended."""
    ahead = temperature * jax.nn.logsumexp(q(next_obs) / temperature)
    return reward + discount * jnp.where(terminated, 0.0, ahead)
