"""Backends that run many policies and train many agents in parallel, on the device or on the host; evaluation."""

from irleed.envs.jax import CartPole
from irleed.rollout.backends import (
    AbstractBackend,
    DeviceBackend,
    HostBackend,
    greedy_action,
    learn_and_evaluate,
    policy_returns,
    sampled_action,
)
from irleed.rollout.evaluation import ReturnEstimate, Trajectory, demonstrated

__all__ = [
    "AbstractBackend", "DeviceBackend", "HostBackend", "Trajectory", "ReturnEstimate", "demonstrated", "greedy_action",
    "learn_and_evaluate", "make_backend", "policy_returns", "sampled_action",
]  # fmt: skip


def make_backend(env_id: str, workers: int = 0) -> AbstractBackend:
    """The environment of this Gymnasium id, on the device where it is written in JAX (CartPole-v1)."""
    return DeviceBackend(CartPole()) if env_id == "CartPole-v1" else HostBackend(env_id, workers)
