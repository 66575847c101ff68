"""Experts: what is learnt from a critic's play is what it does; stages of training are kept as they were."""

import csv
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed._io.files import LOCK, locked
from irleed.algorithms.experts import SacExpert
from irleed.algorithms.iq import OfflineIrleed, SacIrleed
from irleed.cli import main
from irleed.data.transitions import Inputs
from irleed.envs.jax import CartPole
from irleed.envs.step import Bounds
from irleed.model.actions import Squashing
from irleed.model.networks import Mlp
from irleed.policies.base import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import DeviceBackend, HostBackend, greedy_action
from irleed.simulation.critics import (
    CriticDemonstrator,
    Stages,
    by_actor_critic,
    by_imitation,
    demonstrations_of,
    load_critic,
    save_critic,
)

pytestmark = pytest.mark.optax
SMALL = SacExpert(
    hidden=(8,), steps=240, num_envs=4, gradient_steps=1, learning_starts=20, batch_size=8, buffer_size=240
)


def nothing(*done, **figures) -> None:
    """Nobody to tell."""


def test_a_critic_is_read_back_with_its_standardisation_and_so_are_biases(tmp_path):
    inputs = Inputs(jnp.asarray([1.0, -2.0, 0.5], jnp.float32), jnp.asarray([0.1, 3.0, 1.0], jnp.float32))
    network = Mlp.init(jax.random.key(0), inputs, (8, 2), "elu")
    save_critic(tmp_path / "c.safetensors", network)
    again, obs = load_critic(tmp_path / "c.safetensors"), jnp.asarray([0.3, 0.2, -0.1], jnp.float32)
    assert np.array_equal(again(obs), network(obs))
    person = CriticDemonstrator.draw(jax.random.key(1), again, 1.0, 1.0)
    assert np.array_equal(person.bias.inputs.spread, inputs.spread)


def test_a_critic_learnt_from_play_acts_as_the_one_that_played(tmp_path):
    """In situations that it has not seen."""
    critic, learner = (
        load_critic("cartpole"),
        OfflineIrleed.iq(hidden=(16,), activation="elu", steps=400, penalty=0.005),
    )
    experts = by_imitation(DeviceBackend(CartPole()), jax.random.key(0), critic, 3, learner, 2, nothing)
    assert experts.diverged.tolist() == [-1, -1]
    experts.save(tmp_path / "one.safetensors", 1)
    learnt = load_critic(tmp_path / "one.safetensors")
    played = DeviceBackend(CartPole()).play(jax.random.key(7), jax.tree.map(lambda leaf: leaf[None], critic), greedy, 2)
    obs = played.obs[played.alive]
    same = np.argmax(jax.vmap(critic)(obs), -1) == np.argmax(jax.vmap(learnt)(obs), -1)
    assert len(obs) > 500 and same.mean() > 0.8


def greedy(critic, key, obs):
    return jnp.argmax(critic(obs))


def test_stages_of_training_are_kept_with_what_they_earn(tmp_path):
    """A file each, the last ones being what is there in the end; and a table of them."""
    backend = HostBackend("Pendulum-v1")
    try:
        stages = Stages(tmp_path / "stages", backend, 0)
        keys = jax.random.split(jax.random.key(0), 2)
        experts = by_actor_critic(backend, keys, SMALL, nothing, stages, 2)
    finally:
        backend.close()
    with (tmp_path / "stages" / "stages.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["steps"]) for row in rows] == [("0", "120"), ("1", "120"), ("0", "240"), ("1", "240")]
    assert all(-2000 < float(row["greedy"]) < -100 and -2000 < float(row["drawn"]) < -100 for row in rows)
    obs = np.array([0.5, 0.1, -1.0], np.float32)
    first, last = (EnsemblePolicy.load(tmp_path / "stages" / f"1_{steps}.safetensors") for steps in (120, 240))
    end = greedy_action(jax.tree.map(lambda leaf: leaf[1], experts.policies), jax.random.key(0), jnp.asarray(obs))
    np.testing.assert_allclose(last.predict(obs, deterministic=True)[0], end, rtol=1e-5)
    assert not np.allclose(first.predict(obs, deterministic=True)[0], end, rtol=1e-5)


def test_a_policy_is_imitated_from_what_it_does(tmp_path):
    """Every run learns from the same steps, which are the policy's own; and learns something else from them."""
    backend, teacher = HostBackend("Pendulum-v1"), steady_policy()
    try:
        data = demonstrations_of(backend, jax.random.key(1), teacher, 2, 2)
        assert np.array_equal(data.obs[0], data.obs[1]) and data.size.tolist() == [400, 400]
        expected, _ = teacher.predict(np.asarray(data.obs[0]), deterministic=True)
        np.testing.assert_allclose(data.action[0], expected, atol=0.1)
        agent = SacIrleed.iq(hidden=(8,), steps=160, num_envs=4, learning_starts=20, batch_size=8, buffer_size=160)
        experts = by_actor_critic(backend, jax.random.split(jax.random.key(0), 2), agent, nothing, data=data)
    finally:
        backend.close()
    assert experts.diverged.tolist() == [-1, -1]
    experts.save(tmp_path / "one.safetensors", 1)
    learnt, obs = EnsemblePolicy.load(tmp_path / "one.safetensors"), np.asarray(data.obs[0][:5])
    other = jax.tree.map(lambda leaf: leaf[0], experts.policies)
    assert not np.allclose(
        learnt.predict(obs, deterministic=True)[0],
        jax.vmap(greedy_action, (None, None, 0))(other, jax.random.key(0), obs),
        jax.vmap(greedy_action, (None, None, 0))(other, jax.random.key(0), obs),
    )


def steady_policy() -> EnsemblePolicy:
    """Of Pendulum: its actions hardly differ from their middle."""
    plain = Inputs(jnp.zeros(3), jnp.ones(3))
    network = Mlp.init(jax.random.key(3), plain, (8, 2), "relu")
    still = (*network.offsets[:-1], jnp.asarray([0.3, -5.0], jnp.float32))
    network = eqx.tree_at(lambda it: it.offsets, network, still)
    squashing = Squashing.into(Bounds(np.full(1, -2.0), np.full(1, 2.0)))
    return EnsemblePolicy(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], Actor(network, squashing)))


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--env", "Pendulum-v1", "--imitate", "cartpole"], "a saved policy, or one of hopper_a"),
        (["--env", "Pendulum-v1", "--imitate", "hopper_a"], "expected 3 inputs and 1 numbers an action"),
        (["--env", "Pendulum-v1", "--start", "critic.safetensors"], "expected discrete actions, without --imitate"),
        (
            ["--imitate", "cartpole", "--start", "critic.safetensors"],
            "expected discrete actions, without --imitate",
        ),
        (["--stages", "-1"], "0 or more"),
        (["--num-envs", "0"], "1 or more"),
        (["--imitate", "nobody"], "a saved critic, or one of cartpole"),
    ],
)
def test_what_cannot_be_an_expert_is_one_line(arguments, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["expert", "--out", str(tmp_path / "x.safetensors"), *arguments])
    assert stopped.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert said in error[-1] and len(error) == 1 and not list(tmp_path.glob("*.safetensors"))


def test_two_experts_do_not_go_to_one_file(tmp_path, capsys):
    """The second is told which process has it; the folder may have other experts."""
    out = tmp_path / "x.safetensors"
    with locked(tmp_path / f"{LOCK}-{out.name}", "expert"), pytest.raises(SystemExit) as stopped:
        main(["expert", "--out", str(out)])
    assert stopped.value.code == 2 and f"--out {out}: got process {os.getpid()} on " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
