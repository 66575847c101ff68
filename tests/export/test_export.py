"""An exported policy is the policy: in ONNX, by what policy.json says, and with a card that is plain text."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import log_softmax

from irleed.cli import main
from irleed.data.transitions import Inputs
from irleed.errors import ConfigError
from irleed.export import ACTIVATED, description, export
from irleed.export.card import escaped
from irleed.export.graph import OPSET, write_graph
from irleed.model.actions import Softmax, Squashing
from irleed.model.networks import ACTIVATIONS, Mlp
from irleed.policies.actor import Actor
from irleed.policies.ensemble import EnsemblePolicy
from irleed.policies.tabular import TabularPolicy

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

    def drawn(*shape: int) -> np.ndarray:
        return random.normal(size=(MEMBERS, *shape)).astype(np.float32)

    inputs, before = Inputs(drawn(*shape), np.exp(drawn(*shape))), int(np.prod(shape))
    layers = list(zip((before, *sizes), sizes, strict=False))
    return Mlp(inputs, tuple(drawn(*layer) for layer in layers), tuple(drawn(each) for each in sizes), activation)


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


def test_text_in_a_card_is_one_line_without_markup():
    assert escaped("a\n# b [c](d) `e` <f>") == "a \\# b \\[c\\](d) \\`e\\` &lt;f&gt;"


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
