"""The paper's second experiment, offline: CartPole with three demonstrators of uneven quality (Table 1).

For each of four settings, low or high precision and low or high accuracy, and each seed: three demonstrators drawn from
a trained critic play five episodes; every method learns from the same transitions; the last policy of each plays. All
seeds and settings of a method are one batched program. What a run amounts to is in `control_results`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Array, Float, Int, Key
from irleed.algorithm import AbstractOffline, train
from irleed.baselines.bc import BehaviourCloning
from irleed.baselines.ileed import Ileed
from irleed.data.transitions import Transitions, stack
from irleed.envs.cartpole import CartPole
from irleed.envs.step import AbstractEnv
from irleed.errors import ConfigError, problem
from irleed.evaluate import returns
from irleed.experiments.critics import load_critic
from irleed.iq.networks import Mlp
from irleed.iq.soft_q import SoftQ
from irleed.simulate_critic import play_demonstrators, to_demonstrations, true_returns

DEMONSTRATORS, EPISODES = 3, 5
MANY_EPISODES = 50  # of each demonstrator, for their true returns


@dataclass(frozen=True)
class Setting:
    """How good the demonstrators are."""

    name: str
    max_precision: float
    bias_scale: float


# Precision, then accuracy. A bias of 30 is what brings the demonstrators nearest to the paper's (which has 20 and
# another critic): chosen by their returns alone, before anything was learnt from them.
SETTINGS = (
    Setting("LL", 1.0, 30.0),
    Setting("LH", 1.0, 0.0),
    Setting("HL", float("inf"), 30.0),
    Setting("HH", float("inf"), 0.0),
)
MethodName = Literal["irleed", "iq", "ileed", "bc"]
METHODS: dict[str, AbstractOffline] = {
    "irleed": SoftQ(),
    "iq": SoftQ.iq(),
    "ileed": Ileed(),
    "bc": BehaviourCloning(),
}


@dataclass(frozen=True)
class ControlConfig:
    """CartPole, offline: IRLEED beside IQ-Learn, ILEED and behaviour cloning."""

    out: Path
    """Folder for results.json and the figure."""
    seeds: int = 30
    """Data sets for each setting."""
    settings: tuple[Literal["LL", "LH", "HL", "HH"], ...] = ("LL", "LH", "HL", "HH")
    """Precision and accuracy, low or high."""
    methods: tuple[MethodName, ...] = ("irleed", "iq", "ileed", "bc")
    """What to compare."""
    steps: int = 20_000
    """Updates of each method."""
    every: int = 1
    """Keep every so manieth transition of an episode; the paper kept every twentieth."""
    episodes: int = 20
    """Episodes that each policy plays, by its likeliest actions and by drawn ones."""
    seed: int = 0
    """Where the random numbers start."""
    quick: bool = False
    """Three seeds and 2,000 updates, for a first look."""

    @property
    def chosen(self) -> tuple[Setting, ...]:
        """The settings to run."""
        return tuple(setting for setting in SETTINGS if setting.name in self.settings)

    @property
    def runs(self) -> int:
        """Data sets for each setting, as they will be."""
        return 3 if self.quick else self.seeds

    def algorithm(self, name: MethodName) -> AbstractOffline:
        """A method with the number of updates asked for."""
        return dataclasses.replace(METHODS[name], steps=2_000 if self.quick else self.steps)


class Lane(eqx.Module):
    """What one method got out of one data set."""

    greedy: Float[Array, ""]  # mean return of the likeliest actions
    sampled: Float[Array, ""]  # and of drawn ones
    log_precision: Float[Array, " D"]
    loss: Float[Array, ""]  # mean of the last hundredth of the steps
    diverged: Int[Array, ""]


class DataSets(eqx.Module):
    """Data with leading axes settings times seeds, and how good the demonstrators really are."""

    transitions: Transitions
    returns: Float[Array, "*L D"]


def check(config: ControlConfig) -> None:
    """Refuse settings that cannot be run, before any work or any file depends on them."""
    for name in ("seeds", "steps", "every", "episodes"):
        if getattr(config, name) < 1:
            raise ConfigError(
                problem(f"--{name}", got=getattr(config, name), expected="1 or more", remedy="choose a larger number")
            )
    for name in ("settings", "methods"):
        if not getattr(config, name):
            raise ConfigError(problem(f"--{name}", got="none", expected="at least one", remedy="name some"))


def sweep(config: ControlConfig, progress: Callable[[int, int], None]) -> tuple[DataSets, dict[str, Lane], float]:
    """The data, and what each method made of it: leading axes settings, seeds; and the seconds it took."""
    check(config)
    began = time.perf_counter()
    env, critic = CartPole(), load_critic("cartpole")
    data_key, learn_key = jax.random.split(jax.random.key(config.seed))
    data = make_data(data_key, env, critic, config.chosen, config.runs, config.every)
    found = {}
    for number, name in enumerate(dict.fromkeys(config.methods)):
        # The same key for every method: what starts alike, starts alike.
        found[name] = learn_all(learn_key, env, config.algorithm(name), data.transitions, config.episodes)
        progress(number + 1, len(set(config.methods)))
    shape = len(config.chosen), config.runs
    found = {
        name: jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), lanes) for name, lanes in found.items()
    }
    data = DataSets(data.transitions, data.returns.reshape(*shape, -1))
    return data, found, time.perf_counter() - began


def make_data(
    key: Key, env: AbstractEnv, critic: Mlp, settings: tuple[Setting, ...], seeds: int, every: int
) -> DataSets:
    """Draw demonstrators and let them play, every setting and seed at once."""

    @jax.jit
    def draw(keys, precision, bias):
        def one(key, precision, bias):
            return play_demonstrators(key, env, critic, precision, bias, DEMONSTRATORS, EPISODES + MANY_EPISODES)[1]

        return jax.vmap(one)(keys, precision, bias)

    lanes, truth = [], []
    for setting in settings:
        keys = jax.random.split(jax.random.fold_in(key, SETTINGS.index(setting)), seeds)
        level = jnp.full(seeds, setting.max_precision), jnp.full(seeds, setting.bias_scale)
        played = draw(keys, *level)
        truth.append(np.asarray(jax.vmap(lambda p: true_returns(jax.tree.map(lambda x: x[:, EPISODES:], p)))(played)))
        given = jax.tree.map(lambda x: np.asarray(x[:, :, :EPISODES]), played)
        for seed in range(seeds):
            own = to_demonstrations(jax.tree.map(lambda x, seed=seed: x[seed], given))
            lanes.append(Transitions.from_demonstrations(own, every))
    return DataSets(stack(lanes), np.concatenate(truth))


def learn(key: Key, env: AbstractEnv, algorithm: AbstractOffline, data: Transitions, episodes: int) -> Lane:
    """Train on one data set and let the last policy play."""
    train_key, greedy_key, sampled_key = jax.random.split(key, 3)
    state, info = train(algorithm, train_key, data, env.actions, DEMONSTRATORS)
    policy = algorithm.policy(state.parameters)
    last = max(1, algorithm.steps // 100)
    return Lane(
        greedy=jnp.mean(returns(greedy_key, env, policy, episodes, greedy=True)),
        sampled=jnp.mean(returns(sampled_key, env, policy, episodes, greedy=False)),
        log_precision=algorithm.log_precision(state.parameters, data),
        loss=jnp.mean(info.loss[-last:]),
        diverged=state.diverged,
    )


def learn_all(key: Key, env: AbstractEnv, algorithm: AbstractOffline, data: Transitions, episodes: int = 20) -> Lane:
    """Every lane of a stack of data sets, as one program; other real-valued settings do not compile it anew."""
    keys = jax.random.split(key, data.size.shape[0])
    return jax.tree.map(np.asarray, _learn_lanes(algorithm, keys, env, data, episodes))


@functools.partial(jax.jit, static_argnames="episodes")
def _learn_lanes(algorithm, keys, env, data, episodes):
    return jax.vmap(lambda key, own: learn(key, env, algorithm, own, episodes))(keys, data)
