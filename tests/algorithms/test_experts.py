"""Soft Q-learning on the true reward finds the values that are known; replay holds what it should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from loops import on_device
from probes import PROBES

from irleed.algorithms.agent import Replay
from irleed.algorithms.experts import SoftQExpert
from irleed.envs.step import Transition

pytestmark = pytest.mark.optax


@pytest.mark.parametrize("name", [getattr(make, "__name__", str(make)) for make in PROBES])
def test_known_values_are_found(name):
    """Ends are not bootstrapped from, cuts are: each probe catches one mistake."""
    probe = next(make for make in PROBES if getattr(make, "__name__", str(make)) == name)()
    training = {"steps": 4000, "batch_size": 32, "buffer_size": 1000, "learning_starts": 50}
    rates = {"learning_rate": 5e-3, "tau": 0.05}
    agent = SoftQExpert(hidden=(32,), discount=0.8, temperature=1.0, **training, **rates)
    state = jax.jit(lambda key: on_device(agent, key, probe)[0])(jax.random.key(0))
    found = jax.vmap(state.learner.parameters.q)(jnp.asarray(probe.observations))
    np.testing.assert_allclose(found, probe.soft_q(0.8), atol=0.15)


def transition(number: int, valid: bool = True) -> Transition:
    obs = jnp.full(2, number, jnp.float32)
    flag = jnp.asarray(False)
    return Transition(obs, jnp.asarray(number, jnp.int32), jnp.float32(number), flag, flag, obs + 1, jnp.asarray(valid))


def test_the_oldest_make_room_and_what_is_no_step_is_left_out():
    """Whether they come one by one or several at once."""
    steps = ((1, True), (2, False), (3, True), (4, True), (5, True))
    for together in (1, 5):
        replay = Replay.empty(transition(0), 3)
        assert replay.size == 0
        for start in range(0, len(steps), together):
            several = [transition(*step) for step in steps[start : start + together]]
            replay = replay.add(jax.tree.map(lambda *leaves: jnp.stack(leaves), *several))
        assert replay.size == 3 and replay.added == 4
        drawn = replay.sample(jax.random.key(0), 100)
        assert set(np.asarray(drawn.action)) == {3, 4, 5}
        np.testing.assert_array_equal(drawn.next_obs, drawn.obs + 1)
