"""Whatever an engine does when an episode ends, the steps that come out of it are canonical."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from irleed.envs.host import HostEnv, make_host
from irleed.envs.jax import CartPole, CartPoleState
from irleed.envs.step import Transition
from irleed.errors import ConfigError, SpaceError

COUNTER, CLOCK = "irleed-tests/Counter-v0", 4


class Counter(gymnasium.Env):
    """Shows which episode it is and how many steps it has had, and pays as many; the second action ends it."""

    def __init__(self, first: int = 0):
        self.observation_space = gymnasium.spaces.Box(-1, 1000, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2, start=first)
        self.first, self.episode, self.count = first, -1, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.count = self.episode + 1, 0
        return np.array([self.episode, self.count], np.float64), {}

    def step(self, action):
        self.count += 1
        ended = bool(action == self.first + 1)
        return np.array([self.episode, self.count], np.float64), float(self.count), ended, False, {}


@pytest.fixture(autouse=True)
def counter():
    gymnasium.register(COUNTER, lambda **options: Counter(**options), max_episode_steps=CLOCK)
    yield
    gymnasium.registry.pop(COUNTER)


def play(host: HostEnv, steps: int, act: Callable[[int, int], int]) -> Transition:
    """`steps` steps of every lane, as ``[T, L, ...]``; what a lane does depends on how many valid steps it has had."""
    taken, seen = np.zeros(host.lanes, int), []
    for _ in range(steps):
        before = host.obs
        step = host.step(np.array([act(lane, t) for lane, t in enumerate(taken)]))
        np.testing.assert_array_equal(step.obs, before)
        taken += step.valid
        seen.append(step)
    host.close()
    return jax.tree.map(lambda *x: np.stack(x), *seen)


def lanes_of(seen: Transition) -> list[Transition]:
    """The valid steps of each lane, one after another."""
    return [jax.tree.map(lambda x: x[:, i][v], seen) for i, v in enumerate(np.asarray(seen.valid).T)]  # noqa: B023


def check_canonical(seen: Transition, wasteful: bool) -> None:
    """What holds for every engine: `wasteful` ones spend a step on resetting, right after an episode has ended."""
    over = np.asarray(seen.terminated | seen.truncated)
    assert over.any() and not (seen.terminated & seen.truncated).any()
    expected = np.ones_like(over)
    if wasteful:
        expected[1:] = ~over[:-1]
    np.testing.assert_array_equal(seen.valid, expected)
    assert not (over | (np.asarray(seen.reward) != 0))[~seen.valid].any()
    np.testing.assert_array_equal(seen.next_obs[~seen.valid], seen.obs[~seen.valid])
    for lane in lanes_of(seen):
        on = ~(lane.terminated | lane.truncated)[:-1]
        np.testing.assert_array_equal(lane.next_obs[:-1][on], lane.obs[1:][on])
    for name, dtype in (("action", np.int32), ("reward", np.float32), ("valid", bool), ("terminated", bool)):
        assert getattr(seen, name).dtype == dtype


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("first", [0, 5])
def test_gymnasium_successors_are_exact(autoreset, first):
    """Of an environment that counts its steps: also at an end, by the task in some episodes and by the clock in others.

    Its actions may be numbered from anywhere; ours are from 0. Its double precision becomes single.
    """
    host = make_host(COUNTER, 3, autoreset=autoreset, first=first)
    assert (host.observation_shape, host.actions, host.lanes) == ((2,), 2, 3)
    seen = play(host, 40, lambda lane, t: int(t % (lane + 3) == 2))
    check_canonical(seen, wasteful=autoreset == "next_step")
    assert seen.obs.dtype == seen.next_obs.dtype == np.float32
    for lane in lanes_of(seen):
        over = lane.terminated | lane.truncated
        episode = np.cumsum(over) - over
        count = np.arange(len(over)) - np.append(0, np.flatnonzero(over) + 1)[episode]
        np.testing.assert_array_equal(lane.obs, np.stack([episode, count], -1))
        np.testing.assert_array_equal(lane.next_obs, np.stack([episode, count + 1], -1))
        np.testing.assert_array_equal(lane.reward, count + 1)
        np.testing.assert_array_equal(lane.terminated, lane.action == 1)
        np.testing.assert_array_equal(lane.truncated, (count + 1 == CLOCK) & (lane.action == 0))
    assert seen.terminated.any() and seen.truncated.any()
    assert (np.asarray(seen.terminated) & (seen.next_obs[..., 1] == CLOCK)).any()  # both at once: the task's end counts


@pytest.mark.parametrize(
    "engine, autoreset", [("gymnasium", "same_step"), ("gymnasium", "next_step"), ("envpool", "next_step")]
)
def test_cartpole_goes_where_its_equations_say(engine, autoreset):
    """Every valid step leads to the successor computed from its own observation, the last of an episode too."""
    if engine == "envpool":
        pytest.importorskip("envpool")
    host = make_host("CartPole-v1", 4, engine, seed=3, autoreset=autoreset, max_episode_steps=15)
    seen = play(host, 80, lambda lane, t: int(np.sin(t * (lane + 1)) > -0.2 * lane))
    check_canonical(seen, wasteful=autoreset == "next_step")
    assert seen.terminated.any() and seen.truncated.any()
    steps = [np.concatenate(x) for x in zip(*(jax.tree.leaves(lane) for lane in lanes_of(seen)), strict=True)]
    valid = jax.tree.unflatten(jax.tree.structure(seen), steps)
    state = jax.vmap(CartPoleState)(jnp.asarray(valid.obs, float), jnp.zeros(len(valid.obs), jnp.int32))
    advance = jax.jit(jax.vmap(CartPole().advance, (None, 0, 0)))
    successor, reward, terminated, _ = advance(jax.random.key(0), state, jnp.asarray(valid.action))
    np.testing.assert_allclose(valid.next_obs, successor.motion, atol=1e-5)
    np.testing.assert_array_equal(valid.reward, reward)
    differ = valid.terminated != np.asarray(terminated)
    assert not (differ & ~valid.truncated).any()  # at the clock's last step envpool does not say that the task ended
    assert engine == "envpool" or not differ.any()


def test_both_of_gymnasiums_ways_give_the_same_episodes():
    """The same seed and the same actions: only the steps that did nothing are missing."""
    one, other = (
        lanes_of(play(make_host("CartPole-v1", 3, seed=7, autoreset=autoreset), 60, lambda lane, t: t // 2 % 2))
        for autoreset in ("same_step", "next_step")
    )
    for same, following in zip(one, other, strict=True):
        length = len(following.reward)
        assert length < len(same.reward)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:length], b), same, following)  # noqa: B023


def test_ale_frames_are_those_of_the_same_episode():
    """A stack of four frames moves on by one in every valid step; both ways of resetting give the same episodes."""
    pytest.importorskip("ale_py")
    lanes = {}
    for autoreset in ("same_step", "next_step"):
        host = make_host("ALE/Breakout-v5", 3, "ale", seed=1, autoreset=autoreset)
        assert (host.observation_shape, host.actions) == ((4, 84, 84), 4)
        seen = play(host, 220, lambda lane, t: (t * (lane + 2) // 3) % 4)
        check_canonical(seen, wasteful=autoreset == "next_step")
        assert seen.obs.dtype == np.uint8 and seen.terminated.any()
        np.testing.assert_array_equal(seen.next_obs[seen.valid][:, :3], seen.obs[seen.valid][:, 1:])
        lanes[autoreset] = lanes_of(seen)
    for same, following in zip(lanes["same_step"], lanes["next_step"], strict=True):
        length = len(following.reward)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:length], b), same, following)  # noqa: B023


def test_ale_stopped_by_the_clock_is_truncated():
    pytest.importorskip("ale_py")
    host = make_host("pong", 2, "ale", max_num_frames_per_episode=40)
    seen = play(host, 30, lambda lane, t: 0)
    check_canonical(seen, wasteful=False)
    assert seen.truncated.any() and not seen.terminated.any()


@pytest.mark.parametrize("engine", ["gymnasium", "envpool"])
def test_the_seed_decides_and_a_reset_begins_anew(engine):
    if engine == "envpool":
        pytest.importorskip("envpool")
    first, second, other = (make_host("CartPole-v1", 2, engine, seed=seed) for seed in (1, 1, 2))
    start = first.reset()
    np.testing.assert_array_equal(start, second.obs)  # without a call of reset
    assert not np.array_equal(start, other.reset())
    assert not np.array_equal(start[0], start[1])
    first.step(np.array([0, 1]))
    again = first.reset()
    assert not np.array_equal(again, start) and (np.abs(again) <= 0.05).all()
    assert first.step(jnp.array([0, 1])).valid.all()
    np.testing.assert_array_equal(start, second.obs)  # what was handed out does not change afterwards
    for host in (first, second, other):
        host.close()


def test_a_reset_in_the_middle_forgets_what_was_over():
    """An engine that would have spent the next step on resetting has done so already."""
    host = make_host(COUNTER, 2, autoreset="next_step")
    assert host.step(np.array([1, 0])).terminated.tolist() == [True, False]
    host.reset()
    assert host.step(np.array([0, 0])).valid.all()


class Shown(gymnasium.Env):
    """Shows anything that its space holds; an episode has one step."""

    def __init__(self, space: gymnasium.Space):
        self.observation_space, self.action_space = copy.deepcopy(space), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


@pytest.fixture
def shown():
    gymnasium.register("irleed-tests/Shown-v0", lambda space: Shown(space))
    yield "irleed-tests/Shown-v0"
    gymnasium.registry.pop("irleed-tests/Shown-v0")


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize(
    "space, length",
    [
        (spaces.Discrete(3, start=-1), 3),
        (spaces.MultiBinary((2, 3)), 6),
        (spaces.MultiDiscrete([2, 4], dtype=np.uint8), 6),
        (spaces.Tuple((spaces.Discrete(3), spaces.Box(-2, 2, (2, 2), np.float64))), 7),
        (spaces.Dict(image=spaces.Box(0, 255, (2, 2), np.uint8)), 4),
        (spaces.Dict(b=spaces.Discrete(2), a=spaces.Dict(c=spaces.MultiBinary(3))), 5),
    ],
)
def test_other_observations_become_one_vector(shown, space, length, autoreset):
    """As Gymnasium flattens them, in single precision; the last of an episode too."""
    host = make_host(shown, 2, seed=4, autoreset=autoreset, space=space)
    assert host.observation_shape == (length,)
    seen = play(host, 6, lambda lane, t: 0)
    check_canonical(seen, wasteful=autoreset == "next_step")
    assert seen.obs.dtype == seen.next_obs.dtype == np.float32
    for seed, lane in zip((4, 5), lanes_of(seen), strict=True):
        space.seed(seed)
        for first, last in zip(lane.obs, lane.next_obs, strict=True):
            for vector in (first, last):
                np.testing.assert_array_equal(vector, np.asarray(spaces.flatten(space, space.sample()), np.float32))


@pytest.mark.parametrize("env_id, length", [("FrozenLake-v1", 16), ("Taxi-v4", 500), ("Blackjack-v1", 32 + 11 + 2)])
def test_tables_and_cards_are_ones_among_zeros(env_id, length):
    host = make_host(env_id, 3, seed=1)
    assert host.observation_shape == (length,)
    seen = play(host, 5, lambda lane, t: (lane + t) % 2)
    choices = 3 if env_id == "Blackjack-v1" else 1
    for obs in (seen.obs, seen.next_obs):
        np.testing.assert_array_equal(np.sum(obs == 1, -1), choices)
        np.testing.assert_array_equal(np.sum(obs, -1), choices)


@pytest.mark.parametrize("dtype, stays", [(np.uint8, np.uint8), (np.int16, np.float32), (np.float64, np.float32)])
def test_a_box_keeps_its_shape(shown, dtype, stays):
    host = make_host(shown, 2, space=spaces.Box(0, 255, (2, 3), dtype))
    assert host.observation_shape == (2, 3)
    assert host.obs.dtype == host.step(np.zeros(2, int)).next_obs.dtype == stays
    host.close()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1), None),
        spaces.Dict(fine=spaces.Discrete(2), not_so=spaces.Tuple((spaces.Text(5),))),
    ],
)
def test_observations_of_no_fixed_size_are_refused(shown, space):
    message = refusal(shown, 2, space=space)
    assert f"{shown}, observations" in message and "as many in every step" in message


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises((ConfigError, SpaceError)) as caught:
        make_host(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message and "expected" in message
    return message


@pytest.mark.parametrize(
    "arguments, options, parts",
    [
        (("Nowhere-v1", 2), {}, ("environment Nowhere-v1", "NameNotFound")),
        (("LunarLander-v2", 2), {}, ("LunarLander-v3",)),
        (("nothing.here:Env-v0", 2), {}, ("nothing.here:Env-v0", "ModuleNotFoundError")),
        (("CartPole-v1", 2), {"gravity": 3}, ("environment CartPole-v1", "gravity")),
        (("CartPole-v1", 0), {}, ("lanes", "got 0")),
        (("CartPole-v1", 2, "unity"), {}, ("engine", "unity", "gymnasium or envpool or ale")),
        (("CartPole-v1", 2), {"autoreset": "never"}, ("autoreset", "never", "same_step or next_step")),
        (("CartPole-v1", 2, "envpool"), {"autoreset": "same_step"}, ("autoreset of envpool", "next_step")),
        (("CartPole-v1", 2), {"seed": -1}, ("seed", "-1")),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(arguments, options, parts):
    message = refusal(*arguments, **options)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("engine, env_id", [("envpool", "Nowhere-v1"), ("ale", "nowhere"), ("ale", "CartPole-v1")])
def test_other_engines_say_which_names_they_know(engine, env_id):
    pytest.importorskip("ale_py" if engine == "ale" else engine)
    assert f"environment {env_id}" in refusal(env_id, 1, engine)


@pytest.mark.parametrize(
    "env_id, engine, absent, extra",
    [
        ("CartPole-v1", "envpool", "envpool", "irleed[envpool]"),
        ("pong", "ale", "ale_py", "irleed[envs]"),
        ("ALE/Pong-v5", "gymnasium", "ale_py", "irleed[envs]"),
        ("LunarLander-v3", "gymnasium", "Box2D", "irleed[envs]"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, env_id, engine, absent, extra):
    for module in [name for name in sys.modules if name.split(".")[0] == absent or "envs.box2d" in name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, absent, None)
    assert extra in refusal(env_id, 1, engine)


@pytest.mark.parametrize("actions", [[0], [0, 2], [-1, 0], [0.0, 1.0], [[0, 1]]])
def test_actions_that_do_not_exist_are_refused(actions):
    host = make_host("CartPole-v1", 2)
    with pytest.raises(SpaceError, match="2 whole numbers from 0 to 1") as caught:
        host.step(np.array(actions))
    assert "\n" not in str(caught.value)
    host.close()


def test_lunar_lander_works():
    pytest.importorskip("Box2D")
    host = make_host("LunarLander-v3", 2, max_episode_steps=20)
    assert (host.observation_shape, host.actions) == ((8,), 4)
    check_canonical(play(host, 45, lambda lane, t: t % 4), wasteful=False)
