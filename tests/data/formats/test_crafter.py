"""Recordings of Crafter: what is near the player is where the map has it, and what does not fit is named."""

import csv
import pickle

import numpy as np
import pytest

from irleed.data import load
from irleed.data.formats.crafter import FEATURES, FORMAT, THINGS, UNIT
from irleed.data.io import write_scores
from irleed.errors import DataError

SIZE, CENTRE = 12, (5, 6)
GRASS, PLAYER = 2, 13
NEEDS = ("health", "food", "drink", "energy")
NOTHING, LEFT, RIGHT, UP, DOWN, DO, SLEEP = range(7)
TARGET, NEIGHBOURS, NEAREST, OWNED, NEARBY = 4, 20, 80, 116, 129  # where these features begin


class Dangerous:
    def __reduce__(self):
        return pickle.loads, (b"no reader may load this",)


def recording(actions=(NOTHING, RIGHT, DO), things=(), died=True, **changes):
    """Arrays as Crafter's recorder writes them: row 0 before the first action, without a map."""
    rows = len(actions) + 1
    terrain = np.full((rows, SIZE, SIZE), GRASS, np.uint8)
    terrain[:, *CENTRE] = PLAYER
    for x, y, thing in things:
        terrain[:, CENTRE[0] + x, CENTRE[1] + y] = thing
    owned = {f"ainventory_{name}": np.full(rows, 9 * (name in NEEDS)) for name in (*UNIT, "iron_sword")}
    arrays = {
        "image": np.zeros((rows, 8, 8, 3), np.uint8),
        "action": np.array([0, *actions]),
        "reward": np.array([0.0, 1.0, *np.full(rows - 2, 0.1)]),
        "done": np.array([0, *[False] * (rows - 2), True], object),  # as people's recordings have it
        "discount": np.array([0.0, *np.ones(rows - 2), 1.0 - died]),
        "semantic": terrain,
        "player_pos": np.tile(CENTRE, (rows, 1)),
        "achievement_collect_wood": np.arange(rows),
        "achievement_eat_plant": np.zeros(rows, int),
        **owned,
    }
    first = {"semantic", "player_pos", *owned, "achievement_collect_wood", "discount"}
    for name in first:
        arrays[name][0] = 0
    for name, values in changes.items():
        arrays[name] = np.array([0, *values]) if name.startswith("ainventory_") else values
    return arrays


def folder(path, people):
    """A folder for each, of recordings in the order of time."""
    for who, recordings in people.items():
        (path / who).mkdir(parents=True)
        for number, arrays in enumerate(recordings):
            name = f"2021121{number}T134000-ach1-len{np.size(arrays['action']) - 1}.npz"
            np.savez_compressed(path / who / name, **arrays)
    return path


def read(path, **given):
    return load(folder(path, {"part1_actual": [recording(**given)]}))


def test_people_episodes_and_what_is_dropped(tmp_path):
    people = {
        "part2_actual": [recording(), recording((NOTHING, DO, 14, 8), died=False)],
        "part2_trial": [recording()],
        "part10_actual": [recording((NOTHING, 14, 12))],
    }
    data = load(folder(tmp_path, people))
    assert FORMAT.recognises(tmp_path)
    assert data.names == ("part10", "part2") and data.length.tolist() == [2, 2, 3]
    assert data.obs.shape == (7 + 3, FEATURES) and data.obs.dtype == np.float32
    assert data.action.tolist() == [12, 11, RIGHT, DO, DO, 12, 7]  # numbers of the whole game, made those of the 13
    assert data.terminated.tolist() == [False, True, False, True, False, False, False]
    np.testing.assert_allclose(data.reward, 0.1)


def test_a_folder_of_recordings_is_one_person(tmp_path):
    """So a trial can be read by its own name."""
    data = load(folder(tmp_path, {"part3_trial": [recording()]}) / "part3_trial")
    assert data.names == ("part3",) and data.episodes == 1


def test_agents_have_numbers_of_their_own(tmp_path):
    """7 places a table where 12 is the last action; nobody can place a stone, 7 in the whole game."""
    data = load(folder(tmp_path, {"R1": [recording((NOTHING, 7, 12))]}))
    assert data.action.tolist() == [7, 12]


def test_what_is_near_is_where_the_map_has_it(tmp_path):
    things = ((-1, 0, THINGS["tree"]), (2, 1, THINGS["water"]), (0, -3, THINGS["water"]), (4, 3, THINGS["cow"]),
              (1, 1, THINGS["table"]), (5, 0, THINGS["diamond"]), (0, 1, 5))  # fmt: skip
    first = read(tmp_path, things=things, actions=(LEFT, RIGHT, DO)).obs[0]
    names = list(THINGS)
    group = {name: number for number, name in enumerate(names, 1)}
    assert first[:4].tolist() == [1, 0, 0, 0]  # facing left, after the first action
    assert np.flatnonzero(first[TARGET:NEIGHBOURS]).tolist() == [group["tree"]]
    around = first[NEIGHBOURS:NEAREST].reshape(4, 15).argmax(1)  # left, right, up, down: sand counts as open ground
    assert around.tolist() == [group["tree"], 0, 0, 0]
    sought = [name for name in names if name not in ("lava", "arrow")]
    nearest = dict(zip(sought, first[NEAREST:OWNED].reshape(-1, 3).tolist(), strict=True))
    np.testing.assert_allclose(nearest["water"], [0, -1, 1 / 3])  # of two that are as near, the left one
    np.testing.assert_allclose(nearest["cow"], [1, 1, 1 / 7])
    assert nearest["diamond"] == [0, 0, 0] == nearest["zombie"]  # five to the right is out of sight
    np.testing.assert_allclose(first[OWNED : OWNED + 4], 1)
    assert first[NEARBY : NEARBY + 2].tolist() == [1, 0]
    assert first[19] == 0 and read(tmp_path / "grass").obs[0][19] == 1


def test_the_edge_of_the_map_is_nothing(tmp_path):
    corner = np.zeros((4, 2), int)
    data = read(tmp_path, player_pos=corner, things=((6, 5, THINGS["water"]),))
    assert not data.obs[0][NEAREST:OWNED].any()


@pytest.mark.parametrize(
    "energy,health,actions,asleep",
    [
        ((5, 5, 5, 5), (9, 9, 9, 9), (NOTHING, SLEEP, LEFT, LEFT), [0, 1, 1, 1]),  # who sleeps goes nowhere
        ((9, 9, 9, 9), (9, 9, 9, 9), (NOTHING, SLEEP, LEFT, LEFT), [0, 0, 0, 0]),  # nobody sleeps who is not tired
        ((5, 5, 9, 9), (9, 9, 9, 9), (NOTHING, SLEEP, LEFT, LEFT), [0, 1, 0, 0]),  # rested: the next action counts
        ((5, 5, 5, 5), (9, 9, 8, 8), (NOTHING, SLEEP, LEFT, LEFT), [0, 1, 0, 0]),  # hunger wakes at once
        ((5, 5, 5, 5), (9, 9, 2, 2), (NOTHING, SLEEP, LEFT, LEFT), [0, 1, 1, 0]),  # an enemy, after the next action
    ],
)
def test_sleep_and_facing_are_what_the_rules_say(tmp_path, energy, health, actions, asleep):
    data = read(tmp_path, actions=actions, ainventory_energy=energy, ainventory_health=health)
    assert data.obs[:, -1].tolist() == asleep
    ignored = [False, *asleep[:-1]]
    turned = np.maximum.accumulate([0, *(a == LEFT and not i for a, i in zip(actions[1:], ignored[1:], strict=True))])
    assert data.obs[:, 0].tolist() == turned.tolist()


def test_scores_count_the_first_action_too(tmp_path):
    people = {"part1_actual": [recording(), recording(died=False)], "part2_actual": [recording()]}
    write_scores(folder(tmp_path / "adults", people), tmp_path / "adults_scores.csv")
    rows = list(csv.DictReader((tmp_path / "adults_scores.csv").read_text().splitlines()))
    assert [row["demonstrator"] for row in rows] == ["part1", "part1", "part2"]
    assert [row["episode_of_demonstrator"] for row in rows] == ["0", "1", "0"]
    np.testing.assert_allclose([float(row["return"]) for row in rows], 1.2)
    assert [(row["achievements"], row["died"]) for row in rows] == [("1", "1"), ("1", "0"), ("1", "1")]


def test_python_objects_are_never_loaded(tmp_path):
    """People's recordings hold some, in an array that is not needed."""
    data = read(tmp_path, done=np.array([Dangerous()] * 4, object))
    assert data.transitions == 2


@pytest.mark.parametrize(
    "changes,said",
    [
        ({"action": np.array([0, 0, 17, 1])}, "action: got values that Crafter"),
        ({"action": np.array([0, 0, 7, 14])}, "action: got action 14"),
        ({"action": np.array([0, 0, 13, 1])}, "action: got action 13"),
        ({"action": np.array([0, 0, 0.5, 1])}, "action: got float64"),
        ({"action": np.array([0, 0])}, "rows of numbers"),
        ({"action": np.array(0)}, "0 rows of numbers"),
        ({"player_pos": np.full((4, 2), SIZE)}, "player_pos: got values"),
        ({"player_pos": np.full((4, 3), 1)}, "player_pos: got values"),
        ({"semantic": np.full((4, SIZE, SIZE), 19, np.uint8)}, "semantic: got values"),
        ({"semantic": np.zeros((4, 0, SIZE), np.uint8)}, "semantic: got values"),
        ({"discount": np.array([0, 0.0, 1, 1])}, "a death before the last row"),
        ({"discount": np.array([0, 1, 1, np.nan])}, "discount: got values"),
        ({"reward": np.array([0, 1, np.nan, 1])}, "reward"),
        ({"ainventory_food": (9, -1, 9)}, "ainventory_food: got values"),
        ({"semantic": np.array([Dangerous()] * 4, object)}, "no readable array"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, changes, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path, **changes)


def test_other_refusals(tmp_path):
    with pytest.raises(DataError, match="3 or more"):
        read(tmp_path / "short", actions=(NOTHING,))
    with pytest.raises(DataError, match="only folders that end with '_trial'"):
        load(folder(tmp_path / "trials", {"part1_trial": [recording()]}))
    arrays = recording()
    del arrays["semantic"]
    with pytest.raises(DataError, match="add 'semantic'"):
        load(folder(tmp_path / "images", {"part1_actual": [arrays]}))
    outside = folder(tmp_path / "outside", {"part9_actual": [recording()]})
    linked = folder(tmp_path / "linked", {"part1_actual": [recording()]})
    (linked / "part9_actual").symlink_to(outside / "part9_actual")
    with pytest.raises(DataError, match="leads out of its folder"):
        load(linked)
