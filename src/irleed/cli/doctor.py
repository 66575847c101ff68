"""The command `irleed doctor`: what is installed, and whether it works."""

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from irleed._text import escaped
from irleed.doctor import examine


@dataclass(frozen=True)
class DoctorCommand:
    """Say what is installed, what is missing, and whether what is computed is right; exit status 1 if it is not."""

    thorough: bool = False
    """Make whole fits of known answers as well, with tables and with networks: this takes some time to compile."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> None:
        """Examine, print, and end with status 1 where a self-test came out wrong."""
        found = examine(self.thorough)
        if self.json:
            print(json.dumps(found, indent=1))
        else:
            console.print(_table(found))
        if not found["ok"]:
            sys.exit(1)


def _table(found: dict[str, Any]) -> Table:
    """One fact a row: what it is about, its name, and how it is."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("bold", None, None):
        table.add_column(style=style, overflow="fold")
    rows: list[tuple[str, str, str]] = [("versions", name, own) for name, own in found["versions"].items()]
    rows.append(("machine", "platform", found["platform"]))
    rows += [("machine", "device", device) for device in found["devices"]]
    rows += [("extras", extra, _lacks(extra, missing)) for extra, missing in found["extras"].items()]
    for name, folder in found["folders"].items():
        state = "can be written to" if folder["writable"] else "cannot be written to"
        rows.append(("folders", name, f"{folder['path']}: {state}"))
    for test in found["tests"]:
        state = "right" if test["ok"] else f"wrong: {test['wrong']}"
        rows.append(("self-test", test["name"], f"{state} ({test['seconds']} s, compilation included)"))
    before = ""
    for kind, name, said in rows:
        if before and kind != before:
            table.add_row()
        table.add_row("" if kind == before else kind, *(Text(escaped(text)) for text in (name, said)))
        before = kind
    return table


def _lacks(extra: str, missing: list[str]) -> str:
    if not missing:
        return "installed"
    return f"missing {', '.join(missing)}; pip install 'irleed[{extra}]'"
