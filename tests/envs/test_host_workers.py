"""Lanes in worker processes are those of one process, and no worker outlives the one that started it."""

import contextlib
import gc
import multiprocessing
import subprocess
import sys
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from irleed.envs.host import HostEnv, make_host
from irleed.envs.step import Transition
from irleed.errors import ConfigError, IrleedError, SpaceError

FAULTY = '''
import os

import gymnasium
import numpy as np


class Faulty(gymnasium.Env):
    """The second action is its end, in one way or another."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        if action == 1 and self.fault == "raise":
            raise ValueError("out of\\nfuel")
        if action == 1:
            os._exit(3)
        return np.zeros(2), 0.0, False, False, {}


gymnasium.register("Faulty-v0", Faulty)
'''

KILLED = """
from irleed.envs.host import make_host

if __name__ == "__main__":
    host = make_host("CartPole-v1", 2, workers=1)
    print(host.reset().shape, flush=True)
    input()
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    """The name of an environment that workers know too: the module that registers it is part of it."""
    (tmp_path / "faulty_lanes.py").write_text(FAULTY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "faulty_lanes:Faulty-v0"
    sys.modules.pop("faulty_lanes", None)
    gymnasium.registry.pop("Faulty-v0", None)


def play(host: HostEnv, steps: int) -> list[Transition]:
    """The same actions whoever runs the lanes, with a reset in the middle."""
    generator, seen = np.random.default_rng(0), []
    for t in range(steps):
        if t == steps // 2:
            host.reset()
        seen.append(host.step(generator.integers(0, host.actions, host.lanes)))
    return seen


def one_line(caught: pytest.ExceptionInfo[IrleedError]) -> str:
    message = str(caught.value)
    assert "\n" not in message and "expected" in message
    return message


@pytest.mark.parametrize("env_id, autoreset", [("CartPole-v1", "next_step"), ("Blackjack-v1", "same_step")])
def test_workers_change_nothing(env_id, autoreset):
    """Not a bit, of lanes that do not divide evenly; what is no Box is made a vector in the workers."""
    alone, spread = (make_host(env_id, 5, seed=3, autoreset=autoreset, workers=workers) for workers in (0, 2))
    assert len(multiprocessing.active_children()) == 2
    np.testing.assert_array_equal(alone.obs, spread.obs)
    one, other = play(alone, 60), play(spread, 60)
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert any(step.terminated.any() for step in other)
    for host in (alone, spread, spread):  # to close again does no harm
        host.close()
    assert not multiprocessing.active_children()
    with pytest.raises(IrleedError, match="got closed") as caught:
        spread.step(np.zeros(5, int))
    one_line(caught)


@pytest.mark.parametrize("workers", [0, 2])
def test_lanes_that_rest_do_nothing_and_change_nothing(workers):
    """The others go on as if nothing were; after a reset all do."""
    alone, spared = (make_host("CartPole-v1", 5, seed=3, workers=count) for count in (0, workers))
    with contextlib.closing(alone), contextlib.closing(spared):
        resting, actions = np.array([True, False, True, False, False]), np.zeros(5, int)
        alone.step(actions), spared.step(actions)
        spared.rest(resting)
        before = spared.obs[resting]
        for _ in range(30):
            one, other = alone.step(actions), spared.step(actions)
            for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
                np.testing.assert_array_equal(a[~resting], b[~resting])
            np.testing.assert_array_equal(other.next_obs[resting], before)
            assert not other.reward[resting].any() and not other.terminated[resting].any()
        alone.reset(7), spared.reset(7)
        np.testing.assert_array_equal(alone.step(actions).next_obs, spared.step(actions).next_obs)


@pytest.mark.parametrize("fault, said", [("raise", "ValueError: out of fuel"), ("die", "exit code 3")])
def test_a_worker_that_fails_says_so(faulty, fault, said):
    host = make_host(faulty, 5, workers=2, fault=fault)
    assert not host.step(np.zeros(5, int)).terminated.any()
    with pytest.raises(IrleedError, match=said) as caught:
        host.step(np.array([0, 0, 0, 0, 1]))
    assert f"environment {faulty}, lanes 2 to 4" in one_line(caught)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("interrupted", [True, False])
def test_no_worker_is_left_behind(monkeypatch, interrupted):
    """By a parent that is interrupted as it waits, nor by one that forgets."""
    host = make_host("CartPole-v1", 2, workers=1)
    if interrupted:

        def interrupt(*args: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(host._engine, "_wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            host.reset()
    else:
        del host
        gc.collect()
    assert not multiprocessing.active_children()


def test_no_worker_outlives_a_parent_that_is_killed(tmp_path):
    """Parent and worker write to the same pipe: it ends with the last of them."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED, encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline().strip() == b"(2, 4)"
        parent.kill()
        parent.communicate(timeout=60)


def test_a_name_that_only_the_parent_knows_is_refused(faulty):
    gymnasium.make(faulty, fault="raise")  # known from here on, without the module
    with pytest.raises(ConfigError, match="NameNotFound.*module:id") as caught:
        make_host("Faulty-v0", 1, workers=1, fault="raise")
    one_line(caught)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "arguments, options, parts",
    [
        (("CartPole-v1", 2), {"workers": -1}, ("workers", "-1", "0 or more")),
        (("CartPole-v1", 2, "envpool"), {"workers": 2}, ("workers of envpool", "leave it out")),
        (("Nowhere-v1", 2), {"workers": 2}, ("environment Nowhere-v1", "NameNotFound")),
        (("CartPole-v1", 2), {"workers": 2, "wrappers": [lambda env: env]}, ("workers", "pickled")),
    ],
)
def test_what_cannot_be_spread_is_refused_in_one_line(arguments, options, parts):
    """Without a worker having been started."""
    with pytest.raises((ConfigError, SpaceError)) as caught:
        make_host(*arguments, **options)
    message = one_line(caught)
    assert all(part in message for part in parts), message
    assert not multiprocessing.active_children()
