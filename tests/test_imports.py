"""Imports go one way: a module knows those below it, never those above."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "irleed"
# From the ground up. A module may import those of its own layer and of earlier ones, as long as there is no circle.
LAYERS = (
    ("_typing", "errors", "_io", "_compute"),
    ("data", "envs"),
    ("model", "policies"),
    ("runs",),
    ("algorithms",),
    ("rollout", "simulation"),
    ("analysis", "report", "export", "fit"),
    ("experiments",),
    ("",),  # irleed itself, which only gathers the public names
    ("cli", "__main__"),
)
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def module_name(path: Path) -> str:
    parts = ("irleed", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def part(module: str) -> str:
    """The module or package right under irleed that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def imported(module: str, source: str, is_package: bool, known: set[str]) -> Iterator[str]:
    """The modules of irleed that a source imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            # `from package import name` means the module package.name if there is one, else a name in the package.
            names = [f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names]
        else:
            continue
        yield from (name for name in names if name == "irleed" or name.startswith("irleed."))


def graph() -> dict[str, set[str]]:
    known = set(MODULES)
    return {
        module: set(imported(module, path.read_text(encoding="utf-8"), path.name == "__init__.py", known)) - {module}
        for module, path in MODULES.items()
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_place(module):
    assert part(module) in LEVEL, f"{module}: give {part(module)!r} a place in LAYERS and in docs/architecture.md"


def test_every_place_is_taken():
    """A layer of modules that do not exist would tell readers of a house that is not there."""
    assert set(LEVEL) == {part(module) for module in MODULES}


def test_imports_go_one_way():
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in targets
        if LEVEL.get(part(target), len(LAYERS)) > LEVEL.get(part(module), -1)
    ]
    assert not wrong, "; ".join(sorted(wrong))


def test_no_module_imports_itself_through_others():
    remaining = {module: targets & set(MODULES) for module, targets in graph().items()}
    while True:
        leaves = {module for module, targets in remaining.items() if not targets}
        if not leaves:
            break
        remaining = {module: targets - leaves for module, targets in remaining.items() if module not in leaves}
    assert not remaining, f"a circle among {sorted(remaining)}"


def test_what_is_imported_exists():
    missing = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in targets
        if target not in MODULES and not (SOURCE / Path(*target.split(".")[1:])).is_dir()
    ]
    assert not missing, "; ".join(sorted(missing))


@pytest.mark.parametrize(
    "source,expected",
    [
        ("import irleed.data.files", ["irleed.data.files"]),
        ("from irleed.data import files", ["irleed.data.files"]),
        ("from irleed.data import load", ["irleed.data"]),
        ("from . import planning", ["irleed.tabular.planning"]),
        ("from .planning import Soft", ["irleed.tabular.planning"]),
        ("from ..data.files import load", ["irleed.data.files"]),
        ("def f():\n    import irleed", ["irleed"]),
        ("import numpy, irleedx", []),
    ],
)
def test_the_walk_sees_imports_of_every_form(source, expected):
    known = {"irleed", "irleed.data", "irleed.data.files", "irleed.tabular", "irleed.tabular.planning"}
    assert list(imported("irleed.tabular.irleed", source, False, known)) == expected
