"""Folders of the Atari Grand Challenge: screens of games, and a text file for each episode."""

import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from irleed._io.arrays import CORRUPT
from irleed._io.text import printable
from irleed._typing import Array, Int
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, inside, refuse, regular
from irleed.data.lazy import LazyRows, Source
from irleed.data.validation import listed
from irleed.errors import library

COLUMNS = ("frame", "reward", "score", "terminal", "action")
WORDS = {"True": "1", "False": "0"}  # flags in some versions
LOOKS = ("screen", "grey84")  # choices of --obs
SIDE = 84
MOST_PIXELS = 1 << 20  # of a screen: 160 x 210 in the published ones
LARGEST = 1 << 25  # bytes of a trajectory: a minute at 60 frames a second takes about 100,000


class Game(NamedTuple):
    """The folders of one game, and the folder that both are in."""

    name: str
    root: Path
    screens: Path
    trajectories: Path


class Screens(Source):
    """Screens of one episode, in numbered files."""

    def __init__(self, root: Path, folder: Path, first: int, count: int, look: str):
        self.root, self.folder, self.first, self.look, self.dtype = root, folder, first, look, np.dtype(np.uint8)
        self.shape = (count, *_picture(root, folder / f"{first}.png", look).shape)

    def read(self, rows: Int[np.ndarray, " K"]) -> np.ndarray:
        """Decode these screens."""
        values = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for i, row in enumerate(rows):
            path = self.folder / f"{self.first + row}.png"
            picture = _picture(self.root, path, self.look)
            if picture.shape != self.shape[1:]:
                refuse(path, f"shape {picture.shape}", f"{self.shape[1:]}, as the first has", "copy it again")
            values[i] = picture
        return values


def recognises(path: Path) -> bool:
    """A folder with folders `screens` and `trajectories`, or that of one game in either."""
    try:
        return any((root / "screens").is_dir() and (root / "trajectories").is_dir() for root in _roots(path))
    except OSError:
        return False


def read(path: Path, reading: ReadOptions) -> Demonstrations:
    """The episodes of one game; each counts as another demonstrator."""
    game, look = _game(path), reading.obs[0] if reading.obs else LOOKS[0]
    if len(reading.obs) > 1 or look not in LOOKS or reading.action not in (None, "action"):
        got = f"a choice of {listed([*reading.obs, *filter(None, [reading.action])])}"
        refuse(path, got, f"one of {listed(LOOKS)}, and 'action'", "choose from these")
    if reading.named not in (None, "game"):
        got, remedy = f"no {reading.named!r}", "leave it out: every episode is then its own"
        refuse(f"{printable(path)}, demonstrator", got, "'game', for one who plays them all", remedy)
    files = sorted(_numbered(game.trajectories, ".txt").items())
    if not files:
        refuse(game.trajectories, "no files", "trajectories 1.txt, 2.txt, ...", "copy the folder again")
    episodes = []
    for number, file in files:
        name = game.name if reading.named else f"{game.name} {number}"
        episodes.append(_episode(game.root, regular(game.root, file), game.screens / file.stem, look, name))
    return Demonstrations.from_episodes(episodes, where=printable(path))


def _roots(path: Path) -> list[Path]:
    """Where the two folders may be: here, or above the folder of a game."""
    below = path.parent.name in ("screens", "trajectories") and path.is_dir()
    return [path, path.parent.parent] if below else [path]


def _game(path: Path) -> Game:
    """The only game, or the one whose folder was named."""
    root = next(root for root in _roots(path) if (root / "screens").is_dir() and (root / "trajectories").is_dir())
    games = sorted(folder.name for folder in inside(root, root / "trajectories").iterdir() if folder.is_dir())
    name = path.name if root != path else games[0] if len(games) == 1 else None
    if name not in games:
        example = f"name its folder, as {printable(root / 'trajectories' / games[0])}" if games else "copy it again"
        refuse(path, f"games {listed(games) or 'none'}", "one", example)
    return Game(name, root, *(inside(root, root / kind / name) for kind in ("screens", "trajectories")))


def _episode(root: Path, file: Path, screens: Path, look: str, name: str) -> Episode:
    """Row t has a screen, the action on it, and the reward and termination of the previous action.

    So reward and termination of row t + 1 belong to the action of row t, and the last action is left out. So are rows
    before the first screen and after the last: screens start at 0 or 1, depending on the version.
    """
    frame, reward, terminal, action = _rows(file)
    pictures = _numbered(inside(root, screens), ".png")
    seen = np.flatnonzero(np.isin(frame, list(pictures)))
    if len(seen) < 2:
        refuse(screens, f"screens of {len(seen)} of {len(frame)} frames", "two or more", "copy it, or leave both out")
    kept = slice(seen[0], seen[-1] + 1)
    if seen[-1] - seen[0] + 1 != len(seen):
        missing = frame[np.setdiff1d(np.arange(seen[0], seen[-1]), seen)[0]]
        refuse(screens, f"no {missing}.png", "a screen for every frame between two", "copy it again")
    early = np.flatnonzero(terminal[kept][:-1])
    if len(early):
        refuse(file, f"terminal at frame {frame[kept][early[0]]}", "the last frame alone", "cut the file there")
    obs = LazyRows.of(Screens(root, screens, int(frame[seen[0]]), len(seen), look))
    return Episode(obs, action[kept][:-1], bool(terminal[kept][-1]), name, reward[kept][1:])


def _rows(file: Path) -> tuple[Array, Array, Array, Array]:
    """Frames, rewards, terminations and actions of a file."""
    if file.stat().st_size > LARGEST:
        refuse(file, f"{file.stat().st_size:,} bytes", f"at most {LARGEST:,}", "check that it is a trajectory")
    try:
        lines = [line.replace(" ", "") for line in file.read_text("utf-8").splitlines() if line.strip()]
        head = next((i for i, line in enumerate(lines[:3]) if line.split(",")[:1] == ["frame"]), 0)
        names, body = (lines[head].split(",") if lines else []), lines[head + 1 :]
        if not set(COLUMNS) <= set(names) or len(set(names)) < len(names) or not body:
            refuse(file, f"columns {listed(names)}", f"{', '.join(COLUMNS)} in the second line", "copy it again")
        table = [[WORDS.get(cell, cell) for cell in line.split(",")] for line in body]
        odd = next((i for i, row in enumerate(table) if len(row) != len(names)), None)
        if odd is not None:
            refuse(f"{printable(file)}, line {head + odd + 2}", f"{len(table[odd])} values", len(names), "fix it")
        values = np.array([[float(cell) for cell in row] for row in table])
    except CORRUPT as error:
        refuse(file, f"no table of numbers ({ascii(str(error))[:100]})", "such a table", "copy it again")
    frame, reward, terminal, action = (values[:, names.index(name)] for name in COLUMNS if name != "score")
    whole = np.isfinite(values).all(1) & (frame == np.rint(frame)) & (action == np.rint(action))
    whole &= np.isin(terminal, (0, 1))
    sound = whole & (frame == frame[0] + np.arange(len(frame))) & (action >= 0) & (action < 18) & (frame >= 0)
    if not sound.all():
        row = int(np.argmin(sound))
        expected = "frames one after the other, terminal 0 or 1, an action of 0 to 17"
        refuse(f"{printable(file)}, line {head + row + 2}", ascii(body[row][:80]), expected, "fix it")
    return frame.astype(np.int64), reward, terminal == 1, action.astype(np.int32)


def _numbered(folder: Path, ending: str) -> dict[int, Path]:
    """The numbered files of a folder."""
    called = re.compile(r"(0|[1-9][0-9]{0,8})" + re.escape(ending))
    try:
        found = (called.fullmatch(name) for name in os.listdir(folder))
        return {int(match[1]): folder / match[0] for match in found if match}
    except OSError as error:
        refuse(folder, f"an unreadable folder ({error.strerror})", "a folder", "copy it, or leave the episode out")


def _picture(root: Path, path: Path, look: str) -> np.ndarray:
    """A screen as stored, or grey and 84 x 84."""
    if path.is_symlink() or not path.is_file():  # its folder has been checked
        regular(root, path)
    image = library("PIL.Image", "formats")
    try:
        with image.open(path, formats=("PNG",)) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"{picture.width} x {picture.height} pixels")
            if look == "grey84":
                return np.asarray(picture.convert("L").resize((SIDE, SIDE), image.Resampling.BOX))
            return np.asarray(picture.convert("RGB"))
    except (*CORRUPT, image.DecompressionBombError) as error:
        refuse(path, f"no picture ({ascii(str(error))[:100]})", "a PNG file", "copy it again")


FORMAT = Format("Atari Grand Challenge folders", recognises, read)
