"""The experiment with real demonstrators: how data are split, a small run from end to end, and what is refused."""

import json

import numpy as np
import pytest

import irleed
from irleed.cli import main
from irleed.errors import ConfigError, DataError
from irleed.experiments import people
from irleed.experiments.people import PeopleConfig, part_of
from irleed.runs.results import read_results

pytestmark = pytest.mark.optax
NAMES = tuple("abcdef")


@pytest.fixture
def files(tmp_path):
    """Six people with three episodes each (the last one: one episode), and two tables of scores."""
    generator = np.random.default_rng(0)
    episodes = []
    for number, who in enumerate(NAMES):
        for _ in range(1 if who == NAMES[-1] else 3):
            obs = generator.normal(size=(13, 2))
            action = np.where(generator.random(12) < 0.1 * number, 2, (obs[:-1, 0] > 0).astype(int))
            episodes.append(irleed.Episode(obs, action, True, who))
    path = tmp_path / "game.npz"
    irleed.save(irleed.Demonstrations.from_episodes(episodes), path)
    rows = [f"{who},{n},{100 * k + 10 * n}" for k, who in enumerate(NAMES) for n in range(1 if who == "f" else 3)]
    (tmp_path / "game_scores.csv").write_text("\n".join(["demonstrator,episode_of_demonstrator,return", *rows]) + "\n")
    rows = [f"{who},{k},{10 + k}" for k, who in enumerate(NAMES)]
    head = "demonstrator,score_first_half,score_second_half"
    (tmp_path / "halves.csv").write_text("\n".join([head, *rows]) + "\n")
    return path


def config_of(files, **changes) -> PeopleConfig:
    return PeopleConfig(data=(files,), out=files.parent / "out", **changes)


def test_even_episodes_are_fitted_and_odd_ones_score(files):
    config = config_of(files)
    part = part_of(files, files.with_name("game_scores.csv"), config)
    assert part.split == "episodes" and part.data.episodes == 11  # two each, and the only one of f
    assert part.score[:5].tolist() == [10, 110, 210, 310, 410] and np.isnan(part.score[5])
    assert part.first_score is not None and part.first_score[:2].tolist() == [10, 110]  # of episodes 0 and 2
    assert "f" in part.notes[0]


def test_first_halves_are_fitted_and_the_table_scores(files):
    config = config_of(files, without=2)
    part = part_of(files, files.with_name("halves.csv"), config)
    assert part.split == "halves" and part.column == "score_second_half"
    assert part.score.tolist() == [10, 11, 12, 13, 14, 15] and part.first_score is not None
    assert part.trivial["transitions"].tolist() == [18, 18, 18, 18, 18, 6]  # half of everyone's, the idle ones too
    assert not np.any(part.data.action == 2) and part.data.names == NAMES


def test_a_small_run_writes_results_and_goes_on(files, capsys, monkeypatch):
    out = files.parent / "out"
    words = ["experiment", "people", str(files), "--out", str(out), "--scores", str(files.with_name("halves.csv"))]
    words += ["--quick", "--methods", "irleed", "bc"]
    monkeypatch.setattr(people, "QUICK_STEPS", 100)
    main(words)
    said = capsys.readouterr().out
    assert "IRLEED skill" in said and "trivial: steps per episode" not in said  # which does not vary but for f
    results = read_results(out / "results.json")
    assert results.measure == "Spearman with the score of the rest"
    found = {row.name: row for row in results.rows if row.setting["correlation"] == "rank"}
    assert found["score of the first part"].mean == pytest.approx(1)
    assert -1 <= found["IRLEED skill"].mean <= 1 and found["IRLEED skill"].ci_low is not None
    assert "best trivial statistic" in str(results.summary["game"]) and (out / "scatter.png").exists()
    monkeypatch.setattr(people, "fit", lambda *a, **k: pytest.fail("nothing is left to do"))
    main(words)
    main(["report", str(out)])
    page = (out / "report.html").read_text()
    assert "Spearman with the score of the rest: game" in page and "IRLEED skill" in page
    assert json.loads((out / "results.json").read_text())["experiment"] == "people"


def test_what_cannot_be_compared_is_refused(files):
    with pytest.raises(ConfigError, match="one for each file"):
        people.check(config_of(files, scores=(files, files)))
    with pytest.raises(ConfigError, match="no file"):
        people.check(config_of(files.with_name("other.npz")))
    with pytest.raises(DataError, match="choose --split halves"):
        part_of(files, files.with_name("halves.csv"), config_of(files, split="episodes"))
