"""`irleed.evaluate`: the returns of a fitted policy in an environment, however it was fitted."""

import contextlib
import math
from pathlib import Path

import jax

from irleed.envs.step import AbstractEnv, Bounds
from irleed.errors import ConfigError, SpaceError
from irleed.fit.result import Fit
from irleed.policies.base import Policy
from irleed.policies.tabular import TabularPolicy
from irleed.rollout import AbstractBackend, DeviceBackend, HostBackend, policy_returns
from irleed.rollout.evaluation import ReturnEstimate, demonstrated
from irleed.runs.reader import Estimate, read_fit

EPISODES = 100


def evaluate(
    run: Fit | str | Path,
    env: str | AbstractEnv | AbstractBackend,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
) -> tuple[ReturnEstimate, ...]:
    """Mean episode returns, with 90 % intervals, of a policy by greedy and by sampled actions.

    **Arguments:**

    - `run`: a fit, or the folder of one.
    - `env`: a Gymnasium id, an environment in JAX, or a backend of `irleed.rollout`. A policy of tables needs one
      whose observations are the numbers of its states, such as ``FrozenLake-v1``.
    - `episodes`: of each kind of actions. `seed`: the random seed.

    **Returns:** the policy's two rows and, where the returns of the demonstrations are known, a row for each
    demonstrator.
    """
    for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"--{name}", got=value, expected=f"{least} or more", remedy="choose a larger number")
    if isinstance(run, Fit):
        policy, rows = run.policy, demonstrated(run.origin.data)
    else:
        found = read_fit(Path(run))
        policy = found.policy
        rows = tuple(map(_estimate, found.demonstrated))
    with contextlib.ExitStack() as stack:
        if isinstance(env, str):
            backend: AbstractBackend = stack.enter_context(contextlib.closing(HostBackend(env)))
        else:
            backend = DeviceBackend(env) if isinstance(env, AbstractEnv) else env
        _check(policy, backend, env if isinstance(env, str) else type(env).__name__)
        return (*policy_returns(jax.random.key(seed), backend, policy, episodes), *rows)


def _estimate(row: Estimate) -> ReturnEstimate:
    low, high = (math.nan if end is None else end for end in (row.low, row.high))
    return ReturnEstimate(row.name, row.count or 0, row.value, low, high)


def _check(policy: Policy, backend: AbstractBackend, env: str) -> None:
    """Refuse an environment whose observations or actions are not those of the policy."""
    shape = (len(policy.probabilities),) if isinstance(policy, TabularPolicy) else policy.observation_shape
    remedy = "name the environment that the demonstrations come from"
    if shape != backend.observation_shape:
        wanted = f"the numbers of {shape[0]} states" if isinstance(policy, TabularPolicy) else f"shape {shape}"
        got = f"shape {backend.observation_shape}"
        raise SpaceError(f"observations of {env}", got=got, expected=f"{wanted}, the policy's", remedy=remedy)
    own, its = policy.actions, backend.actions
    if isinstance(own, Bounds) and isinstance(its, Bounds) and own.size == its.size:
        return
    if own != its:
        got, expected = (f"{a.size} numbers each" if isinstance(a, Bounds) else f"{a} choices" for a in (its, own))
        raise SpaceError(f"actions of {env}", got=got, expected=f"{expected}, the policy's", remedy=remedy)
