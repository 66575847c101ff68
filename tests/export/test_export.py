"""An exported policy is the policy: in ONNX, by what policy.json says, and with a card that is plain text."""

import copy
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import sys
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import log_softmax

from irleed import load_policy
from irleed._io import files as _files
from irleed.cli import main
from irleed.data.conditioning import FIELDS, Conditioning, Ranges
from irleed.data.transitions import Inputs
from irleed.envs.step import Bounds
from irleed.errors import ConfigError, DataError, IrleedError
from irleed.export import ACTIVATED, POLICY, description, export
from irleed.export.graph import OPSET, write_graph
from irleed.model.actions import Softmax, Squashing
from irleed.model.mixed import head_of, outputs_of
from irleed.model.networks import ACTIVATIONS, Mlp
from irleed.policies.base import Actor, read_tensors, write_tensors
from irleed.policies.ensemble import DISCRETE, EnsemblePolicy
from irleed.policies.tabular import TabularPolicy
from irleed.runs.directory import read_json

MEMBERS, ACTIONS = 3, 4
TABLE = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
FACTS = {
    "transitions": 12, "episodes": 2, "demonstrators": [], "warnings": ["odd | so"],
    "observation": {"shape": [2, 3], "dtype": "float32", "min": -1, "max": 1},
    "action": {"shape": [], "dtype": "int64", "min": 0, "max": 3},
}  # fmt: skip
ROW = {"precision": 1.0, "precision_low": 0.9, "precision_high": 1.1, "transitions": 6, "weight": 0.5}


def network(activation: str, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Mlp:
    """Random layers whose units are far from 0 and near it, so that each activation's shape matters."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=(MEMBERS, *shape)).astype(np.float32)

    inputs, before = Inputs(normal(*shape), np.exp(normal(*shape))), int(np.prod(shape))
    layers = list(zip((before, *sizes), sizes, strict=False))
    return Mlp(inputs, tuple(normal(*layer) for layer in layers), tuple(normal(each) for each in sizes), activation)


def choosing(
    activation: str = "norm_relu", shape: tuple[int, ...] = (2, 3), sizes=(8, 5, ACTIONS), direct: bool = False
) -> EnsemblePolicy:
    found = network(activation, shape, sizes)
    if direct:
        path = np.random.default_rng(1).normal(size=(MEMBERS, int(np.prod(shape)), sizes[-1])).astype(np.float32)
        found = dataclasses.replace(found, direct=path)
    return EnsemblePolicy(Actor(found, Softmax(np.array([0.5, 1.0, 2.0], np.float32))))


def steering(activation: str = "relu") -> EnsemblePolicy:
    middle, half = (np.tile(np.array(row, np.float32), (MEMBERS, 1)) for row in ([0.5, -1.0], [1.0, 3.0]))
    return EnsemblePolicy(Actor(network(activation, (3,), (6, 4)), Squashing(middle, half)))


def in_onnx(policy, path, obs: np.ndarray) -> dict[str, np.ndarray]:
    """What another program makes of the file."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    names = write_graph(policy, path)
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == OPSET
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, {"observation": obs}), strict=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("shape", "sizes", "direct"),
    [((2, 3), (8, 5, ACTIONS), False), ((2, 3), (8, 5, ACTIONS), True), ((), (3, ACTIONS), True), ((4,), (4,), False)],
)
def test_networks_are_the_same_in_onnx(tmp_path, activation, shape, sizes, direct):
    policy = choosing(activation, shape, sizes, direct)
    obs = np.random.default_rng(1).normal(size=(50, *shape)).astype(np.float32) * 3
    found = in_onnx(policy, tmp_path / "policy.onnx", obs)
    np.testing.assert_allclose(found["log_probabilities"], policy.log_probabilities(obs), atol=1e-5, rtol=1e-5)
    np.testing.assert_array_equal(found["action"], policy.predict(obs, deterministic=True)[0])


def conditioned(policy):
    """The same policy of observations around 1e8, in which an entry has outliers."""
    shape = policy.observation_shape
    obs = 1e8 + np.random.default_rng(3).normal(size=(200, *shape))
    obs.reshape(200, -1)[5, 0] = 1e12
    found = Conditioning.of(Ranges.of(obs, standardised=True), shape)
    return dataclasses.replace(policy, conditioning=found), obs


@pytest.mark.parametrize("make", [choosing, steering])
def test_conditioned_observations_are_the_same_in_onnx_in_double_precision(tmp_path, make):
    policy, obs = conditioned(make())
    found = in_onnx(policy, tmp_path / "policy.onnx", obs)
    acted, _ = policy.predict(obs, deterministic=True)
    np.testing.assert_allclose(found["action"], acted, atol=1e-5)
    policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], acted)


def test_the_description_says_how_observations_are_conditioned(tmp_path):
    policy, obs = conditioned(choosing())
    export(run_folder(tmp_path / "run", policy, members=MEMBERS), tmp_path / "out")
    said, tensors = json.loads((tmp_path / "out" / "policy.json").read_text()), load_file(tmp_path / "out" / POLICY)
    assert said["observation"]["dtype"] == "float64"
    assert said["computation"][0].endswith("min(max((observation - origin - remainder) / unit, low), high)")
    assert all(said["tensors"][name]["meaning"].startswith("[*observation]") for name in FIELDS)
    seen = obs - tensors["origin"].astype(float) - tensors["remainder"].astype(float)
    seen = np.minimum(np.maximum(seen / tensors["unit"], tensors["low"]), tensors["high"]).astype(np.float32)
    np.testing.assert_array_equal(choosing().predict(seen, True)[0], policy.predict(obs, True)[0])


def test_a_conditioning_that_is_none_is_refused(tmp_path):
    """Of it, every part is there, has the observation's shape, and divides by something."""
    policy, _ = conditioned(choosing())
    policy.save(tmp_path / POLICY)
    header, arrays = read_tensors(tmp_path / POLICY, (DISCRETE,), lambda *_: None, lambda _: None)
    without = {name: array for name, array in arrays.items() if name != "high"}
    for broken in (arrays | {"unit": 0 * arrays["unit"]}, arrays | {"low": arrays["low"][0]}, without):
        write_tensors(tmp_path / POLICY, header, broken)
        with pytest.raises(DataError, match="expected a saved policy"):
            load_policy(tmp_path / POLICY)


def test_units_that_hardly_differ_are_the_same_in_onnx(tmp_path):
    """There, what layer normalisation adds to the variance is most of it."""
    loud = network("norm_relu", (2, 3), (8, 5, ACTIONS))
    weights, offsets = (tuple(np.float32(1e-3) * each for each in part) for part in (loud.weights, loud.offsets))
    quiet = Mlp(loud.inputs, weights, offsets, "norm_relu")
    obs = np.random.default_rng(1).normal(size=(50, 2, 3)).astype(np.float32)
    policy = EnsemblePolicy(Actor(quiet, Softmax(np.full(MEMBERS, 1000.0, np.float32))))
    found = in_onnx(policy, tmp_path / "policy.onnx", obs)
    np.testing.assert_allclose(found["log_probabilities"], policy.log_probabilities(obs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_continuous_actions_are_the_same_in_onnx(tmp_path, activation):
    policy = steering(activation)
    obs = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    found = in_onnx(policy, tmp_path / "policy.onnx", obs)
    np.testing.assert_allclose(found["action"], policy.predict(obs, deterministic=True)[0], atol=1e-5)
    gaussian = jax.vmap(policy.actor)(obs)
    np.testing.assert_allclose(found["mean"], gaussian.mean, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(found["log_spread"], gaussian.log_std, atol=1e-5)


@pytest.mark.parametrize("free", [True, False], ids=["with numbers", "choices alone"])
def test_actions_with_choices_are_the_same_in_onnx(tmp_path, free):
    """And in the file of the policy, and described."""
    bounds = Bounds([-1.0, 0.0], [1.0, 2.0], [(-1.0, 1.0), (0.0, 0.5, 2.0)], [False, False])
    if free:
        values = [(), (0.0, 0.5, 2.0), (-1.0,)]
        bounds = Bounds([-1.0, 0.0, -1.0], [1.0, 2.0, 1.0], values, [True, False, True])
    head = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * MEMBERS), head_of(bounds))
    policy = EnsemblePolicy(Actor(network("relu", (3,), (6, outputs_of(bounds))), head))
    obs = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    acted = policy.predict(obs, deterministic=True)[0]
    found = in_onnx(policy, tmp_path / "policy.onnx", obs)
    np.testing.assert_allclose(found["action"], acted, atol=1e-5)
    logits = np.concatenate([log_softmax(each.logits, -1) for each in jax.vmap(policy.actor)(obs).choices], -1)
    np.testing.assert_allclose(found["log_probabilities"], logits, atol=1e-4, rtol=1e-4)
    policy.save(tmp_path / "policy.safetensors")
    again = load_policy(tmp_path / "policy.safetensors")
    assert again.actions == policy.actions == bounds
    np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], acted)
    np.testing.assert_array_equal(again.log_likelihood(obs, acted), policy.log_likelihood(obs, acted))
    assert description(policy)["action"]["values"] == list(map(list, bounds.values))


def test_a_table_is_the_same_in_onnx(tmp_path):
    states = np.array([1, 0, 0, 1])
    found = in_onnx(TabularPolicy(TABLE), tmp_path / "policy.onnx", states)
    np.testing.assert_allclose(np.exp(found["log_probabilities"]), TABLE[states], atol=1e-7)
    np.testing.assert_array_equal(found["action"], TABLE.argmax(-1)[states])


def run_folder(folder, policy, **more):
    """What `irleed fit` leaves, as far as an export reads it."""
    folder.mkdir()
    names = ("a|<script>", "b")
    expertise = [{"name": name, **ROW, "bias": None, "log_likelihood": -1.0} for name in names]
    config = {"data": "/home/somebody/secret/poles.npz", "algorithm": "irleed", "reading": {"demonstrator": "data"}}
    fit = {"format": "irleed-fit", "version": 1, "config": config, "expertise": expertise, "steps": 7, "seconds": 1.5}
    (folder / "fit.json").write_text(json.dumps(fit | more))
    (folder / "data.json").write_text(json.dumps({"version": 1, "facts": FACTS, "returns": []}))
    versions = {"versions": {"irleed": "0.1.0"}, "config": {"algorithm": "OfflineIrleed", "seeds": 3}}
    (folder / "run.json").write_text(json.dumps({"version": 1, **versions}))
    policy.save(folder / "policy.safetensors")
    return folder


def by_description(folder, obs: np.ndarray) -> np.ndarray:
    """Log probabilities for one observation from policy.json and the tensors alone, line by line."""
    said, tensors = json.loads((folder / "policy.json").read_text()), load_file(folder / "policy.safetensors")
    assert {name: tuple(each["shape"]) for name, each in said["tensors"].items()} == {
        name: array.shape for name, array in tensors.items()
    }
    assert ACTIVATED[said["activation"]] in said["computation"][1]
    score = []
    for k in range(said["members"]):
        x = seen = ((obs - tensors["centre"][k]) / tensors["spread"][k]).ravel()
        for layer in range(said["layers"]):
            x = x @ tensors[f"weights.{layer}"][k] + tensors[f"offsets.{layer}"][k]
            if layer < said["layers"] - 1:
                c = x - np.mean(x)
                x = np.maximum(c / np.sqrt(np.mean(c**2) + 0.00001), 0)
        if "seen @ direct[k]" in " ".join(said["computation"]):
            x = x + seen @ tensors["direct"][k]
        score.append(log_softmax(tensors["sharpness"][k] * x))
    return log_softmax(np.mean(score, 0))


@pytest.mark.parametrize("direct", [False, True], ids=["layers alone", "direct path"])
def test_the_description_is_enough_to_write_the_policy_again(tmp_path, direct):
    policy = choosing(direct=direct)
    export(run_folder(tmp_path / "run", policy, members=MEMBERS), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"policy.safetensors", "policy.json", "README.md"}
    obs = np.random.default_rng(2).normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(by_description(tmp_path / "out", obs), policy.log_probabilities(obs), atol=1e-5)


@pytest.mark.parametrize("policy", [choosing(), choosing("elu", (), (3, ACTIONS)), TabularPolicy(TABLE), steering()])
def test_the_code_of_the_card_runs(tmp_path, monkeypatch, capsys, policy):
    """In the folder, as a reader would run it, onnxruntime's part included."""
    pytest.importorskip("onnxruntime")
    more = {} if isinstance(policy, TabularPolicy) else {"members": MEMBERS}
    main(["export", str(run_folder(tmp_path / "run", policy, **more)), "--out", str(tmp_path / "out"), "--onnx"])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'out'}\n"
    monkeypatch.chdir(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    blocks = card.split("```python\n")[1:]
    assert len(blocks) == 2
    actions = []
    for block in blocks:
        names: dict = {}
        exec(block.split("```")[0], names)
        actions.append(np.ravel(names["action"]))
    np.testing.assert_allclose(*actions, atol=1e-5)


def test_the_card_tells_the_run_and_keeps_names_as_text(tmp_path):
    export(run_folder(tmp_path / "run", choosing(), members=MEMBERS, warnings=["2 diverged"]), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: irleed\n") and "\n---\n\n# run\n" in card
    assert "| a\\|&lt;script&gt; | 6 | 1.00 [0.90, 1.10] |" in card and "<script>" not in card
    assert "12 transitions in 2 episodes" in card and "odd \\| so" in card and "- 2 diverged" in card
    assert "| `data` | poles.npz |" in card and "secret" not in card, "where data lay is nobody's business"
    assert "irleed 0.1.0" in card and "| `seeds` | 3 |" in card and "@inproceedings" in card


@pytest.mark.parametrize("there", ["file", "folder"])
def test_nothing_is_written_over(tmp_path, there):
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    out = tmp_path / "out"
    if there == "folder":
        out.mkdir()
    ((out / "mine") if there == "folder" else out).write_text("mine")
    with pytest.raises(ConfigError, match="expected a new folder"):
        export(run, out)
    assert ((out / "mine") if there == "folder" else out).read_text() == "mine"


def test_without_the_library_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run), "--out", str(tmp_path / "out"), "--onnx"])
    assert ended.value.code == 2 and "pip install 'irleed[export]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bounds_of_continuous_actions_are_described():
    action = description(steering())["action"]
    assert action == {"kind": "numbers", "count": 2, "low": [-0.5, -4.0], "high": [1.5, 2.0]}


def test_the_description_has_checksums(tmp_path):
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    out = export(run, tmp_path / "out")
    said = read_json(out / "policy.json").plain()
    assert said["files"] == {
        "policy.safetensors": hashlib.sha256((out / "policy.safetensors").read_bytes()).hexdigest()
    }
    (out / "policy.json").write_text((out / "policy.json").read_text().replace("table", "tabel"))
    with pytest.raises(DataError, match="does not match its checksum"):
        read_json(out / "policy.json")


def test_no_bit_of_a_policy_changes_unseen(tmp_path):
    """Wherever it lies: the file knows its own checksum."""
    path = tmp_path / "policy.safetensors"
    TabularPolicy(TABLE).save(path)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = load_policy(path)
        except DataError as error:
            assert "\n" not in str(error)
        else:
            np.testing.assert_array_equal(found.probabilities, TABLE)


def failing(number: int, after: int):
    """`os.fsync` on a disk that takes no more after so many files."""
    left = [after]

    def fsync(*_):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))

    return fsync


@pytest.mark.parametrize("there", [False, True], ids=["new folder", "empty folder"])
@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_write_that_fails_is_one_line_and_leaves_no_half_folder(tmp_path, monkeypatch, capsys, number, after, there):
    run, out = run_folder(tmp_path / "run", TabularPolicy(TABLE)), tmp_path / "a" / "out"
    if there:
        out.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(_files.os, "fsync", failing(number, after))
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run), "--out", str(out)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and os.strerror(number) in said and said.count("\n") == 1 and "--resume" not in said
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_killed_export_left_is_removed_by_the_next(tmp_path):
    run, out = run_folder(tmp_path / "run", TabularPolicy(TABLE)), tmp_path / "out"
    (out / ".irleed-0123abcd-folder.part").mkdir(parents=True)
    (out / ".irleed-0123abcd-folder.part" / "policy.safetensors").write_text("half")
    export(run, out)
    assert {path.name for path in out.iterdir()} == {"policy.safetensors", "policy.json", "README.md"}


HOSTILE = (None, True, -3, 1.5, 1e300, "", "x\n# y", [], [-1], [[]], ["x"], [None], {}, {"a": None}, {"a": {"b": [-1]}})


def places(value: object, at: tuple = ()):
    """Where the values of a JSON file are, outer ones first."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*at, key))


@pytest.mark.parametrize("name", ["fit.json", "run.json", "data.json"])
def test_no_value_in_a_run_makes_an_export_crash(tmp_path, name):
    """Whatever stands in place of a value, there is a card or one line, and no half folder."""
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    whole = json.loads((run / name).read_text())
    outcomes = set()
    for at in places(whole):
        for value in HOSTILE:
            content = [copy.deepcopy(whole)]  # a list around it, so that the whole can be replaced as well
            inner: Any = content
            for key in (0, *at)[:-1]:
                inner = inner[key]
            inner[(0, *at)[-1]] = value
            (run / name).write_text(json.dumps(content[0]))
            out = tmp_path / "out"
            try:
                export(run, out)
            except IrleedError as error:
                assert "\n" not in str(error) and not out.exists()
                outcomes.add("refused")
            else:
                assert "<script" not in (out / "README.md").read_text()
                shutil.rmtree(out)
                outcomes.add("written")
    assert outcomes == {"refused", "written"}


@pytest.mark.parametrize("name", ["fit.json", "run.json", "data.json"])
def test_json_without_end_is_one_line(tmp_path, name):
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    whole = json.loads((run / name).read_text())
    for depth in (100, 900, 100_000):
        text = json.dumps(whole | {"config": "HERE"}).replace('"HERE"', '{"a":' * depth + "[]" + "}" * depth)
        (run / name).write_text(text)
        with pytest.raises(DataError, match=name):
            export(run, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_path_that_is_none_is_one_line(tmp_path):
    run = run_folder(tmp_path / "run", TabularPolicy(TABLE))
    with pytest.raises(ConfigError):
        export(run, tmp_path / ("long" * 100))
    with pytest.raises(DataError):
        export(tmp_path / ("long" * 100), tmp_path / "out")
