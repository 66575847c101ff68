"""Folders of people who play Crafter, as the study of Lidayan et al. publishes them: a folder of recordings for each.

A recording is the `.npz` file of Crafter's recorder: the whole map and the inventory after each step. From these the
reader makes observations of what is near the player, `FEATURES` numbers each. Images are not read, nor is the array
``done``, which holds Python objects: whether a player died is in ``discount``.
"""

import collections
import csv
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irleed._io.arrays import Budget, Layout, read_npz
from irleed._io.text import csv_cell, printable
from irleed._typing import Array, Bool, Float, Int
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, inside, refuse, regular
from irleed.data.validation import listed

NAME = re.compile(r"\d{8}T\d{6}-ach\d{1,3}-len\d{1,9}\.npz")  # time, achievements and steps of an episode
TRIAL, ACTUAL = "_trial", "_actual"  # folders of a person's first two minutes, and of the rest
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # left, right, up, down, as actions 1 to 4 move
DOWN, SLEEP = 3, 6
ACTIONS = 17  # of the whole game
PLACE_STONE = 7  # of these; in the simplified game's 13, to place a table
SIMPLIFIED = (0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 14)  # the whole game's numbers of these 13

# What a cell holds: the number in the map, and the group of things that are told apart.
GRASS, TABLE, FURNACE = 2, 11, 12
THINGS = {"water": 1, "stone": 3, "tree": 6, "lava": 7, "coal": 8, "iron": 9, "diamond": 10, "table": TABLE,
          "furnace": FURNACE, "cow": 14, "zombie": 15, "skeleton": 16, "arrow": 17, "plant": 18}  # fmt: skip
KINDS = 19
GROUP = np.zeros(KINDS, int)  # 0: to walk on, or outside of the map
GROUP[list(THINGS.values())] = np.arange(1, len(THINGS) + 1)
SOUGHT = tuple(number for number, name in enumerate(THINGS, 1) if name not in ("lava", "arrow"))
WIDE, HIGH = 4, 3  # cells that a player sees to each side
CELLS = [(x, y) for x in range(-WIDE, WIDE + 1) for y in range(-HIGH, HIGH + 1)]
CELLS.sort(key=lambda cell: abs(cell[0]) + abs(cell[1]))  # the nearest first

NEEDS, MOST = ("health", "food", "drink", "energy"), 9
MATERIALS = ("sapling", "wood", "stone", "coal", "iron", "diamond")
TOOLS = ("wood_pickaxe", "stone_pickaxe", "wood_sword")
UNIT = {**dict.fromkeys(NEEDS, MOST), **dict.fromkeys(MATERIALS, 5), **dict.fromkeys(TOOLS, 1)}  # of the numbers given
FEATURES = 133
ACHIEVEMENTS = (
    *(f"collect_{name}" for name in ("coal", "diamond", "drink", "iron", "sapling", "stone", "wood")),
    *("defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant", "wake_up"),
    *(f"make_{material}_{tool}" for material in ("wood", "stone", "iron") for tool in ("pickaxe", "sword")),
    *(f"place_{name}" for name in ("furnace", "plant", "stone", "table")),
)
OWNED, ACHIEVEMENT = "ainventory_", "achievement_"  # how names of arrays begin

LAYOUT = Layout(
    format=None,
    version=0,
    holds="a recording of Crafter",
    required=("action", "reward", "discount", "semantic", "player_pos", *(OWNED + name for name in UNIT)),
    optional=tuple(ACHIEVEMENT + name for name in ACHIEVEMENTS),
    writer="crafter.Recorder",
)
WHOLE = {"action": 1, "semantic": 3, "player_pos": 2}  # arrays of whole numbers, and their axes


def recognises(path: Path) -> bool:
    """A folder of recordings, or of folders of them."""
    try:
        folders = (each for each in (path, *_folders(path)) if each == path or not each.is_symlink())
        return path.is_dir() and any(map(_recordings, folders))
    except OSError:
        return False


class Recorded(NamedTuple):
    """An episode, without its first action, before which there is no map."""

    who: str
    obs: Float[np.ndarray, "T+1 133"]
    action: Int[np.ndarray, " T"]  # as numbered in the file
    reward: Float[np.ndarray, " T"]
    died: bool
    score: float  # the sum of all rewards, that of the first action too
    achievements: int


def read(path: Path, reading: ReadOptions) -> Demonstrations:
    """Everyone's episodes in the order in which they were played."""
    if reading.obs or reading.action or reading.named:
        got = f"a choice of {listed([*reading.obs, *filter(None, [reading.action, reading.named])])}"
        refuse(path, got, f"none: {FEATURES} features, and folders for demonstrators", "leave it out")
    return demonstrations(path, recorded(path, reading.budget()))


def recorded(path: Path, budget: Budget) -> list[Recorded]:
    """All recordings in a folder. Trials are left out unless their own folder is named."""
    return [_recorded(who, regular(path, file), budget) for who, file in _files(path)]


def demonstrations(path: Path, episodes: list[Recorded]) -> Demonstrations:
    """The same as demonstrations, with actions numbered as in the simplified game."""
    number = _renumbered(path, np.unique(np.concatenate([each.action for each in episodes])))
    parts = [Episode(each.obs, number[each.action], each.died, each.who, each.reward) for each in episodes]
    return Demonstrations.from_episodes(parts, where=printable(path))


def scores(path: Path, reading: ReadOptions) -> str:
    """A table of each episode's return, achievements, steps and death, as CSV for `irleed validate`."""
    text, count = io.StringIO(), collections.Counter[str]()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("demonstrator", "episode_of_demonstrator", "steps", "return", "achievements", "died"))
    for each in recorded(path, reading.budget()):
        row = len(each.action), round(each.score, 4), each.achievements, int(each.died)
        rows.writerow((csv_cell(each.who), count[each.who], *row))
        count[each.who] += 1
    return text.getvalue()


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir())


def _recordings(folder: Path) -> list[Path]:
    """In the order of time, which their names begin with."""
    return sorted(each for each in folder.iterdir() if NAME.fullmatch(each.name))


def _files(path: Path) -> list[tuple[str, Path]]:
    """The recordings, and whose they are."""
    try:
        own = _recordings(path)
        if own:
            return [(_person(path.resolve()), file) for file in own]
        folders = [inside(path, each) for each in _folders(path) if not each.name.endswith(TRIAL)]
        found = [(_person(each), file) for each in folders for file in _recordings(each)]
    except OSError as error:
        refuse(path, error.strerror or "a folder that cannot be read", "folders of recordings", "check permissions")
    if not found:
        got = f"only folders that end with {TRIAL!r}"
        refuse(path, got, "recordings of the game itself", "name one of these folders")
    return found


def _person(folder: Path) -> str:
    return printable(folder.name.removesuffix(ACTUAL).removesuffix(TRIAL))


def _recorded(who: str, file: Path, budget: Budget) -> Recorded:
    """One recording: row t of every array is what came of action t, and row 0 comes before all."""
    arrays = read_npz(file, LAYOUT, budget)
    where, steps = printable(file), len(arrays["action"]) if arrays["action"].ndim else 0
    for name, values in arrays.items():
        axes = WHOLE.get(name, 1)
        kinds = "iu" if name in WHOLE or name.startswith((OWNED, ACHIEVEMENT)) else "iuf"
        if values.ndim != axes or values.dtype.kind not in kinds or len(values) != steps:
            got, expected = f"{values.dtype} of shape {values.shape}", f"{axes} axes, {steps} rows of numbers"
            refuse(f"{where}, {name}", got, expected, "copy it again")
    if steps < 3:
        refuse(where, f"{steps} rows", "3 or more: the first has no map", "leave the file out")
    arrays = {name: values[1:] for name, values in arrays.items()}
    terrain, place = arrays["semantic"], arrays["player_pos"]
    sound = {
        "action": _within(arrays["action"], ACTIONS),
        "semantic": terrain.size > 0 and _within(terrain, KINDS),
        "player_pos": place.shape[1:] == (2,) and bool(np.all((place >= 0) & (place < terrain.shape[1:]))),
        "discount": bool(np.isin(arrays["discount"], (0, 1)).all()),
        **{OWNED + name: _within(arrays[OWNED + name], 1 << 16) for name in UNIT},
    }
    wrong = next((name for name, is_sound in sound.items() if not is_sound), None)
    if wrong is not None:
        refuse(f"{where}, {wrong}", "values that Crafter does not record", "those of its recorder", "copy it again")
    died = arrays["discount"] == 0
    if np.any(died[:-1]):
        refuse(f"{where}, discount", "a death before the last row", "none", "copy it again")
    action, reward = arrays["action"].astype(np.int32), arrays["reward"].astype(float)
    unlocked = sum(int(values[-1] > 0) for name, values in arrays.items() if name.startswith(ACHIEVEMENT))
    return Recorded(who, observations(arrays), action[1:], reward[1:], bool(died[-1]), float(reward.sum()), unlocked)


def _within(values: Array, most: int) -> bool:
    return bool(((values >= 0) & (values < most)).all())


def _renumbered(path: Path, used: Int[np.ndarray, " K"]) -> Int[np.ndarray, " A"]:
    """The number of each action among the 13 of the simplified game.

    People's recordings have the numbers of the whole game, in which 7 places a stone. The simplified game has no such
    action; agents' recordings have its own numbers, of which 7 is one and 12 the last.
    """
    if PLACE_STONE not in used:
        strange, number = np.setdiff1d(used, SIMPLIFIED), np.zeros(ACTIONS, np.int32)
        number[list(SIMPLIFIED)] = np.arange(len(SIMPLIFIED))
    else:
        strange, number = used[used >= len(SIMPLIFIED)], np.arange(ACTIONS, dtype=np.int32)
    if len(strange):
        got, expected = f"action {strange[0]}", "the 13 of the simplified game, numbered as by people or by agents"
        refuse(f"{printable(path)}, action", got, expected, "read people and agents separately")
    return number


def observations(arrays: dict[str, Any]) -> Float[np.ndarray, "T 133"]:
    """What a player has near and with them, from rows with a map; see the documentation for the order."""
    terrain, place = arrays["semantic"], arrays["player_pos"]
    rows, size = np.arange(len(place)), np.array(terrain.shape[1:])

    def at(x: Array, y: Array) -> Int[np.ndarray, "..."]:
        """What is so far from the player; 0 outside of the map."""
        cell = place + np.stack(np.broadcast_arrays(x, y), -1)
        found = terrain[rows, *np.clip(cell, 0, size - 1).T]
        return np.where(((cell >= 0) & (cell < size)).all(-1), found, 0).astype(int)

    seen = {cell: at(*map(np.asarray, cell)) for cell in CELLS}
    groups = np.stack([GROUP[seen[cell]] for cell in CELLS], 1)
    facing, asleep = _facing_and_sleep(arrays)
    ahead = at(*np.array(DIRECTIONS)[facing].T)
    kinds = np.eye(len(THINGS) + 1)
    parts = [np.eye(4)[facing], kinds[GROUP[ahead]], (ahead == GRASS)[:, None]]
    parts += [kinds[GROUP[seen[direction]]] for direction in DIRECTIONS]
    parts += [_nearest(groups == number) for number in SOUGHT]
    parts += [(arrays[OWNED + name] / unit)[:, None] for name, unit in UNIT.items()]
    around = np.stack([seen[x, y] for x in (-1, 0, 1) for y in (-1, 0, 1)], 1)
    parts += [np.any(around == thing, 1, keepdims=True) for thing in (TABLE, FURNACE)]
    time = (rows + 1) / 300 % 1 + 0.3  # a day has 300 steps, and begins in the morning
    parts += [(1 - np.abs(np.cos(np.pi * time / 2)) ** 12)[:, None], asleep[:, None]]
    return np.concatenate(parts, 1).astype(np.float32)


def _nearest(holds: Bool[np.ndarray, "T C"]) -> Float[np.ndarray, "T 3"]:
    """How far to the right and down the nearest cell is that holds something, and how close; zeros if there is none."""
    there = np.array(CELLS)[holds.argmax(1)] * np.any(holds, 1, keepdims=True)
    distance = np.abs(there).sum(1)
    close = np.where(distance > 0, 1 / np.maximum(distance, 1), 0)
    return np.column_stack([there[:, 0] / WIDE, there[:, 1] / HIGH, close])


def _facing_and_sleep(arrays: dict[str, Any]) -> tuple[Int[np.ndarray, " T"], Bool[np.ndarray, " T"]]:
    """Where the player faces (a number in `DIRECTIONS`), and whether the next action will be ignored, after each row.

    Neither is recorded. A player faces where they last moved or tried to, falls asleep by action 6 when tired, and then
    sleeps on, whatever they do, until rested or hurt: at once by hunger, which takes one of health, and after the next
    action by an enemy, who takes more and comes after the player's turn.
    """
    facing, asleep = np.zeros(len(arrays["action"]), int), np.zeros(len(arrays["action"]), bool)
    turned, sleeping, attacked, energy_before, health_before = DOWN, False, False, MOST, MOST
    columns = (arrays["action"], arrays[OWNED + "energy"], arrays[OWNED + "health"])
    for row, (action, energy, health) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        tired = energy_before < MOST
        sleeping = tired and (sleeping or action == SLEEP)
        if not (row and asleep[row - 1]) and 1 <= action <= len(DIRECTIONS):
            turned = action - 1
        sleeping = sleeping and not attacked and health_before - health != 1
        attacked = health_before - health > 1
        facing[row], asleep[row] = turned, sleeping and energy < MOST
        energy_before, health_before = energy, health
    return facing, asleep


FORMAT = Format("recordings of Crafter", recognises, read, scores)
