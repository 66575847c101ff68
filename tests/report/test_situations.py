"""The section "Where each demonstrator is strong and weak": what it says, what it draws, and what it refuses."""

import dataclasses

import pytest

from irleed.errors import DataError
from irleed.report.page import page
from irleed.report.situations import conclusion, section
from irleed.runs.reader import Estimate, FitRun, Person, read_run
from irleed.runs.strengths import Strength, Strengths


def strength(deviation: float, supported: int = 0, transitions: int = 50) -> Strength:
    skill = 0.6 + deviation
    return Strength(0.6, deviation, deviation - 0.1, deviation + 0.1, skill - 0.1, skill + 0.1, transitions, supported)


def fit_of(people: dict[str, tuple[Strength, ...]], names=("speed below 0", "speed at least 0")) -> FitRun:
    found = [
        Person(
            name, 100.0, Estimate(name, 1.0, 0.5, 2.0), None, -1.0, 0.5, skill=Estimate(name, 0.6 - n / 10, 0.5, 0.7)
        )
        for n, name in enumerate(people)
    ]
    return FitRun(
        label="run", folder="run", config={"algorithm": "irleed", "data": "data.npz"}, people=tuple(found), returns=(),
        demonstrated=(), history=(), measure="loss", steps=1, members=8, seconds=1.0, warnings=(), weights=None,
        bias=None, grid=None, departures=None, facts=None, provenance=None,
        strengths=Strengths(names, (0.4, 0.6), (0.6,) * len(people), tuple(people.values())),
    )  # fmt: skip


def shown(run: FitRun) -> str:
    assert run.strengths is not None
    return section(run, run.strengths, 2, "where")


def test_supported_differences_are_said_and_coloured_and_no_others():
    html = shown(fit_of({"ann": (strength(0.2), strength(-0.5, -1)), "bob": (strength(0.3, 1), strength(0.0))}))
    assert "1 demonstrator" not in html and "all 2 demonstrators" in html
    assert "ann is weak in B (speed at least 0: skill 0.10, expected 0.60)." in html
    assert "bob is strong in A (speed below 0: skill 0.90, expected 0.60)." in html
    assert html.count('class="over"') == 1 and html.count('class="under"') == 1
    assert "▼ 0.10" in html and "▲ 0.90" in html


def test_where_nothing_is_supported_the_page_says_so():
    run = fit_of({"ann": (strength(0.2), strength(-0.3)), "bob": (strength(0.0), strength(0.0, 0, 0))})
    html = shown(run)
    assert "No demonstrator is known to be stronger or weaker" in conclusion(run) and "may be chance" in html
    assert 'class="over"' not in html and 'class="under"' not in html and "<li>" not in html
    assert ">?</text>" in html and "never there; 0.60 would be expected" in html


def test_of_many_demonstrators_those_with_supported_differences_are_drawn():
    plain = {f"person {n:02d}": (strength(0.0), strength(0.0)) for n in range(60)}
    html = shown(fit_of({**plain, "last": (strength(-0.5, -1), strength(0.0))}))
    assert "40 of 61 demonstrators" in html and html.count('data-tip="last,') == 2
    assert html.count("data-tip=") == 80


def test_names_that_are_html_are_text():
    bad = "<img src=x onerror=alert(1)>"
    html = shown(
        fit_of({bad: (strength(-0.5, -1), strength(0.0)), "bob": (strength(0.0),) * 2}, (f"{bad} at least 0", "b"))
    )
    assert "<img" not in html and "&lt;img" in html


def test_a_fit_has_the_section(runs):
    run = read_run(runs["networks"])
    assert isinstance(run, FitRun) and run.strengths is not None
    assert len(run.strengths.people) == 4 and abs(sum(run.strengths.share) - 1) < 1e-6
    html = page([run])
    assert "Where each demonstrator is strong and weak" in html and 'href="#run-situations"' in html
    without = page([dataclasses.replace(run, strengths=None)])
    assert "strong and weak" not in without and "run-situations" not in without


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"situations.mean": [0.5]}, "lists of other lengths"),
        ({"situations.supported.0.0": 3}, "-1, 0 or 1"),
        ({"situations.names": []}, "lists of other lengths"),
        ({"situations.low": "wide"}, "a list of lists of numbers"),
        ({"situations": [1]}, "a JSON object"),
    ],
)
def test_wrong_values_are_refused(copy, change, said):
    folder = copy("networks", **change)
    with pytest.raises(DataError, match=said) as error:
        read_run(folder)
    assert "\n" not in str(error.value)


def test_runs_without_it_are_read(copy):
    found = read_run(copy("networks", situations=None))
    assert isinstance(found, FitRun) and found.strengths is None
