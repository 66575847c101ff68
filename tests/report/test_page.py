"""The report as a file: its structure, and what it says. See test_reader.py and test_browser.py for the rest."""

import dataclasses
import json
import math
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest
import tyro

from irleed.cli import main
from irleed.cli.runs import FitCommand
from irleed.errors import ConfigError, DataError
from irleed.report import comparison, differences, expertise, returns
from irleed.report.page import USUAL, command, page, report
from irleed.runs.reader import EpisodeSkill, Estimate, FitRun, Person, read_run

SINGLE = "gridworld", "networks", "control", "sweep", "hopper"
KINDS = (*([name] for name in SINGLE), list(SINGLE))


class Tree(HTMLParser):
    """Elements in order, with attributes and the text inside; complains about tags that do not match."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def tree(folders) -> Tree:
    return Tree(page([read_run(folder) for folder in folders]))


def fit_of(*people: Person, **changes) -> FitRun:
    settings = {
        "label": "run", "folder": "run", "config": {"algorithm": "irleed", "data": "data.npz"}, "people": people,
        "returns": (), "demonstrated": (), "history": (), "measure": "loss", "steps": 1, "members": 8, "seconds": 1.0,
        "warnings": (), "weights": None, "bias": None, "grid": None, "departures": None, "facts": None,
        "provenance": None,
    }  # fmt: skip
    return FitRun(**{**settings, **changes})


def person(name: str, value: float, low: float | None, high: float | None) -> Person:
    return Person(name, 10.0, Estimate(name, value, low, high), None, -1.0, 0.5)


def skilled(name: str, skill: float, low: float | None, high: float | None, precision: float = 1.0) -> Person:
    return dataclasses.replace(person(name, precision, 0.1, 9.0), skill=Estimate(name, skill, low, high))


@pytest.mark.parametrize("names", KINDS, ids="-".join)
def test_a_page_is_well_formed_and_can_be_navigated(runs, names):
    found = tree([runs[name] for name in names])
    levels = [int(tag[1]) for tag, _ in found.elements if tag in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False)), "no level is skipped"
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for attributes in found.all("a")]
    assert links[0] == "#content" and all(link[1:] in ids for link in links if link is not None)
    assert found.all("html")[0]["lang"] == "en" and len(found.all("main")) == len(found.all("nav")) == 1
    assert len(found.all("caption")) == len(found.all("table")) > 0
    assert all(attributes.get("scope") in ("row", "col") for attributes in found.all("th"))
    assert all(attributes.get("alt") for attributes in found.all("img"))
    drawings = [attributes for attributes in found.all("svg") if attributes.get("aria-hidden") != "true"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)


@pytest.mark.parametrize("names", KINDS, ids="-".join)
def test_a_page_points_at_nothing_outside(runs, names):
    for _, attributes in tree([runs[name] for name in names]).elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,", "data:image/webp;base64,"))
        assert not any(name.startswith("on") for name in attributes)


def test_a_page_is_small_and_the_same_for_the_same_runs(runs, tmp_path):
    folders = list(runs.values())
    first, second = report(folders, tmp_path / "a.html"), report(folders, tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 5e6


def test_names_that_are_html_are_text(hostile):
    folder, names = hostile
    found = tree([folder])
    assert not found.all("img") and len(found.all("script")) == 1
    for name in names:
        assert name in found.text


def test_characters_that_turn_the_text_around_are_not_passed_on(copy):
    found = tree([copy("networks", **{"expertise.0.name": "a\u202eb\x00c"})])
    assert "a\ufffdb\ufffdc" in found.text


def test_fits_say_what_there_is(runs):
    networks, gridworld = tree([runs["networks"]]).text, tree([runs["gridworld"]]).text
    for found in (networks, gridworld):
        for heading in ("In short", "The policy", "The demonstrators", "Training", "The data", "Reproduce"):
            assert heading in found
        assert "mean return, with 90 % interval" in found
    assert "not evaluated in an environment" in networks and "by the true reward of the MDP" in gridworld
    assert "Bias of demonstrator 1" in gridworld and "Shared reward" in gridworld
    assert "departs by" in networks and "principal components" in networks and "loss" in networks


def test_cartpole_is_drawn_where_the_run_says_so_alone(runs, copy):
    plain, poles = tree([runs["networks"]]), tree([copy("networks", **{"config.env": "CartPole-v1"})])
    frames = [attributes for attributes in poles.all("svg") if attributes["class"] == "frame"]
    assert frames and all("pole at" in (attributes["aria-label"] or "") for attributes in frames)
    assert "push left" in poles.text
    assert not [attributes for attributes in plain.all("svg") if attributes["class"] == "frame"]


def test_frames_are_shown_until_the_page_is_full(copy):
    """Images of which one is larger than all the room: it is left out, and the page says so."""
    folder = copy("networks")
    path = folder / "departures.json"
    found = json.loads(path.read_text())
    situations = [situation for someone in found["people"] for situation in someone["situations"]]
    for n, situation in enumerate(situations):
        situation["frame"] = "data:image/png;base64," + "A" * (10 if n else 4_000_000)
    path.write_text(json.dumps(found))
    shown = tree([folder])
    assert len(shown.all("img")) == len(situations) - 1
    assert "1 further frames are left out" in shown.text


def test_overlapping_intervals_are_not_told_apart():
    run = fit_of(
        person("a", 4.0, 3.0, 5.0), person("b", 2.5, 2.0, 3.5), person("c", 1.0, 0.5, 1.5), person("d", 2.1, 1.4, 2.2)
    )
    assert expertise.pairs(run) == (3, 6)  # a-c, a-d, b-c
    assert expertise.indistinguishable(run) == [["a", "b"], ["b", "d"], ["d", "c"]]
    said = " ".join(expertise.conclusions(run))
    assert "The intervals of precision do not overlap in 3 of 6 pairs of demonstrators." in said
    assert "Groups whose intervals overlap: a and b; b and d; d and c." in said


def test_who_has_too_few_transitions_is_neither_ranked_nor_best():
    few = dataclasses.replace(person("c", 9.0, None, None), ranked=False)
    run = fit_of(few, person("a", 4.0, 3.0, 5.0), person("b", 1.0, 0.5, 2.0))
    assert [each.name for each in expertise.compared(run)] == ["a", "b"] and expertise.has_ranking(run)
    assert any(
        "Not ranked and without intervals, as they have too few transitions: c." in each
        for each in expertise.conclusions(run)
    )
    assert "Most precise: a (4); least: b (1)" in Tree(page([run])).text
    nobody = fit_of(few, dataclasses.replace(few, name="d"))
    assert expertise.conclusions(nobody) == [
        "Too few transitions to rank the demonstrators: their precision is hardly determined."
    ]
    assert not expertise.has_ranking(nobody) and "Too few transitions to rank" in Tree(page([nobody])).text


def test_skill_comes_before_precision_where_it_is_estimated():
    """A consistent outsider has the largest precision and the least skill."""
    run = fit_of(
        skilled("a", 0.5, 0.4, 0.6, 1.0), skilled("out", -0.3, -0.4, -0.2, 9.0), skilled("b", 0.9, 0.8, 1.0, 0.5)
    )
    assert [each.name for each in expertise.compared(run)] == ["b", "a", "out"]
    assert expertise.pairs(run) == (3, 3)
    shown = Tree(page([run]))
    labels = [attributes["aria-label"] or "" for attributes in shown.all("svg")]
    plots = [label.partition(",")[0] for label in labels if "90 % interval" in label]
    assert plots == ["skill", "precision"] and "first b, a and out" in labels[0]
    assert "Most skilled: b (0.90); least: out (−0.30)" in shown.text
    assert "what the others would do in the same state" in shown.text
    assert "ranked first" in comparison.section([run, run], 2, "c") and "Skill of each" in comparison.section(
        [run, run], 2, "c"
    )


def test_the_probability_that_one_is_better_follows_from_the_intervals():
    """By hand: 0.9 and 0.5 with standard deviations of 0.1 / 1.645 each; the high end is cut off and says nothing."""
    run = fit_of(skilled("a", 0.9, 0.8, 0.92), skilled("b", 0.5, 0.4, 0.6), skilled("c", 0.5, 0.4, 0.6))
    found = expertise.win_probabilities(expertise.ranked(run))
    by_hand = 0.5 * (1 + math.erf(0.4 / (0.1 / 1.645 * math.sqrt(2)) / math.sqrt(2)))
    np.testing.assert_allclose(found[0, 1:], by_hand)
    np.testing.assert_allclose(found + found.T, 1)
    np.testing.assert_allclose(found[1, 2], 0.5)
    shown = Tree(page([run])).text
    assert "P(row better than column)" in shown and "b over c 0.50" in shown and "a over b" not in shown


def test_episodes_unlike_the_others_of_their_demonstrator_are_named():
    usual = [0.8, 0.82, 0.78, 0.81, 0.79]
    values = {0: [*usual, -0.4], 1: [0.1, 0.2, 0.15, 0.12, 0.5], 2: [0.9, 0.1]}
    owners = [(who, value) for who, own in values.items() for value in own]
    found = tuple(EpisodeSkill(number, who, value) for number, (who, value) in enumerate(owners))
    run = fit_of(skilled("a", 0.8, 0.7, 0.9), skilled("b", 0.2, 0.1, 0.3), skilled("c", 0.5, 0.1, 0.9), episodes=found)
    by_name = expertise.by_demonstrator(run, expertise.ranked(run))
    assert list(by_name) == ["a", "c", "b"]
    assert {name: [each.episode for each in expertise.outliers(own)] for name, own in by_name.items()} == {
        "a": [5], "b": [10], "c": []
    }  # fmt: skip
    shown = Tree(page([run]))
    assert "a: 5 (skill −0.40); b: 10 (skill 0.50)" in shown.text
    tips = [attributes["data-tip"] for attributes in shown.all("path") if "data-tip" in attributes]
    assert tips == ["episode 5: skill −0.40", "episode 10: skill 0.50"]
    equal = dataclasses.replace(run, episodes=tuple(dataclasses.replace(each, value=0.5) for each in found))
    assert "No episode differs much in skill" in Tree(page([equal])).text


def test_what_is_not_known_is_not_said():
    none = fit_of(person("a", 2.0, None, None), person("b", 1.0, None, None))
    assert "no intervals" in expertise.conclusions(none)[0]
    equal = fit_of(person("a", 1.0, 1.0, 1.0), person("b", 1.0, 1.0, 1.0))
    assert "treats demonstrators alike" in expertise.conclusions(equal)[0]
    assert "nothing to compare" in expertise.conclusions(fit_of(person("a", 1.0, 0.9, 1.1)))[0]
    rough = fit_of(person("a", 2.0, 1.9, 2.1), person("b", 1.0, 0.9, 1.1), members=2)
    assert any("2 members" in sentence for sentence in expertise.conclusions(rough))


@pytest.mark.parametrize(
    "low,high,verdict", [(60.0, 80.0, "more than"), (20.0, 30.0, "less than"), (45.0, 55.0, "neither can be")]
)
def test_the_policy_is_compared_with_the_best_as_far_as_intervals_tell(low, high, verdict):
    earned = Estimate("policy, greedy actions", (low + high) / 2, low, high, 50), Estimate("a", 50.0, 40.0, 58.0, 9)
    run = fit_of(person("a", 1.0, 0.5, 2.0), returns=earned)
    assert [row.name for row in returns.policies(run)] == ["policy, greedy actions"]
    assert verdict in returns.conclusions(run)[0]


COMPUTED = (("likeliest", 60.0), ("drawn", 45.0))


def test_computed_returns_have_no_interval_and_a_verdict_each():
    tried = [Estimate(f"policy, {name} actions", value, value, value, 0) for name, value in COMPUTED]
    run = fit_of(person("a", 1.0, 0.5, 2.0), returns=(*tried, Estimate("a", 50.0, 44.0, 58.0, 9)), members=None)
    said = returns.conclusions(run)[0]
    assert "earns 60 by its greedy actions and 45 by sampled ones, exactly" in said
    assert "The first is more than, the second not told apart from what the best demonstrator, a," in said
    rows = Tree(returns.section(run, 2, "key")).texts
    assert rows.count("computed") == 2 and "60" in rows and "50.00 [44.00, 58.00]" in rows


def test_where_no_reward_is_known_the_page_says_so(copy):
    shown = tree([copy("gridworld", returns=[])]).text
    assert "No true reward of the MDP is known" in shown and "Give --env" not in shown


def test_a_film_is_embedded_as_far_as_there_is_room(filmed):
    folder = filmed()
    one = tree([folder])
    pictures = {attributes["class"]: attributes for attributes in one.all("img") if attributes.get("class")}
    assert (pictures["moving"]["src"] or "").startswith("data:image/webp;base64,")
    assert (pictures["still"]["src"] or "").startswith("data:image/png;base64,")
    assert all("return 12 in 12 steps" in (attributes["alt"] or "") for attributes in pictures.values())
    assert "one step in 3 is shown" in one.text and "open" in one.all("details")[0]
    run = read_run(folder)
    assert isinstance(run, FitRun)
    crowded = Tree(returns.section(run, 2, "key", room=1000))
    assert [attributes.get("class") for attributes in crowded.all("img")] == [None], "the still picture alone"


def test_a_page_says_why_there_is_no_film(copy):
    folder = copy("networks")
    (folder / "film.json").write_text(json.dumps({"reason": "<b>no</b> screen"}))
    assert "No film of an episode: <b>no</b> screen" in tree([folder]).text


@pytest.mark.parametrize("name,content", [("film.webp", b"GIF89a"), ("film.png", b"\x89PNG" + bytes(700_000))])
def test_a_film_that_is_none_is_refused(filmed, name, content):
    folder = filmed()
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: got {len(content)} bytes"):
        read_run(folder)
    (folder / name).unlink()
    with pytest.raises(DataError, match="a file that can be read"):
        read_run(folder)


def test_the_command_makes_the_same_run(runs):
    for name in ("gridworld", "networks"):
        run = read_run(runs[name])
        assert isinstance(run, FitRun)
        words = shlex.split(command(run))
        again = tyro.cli(FitCommand, args=words[2:])
        for setting in USUAL:
            part = again.reading if setting in ("demonstrator", "action", "expansion") else again
            wanted = (run.config | run.config["reading"])[setting]
            assert str(getattr(part, setting)) == str(wanted), setting
        assert again.data.name == run.config["data"].rsplit("/")[-1]


def test_several_runs_are_compared(runs, copy):
    same = tree([runs["networks"], copy("networks")]).text
    assert "Precision of each demonstrator in each run" in same and "agree in every count" in same
    assert "come from different data" in tree([runs["networks"], runs["gridworld"]]).text
    twice = tree([runs["networks"], runs["networks"]])
    assert f"Run {runs['networks']} (1)" in twice.text and f"Run {runs['networks']} (2)" in twice.text


def test_a_comparison_has_no_column_that_says_nothing_new():
    """The data, if all runs have the same; the algorithm, if runs are called after it."""

    def headings(*names: tuple[str, str, str]) -> str:
        someone = person("a", 1.0, 0.5, 2.0)
        runs = [fit_of(someone, label=own, config={"algorithm": alg, "data": data}) for own, alg, data in names]
        return str(comparison.section(list(runs), 2, "c")).partition("</thead>")[0]

    one, other = ("irleed", "irleed", "a.npz"), ("iq", "iq", "b.npz")
    assert ">data" in headings(one, other) and ">algorithm" not in headings(one, other)
    assert ">data" not in headings(one, ("mine", "iq", "a.npz"))
    assert ">algorithm" in headings(one, ("mine", "iq", "a.npz"))


def test_large_grids_are_pictures():
    """90,000 cells as elements would be tens of megabytes."""
    bias = np.random.default_rng(0).normal(size=(3, 90_000))
    run = fit_of(
        *(person(name, 1.0, 0.5, 2.0) for name in "abc"), members=None, weights=tuple(bias[0].tolist()),
        bias=tuple(map(tuple, bias.tolist())), grid=(300, 300),
    )  # fmt: skip
    shown = "".join(differences.maps(run))
    assert shown.count("<img") == 4 and len(shown) < 2e6


def test_the_command_writes_beside_the_run_or_where_it_is_told(copy, tmp_path, capsys):
    folder = copy("gridworld")
    main(["report", str(folder)])
    assert capsys.readouterr().out == f"wrote {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    main(["report", str(folder), str(folder), "--out", str(tmp_path / "both.html")])
    assert (tmp_path / "both.html").exists()
    with pytest.raises(SystemExit):
        main(["report", str(folder), str(folder)])
    with pytest.raises(ConfigError, match="a place to write"):
        report([folder], tmp_path / "no" / "such" / "report.html")
