"""Fits without an MDP: an ensemble of networks, what it says about the demonstrators, and its policy's file."""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from irleed.algorithms.base import train
from irleed.algorithms.baselines.bc import BehaviourCloning
from irleed.algorithms.baselines.ileed import Ileed
from irleed.algorithms.baselines.sqil import Sqil
from irleed.algorithms.iq import IQ_LEARN, OfflineIrleed, OnlineIrleed
from irleed.algorithms.training import train_all
from irleed.data import Demonstrations, Episode, lazy
from irleed.data import transitions as resamples
from irleed.data.lazy import InMemory, LazyRows
from irleed.data.transitions import Transitions, stack
from irleed.envs.jax import CartPole
from irleed.errors import ConfigError, DataError, DivergedError, IrleedError, SpaceError
from irleed.fit.defaults import network_algorithm
from irleed.fit.judgement import judge
from irleed.fit.networks import check, fit_networks, resampled
from irleed.model.networks import Linear, LowRank
from irleed.policies.ensemble import EnsemblePolicy
from irleed.rollout import DeviceBackend
from irleed.rollout.evaluation import ReturnEstimate
from irleed.runs.checkpoint import Checkpointer, Stopped

pytestmark = pytest.mark.optax

PRECISION = np.array([0.3, 3.0, 1.0])
SMALL = {"hidden": (8,), "steps": 20, "batch_size": 8}
SHORT = OfflineIrleed(hidden=(8,), steps=21, batch_size=8)  # one for several tests: compiling is what takes time
PUBLISHED = dataclasses.replace(SHORT, temperature=0.5)  # nobody is judged by the others


def choices(episodes: int = 5, steps: int = 60, people: int = 3, seed: int = 0) -> Demonstrations:
    """Choices between two actions whose values differ by the observation's first entry, by uneven demonstrators."""
    generator = np.random.default_rng(seed)
    played = []
    for number in range(people * episodes):
        obs = generator.normal(size=(steps + 1, 2)).astype(np.float32)
        chance = 1 / (1 + np.exp(-2 * PRECISION[number % people % 3] * obs[:-1, 0]))
        action = (generator.random(steps) < chance).astype(np.int32)
        played.append(Episode(obs, action, False, number % people, action.astype(np.float32)))
    return Demonstrations.from_episodes(played)


@pytest.fixture(scope="module")
def data() -> Demonstrations:
    return choices()


@pytest.fixture(scope="module")
def learnt(data):
    """IRLEED, long enough to find something."""
    rates = {"learning_rate": 1e-2, "bias_learning_rate": 1e-2, "precision_learning_rate": 3e-2}
    algorithm = OfflineIrleed(hidden=(8,), steps=400, penalty=0.01, bias_penalty=1.0, **rates)
    with jax.numpy_dtype_promotion("standard"):
        return fit_networks(data, algorithm, members=4)


def test_the_order_of_precisions_is_recovered(learnt):
    found = learnt.expertise
    assert found.ranking == ("demonstrator 1", "demonstrator 2", "demonstrator 0")
    assert np.all(found.precision_low <= found.precision) and np.all(found.precision <= found.precision_high)
    assert found.precision_low[1] > found.precision_high[0], "the best and the worst are told apart"
    assert np.all((found.bias_low <= found.bias) & (found.bias <= found.bias_high) & (found.bias_low > 0))
    np.testing.assert_allclose(found.weight.sum(), 1)
    assert list(np.argsort(found.weight)) == [0, 2, 1]
    assert found.transitions.tolist() == [300, 300, 300]
    assert list(np.argsort(found.log_likelihood)) == [0, 2, 1] and np.all(found.log_likelihood < 0)
    assert learnt.history[-1]["step"] == 400 and learnt.history[-1]["loss"] < learnt.history[0]["loss"]
    assert learnt.warnings == () and learnt.returns == ()
    json.dumps(learnt.summary(), allow_nan=False)


def test_the_policy_prefers_what_pays(learnt, data):
    actions, nothing = learnt.policy.predict(data.obs, deterministic=True)
    assert np.mean(actions == (data.obs[:, 0] > 0)) > 0.95 and nothing is None


def test_the_policy_is_the_mean_of_its_members_log_probabilities(learnt):
    obs = jnp.asarray([0.5, -1.0], jnp.float32)
    members = [jax.tree.map(lambda leaf, k=k: leaf[k], learnt.policy.members) for k in range(4)]
    expected = np.mean([jax.nn.log_softmax(member(obs).logits) for member in members], 0)
    np.testing.assert_allclose(learnt.policy.actor(obs).logits, expected, rtol=1e-5)
    drawn, _ = learnt.policy.predict(np.tile(obs, (20_000, 1)), seed=0)
    chance = float(np.exp(expected[1]) / np.exp(expected).sum())
    assert abs(np.mean(drawn) - chance) < 4 * np.sqrt(chance * (1 - chance) / 20_000)


def test_predict_takes_one_observation_or_a_batch(learnt):
    one, batch = np.array([2.0, 0.0]), np.array([[2.0, 0.0], [-2.0, 0.0]])
    assert hash(learnt.policy.predict(one, deterministic=True)[0]) == 1, "environments look actions up"
    assert learnt.policy.predict(batch, deterministic=True)[0].tolist() == [1, 0]
    many = np.zeros((50, 2))
    first, same, other = (learnt.policy.predict(many, seed=seed)[0].tolist() for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize(
    "observation", [np.zeros(3), np.zeros((2, 2, 2)), np.array(1.0), [np.nan, 0.0], ["a", "b"]], ids=str
)
def test_what_is_no_observation_is_refused(learnt, observation):
    with pytest.raises(SpaceError, match="observation: got .*, expected .*; "):
        learnt.policy.predict(observation)


def test_training_in_parts_is_training(data, monkeypatch):
    """The key of a step depends on its number alone: 21 steps are ten parts of two and one of one."""
    monkeypatch.setattr(sys.modules["irleed.algorithms.training"], "PARTS", 20)
    keys = jax.random.split(jax.random.key(4), 3)
    many = stack([Transitions.from_demonstrations(data.take(resampled(key, data))) for key in keys])
    told = []
    state, losses = train_all(SHORT, keys, many, 2, 3, lambda done, total, loss: told.append((done, total)))
    whole, info = jax.jit(jax.vmap(lambda key, own: train(SHORT, key, own, 2, 3)))(keys, many)
    for part, full in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(part, full, rtol=1e-4, atol=1e-6)
    assert told == [(step, 21) for step in (*range(2, 21, 2), 21)] == [(step, 21) for step, _ in losses]
    np.testing.assert_allclose(losses[1][1], info.loss[:, 2:4].mean(1), rtol=1e-4)


def test_training_from_disk_is_training_from_memory(data, monkeypatch, tmp_path):
    """Its batches are the same, and so is the answer to rounding; also when it was stopped and goes on."""
    whole = fit_networks(data, PUBLISHED, members=3)
    on_disk = dataclasses.replace(data, obs=LazyRows.of(InMemory(np.asarray(data.obs))))
    monkeypatch.setattr(sys.modules["irleed.fit.networks"], "too_large", lambda *_: True)
    monkeypatch.setattr(LazyRows, "__array__", None)  # nothing asks for all of it
    with Checkpointer(tmp_path, "it") as checkpointer:

        def stop(done, total, **_):
            checkpointer.stop = done >= 7

        with pytest.raises(Stopped):
            fit_networks(on_disk, PUBLISHED, members=3, checkpointer=checkpointer, progress=stop)
    with Checkpointer(tmp_path, "it") as checkpointer:
        streamed = fit_networks(on_disk, PUBLISHED, members=3, checkpointer=checkpointer)
    for ours, theirs in ((streamed.policy, whole.policy), (streamed.expertise, whole.expertise)):
        for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose([row["loss"] for row in streamed.history], [row["loss"] for row in whole.history], 1e-4)


def test_large_data_are_judged_by_some_transitions_and_counted_in_full(data, monkeypatch):
    monkeypatch.setattr(resamples, "MOST_LOOKED_AT", 90)
    monkeypatch.setattr(lazy, "MOST", 3 * 2 * 4 * data.obs.size - 1)  # a byte less than it takes
    seen = []

    def looking(names, algorithm, parameters, looked_at):
        seen.append(looked_at)
        return judge(names, algorithm, parameters, looked_at)

    monkeypatch.setattr(sys.modules["irleed.fit.networks"], "judge", looking)
    found = fit_networks(data, SHORT, members=3).expertise
    assert len(seen[0].action) == 90 and np.bincount(seen[0].demonstrator).tolist() == [30, 30, 30]
    assert found.transitions.tolist() == [300, 300, 300]
    np.testing.assert_allclose(found.weight.sum(), 1)


def test_a_fit_is_its_seeds(data):
    one, same, other = (fit_networks(data, BehaviourCloning(**SMALL), members=2, seed=seed) for seed in (3, 3, 4))
    obs = jnp.asarray(data.obs[0])
    one, same, other = (each.policy.log_probabilities(obs) for each in (one, same, other))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_resampling_keeps_everyone_and_their_number_of_episodes():
    data = Demonstrations.from_episodes(
        [Episode(np.full((2, 1), number, float), [number % 2], True, who) for number, who in enumerate("abbabbbc")]
    )
    drawn = [data.take(resampled(jax.random.key(seed), data)) for seed in range(20)]
    assert all(d.names == data.names and np.bincount(d.owner).tolist() == [2, 5, 1] for d in drawn)
    own = {
        (d.names[who], int(d.obs[d.row[start], 0])) for d in drawn for who, start in zip(d.owner, d.start, strict=True)
    }
    assert own == {(who, number) for number, who in enumerate("abbabbbc")}, "their own episodes, each of them sometimes"


@pytest.mark.parametrize("algorithm", [OfflineIrleed.iq(**SMALL), BehaviourCloning(**SMALL), Ileed(**SMALL)], ids=str)
def test_algorithms_say_what_they_can(algorithm, data):
    found = fit_networks(data, algorithm, members=2).expertise
    assert np.isnan(found.bias).all() and found.to_dict()[0]["bias"] is None
    assert np.isfinite(found.log_likelihood).all()
    if not isinstance(algorithm, Ileed):
        assert found.precision.tolist() == [1, 1, 1]
        assert len(set(found.log_likelihood.tolist())) == 3, "of their own actions"


def test_someone_may_have_acted_once_and_one_member_has_no_interval():
    generator = np.random.default_rng(0)
    played = [Episode(generator.normal(size=(n + 1, 2)), generator.integers(0, 2, n), True, f"of {n}") for n in (20, 1)]
    found = fit_networks(Demonstrations.from_episodes(played), BehaviourCloning(**SMALL), members=1).expertise
    assert found.transitions.tolist() == [20, 1] and np.isfinite(found.log_likelihood).all()
    assert np.isfinite(found.precision).all() and np.isnan(found.precision_low).all()


def test_what_suits_which_purpose():
    make = network_algorithm
    assert make() == OfflineIrleed() and make("iq") == OfflineIrleed.iq()
    assert make(online=True) == OnlineIrleed() and make("iq", online=True) == OnlineIrleed.iq()
    assert make(ends="failure") == OfflineIrleed.failure()
    assert make("iq", ends="failure") == OfflineIrleed.failure(**IQ_LEARN)
    assert make(online=True, ends="failure") == OnlineIrleed.failure()
    assert make("bc", steps=7) == BehaviourCloning(steps=7) and make("ileed") == Ileed() and make("sqil") == Sqil()


@pytest.mark.parametrize("kind", [{}, {"bias_hidden": (8,)}], ids=["linear", "low rank"])
def test_a_thousand_demonstrators(kind):
    data, algorithm = choices(1, 4, people=1000), OfflineIrleed(**SMALL, **kind)
    parameters = algorithm.parameters(jax.random.key(0), Transitions.from_demonstrations(data).inputs, 2, 1000)
    assert isinstance(parameters.bias, LowRank if kind else Linear)
    assert fit_networks(data, algorithm, members=2).expertise.precision.shape == (1000,)


def broken(member: int, step: int):
    """Stands in for `train_all`: one of three members ends in what is no number, with or without a step that tells."""

    def train_all_but_one(algorithm, keys, many, *given):
        state, losses = train_all(algorithm, keys, many, *given)
        parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf).at[member].set(jnp.nan), state.parameters)
        lost = parameters, jnp.asarray(state.diverged).at[member].set(step)
        return eqx.tree_at(lambda s: (s.parameters, s.diverged), state, lost), losses

    return train_all_but_one


@pytest.mark.parametrize(("step", "told"), [(7, 7), (-1, 21)], ids=["in the loss", "in the last step alone"])
def test_members_that_diverged_are_told_and_left_out(data, monkeypatch, step, told):
    monkeypatch.setattr(sys.modules["irleed.fit.networks"], "train_all", broken(1, step))
    found = fit_networks(data, SHORT, members=3)
    assert "\n" not in found.warnings[0]
    assert (
        f"1 of 3 members diverged (member 1 at step {told}) with OfflineIrleed(hidden=(8,), steps=21"
        in found.warnings[0]
    )
    assert found.policy.members.head.sharpness.shape == (2,) and np.isfinite(found.expertise.precision_high).all()
    assert found.summary()["members"] == 2


def test_nothing_but_divergence_is_an_error(data):
    with pytest.raises(DivergedError) as caught:
        fit_networks(data, dataclasses.replace(SHORT, learning_rate=1e30), members=3)
    assert "3 of 3 members diverged (member 0 at step 1," in str(caught.value) and "\n" not in str(caught.value)


def refused(data: Demonstrations, algorithm=None, backend=None, members: int = 2) -> str:
    with pytest.raises(IrleedError) as caught:
        check(data, BehaviourCloning() if algorithm is None else algorithm, backend, members)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("action", "phrase"),
    [
        ([-1, 1], "actions: got -1 to 1"),
        ([0, 10**9], "got 0 to 1000000000"),
        ([0, 0], "actions: got 0 alone"),
    ],
    ids=str,
)
def test_actions_that_will_not_do(action, phrase):
    assert phrase in refused(Demonstrations.from_episodes([Episode(np.zeros((3, 2)), action, True, 0)]))


@pytest.mark.parametrize("action", [[0.5, 1.0], [[0.0, 1.0], [1.0, 0.0]]], ids=str)
def test_algorithms_for_discrete_actions_refuse_vectors(action):
    vectors, backend = (
        Demonstrations.from_episodes([Episode(np.zeros((3, 4)), action, True, 0)]),
        DeviceBackend(CartPole()),
    )
    for algorithm in (OnlineIrleed(), Sqil()):
        expected = f"actions: got {type(algorithm).__name__}, which is for one whole number each"
        assert expected in refused(vectors, algorithm, backend)


def test_what_does_not_belong_to_the_environment(data):
    backend = DeviceBackend(CartPole())
    assert "observations: got shape (2,), expected (4,), the environment's" in refused(data, Sqil(), backend)
    other = Demonstrations.from_episodes([Episode(np.zeros((3, 4)), [0, 2], True, 0)])
    assert "actions: got 2, expected 0 to 1, the environment's" in refused(other, Sqil(), backend)


def test_settings_that_will_not_do(data):
    assert "--members: got 0" in refused(data, members=0)
    assert "--steps: got 500, expected 501 or more" in refused(data, Sqil(steps=500))
    assert "an agent: got no environment" in refused(data, Sqil(steps=501))
    with pytest.raises(ConfigError):
        fit_networks(data, Sqil(steps=501))


@pytest.fixture(scope="module")
def poles() -> Demonstrations:
    """Two short episodes on CartPole, with rewards."""
    generator = np.random.default_rng(0)
    return Demonstrations.from_episodes(
        [Episode(generator.normal(size=(7, 4)), [0, 1] * 3, True, who, np.ones(6)) for who in "aab"]
    )


def test_what_was_learnt_is_tried_in_the_backend(poles):
    """Agents also learn there: see `test_cli_networks`."""
    found = fit_networks(poles, BehaviourCloning(**SMALL), backend=DeviceBackend(CartPole()), members=2)
    assert [row.who for row in found.returns] == ["policy, greedy actions", "policy, sampled actions", "a", "b"]
    assert [row.episodes for row in found.returns] == [50, 50, 2, 1]
    assert all(1 <= row.mean <= 500 for row in found.returns) and found.returns[2].mean == 6
    rows = found.summary()["returns"]
    assert rows[3] == {"who": "b", "episodes": 1, "mean": 6.0, "low": None, "high": None}


def test_intervals_of_a_mean():
    row = ReturnEstimate.of("a", np.array([1.0, 2.0, 3.0]))
    assert row.mean == 2 and row.low == 4 - row.high and 1.68 < row.high - row.mean < 1.69  # 2.92 / sqrt(3)


def test_what_is_saved_is_loaded(learnt, data, tmp_path):
    learnt.policy.save(tmp_path / "policy.safetensors")
    loaded = EnsemblePolicy.load(str(tmp_path / "policy.safetensors"))
    for deterministic in (True, False):
        ours, theirs = (p.predict(data.obs, deterministic, seed=1)[0] for p in (learnt.policy, loaded))
        np.testing.assert_array_equal(ours, theirs)


def test_corrupt_and_foreign_files_are_refused(learnt, tmp_path):
    learnt.policy.save(tmp_path / "whole")
    whole, arrays = (tmp_path / "whole").read_bytes(), load_file(tmp_path / "whole")
    header = {"format": "irleed-network-policy", "version": "1", "activation": "elu"}
    with_nan = arrays["weights.0"].copy()
    with_nan[0, 0, 0] = np.nan
    damaged = [
        (header | {"format": "irleed-tabular-policy"}, arrays),
        (header | {"activation": "eval"}, arrays),
        (header | {"activation": ["elu"]}, arrays),
        (header, {name: array for name, array in arrays.items() if name != "offsets.1"}),
        (header, {name: array for name, array in arrays.items() if name != "centre"}),
        (header, arrays | {"weights.1": arrays["weights.1"][:, :-1]}),
        (header, arrays | {"direct": arrays["direct"][:, :-1]}),
        (header, arrays | {"direct": arrays["direct"][0]}),
        (header, arrays | {"sharpness": arrays["sharpness"][:2]}),
        (header, arrays | {"sharpness": arrays["sharpness"][0]}),
        (header, arrays | {"spread": arrays["spread"][:, :1]}),
        (header, arrays | {"weights.0": with_nan}),
        (header, arrays | {"centre": arrays["centre"].astype(np.float64)}),
        (header, arrays | {"more": arrays["centre"]}),
        (header, arrays | {"more": arrays["centre"], "still": arrays["centre"]}),
    ]
    for content in (b"", b"no policy", b"\xff" * 100, whole[:-8]):
        (tmp_path / "other").write_bytes(content)
        assert "\n" not in refusal(tmp_path / "other")
    for head, content in damaged:
        save_file({k: np.ascontiguousarray(v) for k, v in content.items()}, tmp_path / "other",
                  metadata={"irleed": json.dumps(head)})  # fmt: skip
        assert "\n" not in refusal(tmp_path / "other")
    refusal(tmp_path / "missing")


def refusal(path) -> str:
    with pytest.raises(DataError) as caught:
        EnsemblePolicy.load(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)
