"""Demonstrations hold what was played, and refuse, in one line that says where, what cannot have been."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irleed.data import Demonstrations, Episode
from irleed.errors import ConfigError, DataError

NAN, INF = np.nan, np.inf


def columns(**changes) -> dict:
    """Two episodes, of three steps by "ann" (terminated) and of two by "bob" (truncated); `changes` spoil them."""
    return {
        "obs": np.arange(14.0).reshape(7, 2),
        "row": np.array([0, 1, 2, 4, 5]),
        "action": np.array([0.5, 1.5, 2.5, 3.5, 4.5]),
        "terminated": np.array([False, False, True, False, False]),
        "truncated": np.array([False, False, False, False, True]),
        "demonstrator": np.array([0, 0, 0, 1, 1]),
        "episode": np.array([0, 0, 0, 1, 1]),
        "reward": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "names": ("ann", "bob"),
    } | changes


def spoilt(field: str, at, value) -> dict:
    """The columns with one entry changed."""
    array = columns()[field].copy()
    array[at] = value
    return {field: array}


def refusal(build, *args, error: type[Exception] = DataError, **kwargs) -> str:
    """The message of the error, which is one line."""
    with pytest.raises(error) as caught:
        build(*args, **kwargs)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "got" in message
    assert "expected" in message
    return message


def same(one: Demonstrations, other: Demonstrations) -> bool:
    """Equal names, values and types."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return one.names == other.names and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)


@st.composite
def episode_lists(draw) -> list[Episode]:
    """Ragged episodes, of any kind of observation and action, by demonstrators who all have at least one."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=7))
    people = draw(st.integers(1, len(lengths)))
    obs_shape, action_shape = draw(st.sampled_from([(), (3,), (2, 2)])), draw(st.sampled_from([(), (1,), (2,)]))
    obs_type, action_type = draw(st.sampled_from(["f4", "f8", "u1", "i8"])), draw(st.sampled_from(["f4", "i4"]))
    rewards = draw(st.booleans())
    return [
        Episode(
            obs=(100 * random.random((length + 1, *obs_shape))).astype(obs_type),
            action=(10 * random.standard_normal((length, *action_shape))).astype(action_type),
            terminated=bool(random.random() < 0.5),
            demonstrator=i % people,
            reward=random.standard_normal(length) if rewards else None,
        )
        for i, length in enumerate(lengths)
    ]


@given(episode_lists())
def test_every_transition_is_where_it_was_played(episodes):
    data = Demonstrations.from_episodes(episodes)
    lengths = [len(e.action) for e in episodes]
    np.testing.assert_array_equal(data.observation, np.concatenate([e.obs[:-1] for e in episodes]))
    np.testing.assert_array_equal(data.next_observation, np.concatenate([e.obs[1:] for e in episodes]))
    np.testing.assert_array_equal(data.action, np.concatenate([e.action for e in episodes]))
    np.testing.assert_array_equal(data.length, lengths)
    np.testing.assert_array_equal(data.owner, [e.demonstrator for e in episodes])
    np.testing.assert_array_equal(data.episode, [i for i, n in enumerate(lengths) for _ in range(n)])
    ends = [[False] * (n - 1) + [e.terminated] for e, n in zip(episodes, lengths, strict=True)]
    np.testing.assert_array_equal(data.terminated, np.concatenate(ends))
    assert np.sum(data.terminated | data.truncated) == data.episodes == len(episodes)
    assert len(data) == data.transitions == sum(lengths)
    assert data.demonstrators == len({e.demonstrator for e in episodes})
    returns = data.returns()
    assert (returns is None) == (episodes[0].reward is None)
    if returns is not None:
        np.testing.assert_allclose(returns, [np.sum(np.asarray(e.reward)) for e in episodes])


@given(episode_lists(), st.data())
def test_taking_episodes_equals_building_from_them(episodes, choice):
    data = Demonstrations.from_episodes(episodes)
    taken = choice.draw(st.lists(st.integers(0, len(episodes) - 1), min_size=1, max_size=9))
    present = sorted({episodes[i].demonstrator for i in taken})
    expected = Demonstrations.from_episodes(
        [
            Episode(e.obs, e.action, e.terminated, data.names[int(e.demonstrator)], e.reward)
            for e in (episodes[i] for i in taken)
        ],
        names=[data.names[d] for d in present],
    )
    assert same(data.take(taken), expected)


@given(episode_lists(), st.data())
def test_selecting_demonstrators_renumbers_them_in_the_order_given(episodes, choice):
    data = Demonstrations.from_episodes(episodes)
    order = choice.draw(st.permutations(range(data.demonstrators)))
    order = order[: choice.draw(st.integers(1, len(order)))]
    chosen = data.select(order)
    chosen.validate()
    assert chosen.names == tuple(data.names[d] for d in order)
    assert same(chosen, data.select(chosen.names))
    for new, old in enumerate(order):
        mine, theirs = chosen.demonstrator == new, data.demonstrator == old
        np.testing.assert_array_equal(chosen.observation[mine], data.observation[theirs])
        np.testing.assert_array_equal(chosen.next_observation[mine], data.next_observation[theirs])
        np.testing.assert_array_equal(chosen.action[mine], data.action[theirs])


@given(episode_lists(), st.data())
def test_without_some_transitions_all_others_are_as_they_were(episodes, choice):
    """Each one left out cuts its episode in two; what is left is a data set that passes every check."""
    data = Demonstrations.from_episodes(episodes)
    left_out = np.array(choice.draw(st.lists(st.integers(0, data.transitions - 1), unique=True)), np.int64)
    keep = np.setdiff1d(np.arange(data.transitions), left_out)
    if len(np.unique(data.demonstrator[keep])) < data.demonstrators:
        with pytest.raises(ConfigError, match="all transitions of"):
            data.without(left_out)
        return
    found = data.without(left_out)
    found.validate()
    for name in ("observation", "next_observation", "action", "terminated", "demonstrator"):
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name)[keep])
    assert found.names == data.names and np.all(data.truncated[keep] <= found.truncated)
    assert same(data.without(np.zeros(0, np.int64)), data)


def test_by_episode_makes_every_episode_a_demonstrator_and_copies_nothing():
    data = Demonstrations.from_episodes([Episode([0, 1, 2], [0, 1], True, "ann"), Episode([3, 4], [1], False, "ann")])
    alone = data.by_episode()
    alone.validate()
    assert alone.names == ("episode 0", "episode 1")
    np.testing.assert_array_equal(alone.demonstrator, [0, 0, 1])
    assert alone.obs is data.obs
    assert alone.action is data.action


def test_names_come_from_the_episodes_in_order_of_appearance():
    episodes = [Episode([0, 1], [0], True, who) for who in ("bob", "ann", "bob")]
    data = Demonstrations.from_episodes(episodes)
    assert data.names == ("bob", "ann")
    np.testing.assert_array_equal(data.demonstrator, [0, 1, 0])
    np.testing.assert_array_equal(Demonstrations.from_episodes(episodes, ["ann", "bob"]).demonstrator, [1, 0, 1])
    numbered = Demonstrations.from_episodes([Episode([0, 1], [0], True, np.int64(who)) for who in (1, 0)])
    assert numbered.names == ("demonstrator 0", "demonstrator 1")


def test_whole_number_rewards_and_foreign_byte_order_are_taken_as_the_numbers_they_are():
    played = Episode(np.array([1, 2], ">f4"), np.array([3], ">i8"), True, 0, reward=[7])
    data = Demonstrations.from_episodes([played])
    assert data.obs.dtype == np.float32
    assert data.action.dtype.isnative
    np.testing.assert_array_equal(data.returns(), [7.0])
    data.validate()


def test_an_episode_may_end_by_task_and_clock_at_once():
    both = Demonstrations.from_arrays(**columns(**spoilt("terminated", 4, True)))
    assert both.terminated[4]
    assert both.truncated[4]


EMPTY = {name: values[:0] for name, values in columns().items()} | {"names": ("ann",)}
REFUSED = {
    "empty": (EMPTY, ["obs", "nothing"]),
    "no numbers in an observation": ({"obs": np.zeros((7, 0))}, ["obs", "(7, 0)"]),
    "lengths differ": ({"action": np.zeros(4)}, ["action 4", "row 5"]),
    "reward too short": ({"reward": np.zeros(3)}, ["reward 3", "row 5"]),
    "row beyond the end": (spoilt("row", 4, 6), ["episode 1, step 1", "row 6", "0 to 5"]),
    "row negative": (spoilt("row", 1, -1), ["episode 0, step 1", "row -1"]),
    "rows out of order": (spoilt("row", slice(1, 3), [2, 1]), ["episode 0, step 1", "row 2", "expected 1"]),
    "episodes overlap": (spoilt("row", slice(3, 5), [3, 4]), ["episode 1, step 0", "row 3", "expected 4"]),
    "rows to spare": ({"obs": np.zeros((9, 2))}, ["obs", "9 rows", "expected 7"]),
    "episode in two parts": ({"episode": np.array([0, 1, 1, 0, 0])}, ["episode 0", "transition 3", "contiguous"]),
    "episodes misnumbered": ({"episode": np.array([0, 0, 0, 7, 7])}, ["episode 1", "the number 7"]),
    "episodes numbered from one": ({"episode": np.array([1, 1, 1, 2, 2])}, ["episode 0", "the number 1"]),
    "two demonstrators": (spoilt("demonstrator", 2, 1), ["episode 0, step 2", "demonstrator 1", "expected 0"]),
    "negative demonstrator": (spoilt("demonstrator", slice(3, 5), -1), ["episode 1, step 0", "demonstrator -1"]),
    "nameless demonstrator": (spoilt("demonstrator", slice(3, 5), 2), ["episode 1, step 0", "0 to 1", "2 names"]),
    "terminated early": (spoilt("terminated", 1, True), ["episode 0, step 1", "got terminated", "last step, 2"]),
    "truncated early": (spoilt("truncated", 3, True), ["episode 1, step 0", "got truncated", "last step, 1"]),
    "no end": (spoilt("truncated", 4, False), ["episode 1, step 1", "neither terminated nor truncated"]),
    "observation": (spoilt("obs", (5, 1), NAN), ["episode 1, step 1, obs[1]", "got nan", "finite"]),
    "last observation": (spoilt("obs", (3, 0), -INF), ["episode 0, step 3, obs[0]", "got -inf", "finite"]),
    "action": (spoilt("action", 2, INF), ["episode 0, step 2, action", "got inf", "finite"]),
    "reward": (spoilt("reward", 3, NAN), ["episode 1, step 0, reward", "got nan", "finite"]),
    "demonstrator without data": ({"names": ("ann", "bob", "cleo")}, ["demonstrator 2 ('cleo')", "no transitions"]),
    "too few names": ({"names": ("ann",)}, ["episode 1, step 0", "demonstrator 1", "1 names"]),
    "name twice": ({"names": ("ann", "ann")}, ["names", "'ann' twice"]),
    "name of two lines": ({"names": ("ann", "b\nob")}, ["names[1]", "'b\\nob'", "printable"]),
    "no name": ({"names": ("", "bob")}, ["names[0]", "''"]),
    "fractional rows": ({"row": columns()["row"] / 1}, ["row", "float64", "int32 or int64"]),
    "short rows": ({"row": columns()["row"].astype(np.int8)}, ["row", "int8", "int32 or int64"]),
    "flags as numbers": ({"terminated": np.array([0, 0, 1, 0, 0])}, ["terminated", "int64", "bool"]),
    "column of two axes": ({"episode": np.zeros((5, 1), int)}, ["episode", "(5, 1)", "(N,)"]),
    "text": ({"action": np.array(list("abcde"))}, ["action", "<U1", "numbers"]),
    "objects": ({"obs": np.array([None] * 7)}, ["obs", "object", "numbers"]),
    "complex": ({"obs": np.zeros((7, 2), complex)}, ["obs", "complex128", "numbers"]),
}


@pytest.mark.parametrize(("changes", "phrases"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_name_the_place_and_what_is_there(changes, phrases):
    message = refusal(Demonstrations.from_arrays, **columns(**changes), where="some.npz")
    assert message.startswith("some.npz")
    for phrase in phrases:
        assert phrase in message


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="long floats are doubles on this platform")
def test_floats_longer_than_64_bits_are_refused():
    assert "64 bits" in refusal(Demonstrations.from_arrays, **columns(obs=np.zeros((7, 2), np.longdouble)))


def test_a_missing_field_is_named():
    given = columns()
    del given["truncated"]
    assert "no truncated" in refusal(Demonstrations.from_arrays, **given)


GOOD = Episode(np.zeros((3, 2)), [0, 1], True, 0, reward=[0.0, 1.0])
REFUSED_EPISODES = {
    "no final observation": (Episode(np.zeros((2, 2)), [0, 1], True, 0, [0, 0]), ["2 observations", "expected 3"]),
    "no steps": (Episode(np.zeros((1, 2)), [], True, 0, []), ["no actions"]),
    "one number": (Episode(np.array(0.0), [1], True, 0, [0]), ["0 observations and 1 actions"]),
    "other observations": (Episode(np.zeros((2, 3)), [0], True, 0, [0]), ["observations of shape (3,)", "(2,)"]),
    "other actions": (Episode(np.zeros((2, 2)), [[0, 1]], True, 0, [0]), ["actions of shape (2,)", "()"]),
    "ragged": (Episode([[0, 1], [2]], [0], True, 0, [0]), ["obs", "different shapes"]),
    "text": (Episode(np.zeros((2, 2)), ["left"], True, 0, [0]), ["action", "numbers"]),
    "no rewards": (Episode(np.zeros((2, 2)), [0], True, 0), ["reward", "none", "all episodes"]),
    "too many rewards": (Episode(np.zeros((2, 2)), [0], True, 0, [1, 2]), ["reward", "(2,)", "(1,)"]),
    "negative": (Episode(np.zeros((2, 2)), [0], True, -1, [0]), ["demonstrator", "-1"]),
    "a number far out": (Episode(np.zeros((2, 2)), [0], True, 10**30, [0]), ["demonstrator", str(10**30)]),
    "a name among numbers": (Episode(np.zeros((2, 2)), [0], True, "ann", [0]), ["demonstrator", "'ann'"]),
}


@pytest.mark.parametrize(("episode", "phrases"), REFUSED_EPISODES.values(), ids=REFUSED_EPISODES.keys())
def test_refused_episodes_are_numbered(episode, phrases):
    message = refusal(Demonstrations.from_episodes, [GOOD, episode], where="mine")
    assert message.startswith("mine, episode 1")
    for phrase in phrases:
        assert phrase in message


def test_no_episodes_and_unknown_names_are_refused():
    assert "no episodes" in refusal(Demonstrations.from_episodes, [])
    ours = Episode([0, 1], [0], True, "cleo")
    assert "'ann', 'bob'" in refusal(Demonstrations.from_episodes, [ours], ["ann", "bob"])


@pytest.mark.parametrize("wrong", [[], [0, 0], [2], [-1], ["cleo"]], ids=str)
def test_selecting_nobody_someone_twice_or_a_stranger_is_refused(wrong):
    data = Demonstrations.from_arrays(**columns())
    assert "'ann', 'bob'" in refusal(data.select, wrong, error=ConfigError)


@pytest.mark.parametrize("wrong", [[], [2], [0, -1]], ids=str)
def test_taking_no_or_unknown_episodes_is_refused(wrong):
    assert "0 to 1" in refusal(Demonstrations.from_arrays(**columns()).take, wrong, error=ConfigError)
