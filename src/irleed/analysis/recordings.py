"""A recording of an episode of a learned policy, where the environment renders.

The run directory has `film.webp` (animated), `film.png` (a few still frames) and `film.json`, which describes them or
has the reason why there are none.
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
from irleed.policies import Policy

VERSION = 1
LONGEST = 10_000  # steps of an episode that does not end
MOST_FRAMES, MILLISECONDS = 80, 60  # of the film, and the duration of each
LONGEST_SIDE, STRIP, GAP = 240, 4, 4  # pixels of a frame; frames of the still picture, and pixels between them
QUALITIES, MOST_BYTES = (75, 50, 25), 500_000  # of the film: the first quality that is small enough is used
LONGEST_REASON = 300
# Renderers for machines without a screen, for which MuJoCo and pygame would look.
NO_SCREEN = {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


@dataclass(frozen=True)
class Film:
    """Frames of an episode, one in `every` steps and the last, with its length and return."""

    frames: list[Image.Image]
    every: int
    steps: int
    total: float


def write(folder: Path, env_id: str, policy: Policy, seed: int) -> None:
    """Record an episode by greedy actions in a run directory; or the reason why that failed."""
    head = {"format": "irleed-film", "version": VERSION, "env": env_id, "seed": seed}
    try:
        film = recorded(env_id, policy, seed)
        moving, still = animated(film.frames), strip(film.frames)
    except Exception as error:  # rendering is the environment's own code: it may raise anything
        write_json(folder / "film.json", head | {"reason": one_line(error)[:LONGEST_REASON]})
        return
    for name, content in (("film.webp", moving), ("film.png", still)):
        with beside(folder / name) as file:
            file.write(content)
    facts = {"frames": len(film.frames), "every": film.every, "steps": film.steps, "return": film.total}
    write_json(folder / "film.json", head | facts)


def recorded(env_id: str, policy: Policy, seed: int) -> Film:
    """An episode, run once for its length, and again to render the frames that are kept."""
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
    """Run an episode in the first lane, and yield the rewards."""
    for _ in range(LONGEST):
        # Lanes show states of a finite MDP as one-hot vectors; its policies take their numbers.
        seen = env.obs if policy.observation_shape else env.obs.argmax(-1)
        now = env.step(np.asarray(policy.predict(seen, deterministic=True)[0]))
        yield float(now.reward[0])
        if now.terminated[0] or now.truncated[0]:
            return


def animated(frames: list[Image.Image]) -> bytes:
    """An animated WebP image that repeats."""
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
    """One lane and its rendering engine; an episode that ends stays there until the next step."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # which goes to standard output
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        for name, value in NO_SCREEN.items():
            os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from renderers, which users cannot act on
        engine = gymnasium_lanes(env_id, 1, MODES["next_step"], {"render_mode": "rgb_array"})
        try:
            yield HostEnv(engine, env_id, 1, same_step=False, seed=seed), engine
        finally:
            engine.close()


def _frame(engine: Any) -> Image.Image:
    """The rendered frame, made small."""
    frame = Image.fromarray(np.asarray(engine.render()[0]))
    frame.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return frame.convert("RGB")
