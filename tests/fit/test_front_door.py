"""`irleed.fit` takes data with an MDP or without, and what it hands out can be shown, saved, reported on, and read."""

import json
import sys
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

import irleed
from irleed.algorithms.iq import OfflineIrleed
from irleed.analysis.curation import curate
from irleed.data import ReadOptions
from irleed.errors import ConfigError
from irleed.export import export
from irleed.runs.reader import read_fit

pytestmark = pytest.mark.optax

HOSTILE = "<script>alert(1)</script>"
SMALL = OfflineIrleed(hidden=(4,), steps=3)
GRID = irleed.gridworld(2, 2, goals={3: 1.0})


def walks() -> irleed.Demonstrations:
    """To the goal, directly or not."""
    direct = irleed.Episode(np.array([0, 1, 3]), np.array([0, 2]), True, HOSTILE)
    around = irleed.Episode(np.array([0, 0, 2, 3]), np.array([1, 2, 0]), True, "ben")
    return irleed.Demonstrations.from_episodes([direct, around, direct, around])


def numbers() -> irleed.Demonstrations:
    random = np.random.default_rng(0)
    shown = [(random.normal(size=(6, 2)).astype(np.float32), random.integers(0, 2, 5)) for _ in range(4)]
    return irleed.Demonstrations.from_episodes(
        [irleed.Episode(obs, action, True, HOSTILE if n % 2 else "ben") for n, (obs, action) in enumerate(shown)]
    )


@pytest.fixture(scope="module")
def fits():
    return {"tables": irleed.fit(walks(), GRID), "networks": irleed.fit(numbers(), algorithm=SMALL, members=2)}


def test_few_transitions_are_pointed_out_in_an_mdp_too():
    """There, intervals are those of a posterior, as wide as so few leave them, and stay."""
    one = irleed.Episode(np.array([0, 1]), np.array([0]), False, "ann")
    found = irleed.fit(irleed.Demonstrations.from_episodes([one, replace(one, demonstrator="ben")]), GRID)
    (said,) = [each for each in found.summary()["warnings"] if each.startswith("too few transitions to rank")]
    assert "'ann' (1), 'ben' (1)" in said and "prior" in said
    assert found.expertise.precision_low[0] < found.expertise.precision_high[0] / 2


def test_with_an_mdp_tables_without_one_networks(fits):
    assert isinstance(fits["tables"].policy, irleed.TabularPolicy) and fits["tables"].members is None
    assert isinstance(fits["networks"].policy, irleed.EnsemblePolicy) and fits["networks"].weights is None


def test_data_and_mdp_may_be_paths(fits, tmp_path):
    irleed.save(walks(), tmp_path / "data.npz")
    irleed.save_mdp(GRID.mdp, tmp_path / "mdp.npz", shape=(2, 2))
    found = irleed.fit(tmp_path / "data.npz", str(tmp_path / "mdp.npz"))
    np.testing.assert_array_equal(found.policy.probabilities, fits["tables"].policy.probabilities)
    assert found.origin.grid == (2, 2) and found.origin.given["data"] == str(tmp_path / "data.npz")


def test_how_a_path_is_read_is_kept(tmp_path):
    irleed.save(numbers(), tmp_path / "data.npz")
    reading = ReadOptions(demonstrator="episode")
    found = irleed.fit(tmp_path / "data.npz", reading=reading, algorithm=SMALL, members=2)
    assert len(found.expertise.names) == 4
    assert read_fit(found.save(tmp_path / "run")).reading == reading


def test_states_need_their_mdp():
    with pytest.raises(ConfigError, match="^the MDP: got neither, expected --mdp FILE or --env ID"):
        irleed.fit(walks())


def test_in_an_mdp_returns_of_the_policy_are_exact(fits):
    """Added up here state by state, over the three steps of the longest walk; everyone's walk reached the goal."""
    found, (state, action, successor, probability) = fits["tables"], GRID.mdp.transitions()
    dense = np.zeros((4, 4, 4))
    dense[state, action, successor] = probability

    def earned(table: np.ndarray) -> float:
        here, total = np.asarray(GRID.mdp.initial), 0.0
        for _ in range(3):
            here = np.einsum("s,sa,sax->x", np.where(GRID.mdp.terminal, 0.0, here), table, dense)
            total += here @ GRID.mdp.reward
        return total

    table = np.asarray(found.policy.probabilities)
    wanted = [earned(np.eye(4)[table.argmax(-1)]), earned(table)]
    rows = {row.who: row for row in found.returns}
    np.testing.assert_allclose([row.mean for row in found.returns], [*wanted, 1.0, 1.0])
    assert list(rows) == ["policy, greedy actions", "policy, sampled actions", HOSTILE, "ben"]
    assert all(row.episodes == 0 and row.low == row.mean == row.high for row in found.returns[:2])
    assert 0 < wanted[1] < 1 and rows["ben"].episodes == 2


def test_everyone_is_measured_by_the_reward_of_the_mdp_or_nobody(fits):
    """Rewards in the data, paid at other moments or not at all, make no difference; and none is made up."""
    odd = [irleed.Episode(obs, action, True, name, np.full(len(action), 7.0)) for obs, action, name in (
        (np.array([0, 1, 3]), np.array([0, 2]), HOSTILE), (np.array([0, 0, 2, 3]), np.array([1, 2, 0]), "ben"),
    )]  # fmt: skip
    data = irleed.Demonstrations.from_episodes(odd * 2)
    assert irleed.fit(data, GRID).returns == fits["tables"].returns
    unknown = eqx.tree_at(lambda mdp: mdp.reward, GRID.mdp, None)
    found = irleed.fit(data, unknown)
    assert found.returns == () and found.summary()["returns"] == []


@pytest.mark.parametrize("kind", ["tables", "networks"])
def test_what_is_saved_is_a_run_to_all_that_read_runs(fits, kind, tmp_path):
    found = fits[kind]
    folder = found.save(tmp_path / "run")
    kept = json.loads((folder / "fit.json").read_text())
    assert kept["ranking"] == list(found.expertise.ranking) and kept["config"]["data"] == "in memory"
    assert (folder / "maps.png").exists() == (kind == "tables")
    weighed = curate(found.origin.data, folder)
    assert len(weighed.weight) == 4
    export(folder, tmp_path / "out")
    loaded = irleed.load_policy(tmp_path / "out" / "policy.safetensors")
    obs = np.arange(3) if kind == "tables" else np.zeros((3, 2), np.float32)
    np.testing.assert_array_equal(loaded.predict(obs, seed=0)[0], found.policy.predict(obs, seed=0)[0])
    with pytest.raises(ConfigError, match="a run of these settings"):
        found.save(folder)


@pytest.mark.parametrize("kind", ["tables", "networks"])
def test_a_report_needs_no_folder(fits, kind, tmp_path):
    path = fits[kind].report(tmp_path / "mine.html")
    page = path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["mine.html"]
    assert "irleed report: mine" in page and "irleed.fit" in page and str(tmp_path) not in page
    assert HOSTILE not in page and "alert(1)" in page


@pytest.mark.parametrize("kind", ["tables", "networks"])
def test_notebooks_show_names_as_text(fits, kind):
    for shown in (fits[kind]._repr_html_(), fits[kind].expertise._repr_html_()):
        assert HOSTILE not in shown and "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
        assert shown.count("<tr>") == 3 and shown.count("<table>") == 1


def test_many_demonstrators_are_cut_in_notebooks_too():
    few = irleed.fit(numbers().by_episode(), algorithm=SMALL, members=2).expertise
    assert "<tr><td>and 2 more</td></tr>" in few._repr_html_(limit=2)


def test_expertise_as_a_frame(fits):
    pytest.importorskip("pandas")
    expertise = fits["tables"].expertise
    frame = expertise.to_frame()
    assert list(frame.index) == list(expertise.ranking) and frame.index.name == "demonstrator"
    by_name = dict(zip(expertise.names, expertise.precision, strict=True))
    assert [by_name[name] for name in frame.index] == frame["precision"].tolist()


def test_without_pandas_one_line_says_how_to_get_it(fits, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"^pandas: got not installed.*irleed\[formats\]"):
        fits["tables"].expertise.to_frame()
