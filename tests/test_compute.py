"""Runs in groups on the cores: nothing is lost, nothing is mixed up, and errors are told."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irleed import _compute as cores
from irleed._compute import TOGETHER, Groups, each_run, one_by_one


@pytest.mark.parametrize(("limit", "dropped"), [(1_000_000, False), (10, True), (None, False)])
def test_compiled_programs_are_dropped_before_their_maps_reach_the_limit(limit, dropped, tmp_path, monkeypatch):
    maps, most = tmp_path / "maps", tmp_path / "most"
    maps.write_text(8 * "7f00-7f01 r-xp\n")
    if limit is not None:  # else a system without this limit
        most.write_text(f"{limit}\n")
    monkeypatch.setattr(cores, "MAPS", maps)
    monkeypatch.setattr(cores, "MOST_MAPS", most)
    traced = []
    program = jax.jit(lambda value: traced.append(0) or value + 1)
    program(1.0)
    cores.drop_programs()
    program(2.0)
    assert len(traced) == (2 if dropped else 1)


def some(runs: int):
    return {"keys": jax.random.split(jax.random.key(0), runs), "values": np.arange(2.0 * runs).reshape(runs, 2)}


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 6, 7, 30, 31])
def test_what_is_split_is_joined_again(runs):
    groups, given = Groups(runs), some(runs)
    parts = groups.split(given)
    assert len({len(part["values"]) for part in parts}) == 1  # one size, so one program
    assert all(len(part["values"]) <= TOGETHER for part in parts)
    assert runs == 1 or len(parts) > 1
    joined = groups.join(parts)
    np.testing.assert_array_equal(joined["values"], given["values"])
    np.testing.assert_array_equal(jax.random.key_data(joined["keys"]), jax.random.key_data(given["keys"]))


def test_every_run_gets_its_own_answer():
    runs, groups = 11, Groups(11)
    given = some(runs)
    double = jax.jit(jax.vmap(lambda own: {"drawn": jax.random.normal(own["keys"]), "sum": jnp.sum(own["values"])}))
    found = groups.join(groups.map(double, groups.split(given)))
    np.testing.assert_array_equal(found["sum"], given["values"].sum(1))
    np.testing.assert_allclose(found["drawn"], jax.vmap(jax.random.normal)(given["keys"]), rtol=1e-6)


@pytest.mark.parametrize("size", [cores.LARGE - 1, cores.LARGE])
def test_runs_with_large_networks_go_one_after_the_other(size):
    """In a loop, each with what is its own, nothing of it mixed up."""
    parameters = jax.ShapeDtypeStruct((size,), jnp.float32)

    def learn(own, common):
        return {"drawn": jax.random.normal(own["keys"]), "sum": jnp.sum(own["values"]) + common}

    given = some(5), jnp.asarray(1.0)
    every = jax.vmap(one_by_one(learn, parameters), (0, None))
    assert ("scan" in str(jax.make_jaxpr(every)(*given))) == (size >= cores.LARGE)
    found = jax.jit(every)(*given)
    np.testing.assert_array_equal(found["sum"], given[0]["values"].sum(1) + 1)
    np.testing.assert_allclose(found["drawn"], jax.vmap(jax.random.normal)(given[0]["keys"]), rtol=1e-6)


@pytest.mark.parametrize("runs", [1, 3])
def test_a_single_run_has_no_axis_inside_and_one_outside(runs):
    given, shapes = some(runs), []

    def one(own):
        shapes.append(own["values"].shape)
        return own["keys"], {"sum": jnp.sum(own["values"])}

    keys, found = each_run(one)(given)
    assert shapes == [(2,)]
    np.testing.assert_array_equal(found["sum"], given["values"].sum(1))
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(given["keys"]))


def test_an_accelerator_takes_all_at_once(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    given = some(30)
    groups = Groups(30)
    (part,) = groups.split(given)
    assert isinstance(part["values"], jax.Array), "brought there once, not by every program that looks at it"
    np.testing.assert_array_equal(part["values"], given["values"])
    assert groups.join([part]) is part
    assert groups.map(lambda own: own["values"].sum(), [part]) == [given["values"].sum()]


def test_groups_run_beside_each_other(monkeypatch):
    """Two that wait for each other would never end one after the other."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    meeting, groups = threading.Barrier(2, timeout=30), Groups(2)
    assert groups.map(lambda own: (meeting.wait(), own)[1], [1, 2]) == [1, 2]


def test_an_error_is_told_and_the_rest_is_not_begun(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    begun = []

    def fails(own):
        begun.append(own)
        time.sleep(0.2)  # by then, whoever waits for it is about to hear of it
        raise ValueError(f"group {own}")

    with pytest.raises(ValueError, match="group 0"):
        Groups(100).map(fails, list(range(40)))
    assert len(begun) < 5
