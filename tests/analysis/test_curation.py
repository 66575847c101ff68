"""Curation: weights by hand, what is kept, what is written; the source stays as it is."""

import csv
import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from irleed._io import arrays as _arrays
from irleed.algorithms.iq import OfflineIrleed
from irleed.analysis.curation import Assessment, curate, weigh
from irleed.cli import main
from irleed.data import Demonstrations, Episode, ReadOptions, load, save
from irleed.data.transitions import Inputs
from irleed.errors import ConfigError, DataError, SpaceError
from irleed.fit.networks import fit_networks
from irleed.model.actions import Softmax
from irleed.model.networks import Mlp
from irleed.policies.base import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy
from irleed.runs.directory import fingerprint

TABLE = np.array([[0.9, 0.1], [0.5, 0.5]])
LENGTHS = 4, 2, 3, 1


def states(people=("anna", "ben")) -> Demonstrations:
    """Two states, two actions; even episodes by the first."""
    random = np.random.default_rng(0)
    return Demonstrations.from_episodes(
        [
            Episode(random.integers(0, 2, n + 1), random.integers(0, 2, n), True, people[i % len(people)])
            for i, n in enumerate(LENGTHS)
        ]
    )


def run(**changes) -> Assessment:
    settings = {"policy": TabularPolicy(TABLE), "names": ("anna", "ben"), "reading": ReadOptions()}
    return Assessment(**{**settings, "precision": np.array([2.0, 0.5]), "bias": np.array([0.0, 1.0]), **changes})


def folder(path, data, names=("anna", "ben"), policy=None, bias=None):
    """A run as `irleed fit` leaves it, as far as it is looked at."""
    path.mkdir()
    (policy or TabularPolicy(TABLE)).save(path / "policy.safetensors")
    unknown = dict.fromkeys(("precision_low", "precision_high", "bias_low", "bias_high", "log_likelihood", "weight"))
    known = {"bias": bias, "transitions": 5}
    rows = [{"name": name, "precision": 1.0 + i, **known, **unknown} for i, name in enumerate(names)]
    reading = {"demonstrator": "data", "obs": [], "action": None}
    found = {"expertise": rows, "config": {"reading": reading}, "steps": 1, "seconds": 1.0}
    found |= {} if policy is None else {"members": 1}
    (path / "fit.json").write_text(json.dumps(found))
    save(data, path.parent / "data.npz")
    return path


def test_weights_are_precision_times_unbiased_share_times_likelihood():
    data, found = states(), weigh(states(), run())
    likely = np.log(TABLE)[data.observation, data.action]
    mean = np.array([likely[data.episode == e].mean() for e in range(4)])
    np.testing.assert_allclose(found.log_likelihood, mean, rtol=1e-12)
    weight = np.array([2.0, 0.5 / 2])[data.owner] * np.exp(mean)
    np.testing.assert_allclose(found.weight, weight / np.average(weight, weights=LENGTHS), rtol=1e-12)
    np.testing.assert_allclose(np.average(found.weight, weights=LENGTHS), 1)
    rows = found.rows()
    assert [row["operator"] for row in rows] == ["anna", "ben", "anna", "ben"]
    np.testing.assert_allclose([row["quality_score"] for row in rows], found.weight)
    assert "precision 0.50, bias 1.00" in rows[1]["reason"]


def test_weights_are_the_square_of_skill_in_the_episode_where_there_is_one():
    """An outsider's episodes weigh nothing, whatever his precision; the order is that of skill."""
    data = states()
    skill = np.array([0.6, -0.2])
    known = run(skill=skill, episode_skill=np.array([0.8, -0.3, 0.4, 0.1]), fingerprint=fingerprint(data))
    found = weigh(data, known, 0.71)
    weight = np.array([0.64, 0.0, 0.16, 0.01])
    np.testing.assert_allclose(found.weight, weight / np.average(weight, weights=LENGTHS))
    np.testing.assert_allclose(found.effective_episodes, weight.sum() ** 2 / (weight**2).sum())
    assert found.keep.tolist() == [True, False, True, False]  # 4 and 3 steps are 0.7 of them; 0.01 is hardly a weight
    assert weigh(data, known, 1.0).keep.all()
    rows = found.rows()
    assert [row["skill"] for row in rows] == [0.6, -0.2, 0.6, -0.2]
    assert [row["episode_skill"] for row in rows] == [0.8, -0.3, 0.4, 0.1]
    assert "skill 0.80 in this episode, 0.60 of the demonstrator" in rows[0]["reason"]
    assert not {"skill", "episode_skill"} & set(weigh(data, run()).rows()[0])


def test_new_episodes_weigh_by_the_skill_of_their_demonstrator():
    data = states()
    known = run(skill=np.array([0.6, 0.3]), episode_skill=np.array([0.8, 0.1, 0.4, 0.1]), fingerprint=fingerprint(data))
    found = weigh(data.take(np.array([0, 1, 2])), known, other_data=True)
    np.testing.assert_allclose(found.weight / found.weight[1], [4, 1, 4])
    assert "episode_skill" not in found.rows()[0] and "skill 0.60" not in found.rows()[0]["reason"]
    with pytest.raises(DataError, match="skill of 0 or less in every episode"):
        weigh(data, run(skill=np.array([0.0, -0.3])))


@pytest.mark.parametrize("count,refused", [(19, False), (40, True)])
def test_weights_that_rest_on_a_few_episodes_are_refused(count, refused, tmp_path, capsys):
    episodes = [Episode(np.zeros(3, int), np.zeros(2, int), True, "ben") for _ in range(count - 1)]
    data = Demonstrations.from_episodes([*episodes, Episode(np.zeros(3, int), np.zeros(2, int), True, "anna")])
    known = run(names=("ben", "anna"), skill=np.array([0.01, 1.0]))
    allowed = weigh(data, known, allow_few=True)
    assert 1 <= allowed.effective_episodes < 1.1
    if refused:
        with pytest.raises(
            DataError, match="effective sample size of 1.0 of 40 episodes, expected at least 4; .*--allow-few"
        ):
            weigh(data, known)
    else:
        np.testing.assert_array_equal(weigh(data, known).weight, allowed.weight)
    even = weigh(data, run(names=("ben", "anna"), skill=np.array([0.5, 0.5])))
    np.testing.assert_allclose(even.effective_episodes, count)


def test_skill_of_episodes_is_read_from_a_run(tmp_path, capsys):
    data = states()
    kept = folder(tmp_path / "run", data)
    found = json.loads((kept / "fit.json").read_text())
    for row, skill in zip(found["expertise"], (0.9, 0.5), strict=True):
        row |= {"skill": skill, "skill_low": skill - 0.1, "skill_high": skill + 0.1}
    found |= {"episode_skill": [0.9, 0.4, 0.8, 0.6], "episode_demonstrator": [0, 1, 0, 1]}
    found |= {"fingerprint": fingerprint(data)}
    (kept / "fit.json").write_text(json.dumps(found))
    main(["curate", str(tmp_path / "data.npz"), "--run", str(kept)])
    shown = capsys.readouterr().out
    assert "skill" in shown and "Effective sample size of the weights: 3.2 of 4 episodes." in shown
    main(["curate", str(tmp_path / "data.npz"), "--run", str(kept), "--json"])
    said = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(said["effective_episodes"], 1.97**2 / (0.81**2 + 0.16**2 + 0.64**2 + 0.36**2))
    assert [row["episode_skill"] for row in said["episodes"]] == [0.9, 0.4, 0.8, 0.6]
    found["episode_demonstrator"] = [0, 1, 0, 2]
    (kept / "fit.json").write_text(json.dumps(found))
    with pytest.raises(DataError, match="episode_demonstrator: .*the number of a demonstrator"):
        Assessment.of(kept)
    del found["expertise"][0]["skill"]
    (kept / "fit.json").write_text(json.dumps(found))
    with pytest.raises(DataError, match="some demonstrators without skill"):
        Assessment.of(kept)


@pytest.mark.parametrize(("share", "kept"), [(0.01, 1), (0.4, 1), (0.41, 2), (0.71, 3), (1.0, 4)])
def test_the_heaviest_episodes_are_kept_until_they_have_their_share(share, kept):
    """Heaviest first: episodes of 4, 3, 2 and 1 steps, as only anna's precision counts and likelihoods are alike."""
    level = run(policy=TabularPolicy(np.full((2, 2), 0.5)), precision=np.array([2.0, 0.5]), bias=np.zeros(2))
    found = weigh(states(), level, share)
    assert found.keep.sum() == kept
    assert found.weight[found.keep].min() >= found.weight[~found.keep].max(initial=0)


@pytest.mark.parametrize("rows", [3, 100])
def test_networks_say_how_likely_actions_are_as_they_act(monkeypatch, rows):
    """A few at a time where observations are many."""
    monkeypatch.setattr(sys.modules["irleed.analysis.curation"], "CHUNK", rows * 4 * 3)
    network = Mlp.init(jax.random.key(0), Inputs.plain(np.zeros(3)), (4, 2))
    member = jax.tree.map(lambda leaf: np.asarray(leaf)[None], Actor(network, Softmax(np.ones((), np.float32))))
    random = np.random.default_rng(0)
    data = Demonstrations.from_episodes(
        [Episode(random.normal(size=(6, 3)), random.integers(0, 2, 5), True, name) for name in ("anna", "ben")]
    )
    found = weigh(data, run(policy=EnsemblePolicy(member)))
    logits = np.asarray(jax.vmap(network)(data.observation.astype(np.float32)))
    likely = log_softmax(logits, axis=-1)[np.arange(10), data.action]
    np.testing.assert_allclose(found.log_likelihood, [likely[:5].mean(), likely[5:].mean()], rtol=1e-4)


def test_states_and_actions_may_be_whole_floats():
    """A fit of tables takes them, so that its run has to score them too."""
    whole = states()
    floats = dataclasses.replace(whole, obs=whole.obs.astype(float), action=whole.action.astype(float))
    np.testing.assert_array_equal(weigh(floats, run()).log_likelihood, weigh(whole, run()).log_likelihood)


def test_data_that_were_not_fitted_are_refused():
    with pytest.raises(SpaceError, match="demonstrator 'carl', expected those of the run: anna, ben"):
        weigh(states(("anna", "carl")), run())
    with pytest.raises(SpaceError, match="actions: got 1, expected 0 to 0"):
        weigh(states(), run(policy=TabularPolicy(np.ones((2, 1)))))
    with pytest.raises(SpaceError, match="observation: got 1, expected states 0 to 0"):
        weigh(states(), run(policy=TabularPolicy(np.full((1, 2), 0.5))))
    for share in (0.0, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="--share"):
            weigh(states(), run(), share)


@pytest.mark.parametrize(
    "changes",
    [
        {"bias": np.array([0.0, 1e200])},
        {"bias": np.array([0.0, np.inf])},
        {"precision": np.array([np.nan, 1.0])},
        {"precision": np.array([5e-324, 1.0]), "bias": np.array([1e10, 0.0])},
    ],
    ids=str,
)
def test_scores_that_are_not_finite_are_refused(changes):
    """Sorted by such scores, episodes would be kept by their place in the file."""
    with pytest.raises(DataError, match=r"data, episode [01]: got a score of -?(nan|inf), expected a finite number"):
        weigh(states(), run(**changes))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"expertise": [], "config": {"reading": 1}}', "nonsense"])
def test_a_folder_that_is_no_run_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="nothing, expected a run directory"):
        Assessment.of(tmp_path / "nowhere")
    TabularPolicy(TABLE).save(tmp_path / "policy.safetensors")
    (tmp_path / "fit.json").write_text(text)
    with pytest.raises(DataError, match="fit.json") as caught:
        Assessment.of(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_unknown_bias_counts_as_none(tmp_path):
    found = Assessment.of(folder(tmp_path / "run", states()))
    assert found.bias.tolist() == [0, 0] and found.precision.tolist() == [1, 2]


def test_the_limit_of_memory_is_raised_by_name_and_not_by_a_run(tmp_path, monkeypatch, capsys):
    """Run and data may come from the same stranger."""
    kept = folder(tmp_path / "run", states())
    found = json.loads((kept / "fit.json").read_text())
    found["config"]["reading"]["expansion"] = 1e9
    (kept / "fit.json").write_text(json.dumps(found))
    assert Assessment.of(kept).reading == ReadOptions()
    assert Assessment.of(kept, 2.0).reading == ReadOptions(expansion=2.0)
    monkeypatch.setattr(_arrays, "ALWAYS", 1)
    arguments = ["curate", str(tmp_path / "data.npz"), "--run", str(kept)]
    with pytest.raises(SystemExit):
        main([*arguments, "--expansion", "0.001"])
    assert "--expansion" in capsys.readouterr().err
    main(arguments)


def test_answers_of_newer_versions_are_refused(tmp_path):
    kept = folder(tmp_path / "run", states())
    found = json.loads((kept / "fit.json").read_text())
    (kept / "fit.json").write_text(json.dumps(found | {"version": 99}))
    with pytest.raises(DataError, match="version: got 99, expected at most 1"):
        Assessment.of(kept)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz", ""])
def test_the_command_writes_weights_or_what_is_to_be_kept(tmp_path, capsys, ending):
    kept, source = folder(tmp_path / "run", states()), tmp_path / "data.npz"
    before, out = source.read_bytes(), tmp_path / f"out{ending}"
    main(["curate", str(source), "--run", str(kept), "--out", str(out), "--share", "0.3"])
    assert "ben" in capsys.readouterr().out and source.read_bytes() == before
    expected = curate(source, kept, share=0.3)
    if ending == ".csv":
        rows = list(csv.DictReader(out.read_text().splitlines()))
        np.testing.assert_allclose([float(row["quality_score"]) for row in rows], expected.weight)
        assert [row["keep"] == "True" for row in rows] == expected.keep.tolist()
    elif ending == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pydict()
        np.testing.assert_allclose(table["weight"], expected.weight)
        assert table["episode_index"] == [0, 1, 2, 3] and table["keep"] == expected.keep.tolist()
    else:
        assert load(out).length.tolist() == expected.steps[expected.keep].tolist()


def test_the_command_overwrites_nothing_and_needs_a_known_ending(tmp_path, capsys):
    kept, source = folder(tmp_path / "run", states()), tmp_path / "data.npz"
    (tmp_path / "there.csv").write_text("kept")
    wrong = {"there.csv": "expected a new name", "a.txt": "got .txt", "no/a.csv": "expected a folder that exists"}
    for name, phrase in wrong.items():
        with pytest.raises(SystemExit) as stopped:
            main(["curate", str(source), "--run", str(kept), "--out", str(tmp_path / name)])
        assert stopped.value.code == 2 and phrase in capsys.readouterr().err
    assert (tmp_path / "there.csv").read_text() == "kept" and len(list(tmp_path.iterdir())) == 3
    main(["curate", str(source), "--run", str(kept), "--json"])
    assert len(json.loads(capsys.readouterr().out)["episodes"]) == 4


def test_data_that_the_run_was_not_fitted_to_are_refused(tmp_path, capsys):
    """Though their demonstrators, states and actions are those of the run; new episodes have to be meant."""
    data = states()
    known = run(fingerprint=fingerprint(data))
    fewer = data.take(np.array([0, 1, 2]))
    with pytest.raises(SpaceError, match="data: got SHA-256 .*, expected .* the data of the run; .*--other-data"):
        weigh(fewer, known)
    assert len(weigh(fewer, known, other_data=True).keep) == 3
    kept = folder(tmp_path / "run", data)
    found = json.loads((kept / "fit.json").read_text())
    (kept / "fit.json").write_text(json.dumps(found | {"fingerprint": fingerprint(data)}))
    save(fewer, tmp_path / "fewer.npz")
    main(["curate", str(tmp_path / "data.npz"), "--run", str(kept)])
    with pytest.raises(SystemExit) as stopped:
        main(["curate", str(tmp_path / "fewer.npz"), "--run", str(kept), "--out", str(tmp_path / "out.csv")])
    assert stopped.value.code == 2 and "--other-data" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
    main(["curate", str(tmp_path / "fewer.npz"), "--run", str(kept), "--other-data", "--json"])
    assert len(json.loads(capsys.readouterr().out)["episodes"]) == 3


def test_a_policy_that_is_not_the_run_s_is_refused(tmp_path):
    """Sound in itself, but not the one whose checksum stands in the answer."""
    kept = folder(tmp_path / "run", states())
    found, sums = json.loads((kept / "fit.json").read_text()), {"policy.safetensors": "0" * 64}
    (kept / "fit.json").write_text(json.dumps(found | {"files": sums}))
    with pytest.raises(DataError, match="got another file than was written.*expected SHA-256 00000000"):
        Assessment.of(kept)


def test_rows_and_frames_of_a_lerobot_folder_keep_its_numbers(tmp_path, capsys):
    """So that weights join back: by episode_index, and frame by frame."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source = tmp_path / "lift"
    for place in ("data/chunk-000", "meta"):
        (source / place).mkdir(parents=True)
    lengths = [n + 1 for n in LENGTHS]
    columns = {
        "observation.state": np.arange(sum(lengths)) % 2,
        "action": np.zeros(sum(lengths), int),
        "episode_index": np.repeat([5, 6, 8, 9], lengths),
        "index": np.arange(sum(lengths)) + 50,
        "demonstrator": np.repeat(["anna", "ben", "anna", "ben"], lengths),
    }
    features = {name: {"dtype": "int64", "shape": [1]} for name in columns}
    (source / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v3.0", "features": features}))
    parquet.write_table(arrow.table(columns), source / "data" / "chunk-000" / "file-000.parquet")
    kept = folder(tmp_path / "run", states())
    out, frames = tmp_path / "weights.parquet", tmp_path / "frames.parquet"
    arguments = ["curate", str(source), "--run", str(kept), "--out", str(out), "--frames", str(frames)]
    main(arguments)
    assert f"wrote {frames}" in capsys.readouterr().out
    by_episode, by_frame = (parquet.read_table(path).to_pydict() for path in (out, frames))
    assert by_episode["episode_index"] == [5, 6, 8, 9] and by_episode["episode_name"] == ["5", "6", "8", "9"]
    assert by_frame["index"] == columns["index"].tolist()
    np.testing.assert_allclose(by_frame["weight"], np.repeat(by_episode["weight"], lengths))
    with pytest.raises(ConfigError, match="got data in memory, expected a LeRobot folder"):
        curate(load(source), kept, frames=tmp_path / "other.parquet")
    with pytest.raises(SystemExit):
        main([*arguments[:4], "--frames", str(frames)])
    assert "an existing file" in capsys.readouterr().err


@pytest.mark.optax
def test_equally_good_demonstrators_keep_most_of_the_sample():
    """A fit of four who act alike, as networks estimate them: at least 80 % of their episodes in effect."""
    random = np.random.default_rng(0)
    episodes = []
    for number in range(32):
        obs = random.normal(size=(31, 2)).astype(np.float32)
        right = random.random(30) < 1 / (1 + np.exp(-4 * obs[:-1, 0]))
        episodes.append(Episode(obs, right.astype(np.int32), False, f"{number % 4}"))
    data = Demonstrations.from_episodes(episodes)
    small = OfflineIrleed(hidden=(16,), steps=1_000, batch_size=32, learning_rate=3e-3)
    with jax.numpy_dtype_promotion("standard"):
        found = weigh(data, Assessment.of(fit_networks(data, small, members=1)))
    assert found.episode_skill is not None and found.effective_episodes >= 0.8 * data.episodes


def test_skill_in_other_episodes_than_those_of_the_data_is_refused():
    """A run of a stranger may say anything; one without a fingerprint says nothing of these episodes."""
    data = states()
    known = run(fingerprint=fingerprint(data), skill=np.ones(2), episode_skill=np.ones(data.episodes + 1))
    with pytest.raises(DataError, match="fit.json: got skill in"):
        weigh(data, known)
    assert weigh(data, dataclasses.replace(known, fingerprint=None)).episode_skill is None


def test_long_names_are_those_of_the_data(tmp_path):
    data = dataclasses.replace(states(), names=("a" * 1000, "a" * 999))
    assert weigh(data, Assessment.of(folder(tmp_path / "run", data, data.names))).names == data.names


@pytest.mark.parametrize("ending", ["", ".csv", ".npz", ".parquet", ".hdf5"])
def test_a_name_that_is_too_long_is_refused_in_one_line(tmp_path, ending):
    kept = folder(tmp_path / "run", states())
    with pytest.raises((ConfigError, DataError)):
        curate(tmp_path / "data.npz", kept, out=tmp_path / ("n" * 300 + ending))
