"""Where many policies play and many agents learn at once: an environment on the device, or one on the host."""

from irleed.envs.jax import CartPole
from irleed.rollout.base import AbstractBackend, counted, greedy_action, policy_returns, sampled_action
from irleed.rollout.device import DeviceBackend
from irleed.rollout.host import HostBackend

__all__ = [
    "AbstractBackend",
    "DeviceBackend",
    "HostBackend",
    "counted",
    "greedy_action",
    "make_backend",
    "policy_returns",
    "sampled_action",
]


def make_backend(env_id: str, workers: int = 0) -> AbstractBackend:
    """The environment of this Gymnasium id; on the device where it is written in JAX, which CartPole-v1 is."""
    return DeviceBackend(CartPole()) if env_id == "CartPole-v1" else HostBackend(env_id, workers)
