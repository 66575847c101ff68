"""Which algorithm describes demonstrators better, by what it did not learn from."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed import held_out as module
from irleed.cli import main
from irleed.data import Demonstrations, Episode, lazy, save
from irleed.data.transitions import Transitions
from irleed.errors import ConfigError
from irleed.held_out import held_out
from irleed.iq.ensemble import NetworkPolicy
from irleed.iq.soft_q import SoftQ

pytestmark = [pytest.mark.optax, pytest.mark.usefixtures("compiled_quickly")]

fit_module = importlib.import_module("irleed.fit_networks")  # whose name in irleed is the function's
SHORT = {"hidden": (32, 32), "steps": 1000, "rate": 3e-3}
SIZES = {"small": SoftQ(**SHORT), "large": SoftQ.apart(**SHORT, bias_rate=3e-3)}


def demonstrations(differ: bool, episodes: int = 5) -> Demonstrations:
    """Two people: each goes by an entry of their own and never errs, or both by the first, half at random."""
    generator = np.random.default_rng(1)

    def episode(person: int) -> Episode:
        obs = generator.normal(size=(31, 2)).astype(np.float32)
        right = obs[:-1, person] > 0 if differ else (obs[:-1, 0] > 0) ^ (generator.random(30) < 0.25)
        return Episode(obs, right.astype(int), terminated=False, demonstrator=person)

    return Demonstrations.from_episodes([episode(person) for person in (0, 1) for _ in range(episodes)])


@pytest.mark.parametrize("differ", [True, False])
def test_large_biases_are_for_those_who_are_consistent_and_differ(differ):
    told = []
    found = held_out(SIZES, demonstrations(differ), 2, progress=lambda done, total, **_: told.append((done, total)))
    if differ:
        assert found["large"] > found["small"] + 0.2
    else:
        assert found["small"] > found["large"]
    assert told == sorted(told) and told[-1] == (2000, 2000)


def test_the_likelihood_is_that_at_the_best_scale():
    data = Transitions.from_demonstrations(demonstrations(differ=False))
    algorithm = SIZES["small"]
    parameters = algorithm.parameters(jax.random.key(0), data.inputs, 2, 2)
    padded = data.padded(len(data.action) + 7, len(data.initial))  # which changes nothing
    runs = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (parameters, padded))
    found = module._likelihood(algorithm, *runs)
    logits, _ = algorithm.logits(parameters, data.obs, data.demonstrator)
    each = [jax.nn.log_softmax(scale * logits)[np.arange(300), data.action].mean() for scale in module.SCALES]
    np.testing.assert_allclose(found, [max(each)], rtol=1e-4)


def test_everyone_is_held_out_and_learnt_from():
    few = Demonstrations.from_episodes(
        [
            Episode(np.zeros((3, 2)), [0, 1], terminated=False, demonstrator=person)
            for person, count in enumerate((1, 2, 7))
            for _ in range(count)
        ]
    )
    assert module._held(few, 0).tolist() == [False, True, False, True, *[False] * 4, True, False]
    assert module._held(few, 1).tolist() == [False, False, True, False, True, *[False] * 4, True]


def test_an_algorithm_that_diverges_is_not_chosen():
    found = held_out({"wild": SoftQ(hidden=(4,), steps=20, rate=1e30)}, demonstrations(differ=True), 2)
    assert found == {"wild": -np.inf}


def test_what_cannot_be_held_out_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="one episode of each demonstrator"):
        held_out(SIZES, demonstrations(differ=True, episodes=1), 2)
    monkeypatch.setattr(lazy, "MOST", 1000)
    with pytest.raises(ConfigError, match="more than memory should hold"):
        held_out(SIZES, demonstrations(differ=True), 2)


def test_the_command_says_what_it_chose_and_chooses_once(tmp_path, capsys, monkeypatch):
    save(demonstrations(differ=True), tmp_path / "data.npz")
    fit = ["fit", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"), "--steps", "300", "--seeds", "2"]
    main(fit)
    said = capsys.readouterr().err
    assert "biases: large, by the log likelihood of held-out actions: small -0." in said
    assert NetworkPolicy.load(tmp_path / "run" / "policy.safetensors").size == 2 * (1 + 2), "Q and both biases, twice"
    monkeypatch.setattr("irleed.cli.methods.by_biases", None)
    with pytest.raises(SystemExit):
        main(fit)
    assert "got a run of these settings, expected none" in capsys.readouterr().err
    main([*fit, "--resume"])
    assert NetworkPolicy.load(tmp_path / "run" / "policy.safetensors").size == 2 * (1 + 2)


def test_without_anything_to_choose_by_biases_are_small(tmp_path, capsys):
    save(demonstrations(differ=True, episodes=1), tmp_path / "data.npz")
    main(["fit", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"), "--steps", "20", "--seeds", "2"])
    assert "biases: small, with nothing to choose by: one episode of each demonstrator" in capsys.readouterr().err
    assert NetworkPolicy.load(tmp_path / "run" / "policy.safetensors").size == 2
    alone = demonstrations(differ=True).select([0])
    assert module.hindrance(alone) == "one demonstrator alone" and module.hindrance(demonstrations(differ=True)) is None


@pytest.mark.parametrize("likely", [-1.0, -0.2])
def test_the_front_door_chooses_too(monkeypatch, likely):
    short = {"hidden": (4,), "steps": 5}
    monkeypatch.setattr(fit_module, "suitable", lambda _, apart=False, **__: (SoftQ.apart if apart else SoftQ)(**short))
    monkeypatch.setattr(fit_module, "by_biases", lambda *_, **__: {"small": -0.5, "large": likely})
    found = fit_module.fit_networks(demonstrations(differ=True), members=2)
    assert isinstance(found.policy, NetworkPolicy) and found.policy.size == (6 if likely > -0.5 else 2)
