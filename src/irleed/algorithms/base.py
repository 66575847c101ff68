"""What every algorithm on networks has in common: a state, a step of Adam on its loss, a guard against divergence.

An algorithm is an `eqx.Module` whose fields are its settings. `update(key, state, data)` describes one run on one data
set; seeds and settings are leading axes outside. Real-valued settings are leaves, so that a sweep is one program.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Bounds
from irleed.model.actions import AbstractView
from irleed.policies.base import AbstractActor

Actions = int | Bounds  # how many there are to choose from, or what their numbers can be


class TrainState(eqx.Module):
    """Parameters, and what Adam remembers of them."""

    parameters: Any
    optimiser: optax.OptState
    step: Int[Array, ""]
    diverged: Int[Array, ""]  # the first step whose loss was no number; -1: none so far


class TrainInfo(eqx.Module):
    """What one step looked like."""

    loss: Float[Array, ""]


class AbstractAlgorithm(eqx.Module):
    """What is learnt, how fast, and what it amounts to."""

    steps: eqx.AbstractVar[int]
    batch: eqx.AbstractVar[int]
    decay: eqx.AbstractVar[bool]  # whether rates go down to nought, see `cooling`

    @abc.abstractmethod
    def parameters(self, key: Key, inputs: Inputs, actions: Any, demonstrators: int) -> Any:
        """Where training starts; `actions` is a number of them for some algorithms, `Bounds` for others."""

    @abc.abstractmethod
    def rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""

    @abc.abstractmethod
    def policy(self, parameters: Any) -> AbstractActor:
        """What was learnt to do."""

    @abc.abstractmethod
    def log_precision(self, parameters: Any, data: Transitions) -> Float[Array, " D"]:
        """How consistently each demonstrator chooses, as far as the algorithm can tell; in the gauge."""

    @abc.abstractmethod
    def view(self, parameters: Any, observation: Shaped[Array, "..."], demonstrator: Int[Array, ""]) -> AbstractView:
        """How one demonstrator acts in one situation, and why."""


class AbstractOffline(AbstractAlgorithm):
    """An algorithm that learns from demonstrations alone."""

    @abc.abstractmethod
    def loss(self, parameters: Any, batch: Row) -> Float[Array, ""]:
        """To be minimised."""


def fresh(parameters: Any) -> TrainState:
    """Before the first step."""
    zero, none = jnp.asarray(0, jnp.int32), jnp.asarray(-1, jnp.int32)
    return TrainState(parameters, optax.scale_by_adam().init(parameters), zero, none)


def adam_step(
    loss: Callable[[Any], Float[Array, ""]],
    rates: dict[str, Scalar],
    factor: Scalar,
    state: TrainState,
    clip: Scalar | None = None,
) -> tuple[TrainState, TrainInfo]:
    """One step of Adam, each field of the parameters at its own rate times `factor`; `rates` names them all.

    A gradient longer than `clip`, if there is one, is shortened to it.
    """
    found, gradient = jax.value_and_grad(loss)(state.parameters)
    if clip is not None:
        gradient = _scaled(gradient, jnp.minimum(1.0, clip / (optax.tree.norm(gradient) + 1e-12)))
    direction: Any
    direction, optimiser = optax.scale_by_adam().update(gradient, state.optimiser)
    parts = {name: _scaled(getattr(direction, name), -factor * rate) for name, rate in rates.items()}
    change = dataclasses.replace(direction, **parts)
    new = TrainState(
        parameters=optax.apply_updates(state.parameters, change),
        optimiser=optimiser,
        step=state.step + 1,
        diverged=jnp.where((state.diverged < 0) & ~jnp.isfinite(found), state.step, state.diverged),
    )
    return new, TrainInfo(found)


def cooling(step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """From 1 to 0 along half a cosine: the last parameters are the ones used, so they should have come to rest."""
    return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step / steps, 1.0))).astype(jnp.float32)


def _scaled(tree: Any, factor: Scalar) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def init(algorithm: AbstractOffline, key: Key, data: Transitions, actions: Actions, demonstrators: int) -> TrainState:
    """Before the first step."""
    return fresh(algorithm.parameters(key, data.inputs, actions, demonstrators))


def update(algorithm: AbstractOffline, key: Key, state: TrainState, data: Transitions) -> tuple[TrainState, TrainInfo]:
    """One step of Adam on a batch drawn from the data."""
    return update_on(algorithm, state, data.sample(key, algorithm.batch))


def update_on(algorithm: AbstractOffline, state: TrainState, batch: Row) -> tuple[TrainState, TrainInfo]:
    """One step of Adam on a batch, whose observations may be of any type."""
    seen = (batch.obs, batch.next_obs, batch.initial)
    batch = eqx.tree_at(
        lambda b: (b.obs, b.next_obs, b.initial), batch, [jnp.asarray(each, jnp.float32) for each in seen]
    )
    factor = cooling(state.step, algorithm.steps) if algorithm.decay else 1.0
    return adam_step(lambda parameters: algorithm.loss(parameters, batch), algorithm.rates(), factor, state)


def train(
    algorithm: AbstractOffline, key: Key, data: Transitions, actions: Actions, demonstrators: int
) -> tuple[TrainState, TrainInfo]:
    """A whole run in one scan; the key of a step depends on its number alone."""
    init_key, loop_key = jax.random.split(key)
    start = init(algorithm, init_key, data, actions, demonstrators)
    return advance(algorithm, loop_key, start, data, algorithm.steps)


def advance(
    algorithm: AbstractOffline, loop_key: Key, state: TrainState, data: Transitions, steps: int
) -> tuple[TrainState, TrainInfo]:
    """So many steps more, `update` again and again; a run cut into parts is the same run.

    What each step learns from is drawn ahead, all steps at once, in eight bytes a row: on a CPU, to draw is a sixth of
    a step otherwise.
    """
    numbers = state.step + jnp.arange(steps)
    ahead = jax.vmap(lambda number: data.draw(jax.random.fold_in(loop_key, number), algorithm.batch))(numbers)
    return jax.lax.scan(lambda state, own: update_on(algorithm, state, data.rows(*own)), state, ahead)
