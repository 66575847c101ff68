"""Progress of long work: a live bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0


class _Rate(ProgressColumn):
    """Steps in a second, lately."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{_digits(speed)}/s")


@contextmanager
def shown(console: Console, title: str) -> Iterator[Callable[..., None]]:
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
