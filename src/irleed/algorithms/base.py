"""The interface of algorithms on networks: settings, state, and a step of Adam on a loss.

An algorithm is an `eqx.Module` whose fields are its settings. `update(key, state, data)` describes one run on one data
set; seeds and settings are leading axes outside. Real-valued settings are leaves, so that a sweep is one program.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from irleed._typing import Array, Float, Int, Key, Scalar, Shaped
from irleed.data.transitions import Inputs, Row, Transitions
from irleed.envs.step import Actions
from irleed.errors import ConfigError
from irleed.model.demonstrators import Description
from irleed.policies.base import Actor
from irleed.policies.ensemble import MOST_LAYERS

ActionKind = Literal["discrete", "continuous"]
MOST_WHOLE, WIDEST = (1 << 31) - 1, 1 << 16  # largest integer setting, and most units of a layer
# Settings with which algorithms learn from vectors, from the data alone.
FOR_VECTORS: dict[str, Any] = {"hidden": (128, 128), "activation": "relu", "batch_size": 64}
# Ranges of settings by name, in all algorithms; others are 0 or more.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("steps", "batch_size", "num_envs", "gradient_steps", "buffer_size", "embedding"), (1, MOST_WHOLE)),
    **dict.fromkeys(("discount", "tau", "replay_fraction", "exploration"), (0, 1)),
    "temperature": (1e-30, math.inf),
    **dict.fromkeys(("target_entropy", "held_log_precision"), (-math.inf, math.inf)),
}


class TrainState(eqx.Module):
    """Parameters, and the state of Adam."""

    parameters: Any
    optimiser: optax.OptState
    step: Int[Array, ""]
    diverged: Int[Array, ""]  # the first step whose loss was not finite; -1: none so far


class TrainInfo(eqx.Module):
    """The metrics of one step."""

    loss: Float[Array, ""]


class AbstractAlgorithm(eqx.Module):
    """An algorithm on networks; see `AbstractOffline` and `irleed.algorithms.agent.AbstractAgent`."""

    action_kinds: ClassVar[tuple[ActionKind, ...]]  # the kinds of actions that it can learn from
    steps: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]
    anneal_lr: eqx.AbstractVar[bool]  # whether learning rates decay to zero, see `cosine_decay`

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_setting(f"{type(self).__name__}.{field.name}", field, getattr(self, field.name))

    @abc.abstractmethod
    def parameters(self, key: Key, inputs: Inputs, actions: Actions, demonstrators: int) -> Any:
        """The initial parameters."""

    @abc.abstractmethod
    def learning_rates(self) -> dict[str, Scalar]:
        """The learning rate of each field of the parameters."""

    @abc.abstractmethod
    def policy(self, parameters: Any) -> Actor:
        """The learnt policy."""

    @abc.abstractmethod
    def log_precision(self, parameters: Any, data: Transitions) -> Float[Array, " D"]:
        """Each demonstrator's log precision, in the gauge; zeros where the algorithm treats them alike."""

    @abc.abstractmethod
    def describe(
        self, parameters: Any, obs: Shaped[Array, "..."], action: Shaped[Array, "..."], who: Int[Array, ""]
    ) -> Description:
        """Likelihood and bias of an action of demonstrator `who` in one state."""


class AbstractOffline(AbstractAlgorithm):
    """An algorithm that learns from demonstrations alone."""

    @abc.abstractmethod
    def loss(self, parameters: Any, batch: Row) -> Float[Array, ""]:
        """The loss of a batch."""


def _check_setting(where: str, field: dataclasses.Field[Any], value: Any) -> None:
    """Refuse unknown choices and numbers out of range."""
    if get_origin(field.type) is Literal:
        if value not in get_args(field.type):
            expected = " or ".join(map(repr, get_args(field.type)))
            raise ConfigError(where, got=repr(value), expected=expected, remedy="choose one of them")
    elif isinstance(value, tuple | int | float | np.ndarray | jax.Array) and not isinstance(value, Tracer):
        largest = MOST_WHOLE if isinstance(value, int) else math.inf
        low, high = (1, WIDEST) if isinstance(value, tuple) else RANGES.get(field.name, (0, largest))
        if isinstance(value, tuple) and len(value) >= MOST_LAYERS:
            expected = f"at most {MOST_LAYERS - 1} layers"
            raise ConfigError(where, got=f"{len(value)} layers", expected=expected, remedy="choose fewer")
        if not np.all((low <= np.asarray(value)) & (np.asarray(value) <= high)):  # NaN is refused too
            small = high >= WIDEST and not np.all(low <= np.asarray(value))
            expected = f"{low:g} or more" if small else f"{low:g} to {high:g}"
            raise ConfigError(where, got=value, expected=expected, remedy="choose another value")


def initial_state(parameters: Any) -> TrainState:
    """The state before the first step."""
    zero, none = jnp.asarray(0, jnp.int32), jnp.asarray(-1, jnp.int32)
    return TrainState(parameters, optax.scale_by_adam().init(parameters), zero, none)


def adam_step(
    loss: Callable[[Any], Float[Array, ""]], learning_rates: dict[str, Scalar], factor: Scalar, state: TrainState
) -> tuple[TrainState, TrainInfo]:
    """One step of Adam, each field of the parameters at its own learning rate times `factor`."""
    found, gradient = jax.value_and_grad(loss)(state.parameters)
    direction: Any
    direction, optimiser = optax.scale_by_adam().update(gradient, state.optimiser)
    parts = {name: _scaled(getattr(direction, name), -factor * rate) for name, rate in learning_rates.items()}
    change = dataclasses.replace(direction, **parts)
    new = TrainState(
        parameters=optax.apply_updates(state.parameters, change),
        optimiser=optimiser,
        step=state.step + 1,
        diverged=jnp.where((state.diverged < 0) & ~jnp.isfinite(found), state.step, state.diverged),
    )
    return new, TrainInfo(found)


def rate_of(learning_rate: Scalar | None) -> Scalar:
    """A learning rate; 0 for None, which holds the parameters fixed."""
    return 0.0 if learning_rate is None else learning_rate


def cosine_decay(step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """Cosine decay from 1 to 0."""
    return 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step / steps, 1.0))).astype(jnp.float32)


def _scaled(tree: Any, factor: Scalar) -> Any:
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def init(algorithm: AbstractOffline, key: Key, data: Transitions, actions: Actions, demonstrators: int) -> TrainState:
    """The state before the first step."""
    return initial_state(algorithm.parameters(key, data.inputs, actions, demonstrators))


def update_on(algorithm: AbstractOffline, state: TrainState, batch: Row) -> tuple[TrainState, TrainInfo]:
    """One step of Adam on a batch; observations of any type are converted to single precision."""
    seen = (batch.obs, batch.next_obs, batch.initial)
    batch = eqx.tree_at(
        lambda b: (b.obs, b.next_obs, b.initial), batch, [jnp.asarray(each, jnp.float32) for each in seen]
    )
    factor = cosine_decay(state.step, algorithm.steps) if algorithm.anneal_lr else 1.0
    return adam_step(lambda parameters: algorithm.loss(parameters, batch), algorithm.learning_rates(), factor, state)


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
    """`steps` more updates, each on a sampled batch; a run in several parts equals the whole run.

    The rows of all batches are sampled beforehand, eight bytes a row: on a CPU, sampling would take a sixth of a step.
    """
    numbers = state.step + jnp.arange(steps)
    ahead = jax.vmap(lambda number: data.draw(jax.random.fold_in(loop_key, number), algorithm.batch_size))(numbers)
    return jax.lax.scan(lambda state, own: update_on(algorithm, state, data.rows(*own)), state, ahead)
