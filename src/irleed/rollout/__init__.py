"""Where many policies play and many agents learn at once: an environment on the device, or one on the host."""

from irleed.envs.cartpole import CartPole
from irleed.rollout.base import AbstractArena, counted, drawn, likeliest
from irleed.rollout.device import DeviceArena
from irleed.rollout.host import HostArena

__all__ = ["AbstractArena", "DeviceArena", "HostArena", "counted", "drawn", "likeliest", "make_arena"]


def make_arena(env_id: str, workers: int = 0) -> AbstractArena:
    """The environment of this Gymnasium id; on the device where it is written in JAX, which CartPole-v1 is."""
    return DeviceArena(CartPole()) if env_id == "CartPole-v1" else HostArena(env_id, workers)
