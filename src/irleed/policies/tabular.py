"""Policies of finite MDPs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from irleed._io.arrays import Tensor
from irleed._io.text import one_line
from irleed._typing import Array, Float, Int, Scalar
from irleed.errors import SpaceError
from irleed.policies.base import VERSION, Policy, TableActor, checked_actions, read_tensors, write_tensors

FORMAT = "irleed-tabular-policy"
LEAST = 1e-12  # least probability of an action in likelihoods
ROUNDING = 1e-4  # how far probabilities in single precision may be from a sum of 1


class TabularPolicy(Policy):
    """Action probabilities in every state of a finite MDP."""

    probabilities: Float[Array, "S A"]

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """That of the number of a state."""
        return ()

    @property
    def actions(self) -> int:
        """The number of actions."""
        return self.probabilities.shape[1]

    @property
    def actor(self) -> TableActor:
        """The same policy for traced functions."""
        return TableActor(jnp.asarray(self.probabilities, jnp.float32))

    def predict(
        self, observation: ArrayLike | int, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Array | np.integer, None]:
        """Greedy or sampled actions for one state or an array of states, and None."""
        state, table = self._states(observation), np.asarray(self.probabilities)
        if deterministic:
            return table.argmax(-1)[state], None
        draw = np.random.default_rng(seed).random((*state.shape, 1))
        action = (np.cumsum(table, -1)[state] < draw).sum(-1)
        return np.minimum(action, table.shape[1] - 1), None

    def log_likelihood(self, observation: ArrayLike, action: ArrayLike) -> Float[np.ndarray, " B"]:
        """The log probability of each action of a batch."""
        given = np.asarray(observation)
        if given.dtype.kind == "f" and np.all(given == np.floor(given)):  # data sets may have states as floats
            given = given.astype(np.int64)
        state, taken = self._states(given), checked_actions(action, self.actions)
        return np.log(np.maximum(np.asarray(self.probabilities, float), LEAST))[state, taken]

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: arrays and a line of JSON, no code."""
        write_tensors(path, {"format": FORMAT, "version": VERSION}, {"probabilities": np.asarray(self.probabilities)})

    @classmethod
    def load(cls, path: str | Path) -> "TabularPolicy":
        """Load a policy that `save` wrote."""
        _, arrays = read_tensors(path, (FORMAT,), _check_table, _check_probabilities)
        return cls(probabilities=arrays["probabilities"])

    def _states(self, observation: ArrayLike | int) -> Int[np.ndarray, "..."]:
        """States; anything but their numbers is refused."""
        state, count = np.asarray(observation), len(self.probabilities)
        whole = np.issubdtype(state.dtype, np.integer)
        bad = state[(state < 0) | (state >= count)] if whole else state.ravel()
        if not whole or bad.size:
            got = bad[0] if whole else f"numbers of type {state.dtype}"
            expected = f"states 0 to {count - 1}"
            raise SpaceError("observation", got=got, expected=expected, remedy="index states")
        return state


def boltzmann_probabilities(q: Float[Array, "S A"], sharpness: Scalar) -> Float[Array, "S A"]:
    r"""$\pi \propto \exp(\kappa A / \mathrm{sd}(A))$ with advantages $A = Q - \mathrm{mean}_a Q$.

    The greedy policy of a noisy reward can loop for ever; a stochastic one leaves loops. Its sharpness is relative to
    the standard deviation of the advantages, so that one value suits every scale of rewards.
    """
    advantage = q - jnp.mean(q, -1, keepdims=True)
    spread = jnp.std(advantage)
    return jax.nn.softmax(sharpness * advantage / jnp.where(spread > 0, spread, 1.0))


def _check_table(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if list(found) != ["probabilities"] or len(found["probabilities"]) != 2:
        raise ValueError(f"tensors {one_line(found)}, and not the probabilities of states and actions alone")


def _check_probabilities(arrays: Mapping[str, np.ndarray]) -> None:
    table = arrays["probabilities"]
    total = table.sum(-1, dtype=float)
    wrong = ~((table >= 0).all(-1) & (np.abs(total - 1) <= ROUNDING))
    if wrong.any():
        state = int(np.argmax(wrong))
        raise ValueError(f"probabilities of state {state} from {table[state].min():g} on that sum to {total[state]:g}")
