"""A policy acts by its table, survives its file, and is refused in one line where it does not fit."""

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from irleed.errors import DataError, SpaceError
from irleed.policies.base import TabularPolicy, boltzmann_probabilities

TABLE = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
POLICY = TabularPolicy(TABLE)


def test_deterministic_actions_are_the_likeliest():
    actions, nothing = POLICY.predict(np.array([[0, 1], [2, 0]]), deterministic=True)
    assert actions.tolist() == [[1, 0], [2, 1]] and nothing is None
    assert hash(POLICY.predict(2, deterministic=True)[0]) == 2, "tabular environments look actions up"


def test_sampled_actions_occur_as_often_as_the_table_says():
    """Within four standard errors; what has no probability never occurs."""
    actions, _ = POLICY.predict(np.repeat(np.arange(3), 10_000), seed=0)
    share = np.stack([np.bincount(own, minlength=3) for own in actions.reshape(3, -1)]) / 10_000
    assert np.all(np.abs(share - TABLE) <= 4 * np.sqrt(TABLE * (1 - TABLE) / 10_000))


def test_same_seed_same_actions():
    states = np.ones(50, int)
    one, same, other = (list(POLICY.predict(states, seed=seed)[0]) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("observation", "got"),
    [
        (3, "got 3"),
        (-1, "got -1"),
        (np.array([0, 7, 9]), "got 7"),
        (np.array(1.0), "float64"),
        (np.zeros((40, 9)), "float64"),
    ],
    ids=str,
)
def test_what_is_no_state_is_refused(observation, got):
    with pytest.raises(SpaceError) as caught:
        POLICY.predict(observation)
    message = str(caught.value)
    assert got in message and "expected states 0 to 2" in message and "\n" not in message


def test_what_is_saved_is_loaded(tmp_path):
    POLICY.save(tmp_path / "policy.safetensors")
    loaded = TabularPolicy.load(str(tmp_path / "policy.safetensors"))
    assert loaded.probabilities.dtype == np.float64
    np.testing.assert_array_equal(loaded.probabilities, TABLE)


def refusal(path) -> str:
    with pytest.raises(DataError) as caught:
        TabularPolicy.load(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message


def test_other_files_are_refused(tmp_path):
    refusal(tmp_path / "missing")
    for content in (b"", b"no policy", b"\xff" * 100):
        (tmp_path / "other").write_bytes(content)
        refusal(tmp_path / "other")
    POLICY.save(tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-8])
    refusal(tmp_path / "cut")


@pytest.mark.parametrize("metadata", [None, {"irleed": '{"format": "other"}'}, {"irleed": "[]"}, {"irleed": "{"}])
def test_tensors_of_others_are_refused(tmp_path, metadata):
    save_file({"probabilities": TABLE}, tmp_path / "theirs", metadata=metadata)
    assert "expected" in refusal(tmp_path / "theirs")


def boltzmann(q, sharpness: float) -> np.ndarray:
    return np.asarray(boltzmann_probabilities(jnp.asarray(q, jnp.float32), sharpness))


def test_sharpness_does_not_depend_on_the_scale_of_values():
    q = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(boltzmann(q, 2.0), boltzmann(100 * q + 7, 2.0), rtol=1e-3)
    np.testing.assert_allclose(boltzmann(q, 2.0).sum(-1), 1, rtol=1e-6)


def test_a_sharper_policy_prefers_the_best_more():
    q = np.random.default_rng(1).normal(size=(4, 3))
    blunt, sharp = (boltzmann(q, sharpness)[np.arange(4), q.argmax(-1)] for sharpness in (0.5, 5.0))
    assert np.all(1 / 3 < blunt) and np.all(blunt < sharp)


def test_equal_values_leave_all_actions_equally_likely():
    np.testing.assert_array_equal(boltzmann(np.full((2, 4), 3.0), 10.0), 0.25)
