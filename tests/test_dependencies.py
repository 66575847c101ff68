"""Dependencies have ranges, the tests run with versions inside them, and licences of extras are documented."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [Requirement(line) for own in PROJECT["optional-dependencies"].values() for line in own]
NEEDED = [Requirement(line) for line in PROJECT["dependencies"]]
BOUNDED = [each for each in (*NEEDED, *EXTRAS) if each.name not in ("irleed", *(own.name for own in NEEDED))]


@pytest.mark.parametrize("requirement", [*NEEDED, *BOUNDED], ids=lambda requirement: requirement.name)
def test_every_dependency_has_a_range_that_is_tested(requirement):
    """A new major version is tried before users get it; a range without what is installed here is untested."""
    assert {specifier.operator for specifier in requirement.specifier} == {">=", "<"}
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        pytest.skip("not installed")
    assert requirement.specifier.contains(installed), installed


@pytest.mark.parametrize("name", sorted({each.name for each in EXTRAS} - {"irleed"}))
def test_the_licence_of_every_extra_is_documented(name):
    rows = [line for line in (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    assert any(name.lower() in row.lower() for row in rows)
