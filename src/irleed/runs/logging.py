"""Metrics of a run as lines of JSON, in TensorBoard and Weights & Biases, and progress on a terminal."""

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

from irleed import errors
from irleed._io.files import beside
from irleed.errors import ConfigError
from irleed.runs.checkpoint import Log
from irleed.runs.directory import MOST_BYTES, content

SECONDS_BETWEEN_LINES = 10.0  # of progress, where there is no terminal
LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by their names on the command line


class History:
    """A file with a line of JSON for every interval; a resumed run continues it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def begin(self, done: int) -> None:
        """Keep the lines up to this step; later ones will be written again."""
        if os.path.lexists(self._path):
            lines = content(self._path, MOST_BYTES).decode("utf-8", "replace").splitlines()
            with beside(self._path) as file:
                file.writelines(f"{line}\n".encode() for line in lines if 0 < _step(line) <= done)
        self._file = self._path.open("a", encoding="utf-8")

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """One line; non-finite values are null."""
        if self._file is not None:
            line = {name: _rounded(value) if math.isfinite(value) else None for name, value in figures.items()}
            self._file.write(json.dumps({"step": step, **line}) + "\n")
            self._file.flush()

    def flush(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class TensorBoard:
    """Event files for TensorBoard, by tensorboardX."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, library("tensorboard")
        self._writer: Any = None

    def begin(self, done: int) -> None:
        self._writer = self._library.SummaryWriter(str(self._folder), purge_step=done + 1)

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; WANDB_MODE=offline and its other variables are respected."""

    def __init__(self, folder: Path, identity: str, config: Mapping[str, object]) -> None:
        self._folder, self._identity, self._config = folder, identity, dict(config)
        self._library = library("wandb")
        self._run: Any = None

    def begin(self, done: int) -> None:
        """Start or resume the run; steps that it has already are kept."""
        settings = {"project": os.environ.get("WANDB_PROJECT", "irleed"), "name": self._folder.name}
        self._run = self._library.init(
            dir=str(self._folder), id=self._identity, resume="allow", config=self._config, **settings
        )

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def flush(self) -> None:
        """Does nothing: the library writes by itself."""

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


def logs_of(names: Sequence[str], folder: Path, identity: str, config: Mapping[str, object]) -> list[Log]:
    """The log history.jsonl of a run, and those of these names."""
    found: list[Log] = [History(folder / "history.jsonl")]
    for name in dict.fromkeys(names):
        tensorboard = name == "tensorboard"
        found.append(TensorBoard(folder / name) if tensorboard else WeightsAndBiases(folder, identity, config))
    return found


def library(log: str) -> Any:
    """The library that writes a log; refused if it is unknown or not installed."""
    if log not in LIBRARIES:
        expected = " or ".join(LIBRARIES)
        raise ConfigError("--log", got=log, expected=expected, remedy="choose one of them, or leave it out")
    return errors.library(LIBRARIES[log], "log", f"--log {log}")


def _step(line: str) -> int:
    """The step of a line; -1 if the line is damaged."""
    try:
        found = json.loads(line)
        return found["step"] if isinstance(found["step"], int) else -1
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


class _Rate(ProgressColumn):
    """Recent steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{_digits(speed)}/s")


@contextmanager
def progress_bar(console: Console, title: str) -> Iterator[Callable[..., None]]:
    """Yields a function of the steps done, the total, and metrics to show."""
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
    first: tuple[int, float] | None = None  # the steps done at the first call: a resumed run does not start at 0
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
    """Three significant digits, without an exponent from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
