"""The table from the paper to the code: its names exist, and their source mentions what the row is about."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "paper-to-code.md"
ROWS = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "`irleed." in line]
EQUATIONS = re.compile(r"Eqs?\. \(?(\d+)\)?(?:-\(?(\d+)\)?)?")
OTHERS = re.compile(r"Lemma|Remark on \w+|Tables? \d|Figures? \d")


def resolve(name: str) -> object:
    """The object of a dotted name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def source(found: object) -> str:
    """What is written in the module of an object; in a package, in all its modules."""
    module = found if isinstance(found, ModuleType) else sys.modules[found.__module__]
    path = Path(module.__file__ or "")
    if found is module and path.name == "__init__.py":
        return "\n".join(each.read_text(encoding="utf-8") for each in sorted(path.parent.rglob("*.py")))
    return path.read_text(encoding="utf-8")


def mentioned(text: str) -> set[str]:
    """Equations, each by its number, and named results."""
    ranges = [(int(first), int(last or first)) for first, last in EQUATIONS.findall(text)]
    numbers = {f"Eq. ({number})" for first, last in ranges for number in range(first, last + 1)}
    return numbers | {found.replace("Figures", "Figure") for found in OTHERS.findall(text)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_source_of_every_row_mentions_the_paper(row):
    names = re.findall(r"`(irleed\.[\w.]+)`", row[2])
    assert names
    sources = " ".join(source(resolve(name)) for name in names)
    assert mentioned(row[0]) <= mentioned(sources)


def test_every_equation_of_the_model_has_a_row():
    assert {f"Eq. ({number})" for number in range(2, 11)} | {"Eq. (14)"} <= mentioned(" ".join(row[0] for row in ROWS))
