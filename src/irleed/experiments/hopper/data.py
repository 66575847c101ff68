"""What the Hopper experiment learns from: three policies of several stages of training, and what they do."""

from pathlib import Path
from typing import Literal

import jax
import numpy as np

from irleed._typing import Int, Key
from irleed.data import load, save
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.transitions import Transitions, stack
from irleed.envs.host import make_host
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import sampled_action
from irleed.simulation.policies import teacher

ENV_ID = "Hopper-v5"
POLICIES = ("A", "B", "C")  # an expert, one half trained, one hardly trained
SOURCES = ("A", "B", "C", "ABC")
Teachers = Literal["iq", "sac"]  # stages of IQ-Learn, or of soft actor-critic


def demonstrate(key: Key, pairs: int, workers: int = 0, teachers: Teachers = "iq") -> Demonstrations:
    """So many steps of each policy, by sampled actions; the last episode is cut short.

    Drawn, because a policy that always takes its greedy action is as consistent hardly trained as it is in the end.
    On the CPU, because accelerators round otherwise each time that they choose their kernels, and a hop more or less
    is another episode.
    """
    episodes = []
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        for number, name in enumerate(POLICIES):
            env = make_host(ENV_ID, 1, "mujoco", seed=_number(jax.random.fold_in(key, number)), workers=workers)
            policy, act_key = policy_of(teachers, name), jax.random.fold_in(key, len(POLICIES) + number)
            episodes += _episodes(env, act_key, policy, name, pairs)
            env.close()
    return Demonstrations.from_episodes(episodes)


def policy_of(teachers: Teachers, name: str) -> EnsemblePolicy:
    """One of the three."""
    return teacher(f"hopper_{'iq_' if teachers == 'iq' else ''}{name.lower()}")


def kept_demonstrations(
    folder: Path, seed: int, pairs: int, workers: int = 0, teachers: Teachers = "iq"
) -> Demonstrations:
    """Those of a folder, made and written there if it has none: whoever goes on later learns from the same."""
    path = folder / f"demonstrations_{teachers}_{seed}_{pairs}.npz"
    if not path.exists():
        save(demonstrate(jax.random.split(jax.random.key(seed))[0], pairs, workers, teachers), path)
    return load(path)


def _episodes(env, key: Key, policy: EnsemblePolicy, name: str, pairs: int) -> list[Episode]:
    act = jax.jit(lambda own, obs: sampled_action(policy.actor, own, obs[0])[None])
    steps = [env.step(np.asarray(act(jax.random.fold_in(key, number), env.obs))) for number in range(pairs)]
    over = [bool(step.terminated[0] | step.truncated[0]) for step in steps]
    ends = [number + 1 for number, each in enumerate(over) if each or number == pairs - 1]
    return [_episode(steps[start:end], name) for start, end in zip([0, *ends], ends, strict=False)]


def _episode(steps: list, name: str) -> Episode:
    return Episode(
        obs=np.stack([*(step.obs[0] for step in steps), steps[-1].next_obs[0]]),
        action=np.stack([step.action[0] for step in steps]),
        demonstrator=name,
        terminated=bool(steps[-1].terminated[0]),
        reward=np.array([float(step.reward[0]) for step in steps]),
    )


def data_sets(data: Demonstrations, sources: tuple[str, ...], seeds: int) -> Transitions:
    """The transitions of its policies for every source and seed, stacked; demonstrators are numbered as they are."""
    whole = Transitions.from_demonstrations(data)
    own = [_of(whole, np.array([POLICIES.index(name) for name in source])) for source in sources]
    return stack([each for each in own for _ in range(seeds)])


def _of(whole: Transitions, numbers: Int[np.ndarray, " M"]) -> Transitions:
    """The transitions of some demonstrators, each of whom has first observations of their own."""
    rows = np.flatnonzero(np.isin(whole.demonstrator, numbers))
    columns = {name: np.asarray(getattr(whole, name))[rows] for name in ("obs", "next_obs", "action", "proceeds")}
    return Transitions(
        **columns,
        demonstrator=np.asarray(whole.demonstrator)[rows],
        initial=columns["obs"][np.r_[True, ~_follows(columns)]],
        size=np.asarray(len(rows), np.int32),
    )


def _follows(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Whether each row but the first goes on where the one before it ended."""
    return (columns["obs"][1:] == columns["next_obs"][:-1]).all(-1)


def _number(key: Key) -> int:
    return int(jax.random.randint(key, (), 0, 2**31 - 1))
