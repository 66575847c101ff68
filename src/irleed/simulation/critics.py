"""Simulated demonstrators that act by a trained critic, and the critics that come with the package."""

import importlib.resources
import json
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from irleed._io.arrays import Tensor, read_arrays, read_header, refusing
from irleed._io.files import beside
from irleed._typing import Array, Float, Int, Key, Scalar
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.envs.step import Actions
from irleed.errors import SpaceError
from irleed.model.actions import Categorical
from irleed.model.networks import Activation, Mlp
from irleed.policies.layers import assembled, check_numbers, check_shapes
from irleed.rollout.evaluation import Played


class BiasKind(eqx.Module):
    """The architecture of bias networks."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    activation: Activation = eqx.field(static=True, default="relu")


USUAL = BiasKind()


class CriticDemonstrator(eqx.Module):
    """A demonstrator who acts by a critic, of known precision and bias."""

    critic: Mlp
    bias: Mlp
    precision: Float[Array, ""]  # infinite: greedy actions
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
        """An action in one state."""
        greedy = jnp.isinf(self.precision)
        log_precision = jnp.log(jnp.where(greedy, 1.0, self.precision))
        bias = self.bias_scale * self.bias(observation)
        own = Categorical(self.critic(observation)).as_demonstrator(log_precision, bias)
        return jnp.where(greedy, own.mode(), own.sample(key))


def draw_demonstrators(
    key: Key,
    critic: Mlp,
    max_precision: Scalar,
    bias_scale: Scalar,
    demonstrators: int,
    kind: BiasKind = USUAL,
) -> CriticDemonstrator:
    """So many demonstrators, along a leading axis D."""
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


SHIPPED = ("cartpole", "lunarlander", "lunarlander_iq")
FORMAT, VERSION = "irleed-critic", "1"
STANDARD = ("centre", "spread")  # of observations; critics that see them as they are have none


def load_critic(name: str | Path) -> Mlp:
    """A critic that comes with the package, by its name; or one from a file."""
    if name in SHIPPED:
        folder = importlib.resources.files("irleed.simulation") / "weights" / "critics"
        with importlib.resources.as_file(folder / f"{name}.safetensors") as path:
            return _read(path)
    return _read(Path(name))


def _read(path: Path) -> Mlp:
    with refusing(path, f"a saved critic, or one of {', '.join(SHIPPED)}"):
        header, tensors = read_header(path)
        if header.get("format", FORMAT) != FORMAT or header.get("version", VERSION) != VERSION:
            raise ValueError(f"format {header.get('format')}, version {header.get('version')}")
        plain = STANDARD[0] not in tensors and STANDARD[1] not in tensors and "weights.0" in tensors
        inputs = tensors["weights.0"].shape[:1] if plain else ()
        standard = {name: Tensor(np.dtype(np.float32), inputs, 0) for name in STANDARD if plain}
        check_shapes({**tensors, **standard}, {}, members=False)
        arrays = read_arrays(path, tensors)
        check_numbers(arrays)
    if plain:
        arrays |= {"centre": np.zeros(inputs, np.float32), "spread": np.ones(inputs, np.float32)}
    return jax.tree.map(jnp.asarray, assembled(arrays))


def check_choices(actions: Actions, env_id: str) -> int:
    """The number of actions of an environment, which critics are for; one whose actions are no choices is refused."""
    if isinstance(actions, int):
        return actions
    got, expected = f"{actions.size} numbers", "choices: a critic has one output for each"
    remedy = "name an environment with discrete actions"
    raise SpaceError(f"environment {env_id}, actions", got=got, expected=expected, remedy=remedy)


def check_fit(critic: Mlp, name: str, observation_shape: tuple[int, ...], actions: Actions, env_id: str) -> None:
    """Refuse a critic that was made for other observations or actions than an environment's."""
    has, needs = (
        (critic.weights[0].shape[0], critic.weights[-1].shape[-1]),
        (
            math.prod(observation_shape),
            check_choices(actions, env_id),
        ),
    )
    if has != needs:
        got, expected = (f"{sizes[0]} inputs and {sizes[1]} actions" for sizes in (has, needs))
        raise SpaceError(f"critic {name}", got=got, expected=expected, remedy=f"name one for {env_id}")


def save_critic(path: Path, critic: Mlp) -> None:
    """Write what `load_critic` reads: one `weights.N` and one `offsets.N` a layer; `centre` and `spread` of inputs."""
    layers = {name: np.ravel(getattr(critic.inputs, name)) for name in STANDARD}
    layers |= {f"weights.{n}": np.asarray(w) for n, w in enumerate(critic.weights)}
    layers |= {f"offsets.{n}": np.asarray(o) for n, o in enumerate(critic.offsets)}
    with beside(path) as file:
        file.write(save(layers, metadata={"irleed": json.dumps({"format": FORMAT, "version": VERSION})}))
