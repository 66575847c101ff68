"""The answer about the demonstrators, as text and as JSON, whatever they are called."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from irleed.model.expertise import Expertise

HOSTILE = ("[red]anna[/red]", "[/]", "[link=file:///etc/passwd]ben", "\\[bold]", ":smile:", "<script>alert(1)</script>")


def expertise(names, precision=None, **columns) -> Expertise:
    count = len(names)
    precision = np.linspace(2.0, 0.5, count) if precision is None else np.asarray(precision, float)
    given = {
        "transitions": np.arange(count) + 10.0,
        "precision": precision,
        "precision_low": precision / 2,
        "precision_high": precision * 2,
        "bias": np.full(count, 0.3),
        "bias_low": np.full(count, 0.125),
        "bias_high": np.full(count, 0.5),
        "log_likelihood": np.full(count, -1.25),
        "weight": np.full(count, 1 / count),
    }
    return Expertise(names=tuple(names), **{**given, **columns})


def printed(answer: Expertise, **settings) -> str:
    file = io.StringIO()
    Console(file=file, width=200, emoji=False).print(answer.table(**settings))
    return file.getvalue()


def test_hostile_names_are_shown_as_text():
    text = printed(expertise(HOSTILE))
    for name in HOSTILE:
        assert name in text
    assert "\x1b" not in text


def test_the_table_has_a_row_for_each_with_intervals():
    lines = printed(expertise(["anna", "ben"], [0.5, 2.0])).splitlines()
    ben, anna = (next(i for i, line in enumerate(lines) if name in line) for name in ("ben", "anna"))
    assert ben < anna, "the most precise first"
    assert "2.00 [1.00, 4.00]" in lines[ben] and "0.30 [0.12, 0.50]" in lines[ben] and " 11 " in lines[ben]


def test_skill_comes_first_in_a_table_of_80_columns():
    """Nothing is cut off there; a notebook has room for all."""
    skill = {"skill": np.array([-0.25, 0.9]), "skill_low": np.array([-0.5, 0.8]), "skill_high": np.array([0.0, 1.0])}
    found, file = expertise(["anna of many", "ben"], transitions=np.array([9e4, 5e3]), **skill), io.StringIO()
    Console(file=file, width=80).print(found.table())
    text = file.getvalue()
    assert "…" not in text and found.ranking == ("ben", "anna of many")
    assert re.search(r"anna of many +90000 +-0\.25 \[-0\.50, 0\.00\] +2\.00 \[1\.00, 4\.00\] +0\.30 +0\.50", text)
    assert "0.30 [0.12, 0.50]" in found._repr_html_() and "-1.250" in found._repr_html_()
    assert [row["skill_low"] for row in found.to_dict()] == [-0.5, 0.8]


def test_without_intervals_the_value_stands_alone():
    nothing = np.full(2, np.nan)
    columns = dict.fromkeys(("precision_low", "precision_high", "bias_low", "bias_high"), nothing)
    text = printed(expertise(["anna", "ben"], **columns))
    assert "2.00" in text and "[" not in text and "nan" not in text


def test_who_has_few_transitions_and_no_interval_is_not_ranked():
    """Intervals of a posterior are wide there; those of an ensemble say nothing, and are removed."""
    few = expertise(["anna", "ben", "cleo"], [4.0, 2.0, 1.0], transitions=np.array([9.0, 10.0, 30.0]))
    assert few.ranking == ("anna", "ben", "cleo")
    found = few.without_few()
    assert found.ranking == ("ben", "cleo") and found.ranked.tolist() == [False, True, True]
    assert np.isnan(found.precision_low).tolist() == np.isnan(found.bias_high).tolist() == [True, False, False]
    lines = printed(found).splitlines()
    cleo, anna = (next(i for i, line in enumerate(lines) if name in line) for name in ("cleo", "anna"))
    assert cleo < anna and "9 (too few)" in lines[anna] and "[" not in lines[anna].split("0.30")[0]
    assert [row["ranked"] for row in found.to_dict()] == [False, True, True]


def test_a_long_table_is_cut_and_says_so():
    text = printed(expertise([f"episode {i}" for i in range(12)]), limit=5)
    assert "episode 4" in text and "episode 5" not in text and "and 7 more" in text


def test_ties_keep_their_order():
    assert expertise(["a", "b", "c", "d"], [1.0, 2.0, 1.0, 2.0]).ranking == ("b", "d", "a", "c")


@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_json_has_no_nan(gap):
    rows = expertise(HOSTILE, precision_high=np.array([gap, 1, 2, 3, 4, 5])).to_dict()
    again = json.loads(json.dumps(rows, allow_nan=False))
    assert [row["name"] for row in again] == list(HOSTILE)
    assert again[0]["precision_high"] is None and again[1]["precision_high"] == 1.0
    assert set(again[0]) == {
        "name", "transitions", "precision", "precision_low", "precision_high", "bias", "bias_low", "bias_high",
        "log_likelihood", "weight", "ranked",
    }  # fmt: skip
