"""Trained critics that come with the package, as safetensors; `critics/README.md` says how they were made."""

import importlib.resources

import jax.numpy as jnp
from safetensors.numpy import load

from irleed.data.transitions import Inputs
from irleed.iq.networks import Mlp


def load_critic(name: str) -> Mlp:
    """The critic of an environment."""
    file = importlib.resources.files("irleed.experiments") / "critics" / f"{name}.safetensors"
    arrays = load(file.read_bytes())
    layers = len(arrays) // 2
    return Mlp(
        inputs=Inputs.plain(arrays["weights.0"][:, 0]),
        weights=tuple(jnp.asarray(arrays[f"weights.{layer}"]) for layer in range(layers)),
        offsets=tuple(jnp.asarray(arrays[f"offsets.{layer}"]) for layer in range(layers)),
    )
