"""Files of demonstrations that other programs write, told apart by their content; one thin module each."""

from pathlib import Path

from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import atari_grand_challenge, d4rl, imitation, iq_learn, lerobot, minari, robomimic, tables
from irleed.data.formats.base import Format, ReadOptions, inside, refuse

__all__ = ["FORMATS", "Format", "ReadOptions", "read_folder", "recognise"]

# Folders first; a robomimic file is HDF5 too, and more particular.
FORMATS = (
    minari.FORMAT,
    lerobot.FORMAT,
    imitation.FORMAT,
    atari_grand_challenge.FORMAT,
    robomimic.FORMAT,
    d4rl.FORMAT,
    iq_learn.FORMAT,
    tables.FORMAT,
)


def recognise(path: Path) -> Format | None:
    """The first format whose content this has."""
    if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        return None
    return next((kind for kind in FORMATS if kind.recognises(path)), None)


def read_folder(path: Path, reading: ReadOptions) -> Demonstrations:
    """A folder of files of any of the formats: whoever has a file of their own is called after it."""
    found = [(file, recognise(file)) for file in sorted(path.iterdir()) if inside(path, file).is_file()]
    known = [(file, kind) for file, kind in found if kind is not None]
    if not known:
        names = ", ".join(kind.name for kind in FORMATS)
        refuse(path, "a folder with no file that is known", f"files of {names}", "name a file, or convert it")
    episodes: list[Episode] = []
    for file, kind in known:
        data = kind.read(file, reading)
        for episode in data.split():
            name = file.stem if data.demonstrators == 1 else f"{file.stem}, {episode.demonstrator}"
            episodes.append(Episode(episode.obs, episode.action, episode.terminated, name, episode.reward))
    return Demonstrations.from_episodes(episodes, where=str(path))
