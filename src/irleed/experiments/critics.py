"""Trained critics as safetensors; `critics/README.md` says how those that come with the package were made."""

import importlib.resources
import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from irleed._files import beside
from irleed.algorithm import Actions
from irleed.data.transitions import Inputs
from irleed.errors import DataError, SpaceError, problem
from irleed.iq.networks import Mlp

SHIPPED = ("cartpole", "lunarlander", "lunarlander_iq")
FORMAT = "irleed-critic"
STANDARD = ("centre", "spread")  # of observations; critics that see them as they are have none


def load_critic(name: str | Path) -> Mlp:
    """A critic that comes with the package, by its name; or one from a file."""
    shipped = importlib.resources.files("irleed.experiments") / "critics" / f"{name}.safetensors"
    try:
        arrays = load(shipped.read_bytes() if name in SHIPPED else Path(name).read_bytes())
        layers = sum(key.startswith("weights.") for key in arrays)
        plain = Inputs.plain(arrays["weights.0"][:, 0])
        return Mlp(
            inputs=Inputs(*(jnp.asarray(arrays[name]) for name in STANDARD)) if STANDARD[0] in arrays else plain,
            weights=tuple(jnp.asarray(arrays[f"weights.{layer}"]) for layer in range(layers)),
            offsets=tuple(jnp.asarray(arrays[f"offsets.{layer}"]) for layer in range(layers)),
        )
    except (OSError, SafetensorError, KeyError) as error:
        expected = f"a saved critic, or one of {', '.join(SHIPPED)}"
        raise DataError(
            problem(f"critic {name}", got=str(error), expected=expected, remedy="make one with irleed expert")
        ) from error


def check_choices(actions: Actions, env_id: str) -> int:
    """The number of actions of an environment, which critics are for; one whose actions are no choices is refused."""
    if isinstance(actions, int):
        return actions
    got, expected = f"{actions.size} numbers", "choices: a critic has one output for each"
    remedy = "name an environment with discrete actions"
    raise SpaceError(problem(f"environment {env_id}, actions", got=got, expected=expected, remedy=remedy))


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
        raise SpaceError(problem(f"critic {name}", got=got, expected=expected, remedy=f"name one for {env_id}"))


def save_critic(path: Path, critic: Mlp) -> None:
    """Write what `load_critic` reads: one `weights.N` and one `offsets.N` a layer; `centre` and `spread` of inputs."""
    layers = {name: np.ravel(getattr(critic.inputs, name)) for name in STANDARD}
    layers |= {f"weights.{n}": np.asarray(w) for n, w in enumerate(critic.weights)}
    layers |= {f"offsets.{n}": np.asarray(o) for n, o in enumerate(critic.offsets)}
    with beside(path) as file:
        file.write(save(layers, metadata={"irleed": json.dumps({"format": FORMAT, "version": "1"})}))
