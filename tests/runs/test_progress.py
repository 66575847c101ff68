"""Progress is a bar on a terminal, and plain lines, few of them, in a file or a pipe."""

import io

import pytest
from rich.console import Console

from irleed.runs import logging


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""
    now = [100.0]
    monkeypatch.setattr(logging.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_when_not_a_terminal(clock):
    file = io.StringIO()
    with logging.progress_bar(Console(file=file), "fit") as report:
        for done in range(1, 51):
            clock[0] += 3.0
            report(done, 50)
    lines = file.getvalue().splitlines()
    assert lines[0] == "fit: 4/50, 12 s, 0.333/s, 138 s left" and lines[1] == "fit: 8/50, 24 s, 0.333/s, 126 s left"
    assert lines[-1] == "fit: 50/50, 150 s"
    assert len(lines) == 13, "a line every ten seconds or so, and one at the end"
    assert "\x1b" not in file.getvalue() and "\r" not in file.getvalue()


def test_the_end_is_reported_however_fast(clock):
    file = io.StringIO()
    with logging.progress_bar(Console(file=file), "fit") as report:
        report(1, 2)
        report(2, 2)
    assert file.getvalue() == "fit: 2/2, 0 s\n"


def test_figures_are_told_and_the_rate_is_that_since_work_went_on(clock):
    """What was done before, and the time before the first step, say nothing about the time left."""
    file = io.StringIO()
    with logging.progress_bar(Console(file=file, width=200), "fit") as report:
        clock[0] += 7.0
        report(500, 10_000)
        for done in (1500, 2500):
            clock[0] += 10.0
            report(done, 10_000, loss=0.12345)
            report(done + 1, 10_000)
    lines = file.getvalue().splitlines()
    assert lines[0] == "fit: 1500/10000, 17 s, 100/s, 85 s left, loss 0.123"
    assert lines[1] == "fit: 2500/10000, 27 s, 100/s, 75 s left, loss 0.123"


def test_the_bar_shows_figures_and_the_rate():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=160, color_system=None)
    with logging.progress_bar(console, "fit") as report:
        for done in range(3):
            report(done, 7, loss=0.5)
    assert "2/7" in file.getvalue() and "/s" in file.getvalue() and "loss 0.5" in file.getvalue()


def test_a_bar_on_a_terminal_that_is_gone_afterwards():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, color_system=None)
    with logging.progress_bar(console, "fit") as report:
        report(3, 7)
        console.print("in between")
    shown = file.getvalue()
    assert "3/7" in shown and "fit: 3/7" not in shown and "in between\n" in shown
    assert "\x1b[2K" in shown[shown.rindex("3/7") :], "the bar is wiped away"
