"""What the command line says about keeping a run: checkpoints, going on, logs, and being asked to stop."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from irleed.errors import ConfigError
from irleed.runs.checkpoint import Checkpointer, Log
from irleed.runs.directory import Run
from irleed.runs.logging import History, TensorBoard, WeightsAndBiases, library


@dataclass(frozen=True)
class Keeping:
    """How a run is kept in its folder."""

    resume: bool = False
    """Go on with the run in --out, from its last checkpoint; begin it if there is none."""
    checkpoint_every: float | None = None
    """Networks: seconds between checkpoints; at least 10 by default, and so many that they take 1 % of the time."""
    log: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Networks: tell TensorBoard or Weights & Biases as well, besides history.jsonl."""

    def check(self, out: Path | None) -> None:
        """Refuse what makes no sense, before any work depends on it."""
        for field in dataclasses.fields(self):
            if out is None and getattr(self, field.name) != field.default:
                flag = f"--{field.name.replace('_', '-')}"
                raise ConfigError(flag, got="no --out", expected="a folder", remedy="name one with --out")
        if self.checkpoint_every is not None and not self.checkpoint_every >= 0:
            got, remedy = self.checkpoint_every, "choose, say, 60"
            raise ConfigError("--checkpoint-every", got=got, expected="0 or more", remedy=remedy)
        for name in self.log:
            library(name)

    @contextlib.contextmanager
    def checkpointer(
        self, run: Run, config: Mapping[str, object], warn: Callable[[str], None]
    ) -> Iterator[Checkpointer]:
        """What keeps a run; Ctrl-C, SIGTERM and SIGHUP let it stop at its next checkpoint, a second one at once."""
        for note in run.notes:
            warn(f"note: {note}")
        logs: list[Log] = [History(run.folder / "history.jsonl")]
        for name in dict.fromkeys(self.log):
            if name == "tensorboard":
                logs.append(TensorBoard(run.folder / "tensorboard"))
            else:
                logs.append(WeightsAndBiases(run.folder, run.identity, config))
        checkpointer = Checkpointer(run.folder, run.fingerprint, every=self.checkpoint_every, logs=logs, warn=warn)

        def asked(number: int, frame: FrameType | None) -> None:
            if checkpointer.stop:
                raise KeyboardInterrupt
            checkpointer.stop = True
            warn("stopping at the next checkpoint; once more to stop at once")

        with checkpointer, handled(asked):
            yield checkpointer


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """With a handler for requests to stop, the old ones being put back; one that is ignored, as by nohup, stays so.

    Only the main thread can have handlers: in another, nothing changes.
    """
    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        asked = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
        found = {number: signal.getsignal(number) for number in asked}
        old = {number: before for number, before in found.items() if before not in (signal.SIG_IGN, None)}
    try:
        for number in old:
            signal.signal(number, handler)
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


def interrupt(number: int, frame: FrameType | None) -> None:
    """End a command as Ctrl-C does: what is half written is removed, and locks are released."""
    raise KeyboardInterrupt
