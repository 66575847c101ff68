"""Where the metrics of a run go: lines of JSON, TensorBoard and Weights & Biases, and progress on a terminal."""

import importlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.text import Text

from irleed._io.files import beside
from irleed.errors import ConfigError
from irleed.runs.checkpoint import Log
from irleed.runs.directory import MOST_BYTES, content

SECONDS_BETWEEN_LINES = 10.0  # of progress, where it is no bar
LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by what they are called on the command line


class History:
    """A line of JSON for every part of a run; those of a run that went on follow each other as if it never stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def begin(self, done: int) -> None:
        """Keep the lines up to this step; what comes after them will be told again."""
        if os.path.lexists(self._path):
            lines = content(self._path, MOST_BYTES).decode("utf-8", "replace").splitlines()
            with beside(self._path) as file:
                file.writelines(f"{line}\n".encode() for line in lines if 0 < _step(line) <= done)
        self._file = self._path.open("a", encoding="utf-8")

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """One line; what is no number is null."""
        if self._file is not None:
            line = {name: _rounded(value) if math.isfinite(value) else None for name, value in figures.items()}
            self._file.write(json.dumps({"step": step, **line}) + "\n")
            self._file.flush()

    def flush(self) -> None:
        """To the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """The end."""
        if self._file is not None:
            self._file.close()


class TensorBoard:
    """Event files for TensorBoard, by tensorboardX."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, library("tensorboard")
        self._writer: Any = None

    def begin(self, done: int) -> None:
        """Later steps are told again."""
        self._writer = self._library.SummaryWriter(str(self._folder), purge_step=done + 1)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """A point of each curve."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """To the disk."""
        self._writer.flush()

    def close(self) -> None:
        """The end."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; WANDB_MODE=offline and its other variables are respected."""

    def __init__(self, folder: Path, identity: str, config: Mapping[str, object]) -> None:
        self._folder, self._identity, self._config = folder, identity, dict(config)
        self._library = library("wandb")
        self._run: Any = None

    def begin(self, done: int) -> None:
        """The same run, if it goes on; steps that it has already are left as they are."""
        settings = {"project": os.environ.get("WANDB_PROJECT", "irleed"), "name": self._folder.name}
        self._run = self._library.init(
            dir=str(self._folder), id=self._identity, resume="allow", config=self._config, **settings
        )

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """A point of each curve."""
        self._run.log(dict(figures), step=step)

    def flush(self) -> None:
        """It sees to that itself."""

    def close(self) -> None:
        """The end."""
        if self._run is not None:
            self._run.finish()


def logs_of(names: Sequence[str], folder: Path, identity: str, config: Mapping[str, object]) -> list[Log]:
    """history.jsonl of a run, and the logs of these names besides."""
    found: list[Log] = [History(folder / "history.jsonl")]
    for name in dict.fromkeys(names):
        tensorboard = name == "tensorboard"
        found.append(TensorBoard(folder / name) if tensorboard else WeightsAndBiases(folder, identity, config))
    return found


def library(log: str) -> Any:
    """The library that a log is written with; an error that names the extra where it is not installed."""
    if log not in LIBRARIES:
        expected = " or ".join(LIBRARIES)
        raise ConfigError("--log", got=log, expected=expected, remedy="choose one of them, or leave it out")
    name = LIBRARIES[log]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        got, remedy = f"no such library ({error})", "install it with irleed[log], or leave it out"
        raise ConfigError(f"--log {log}", got=got, expected=name, remedy=remedy) from error


def _step(line: str) -> int:
    """The step that a line is about; -1: it is none, or half of one."""
    try:
        found = json.loads(line)
        return found["step"] if isinstance(found["step"], int) else -1
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


class _Rate(ProgressColumn):
    """Steps in a second, lately."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{_digits(speed)}/s")


@contextmanager
def progress_bar(console: Console, title: str) -> Iterator[Callable[..., None]]:
    """Yields a function to call with how much is done and how much there is; and by name with figures to show."""
    if console.is_terminal:
        counted = (TextColumn(title), BarColumn(), MofNCompleteColumn(), _Rate())
        columns = (*counted, Elapsed(), Remaining(), TextColumn("{task.fields[figures]}"))
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None, figures="")

            def move(done: int, total: int, **figures: float) -> None:
                if figures:
                    bar.update(task, figures=_listed(figures))
                bar.update(task, completed=done, total=total)

            yield move
        return
    began = last_line = time.monotonic()
    first: tuple[int, float] | None = None  # what was done when first heard of, by a run that went on or has compiled
    known: dict[str, float] = {}

    def line(done: int, total: int, **figures: float) -> None:
        nonlocal last_line, first
        now = time.monotonic()
        first = (done, now) if first is None else first
        known.update(figures)
        if done == total or now - last_line >= SECONDS_BETWEEN_LINES:
            rate = (done - first[0]) / (now - first[1]) if now > first[1] else 0.0
            ahead = [f"{_digits(rate)}/s", f"{(total - done) / rate:.0f} s left"] if rate and done < total else []
            parts = [f"{title}: {done}/{total}", f"{now - began:.0f} s", *ahead, *([_listed(known)] if known else [])]
            console.print(", ".join(parts), highlight=False)
            last_line = now

    yield line


def _listed(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {_digits(value)}" for name, value in figures.items())


def _digits(value: float) -> str:
    """Three digits or so, and no exponent where there need not be one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
