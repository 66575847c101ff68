"""An episode of a learnt policy as moving pictures, where the environment can be looked at.

It is played anew from a seed, in an environment of Gymnasium that renders, and kept in the run directory: `film.webp`
moves, `film.png` shows the same for paper and for those who want nothing to move, and `film.json` says what it is or,
in one line, why there is none.
"""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from irleed._io.files import beside, write_json
from irleed.envs.engines import gymnasium_lanes, one_line
from irleed.envs.host import MODES, HostEnv
from irleed.policies.base import Policy

VERSION = 1
LONGEST = 10_000  # steps of an episode that does not end
MOST_FRAMES, MILLISECONDS = 80, 60  # that are kept, and how long each is shown
LONGEST_SIDE, STRIP, GAP = 240, 4, 4  # pixels of a frame; how many the still picture has, and pixels between them
QUALITIES, MOST_BYTES = (75, 50, 25), 500_000  # of the film: the first that is small enough
LONGEST_REASON = 300
# What draws where there is no screen; or MuJoCo and pygame look for one first, and complain.
NO_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


@dataclass(frozen=True)
class Film:
    """Frames of an episode, one of every so many steps and the last, and what the episode was."""

    frames: list[Image.Image]
    every: int
    steps: int
    total: float


def write(folder: Path, env_id: str, policy: Policy, seed: int) -> None:
    """Play an episode by the greedy actions, and keep it in a run directory; if that cannot be, keep why."""
    head = {"format": "irleed-film", "version": VERSION, "env": env_id, "seed": seed}
    try:
        film = played(env_id, policy, seed)
        moving, still = animated(film.frames), strip(film.frames)
    except Exception as error:  # what renders is the environment's own code: it may raise anything
        write_json(folder / "film.json", head | {"reason": one_line(error)[:LONGEST_REASON]})
        return
    for name, content in (("film.webp", moving), ("film.png", still)):
        with beside(folder / name) as file:
            file.write(content)
    told = {"frames": len(film.frames), "every": film.every, "steps": film.steps, "return": film.total}
    write_json(folder / "film.json", head | told)


def played(env_id: str, policy: Policy, seed: int) -> Film:
    """An episode from its start to its end; once for its length, and once more to look at as much of it as is kept."""
    with _stage(env_id, seed) as (env, engine):
        length = sum(1 for _ in _rewards(env, policy))
        every = -(-length // (MOST_FRAMES - 1))
        env.reset(seed)
        frames, steps, total = [_frame(engine)], 0, 0.0
        for steps, reward in enumerate(_rewards(env, policy), 1):  # noqa: B007
            total += reward
            if steps % every == 0 or steps == length:
                frames.append(_frame(engine))
    return Film(frames[:MOST_FRAMES], every, steps, total)


def _rewards(env: HostEnv, policy: Policy) -> Iterator[float]:
    """What each step of an episode gives, in the first lane, as it is taken."""
    for _ in range(LONGEST):
        # A finite MDP's states are their numbers; lanes show them as a one in so many places.
        seen = env.obs if policy.observation_shape else env.obs.argmax(-1)
        now = env.step(np.asarray(policy.predict(seen, deterministic=True)[0]))
        yield float(now.reward[0])
        if now.terminated[0] or now.truncated[0]:
            return


def animated(frames: list[Image.Image]) -> bytes:
    """As WebP, over and over."""
    for quality in QUALITIES:
        stream = io.BytesIO()
        settings = {"duration": MILLISECONDS, "loop": 0, "quality": quality, "method": 4}
        frames[0].save(stream, "WEBP", save_all=True, append_images=frames[1:], **settings)
        if stream.tell() <= MOST_BYTES:
            return stream.getvalue()
    raise ValueError(f"its film would have more than {MOST_BYTES} bytes")


def strip(frames: list[Image.Image]) -> bytes:
    """A few frames from the first to the last, side by side, as PNG."""
    chosen = [frames[n] for n in np.linspace(0, len(frames) - 1, min(STRIP, len(frames))).round().astype(int)]
    width, height = chosen[0].size[0] + GAP, chosen[0].size[1]
    whole, stream = Image.new("RGB", (width * len(chosen) - GAP, height), "grey"), io.BytesIO()
    for n, frame in enumerate(chosen):
        whole.paste(frame, (n * width, 0))
    whole.quantize(256).save(stream, "PNG", optimize=True)
    return stream.getvalue()


@contextlib.contextmanager
def _stage(env_id: str, seed: int) -> Iterator[tuple[HostEnv, Any]]:
    """One lane, and what can be looked at; an episode that ends stays there until the next step."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # or it greets on standard output
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        for name, value in NO_SCREEN.items():
            os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what draws: nothing that the user of a fit can do about
        engine = gymnasium_lanes(env_id, 1, MODES["next_step"], {"render_mode": "rgb_array"})
        try:
            yield HostEnv(engine, env_id, 1, same_step=False, seed=seed), engine
        finally:
            engine.close()


def _frame(engine: Any) -> Image.Image:
    """What there is to be seen, made small."""
    frame = Image.fromarray(np.asarray(engine.render()[0]))
    frame.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return frame.convert("RGB")
