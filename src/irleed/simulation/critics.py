"""Demonstrators who act by a trained critic; the critics and policies that come with the package, and their training.

`weights/policies/README.md` says how the shipped policies were made.
"""

import contextlib
import csv
import importlib.resources
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from irleed._io.arrays import Tensor, read_arrays, read_header, refusing
from irleed._io.files import beside
from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.algorithms import OfflineIrleed, SacIrleed
from irleed.algorithms.experts import SacExpert, SoftQExpert
from irleed.algorithms.training import Progress, train_all
from irleed.data import Demonstrations, Episode
from irleed.data.transitions import Transitions, stack
from irleed.envs import Actions
from irleed.errors import DataError, SpaceError
from irleed.model import Categorical
from irleed.model.networks import Activation, Mlp
from irleed.policies import Actor
from irleed.policies.ensemble import EnsemblePolicy, assembled, check_numbers, check_shapes
from irleed.rollout import AbstractBackend, HostBackend, Trajectory, learn_and_evaluate, sampled_action
from irleed.runs.directory import prepare

SHIPPED = {
    "critics": ("cartpole", "lunarlander", "lunarlander_iq"),
    "policies": tuple(f"hopper_{name}" for name in ("a", "b", "c", "iq_a", "iq_b", "iq_c")),
}
FORMAT, VERSION = "irleed-critic", "1"
STANDARD = ("centre", "spread")  # of observations; critics without standardisation have none
STAGE_EPISODES = 5  # evaluation episodes of every stage, by greedy and by sampled actions each


class BiasKind(eqx.Module):
    """The architecture of bias networks."""

    hidden: tuple[int, ...] = eqx.field(static=True, default=(128, 128))
    activation: Activation = eqx.field(static=True, default="relu")


USUAL = BiasKind()


class CriticDemonstrator(eqx.Module):
    """A demonstrator of known precision and bias who acts by a critic."""

    critic: Mlp
    bias: Mlp
    precision: Float[Array, ""]  # infinite: greedy actions
    bias_scale: Float[Array, ""]

    @classmethod
    def draw(
        cls, key: Key, critic: Mlp, max_precision: Scalar, bias_scale: Scalar, kind: BiasKind = USUAL
    ) -> "CriticDemonstrator":
        r"""Draw $\beta \sim U(0, \texttt{max\_precision})$ and a random bias network."""
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
    """Demonstrators drawn independently, along a leading axis D."""
    draw = jax.vmap(lambda own: CriticDemonstrator.draw(own, critic, max_precision, bias_scale, kind))
    return draw(jax.random.split(key, demonstrators))


def to_demonstrations(trajectories: Trajectory) -> Demonstrations:
    """Episodes with leading axes D, E as a data set."""
    trajectories = jax.tree.map(np.asarray, trajectories)
    episodes = []
    for person, own in enumerate(trajectories.alive):
        for number, alive in enumerate(own):
            one = jax.tree.map(lambda leaf, at=(person, number), alive=alive: leaf[at][alive], trajectories)
            obs, terminated = np.concatenate([one.obs, one.next_obs[-1:]]), bool(one.terminated[-1])
            episodes.append(Episode(obs, one.action, terminated, person, one.reward))
    return Demonstrations.from_episodes(episodes, where="simulated data")


@contextlib.contextmanager
def _weights(kind: str, name: str | Path) -> Iterator[Path]:
    """The file of a critic or policy that comes with the package, by its name; or any other file."""
    if name in SHIPPED[kind]:
        folder = importlib.resources.files("irleed.simulation") / "weights" / kind
        with importlib.resources.as_file(folder / f"{name}.safetensors") as path:
            yield path
    else:
        yield Path(name)


def load_critic(name: str | Path) -> Mlp:
    """A critic that comes with the package, by its name; or one from a file."""
    with (
        _weights("critics", name) as path,
        refusing(path, f"a saved critic, or one of {', '.join(SHIPPED['critics'])}"),
    ):
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


def load_teacher(name: str | Path) -> EnsemblePolicy:
    """A policy that comes with the package, by its name; or one from a file."""
    with _weights("policies", name) as path:
        if not path.is_file():
            expected = f"a saved policy, or one of {', '.join(SHIPPED['policies'])}"
            raise DataError(f"policy {name}", "no such file", expected, "make one with irleed expert")
        return EnsemblePolicy.load(path)


def check_choices(actions: Actions, env_id: str) -> int:
    """The number of discrete actions of an environment; continuous actions, which critics are not for, are refused."""
    if isinstance(actions, int):
        return actions
    got, expected = f"{actions.size} numbers", "choices: a critic has one output for each"
    remedy = "name an environment with discrete actions"
    raise SpaceError(f"environment {env_id}, actions", got=got, expected=expected, remedy=remedy)


def check_fit(
    trained: Mlp | EnsemblePolicy, name: str, observation_shape: tuple[int, ...], actions: Actions, env_id: str
) -> None:
    """Refuse a critic or policy whose observations or actions are not those of the environment."""
    if isinstance(trained, Mlp):
        check_choices(actions, env_id)
        kind, has = "critic", _described(trained.weights[0].shape[0], trained.weights[-1].shape[-1])
    else:
        kind, has = "policy", _described(math.prod(trained.observation_shape), trained.actions)
    needs = _described(math.prod(observation_shape), actions)
    if has != needs:
        raise SpaceError(f"{kind} {name}", got=has, expected=needs, remedy=f"name one for {env_id}")


def _described(inputs: int, actions: Actions) -> str:
    kind = f"{actions} discrete actions" if isinstance(actions, int) else f"{actions.size} numbers an action"
    return f"{inputs} inputs and {kind}"


def save_critic(path: Path, critic: Mlp) -> None:
    """Write what `load_critic` reads: one `weights.N` and one `offsets.N` a layer; `centre` and `spread` of inputs."""
    layers = {name: np.ravel(getattr(critic.inputs, name)) for name in STANDARD}
    layers |= {f"weights.{n}": np.asarray(w) for n, w in enumerate(critic.weights)}
    layers |= {f"offsets.{n}": np.asarray(o) for n, o in enumerate(critic.offsets)}
    with beside(path) as file:
        file.write(save(layers, metadata={"irleed": json.dumps({"format": FORMAT, "version": VERSION})}))


class Stages:
    """Policies at stages of training: a folder with a file for each stage and run, and a table of their returns."""

    def __init__(self, folder: Path, backend: HostBackend, seed: int) -> None:
        self._folder, self._backend, self._key = folder, backend, jax.random.fold_in(jax.random.key(seed), 1)
        prepare(folder)
        with (folder / "stages.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(("file", "run", "steps", "greedy", "drawn"))

    def keep(self, steps: int, policies: Actor, returns: Float[np.ndarray, " P"]) -> None:
        """Save the policies of all runs after `steps` steps."""
        key = jax.random.fold_in(self._key, steps)
        sampled = self._backend.returns(key, policies, sampled_action, STAGE_EPISODES).mean(1)
        with (self._folder / "stages.csv").open("a", newline="", encoding="utf-8") as file:
            for number, (greedy, random) in enumerate(zip(returns, sampled, strict=True)):
                name = f"{number}_{steps}.safetensors"
                select_policy(policies, number).save(self._folder / name)
                csv.writer(file).writerow((name, number, steps, round(float(greedy), 1), round(float(random), 1)))


def select_policy(policies: Actor, number: int) -> EnsemblePolicy:
    """One of several stacked policies, as an ensemble of one."""
    return EnsemblePolicy(jax.tree.map(lambda leaf: jnp.asarray(leaf)[number][None], policies))


class Experts(NamedTuple):
    """Policies along a leading axis, where each diverged (-1: nowhere), and how to write one of them to a file."""

    policies: Actor
    diverged: Int[Array, " P"]
    save: Callable[[Path, int], None]


def by_reward(backend: AbstractBackend, keys: Shaped[Array, " P"], agent: SoftQExpert, progress: Progress) -> Experts:
    """Soft Q-learning on the true reward."""
    learnt = backend.learn(agent, keys, None, 0, progress)[0].learner
    return _critics(jax.vmap(agent.policy)(learnt.parameters), learnt.diverged, learnt.parameters.actor.network)


def by_imitation(
    backend: AbstractBackend,
    key: Key,
    critic: Mlp,
    episodes: int,
    learner: OfflineIrleed,
    seeds: int,
    progress: Progress,
) -> Experts:
    """Inverse soft Q-learning from episodes of a critic, as the critics of the paper's demonstrators were trained.

    A precision of 1 is that of the expert. Critics, and the biases of demonstrators derived from them, standardise
    observations.
    """
    play_key, learn_key = jax.random.split(key)
    expert = draw_demonstrators(play_key, critic, np.inf, 0.0, 1)
    trajectories = backend.play(play_key, expert, CriticDemonstrator.act, episodes)
    learn_keys = jax.random.split(learn_key, seeds)
    state, _ = train_all(learner, learn_keys, _copies(trajectories, seeds), backend.actions, 1, progress)
    return _critics(jax.vmap(learner.policy)(state.parameters), state.diverged, state.parameters.actor.network)


def by_actor_critic(
    backend: HostBackend,
    keys: Shaped[Array, " P"],
    agent: SacExpert | SacIrleed,
    progress: Progress,
    stages: Stages | None = None,
    count: int = 1,
    data: Transitions | None = None,
) -> Experts:
    """Soft actor-critic on the true reward, or from data; with `stages`, policies at `count` stages are saved."""
    demonstrators = 0 if data is None else 1
    if stages is None:
        learnt = backend.learn(agent, keys, data, demonstrators, progress)[0].learner
    else:
        watched: dict[str, Any] = {"every": -(-agent.steps // count), "episodes": STAGE_EPISODES}
        watched |= {"progress": progress, "on_evaluation": stages.keep}
        learnt = learn_and_evaluate(agent, keys, backend, keys[0], data, demonstrators, **watched)[0].learner
    policies = jax.vmap(agent.policy)(learnt.parameters)
    return Experts(policies, learnt.diverged, lambda path, number: select_policy(policies, number).save(path))


def demonstrations_of(backend: HostBackend, key: Key, policy: EnsemblePolicy, episodes: int, seeds: int) -> Transitions:
    """Episodes of a policy by sampled actions, the same for every run."""
    actor = jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy.actor)
    return _copies(backend.play(key, actor, sampled_action, episodes), seeds)


def _copies(trajectories: Trajectory, seeds: int) -> Transitions:
    return stack([Transitions.from_demonstrations(to_demonstrations(trajectories))] * seeds)


def _critics(policies: Actor, diverged: Int[Array, " P"], critics: Mlp) -> Experts:
    def save(path: Path, number: int) -> None:
        save_critic(path, jax.tree.map(lambda leaf: leaf[number], critics))

    return Experts(policies, diverged, save)
