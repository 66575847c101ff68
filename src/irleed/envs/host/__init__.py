"""Environments on the host, many lanes of one that step together.

- `env`: `make_host` makes a `HostEnv`, the same for every engine.
- `engines`: lanes of Gymnasium, envpool and ALE; `workers`: Gymnasium's in several processes.
- `mujoco`: MuJoCo's robots in C++ threads.
"""

from irleed.envs.host.env import HostEnv, make_host

__all__ = ["HostEnv", "make_host"]
