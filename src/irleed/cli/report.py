"""The command `irleed report`: one page about one run or several."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from irleed._io.text import say
from irleed.errors import ConfigError
from irleed.report.page import write


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML page about a run, or a comparison of several; it needs no network to be read."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders made by `irleed fit --out` or `irleed experiment --out`."""
    out: Path | None = None
    """The page to write; of one run, report.html in its folder unless told otherwise."""

    def run(self, console: Console) -> None:
        """Read, write, and say where."""
        if not self.runs:
            raise ConfigError("runs", got="none", expected="one folder or more", remedy="name the run")
        if self.out is None and len(self.runs) > 1:
            expected, remedy = "where to write the comparison", "give --out report.html"
            raise ConfigError("--out", got="nothing", expected=expected, remedy=remedy)
        runs = list(self.runs)
        out = write(runs, runs[0] / "report.html" if self.out is None else self.out)
        say(console, f"wrote {out}")
