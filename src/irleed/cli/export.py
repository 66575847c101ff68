"""The command `irleed export`: a policy to hand on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from irleed._io.text import say
from irleed.export import export


@dataclass(frozen=True)
class ExportCommand:
    """Write a run's policy to a folder of its own, with a model card; loading it runs no code."""

    run_folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """The folder of the fit (`irleed fit DATA --out RUN`)."""
    out: Path
    """A new folder, for policy.safetensors, policy.json (how to compute with it) and README.md (the model card)."""
    onnx: bool = False
    """Write policy.onnx as well, for machines without JAX; needs the extra `export`."""

    def run(self, console: Console) -> None:
        """Read, write, and say where."""
        say(console, f"wrote {export(self.run_folder, self.out, onnx=self.onnx)}")
