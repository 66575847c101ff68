"""The front door where there is no model of the dynamics: demonstrations in; an ensemble's policy and expertise out."""

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irleed._typing import Int, Key
from irleed.algorithm import AbstractOffline
from irleed.arena import AbstractArena, drawn, likeliest
from irleed.data.demonstrations import Demonstrations
from irleed.data.transitions import Transitions, stack
from irleed.errors import ConfigError, DivergedError, SpaceError, problem
from irleed.evaluate import Earned
from irleed.expertise import Expertise
from irleed.iq.agent import AbstractAgent
from irleed.iq.ensemble import NetworkPolicy
from irleed.iq.judge import judge
from irleed.iq.online import OnlineSoftQ
from irleed.iq.soft_q import SoftQ
from irleed.policy import SoftmaxPolicy
from irleed.run import Progress, train_all

MEMBERS = 8
# Up to this many demonstrators have a bias network each; more share a trunk with this many outputs.
OWN_NETWORKS, RANK = 16, 8
MOST_ACTIONS = 10_000  # larger numbers are something else than choices
EPISODES = 50  # that the policy plays, by its likeliest actions and by drawn ones

Algorithm = AbstractOffline | AbstractAgent


class NetworkFit(eqx.Module):
    """What was learnt: a policy, and who is how good. Members that diverged are in neither."""

    policy: NetworkPolicy
    expertise: Expertise
    returns: tuple[Earned, ...] = eqx.field(static=True)  # of the policy and of the demonstrators; none offline
    history: tuple[dict[str, int | float], ...] = eqx.field(static=True)  # mean loss; empty where agents played
    warnings: tuple[str, ...] = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    seconds: float = eqx.field(static=True)

    def summary(self) -> dict[str, object]:
        """The whole answer as plain values, for JSON."""
        rows = [dataclasses.asdict(row) for row in self.returns]
        return {
            "expertise": self.expertise.to_dict(),
            "ranking": list(self.expertise.ranking),
            "returns": [{key: None if value != value else value for key, value in row.items()} for row in rows],
            "history": list(self.history),
            "steps": self.steps,
            "members": self.policy.members.sharpness.shape[0],
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
        }


def suitable(
    demonstrators: int, *, online: bool = False, iq: bool = False, survival: bool = False
) -> SoftQ | OnlineSoftQ:
    """IRLEED, or IQ-Learn, with the biases that suit the number of demonstrators; see `SoftQ.survival`."""
    changes: dict[str, object] = {"rank": None if demonstrators <= OWN_NETWORKS else RANK}
    if iq:
        changes |= {"learn_precision": False, "learn_bias": False}
    if online:
        playing = OnlineSoftQ.survival() if survival else OnlineSoftQ()
        return dataclasses.replace(playing, learner=dataclasses.replace(playing.learner, **changes))
    return dataclasses.replace(SoftQ.survival() if survival else SoftQ(), **changes)


def fit_networks(
    demonstrations: Demonstrations,
    algorithm: Algorithm | None = None,
    *,
    arena: AbstractArena | None = None,
    members: int = MEMBERS,
    seed: int = 0,
    progress: Progress | None = None,
) -> NetworkFit:
    r"""Learn from demonstrations with discrete actions, by an ensemble of networks trained as one batch.

    Every member starts from its own random numbers. The first learns from the data as they are, every other one from
    its own bootstrap resample of each demonstrator's episodes, so that intervals, which are quantiles over the members,
    know how much the data vary as well as the training. Someone with one episode has only the latter.

    In the expertise, precision is the median over members in the gauge; bias the root mean square of what a
    demonstrator adds to the shared values where they acted, over that of the shared values (both relative to their mean
    over actions: what does not depend on the action changes no choice); `log_likelihood` the members' mean; `weight`
    the share in the sum of precision times transitions.

    **Arguments:**

    - `algorithm`: IRLEED by default, offline, or online if there is an arena. `irleed.iq.soft_q`, `irleed.iq.online`
      and `irleed.baselines` have the others; agents need an arena.
    - `arena`: where agents learn, and where what was learnt is tried; see `irleed.arena`.
    - `members`: of the ensemble.
    - `progress`: called as the fit proceeds.
    """
    began = time.perf_counter()
    algorithm = suitable(demonstrations.demonstrators, online=arena is not None) if algorithm is None else algorithm
    actions = check(demonstrations, algorithm, arena, members)
    sample_key, train_key, play_key = jax.random.split(jax.random.key(seed), 3)
    data = Transitions.from_demonstrations(demonstrations)
    samples = [resampled(jax.random.fold_in(sample_key, member), demonstrations) for member in range(1, members)]
    many = stack([data, *(Transitions.from_demonstrations(sample) for sample in samples)])
    keys, count = jax.random.split(train_key, members), demonstrations.demonstrators
    losses: list[tuple[int, np.ndarray]] = []
    if isinstance(algorithm, AbstractOffline):
        state, losses = train_all(algorithm, keys, many, actions, count, progress)
    else:
        state = _needed(arena).learn(algorithm, keys, many, count, progress).learner
    kept, warnings = _sound(algorithm, state)
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], state.parameters)
    policy = jax.tree.map(np.asarray, NetworkPolicy(jax.vmap(algorithm.policy)(parameters)))
    return NetworkFit(
        policy=policy,
        expertise=judge(demonstrations.names, algorithm, parameters, data),
        returns=() if arena is None else _earned(play_key, arena, policy, demonstrations),
        history=tuple({"step": step, "loss": float(loss[kept].mean())} for step, loss in losses),
        warnings=warnings,
        steps=algorithm.steps,
        seconds=time.perf_counter() - began,
    )


def resampled(key: Key, data: Demonstrations) -> Demonstrations:
    """As many episodes of each demonstrator as there are, drawn with replacement."""
    order = np.argsort(data.owner, kind="stable")
    owner, count = data.owner[order], np.bincount(data.owner)
    first = np.cumsum(count) - count
    draw = np.asarray(jax.random.uniform(key, (len(order),), jnp.float32), float)
    return data.take(order[first[owner] + (draw * count[owner]).astype(int)])


def check(data: Demonstrations, algorithm: Algorithm, arena: AbstractArena | None, members: int) -> int:
    """The number of actions; what cannot be fitted is refused, before any work or any file depends on it."""
    least = algorithm.warm + 1 if isinstance(algorithm, AbstractAgent) else 1
    for name, value, lowest in (("seeds", members, 1), ("steps", algorithm.steps, least)):
        if value < lowest:
            remedy = "choose a larger number" + (": the first ones only fill the memory" if lowest > 1 else "")
            raise ConfigError(problem(f"--{name}", got=value, expected=f"{lowest} or more", remedy=remedy))
    if isinstance(algorithm, AbstractAgent):
        _needed(arena)
    largest = _largest_action(np.asarray(data.action))
    if arena is None:
        return largest + 1
    if largest >= arena.actions:
        expected = f"0 to {arena.actions - 1}, the environment's"
        raise SpaceError(problem("actions", got=largest, expected=expected, remedy="name the one they were made in"))
    if data.obs.shape[1:] != arena.observation_shape:
        got, expected = f"shape {data.obs.shape[1:]}", f"{arena.observation_shape}, the environment's"
        raise SpaceError(problem("observations", got=got, expected=expected, remedy="name the one they were made in"))
    return arena.actions


def _largest_action(action: np.ndarray) -> int:
    """The largest of actions that are whole numbers from 0."""
    whole, several = action.ndim == 1 and bool(np.all(action == np.floor(action))), "two actions or more from 0"
    if not whole:
        got = f"shape {action.shape[1:]}" if action.ndim > 1 else f"{action[action != np.floor(action)][0]}"
        remedy = "continuous actions are not supported yet"
        raise SpaceError(problem("actions", got=got, expected="one whole number each", remedy=remedy))
    if action.min() < 0 or action.max() >= MOST_ACTIONS:
        got, remedy = f"{action.min()} to {action.max()}", "number the actions from 0"
        raise SpaceError(problem("actions", got=got, expected=f"0 to {MOST_ACTIONS - 1} at most", remedy=remedy))
    if action.max() == 0:
        raise SpaceError(problem("actions", got="0 alone", expected=several, remedy="add data where there is a choice"))
    return int(action.max())


def _needed(arena: AbstractArena | None) -> AbstractArena:
    if arena is None:
        remedy = "name one, or choose an algorithm that learns offline"
        raise ConfigError(problem("an agent", got="no environment", expected="one to play in", remedy=remedy))
    return arena


def _sound(algorithm: Algorithm, state) -> tuple[Int[np.ndarray, " K"], tuple[str, ...]]:
    """The members that ended with numbers, and what is to be said about the others."""
    finite = [np.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in jax.tree.leaves(state.parameters)]
    step = np.where(np.asarray(state.diverged) >= 0, state.diverged, np.where(np.all(finite, 0), -1, state.step))
    lost, members = np.flatnonzero(step >= 0), len(step)
    if len(lost) == 0:
        return np.arange(members), ()
    places = ", ".join(f"member {member} at step {step[member]}" for member in lost[:MEMBERS])
    said = f"{len(lost)} of {members} members diverged ({places}) with {' '.join(repr(algorithm).split())}"
    if len(lost) == members:
        remedy = "lower the rates, or look for extreme values in the data"
        raise DivergedError(problem("training", got=said, expected="losses that stay numbers", remedy=remedy))
    return np.flatnonzero(step < 0), (f"{said}; they are left out of the policy and the intervals",)


def _earned(key: Key, arena: AbstractArena, policy: NetworkPolicy, data: Demonstrations) -> tuple[Earned, ...]:
    """What the policy earns in the arena, and beside it what the demonstrators did, if that is known."""
    actor = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], SoftmaxPolicy(policy, jnp.asarray(1.0, jnp.float32)))
    rows = [
        Earned.of(f"policy, {name} actions", arena.returns(jax.random.fold_in(key, number), actor, act, EPISODES)[0])
        for number, (name, act) in enumerate((("likeliest", likeliest), ("drawn", drawn)))
    ]
    returns = data.returns()
    if returns is not None:
        rows += [Earned.of(name, returns[data.owner == number]) for number, name in enumerate(data.names)]
    return tuple(rows)
