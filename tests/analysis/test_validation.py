"""Expertise beside scores: correlations with known answers, what is said of them, and scores that do not belong."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

import irleed
from irleed._io import arrays
from irleed.algorithms.baselines import BehaviourCloning
from irleed.analysis.statistics import (
    ENTROPY,
    MOST_FREQUENT,
    REPEATED,
    STEPS,
    agreement,
    nearly_the_same,
    partial_correlation_given,
    partial_rank_correlation,
    rank_correlation,
    trivial_statistics,
)
from irleed.analysis.validation import Scores, read_scores, validate
from irleed.cli import main
from irleed.errors import ConfigError, DataError, SpaceError
from irleed.runs.reader import read_fit

pytestmark = pytest.mark.optax
PEOPLE = tuple("abcdefgh")


def demonstrations(people=PEOPLE, episodes=2, steps=20) -> irleed.Demonstrations:
    """Later people act at random more often, in longer episodes; the last has one episode."""
    generator = np.random.default_rng(0)
    parts = []
    for number, who in enumerate(people):
        for _ in range(1 if who == people[-1] else episodes):
            length = steps + number
            obs = generator.normal(size=(length + 1, 3))
            greedy = (obs[:-1, 0] > 0).astype(int)
            random = generator.random(length) < number / (2 * len(people))
            parts.append(irleed.Episode(obs, np.where(random, 1 - greedy, greedy), True, who))
    return irleed.Demonstrations.from_episodes(parts)


@pytest.fixture(scope="module")
def data():
    return demonstrations()


@pytest.fixture(scope="module")
def fitted(data):
    """A small fit, with skills as they might be: the first are the best."""
    found = irleed.fit(data, algorithm=BehaviourCloning(steps=20, hidden=(8,)), members=2)
    skill = np.linspace(0.9, 0.2, len(PEOPLE))
    columns = {"skill": skill, "skill_low": skill - 0.1, "skill_high": skill + 0.1}
    expertise = dataclasses.replace(found.expertise, **columns)
    return dataclasses.replace(found, expertise=expertise, episode_skill=skill[data.owner])


@pytest.fixture
def run(fitted, data, tmp_path):
    """The same in a folder, with its data beside it."""
    irleed.save(data, tmp_path / "data.npz")
    fitted.save(tmp_path / "run")
    return tmp_path / "run"


def table(folder, *rows: str):
    path = folder / "scores.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_rank_correlations_are_spearmans():
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 5, 20).astype(float), generator.normal(size=20)
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    found = agreement("skill", a, b, np.zeros((0, 20)))
    assert found.spearman == pytest.approx(spearmanr(a, b).statistic) and found.low < found.spearman < found.high


def test_a_partial_correlation_is_of_what_is_left():
    """Of ranks: the textbook formula for one other number, and not defined for a copy of that number."""
    generator = np.random.default_rng(2)
    a, b, given = generator.normal(size=(3, 40)) + 2 * generator.normal(size=40)
    ab, ag, bg = (rank_correlation(*pair) for pair in ((a, b), (a, given), (b, given)))
    expected = (ab - ag * bg) / np.sqrt((1 - ag**2) * (1 - bg**2))
    assert partial_rank_correlation(a, b, given[None]) == pytest.approx(expected)
    assert partial_rank_correlation(a, b, np.stack([given, np.ones(40)])) == pytest.approx(expected)
    assert (
        np.isnan(partial_rank_correlation(given, b, given[None])) and partial_correlation_given(given, b, given) is None
    )


def test_intervals_of_episodes_resample_people():
    """Twenty copies of every episode are not twenty times as many people."""
    generator = np.random.default_rng(3)
    skill, group = generator.normal(size=10), np.arange(10)
    score = skill + generator.normal(size=10)
    once = agreement("skill", skill, score, np.zeros((0, 10)))
    many = agreement("skill", *np.repeat([skill, score], 20, axis=1), np.zeros((0, 200)), group=np.repeat(group, 20))
    assert many.people == 10 and many.high - many.low == pytest.approx(once.high - once.low, rel=0.05)


def test_trivial_statistics_are_counted():
    obs = np.zeros((5, 1)) + np.arange(5)[:, None]
    episodes = [irleed.Episode(obs, [0, 0, 0, 1], True, "a"), irleed.Episode(obs[:3], [2, 1], True, "b")]
    found = trivial_statistics(irleed.Demonstrations.from_episodes(episodes), actions=(2,))
    assert found[STEPS].tolist() == [4, 2] and found["share of action 2"].tolist() == [0, 0.5]
    assert found[MOST_FREQUENT].tolist() == [0.75, 0] and found[REPEATED].tolist() == [pytest.approx(2 / 3), 0]
    assert found[ENTROPY][1] == pytest.approx(np.log(2))
    smooth = [irleed.Episode(obs[:3], [[0.0], [0.5]], True, "a"), irleed.Episode(obs[:3], [[0.5], [-0.5]], True, "b")]
    found = trivial_statistics(irleed.Demonstrations.from_episodes(smooth))
    assert found["mean absolute action"].tolist() == [0.25, 0.5]
    assert found["mean absolute change of action"].tolist() == [0.5, 1.0]


def test_skill_that_says_what_a_trivial_statistic_says_is_named(fitted, data):
    """Episodes are the longer, the less skilled somebody is."""
    said = nearly_the_same(fitted.expertise, data)
    assert any("nearly the opposite of steps per episode (Spearman -1.00)" in each for each in said)
    few = data.select(PEOPLE[:7])
    few_expertise = irleed.fit(few, algorithm=BehaviourCloning(steps=5, hidden=(8,)), members=1).expertise
    assert nearly_the_same(few_expertise, few) == ()


def test_validation_from_python(fitted):
    scores = {who: 10.0 - number for number, who in enumerate(PEOPLE)}
    found = validate(fitted, scores)
    assert found.estimates[0].name == "skill" and found.estimates[0].spearman == pytest.approx(1)
    assert "order people alike" in found.said  # as their episodes are as long as they are unskilled
    assert found.episodes == () and "one episode only: 'h'" in found.notes[0]


def test_the_command_writes_a_plot_and_a_section_of_the_report(run, data, capsys):
    rows = [f"{who},{n},{10 * k - n * k}" for k, who in enumerate(PEOPLE) for n in range(2) if who != "h" or not n]
    path = table(run.parent, "demonstrator,episode_of_demonstrator,return", *rows)
    given = ["validate", str(run), "--scores", str(path), "--data", str(run.parent / "data.npz")]
    main(given)
    said = capsys.readouterr()
    assert "skill" in said.out and "best trivial statistic" in said.out and "one episode only" in said.err
    assert (run / "validation.png").stat().st_size > 0
    kept = read_fit(run).validation
    assert kept is not None and kept.score == "return" and kept.estimates[0].spearman == pytest.approx(-1)
    assert {each.name for each in kept.episodes} == {"episode skill", "episode skill, within people"}
    page = (run / "report.html").read_text()
    assert "Agreement with known scores" in page and kept.said.split(":")[0] in page
    main([*given, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["said"] == kept.said and len(found["trivial"]) == 5


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("demonstrator,score", "nobody,3"), "got scores of 'nobody', expected demonstrators of the data"),
        (("demonstrator,episode_of_demonstrator,score", "a,2,3"), "got episode_of_demonstrator 2 of 'a'"),
        (("demonstrator,episode,score", "a,2,3"), "got episode 2 of 'a', expected one of '0', '1'"),
        (("demonstrator,episode,score", "a,1,3", "a,1,4"), "got episode 1 of 'a' again"),
        (("demonstrator,score", "a,much"), "line 2, score: got 'much', expected a finite number"),
        (("demonstrator,score", "a,nan"), "line 2, score: got 'nan'"),
        (("demonstrator,left,right", "a,1,2"), "--score"),
        (("who,score", "a,1"), "expected rows with a column 'demonstrator'"),
        (("demonstrator,score", "a,"), "got no value in column 'score'"),
    ],
)
def test_scores_that_do_not_belong_are_refused_by_name(rows, said, data, tmp_path):
    with pytest.raises(DataError) as refused:
        read_scores(table(tmp_path, *rows)).matched(data)
    assert said in str(refused.value)


def test_few_or_equal_scores_give_no_correlation(fitted, run, capsys):
    path = table(run.parent, "demonstrator,score", *(f"{who},{n}" for n, who in enumerate("abcd")))
    main(["validate", str(run), "--scores", str(path), "--data", str(run.parent / "data.npz")])
    said = capsys.readouterr()
    assert "Nothing can be said of skill: fewer than 5 people with scores" in said.out and "Spearman" not in said.out
    assert "4 people have scores" in said.err and not (run / "validation.png").exists()
    found = validate(fitted, dict.fromkeys(PEOPLE, 1.0))
    assert all(each.spearman is None for each in (*found.estimates, *found.trivial))
    assert "all scores are equal: there is no correlation with them" in found.notes


def test_other_data_are_refused(run, data, tmp_path):
    path = table(tmp_path, "demonstrator,score", "a,1")
    with pytest.raises(ConfigError, match="name them with --data"):
        validate(run, path)
    irleed.save(data.take([0, 1, 2]), tmp_path / "other.npz")
    with pytest.raises(SpaceError, match="the data of the run"):
        validate(run, path, data=tmp_path / "other.npz")


def test_a_validation_of_an_earlier_answer_is_left_out(fitted, run):
    validate(run, dict.fromkeys(PEOPLE, 1.0), data=run.parent / "data.npz", out=run)
    assert read_fit(run).validation is not None
    kept = json.loads((run / "validation.json").read_text())
    assert set(kept["values"]) >= {"skill", "precision", "log likelihood"}
    fitted_again = dataclasses.replace(fitted, seconds=fitted.seconds + 1)
    fitted_again.save(run.parent / "again")
    (run / "fit.json").write_bytes((run.parent / "again" / "fit.json").read_bytes())
    assert read_fit(run).validation is None


def test_scores_by_name_have_a_number_each():
    with pytest.raises(DataError, match="a number for each name"):
        Scores.of({"a": float("nan")})


def test_a_fit_says_what_trivial_statistics_say(data, monkeypatch):
    monkeypatch.setattr(
        sys.modules["irleed.fit.door"], "nearly_the_same", lambda expertise, given: (f"{len(expertise.names)}",)
    )
    found = irleed.fit(data, algorithm=BehaviourCloning(steps=5, hidden=(8,)), members=1)
    assert found.warnings[-1] == "8" and found.summary()["warnings"][-1] == "8"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('demonstrator,"sco\nre"\na,1\n', None),  # a heading on two lines
        ("demonstrator,None\na,1,2\n", None),  # more cells than headings
        ("demonstrator,score,score\na,1,2\n", "two columns 'score'"),
        ("demonstrator,score\na,1e200\n", "below 1e"),  # a report would not read it again
        ("demonstrator,episode,score\na," + "9" * 4000 + ",1\n", "the number of an episode"),
        ("demonstrator," + "," * 300_000 + "score\n" + "a,1\n" * 20_000, "no value in column"),
        ("demonstrator,score\n" + "a,1\n" * 300_000, "lines"),
        ("demonstrator,score\r" + "a,1\r" * 300_000, "lines"),
    ],
)  # fmt: skip
def test_odd_tables_of_scores_are_read_or_refused_in_a_short_line(content, said, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(content, newline="")
    if said is None:
        assert read_scores(path).values.tolist() == [1.0]
        return
    with pytest.raises(DataError, match=said) as error:
        read_scores(path)
    assert len(str(error.value)) < 400


def test_a_table_of_scores_may_be_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    table(tmp_path / "elsewhere", "demonstrator,score", "a,1")
    (tmp_path / "link.csv").symlink_to("elsewhere/scores.csv")
    assert read_scores(tmp_path / "link.csv").names == ("a",)


def forge(run, **changes) -> None:
    """Change the answer of a run, as whoever forges one would: without checksums."""
    found = json.loads((run / "fit.json").read_text())
    for name in ("checksum", "files", "fingerprint"):
        found.pop(name, None)
    (run / "fit.json").write_text(json.dumps(found | changes))
    (run / "departures.json").unlink(missing_ok=True)


def test_the_run_of_a_stranger_is_held_against_the_data(run, tmp_path, monkeypatch):
    """Its judgements must be of the people in the data, and it does not raise the limit of memory."""
    scores = table(tmp_path, "demonstrator,score", *(f"{who},{number}" for number, who in enumerate(PEOPLE)))
    answer = json.loads((run / "fit.json").read_text())
    people, config = answer["expertise"], answer["config"]
    for odd in (people[:-1], people[::-1], [*people, people[0] | {"name": "z"}]):
        forge(run, expertise=odd, episode_skill=None)
        with pytest.raises(DataError, match="as in the data"):
            validate(run, scores, data=tmp_path / "data.npz")
    forge(run, expertise=people, config=config | {"reading": config["reading"] | {"expansion": 1e9}})
    with monkeypatch.context() as small:
        small.setattr(arrays, "ALWAYS", 1)
        with pytest.raises(DataError, match="--expansion"):
            validate(run, scores, data=tmp_path / "data.npz", expansion=0.001)
    forge(run, expertise=people, config=config | {"data": "x" * 100_000})
    with pytest.raises(ConfigError, match="--data"):
        validate(run, scores)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": {}}, "0 estimates"),
        ({"values": {"skill": [None] * len(PEOPLE)}}, None),
        ({"notes": ["x"] * 1000}, "a list of 1000"),
        ({"estimates": [{"name": "skill", "trivial": False, "people": 6, "spearman": 0.5, "low": 0.9, "high": 0.1}]},
         "low end"),
    ],
)  # fmt: skip
def test_a_validation_that_was_forged_is_shown_or_refused(fitted, run, tmp_path, changes, said):
    validate(run, dict.fromkeys(PEOPLE[1:], 1.0) | {"a": 2.0}, data=tmp_path / "data.npz", out=run)
    kept = json.loads((run / "validation.json").read_text())
    kept.pop("checksum")
    (run / "validation.json").write_text(json.dumps(kept | changes))
    if said is None:
        assert "Agreement with known scores" in irleed.report(run).read_text()
        return
    with pytest.raises(DataError, match=said):
        irleed.report(run)
