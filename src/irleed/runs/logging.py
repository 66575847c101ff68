"""Where the figures of a run go: lines of JSON always; TensorBoard and Weights & Biases where they are asked for."""

import importlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from irleed._io.files import beside
from irleed.errors import ConfigError
from irleed.runs.checkpoint import Log

LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # by what they are called on the command line


class History:
    """A line of JSON for every part of a run; those of a run that went on follow each other as if it never stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def begin(self, done: int) -> None:
        """Keep the lines up to this step; what comes after them will be told again."""
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
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
    except (ValueError, KeyError, TypeError):
        return -1


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
