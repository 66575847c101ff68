"""`irleed.fit` takes data with an MDP or without, and what it hands out can be shown, saved, reported on, and read."""

import json
import sys
from dataclasses import replace

import equinox as eqx
import jaxtyping
import numpy as np
import pytest

import irleed
from irleed.algorithms.iq import OfflineIrleed
from irleed.algorithms.tabular.irleed import Irleed
from irleed.analysis.curation import curate
from irleed.cli import main
from irleed.data import ReadOptions
from irleed.envs.jax import CartPole
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


SHORT = {"algorithm": "bc", "steps": 5, "members": 2, "settings": {"hidden": (4,)}}


def test_the_command_and_python_make_the_same_run(tmp_path, capsys):
    """What run.json and fit.json say of it, and the policy, byte for byte; each resumes the other's."""
    irleed.save(numbers(), tmp_path / "data.npz")
    words = ["fit", str(tmp_path / "data.npz"), "--algorithm", "bc", "--steps", "5", "--members", "2"]
    words += ["--set", "hidden=4"]
    main([*words, "--out", str(tmp_path / "command")])
    irleed.fit(tmp_path / "data.npz", out=tmp_path / "python", **SHORT)
    one, other = (tmp_path / "command", tmp_path / "python")
    for name in ("run.json", "fit.json"):
        told = [json.loads((folder / name).read_text())["config"] for folder in (one, other)]
        told = [{**each, "settings": None} for each in told]  # 4 and (4,) are two ways to write the same
        assert told[0] == told[1]
    assert (one / "policy.safetensors").read_bytes() == (other / "policy.safetensors").read_bytes()
    assert (other / "report.html").exists() and f"report: {one / 'report.html'}\n" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="add --resume"):
        irleed.fit(tmp_path / "data.npz", out=one, **SHORT)
    again = irleed.fit(tmp_path / "data.npz", out=one, resume=True, **SHORT)
    assert again.expertise.to_dict() == json.loads((other / "fit.json").read_text())["expertise"]
    main([*words, "--out", str(other), "--resume"])


def test_progress_and_baselines_in_python():
    told = []
    found = irleed.fit(numbers(), **SHORT, baselines=True, progress=lambda done, total, **figures: told.append(done))
    assert list(found.baselines) == ["iq", "ileed"] and told == [1, 2, 3, 4, 5] * 3
    assert all(each.members == 2 and not each.baselines for each in found.baselines.values())


def test_what_was_learnt_from_the_data_alone_can_be_tried_in_an_environment():
    """And is what it would be without one."""
    data = irleed.Demonstrations.from_episodes(
        [irleed.Episode(np.random.default_rng(n).normal(size=(6, 4)), np.arange(5) % 2, True, n % 2) for n in range(4)]
    )
    tried = irleed.fit(data, env=CartPole(), online=False, **SHORT)
    alone = irleed.fit(data, **SHORT)
    np.testing.assert_array_equal(tried.expertise.log_likelihood, alone.expertise.log_likelihood)
    assert [row.episodes for row in tried.returns] == [50, 50] and alone.returns == ()
    assert tried.origin.run == alone.origin.run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ends": "fail"}, "--ends: got fail, expected neutral or failure"),
        ({"algorithm": "cloning"}, "--algorithm: got cloning, expected irleed or iq or ileed or bc for networks"),
        ({"algorithm": Irleed()}, "--algorithm: got Irleed, expected irleed or iq"),
        ({"algorithm": SMALL, "ends": "failure"}, "no such setting beside an algorithm that has its own"),
        ({"online": False, "mdp": GRID}, "--online: got False, expected no such setting in an MDP"),
        ({"algorithm": SMALL, "mdp": GRID}, "--algorithm: got OfflineIrleed, expected irleed or maxent in an MDP"),
        ({"planner": "perfect", "mdp": GRID}, "--planner: got perfect, expected soft or averaged"),
        ({"estimator": "exact", "mdp": GRID}, "--estimator: got exact, expected map or published or online"),
        ({"mdp": GRID, "env": "FrozenLake-v1"}, "the MDP: got both"),
        ({"resume": True}, "--resume: got no --out"),
        ({"out": "run", "log": ("paper",)}, "--log: got paper, expected tensorboard or wandb"),
        ({"settings": {"penalti": 1}}, "--set penalti: got an unknown setting"),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
def test_what_is_no_choice_is_refused_before_anything_is_written(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jaxtyping.config.update("jaxtyping_disable", True)  # or annotations would be checked first, as they are in tests
    try:
        with pytest.raises(ConfigError) as caught:
            irleed.fit(walks() if "mdp" in given else numbers(), **given)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    assert said in str(caught.value) and list(tmp_path.iterdir()) == []
