"""Pickles of trajectories are read as data; nothing in them is run, and whatever else they hold is one line."""

import builtins
import collections
import copyreg
import functools
import os
import pickle
import random
import subprocess

import numpy as np
import numpy.f2py
import pytest

from irleed._io import arrays as _arrays
from irleed.data import Demonstrations
from irleed.data.formats import ReadOptions
from irleed.data.formats.iq_learn import FORMAT
from irleed.errors import DataError


def trajectories(lengths=(3, 2), shape=(2,), kind="f4", **changes) -> dict:
    """What IQ-Learn collects: lists of lists of arrays."""
    rng = np.random.default_rng(0)
    obs = [(100 * rng.random((n + 1, *shape))).astype(kind) for n in lengths]
    return {
        "states": [list(o[:-1]) for o in obs],
        "next_states": [list(o[1:]) for o in obs],
        "actions": [list(rng.integers(0, 4, n)) for n in lengths],
        "rewards": [[float(t) for t in range(n)] for n in lengths],
        "dones": [[False] * (n - 1) + [i == 0] for i, n in enumerate(lengths)],
        "lengths": list(lengths),
    } | changes


def stored(path, data, protocol=4):
    path.write_bytes(pickle.dumps(data, protocol))
    return path


def read(path, **reading) -> Demonstrations:
    return FORMAT.read(path, ReadOptions(**reading))


def agrees(found: Demonstrations, data: dict, names=("expert",)) -> None:
    obs = [np.array([*s, n[-1]]) for s, n in zip(data["states"], data["next_states"], strict=True)]
    np.testing.assert_array_equal(found.obs, np.concatenate(obs))
    assert found.obs.dtype == np.asarray(data["states"][0]).dtype
    np.testing.assert_array_equal(found.action, np.concatenate(data["actions"]))
    np.testing.assert_array_equal(found.reward, np.concatenate(data["rewards"]))
    np.testing.assert_array_equal(found.terminated, [False, False, True, False, False])
    np.testing.assert_array_equal(found.truncated, [False, False, False, False, True])
    assert found.names == names


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("shape, kind", [((2,), "f4"), ((), "i8"), ((4, 3, 3), "u1"), ((2,), ">f8")])
def test_pickles_of_all_protocols(tmp_path, protocol, shape, kind):
    path = stored(tmp_path / "expert.pkl", trajectories(shape=shape, kind=kind), protocol)
    assert FORMAT.recognises(path)
    agrees(read(path), trajectories(shape=shape, kind=kind.replace(">", "")))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_the_program_collects(tmp_path, protocol):
    """Its `expert_generation` appends tuples to the lists of a `defaultdict`."""
    data = collections.defaultdict(list)
    for key, values in trajectories(kind="f8").items():
        data[key].extend(values if key == "lengths" else map(tuple, values))
    agrees(read(stored(tmp_path / "expert.pkl", data, protocol)), trajectories(kind="f8"))


def test_rows_of_a_replay_memory_are_refused(tmp_path, refusal):
    rows = np.empty((4, 5), object)
    rows[:] = 0.5
    np.save(tmp_path / "expert.npy", rows, allow_pickle=True)
    assert "got an array, expected a dict of lists" in refusal(tmp_path / "expert.npy")


def ragged(values) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "form", [np.array, np.asfortranarray, np.ndarray.tolist, tuple, functools.partial(np.array, dtype=object)]
)
def test_trajectories_in_other_containers(tmp_path, protocol, form):
    data = trajectories(kind="f8", shape=(2,))
    other = {k: ragged([form(np.array(v)) for v in data[k]]) for k in ("states", "next_states", "actions", "dones")}
    agrees(read(stored(tmp_path / "expert.pkl", data | other, protocol)), data)


def test_a_numpy_file_of_an_object(tmp_path):
    np.save(tmp_path / "expert.npy", trajectories(), allow_pickle=True)
    assert FORMAT.recognises(tmp_path / "expert.npy")
    agrees(read(tmp_path / "expert.npy"), trajectories())


def test_other_files_are_not_recognised(tmp_path):
    np.save(tmp_path / "numbers.npy", np.arange(3))
    (tmp_path / "text.pkl").write_text("states")
    stored(tmp_path / "old.pkl", trajectories(), 0)
    for name in ("numbers.npy", "text.pkl", "old.pkl", "none.pkl", "."):
        assert not FORMAT.recognises(tmp_path / name)


def test_demonstrators(tmp_path, refusal):
    who = {"who": ["Zoë", "Ann"], "number": np.array([7, 8]), "text": np.array(["p", "q"]), "odd": [1], "bad": [[], []]}
    who["long"] = [10**5000, 1]  # more digits than Python converts to text
    path = stored(tmp_path / "expert.pkl", trajectories() | who)
    assert read(path).names == read(path, demonstrator="episode").names == ("expert",)
    assert read(path, demonstrator="who").names == ("Zoë", "Ann")
    assert read(path, demonstrator="number").names == ("7", "8")
    assert read(path, demonstrator="text").names == ("p", "q")
    assert "no 'pilot'" in refusal(path, demonstrator="pilot")
    assert "'states'" in refusal(path, demonstrator="pilot")
    assert "1 values" in refusal(path, demonstrator="odd")
    assert "other kinds" in refusal(path, demonstrator="bad")
    assert "other kinds" in refusal(path, demonstrator="long")
    assert "no others" in refusal(path, obs=("images",))


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda d: d.pop("next_states"), "no next_states among 'states', 'actions'"),
        (lambda d: d["actions"].pop(), "actions 1"),
        (lambda d: d["lengths"].__setitem__(1, 3), "trajectory 1, lengths: got 3"),
        (lambda d: d["lengths"].__setitem__(1, [1, 2]), "trajectory 1, lengths"),
        (lambda d: d["states"][0][2].__iadd__(1), "trajectory 0, step 1"),
        (lambda d: d["dones"][0].__setitem__(1, True), "trajectory 0, step 1: got done"),
        (lambda d: d["dones"][0].__setitem__(2, 3), "trajectory 0, step 2: got done 3"),
        (lambda d: d["actions"][0].pop(), "actions (2,)"),
        (lambda d: d["states"].__setitem__(0, 1.0), "states ()"),
        (lambda d: d["states"][0].__setitem__(1, np.zeros(3)), "different shapes"),
        (lambda d: d["rewards"][0].__setitem__(1, np.nan), "finite"),
        (lambda d: d["rewards"][0].pop(), "reward"),
        (lambda d: d["states"].__setitem__(0, {"image": 1}), "trajectory 0, states"),
        (lambda d: d["actions"].__setitem__(1, ["left", "up"]), "trajectory 1, actions"),
        (lambda d: d["actions"].__setitem__(1, [10**400, 0.5]), "trajectory 1, actions"),
        (lambda d: d.__setitem__("actions", None), "actions 0"),
        (lambda d: d.__setitem__(3, None), "a dict"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, says, refusal):
    data = pickle.loads(pickle.dumps(trajectories()))
    change(data)
    assert says in refusal(stored(tmp_path / "expert.pkl", data))


class Calls:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call

    def __call__(self):
        """Callable, so that what it stands for can be called."""


def hostile(canary) -> dict:
    touch = f"open({str(canary)!r}, 'w').close()"
    return {
        "system": Calls(os.system, f"touch {canary}"),
        "eval": Calls(builtins.eval, touch),
        "exec": Calls(builtins.exec, touch),
        "import": Calls(builtins.__import__, "this"),
        "getattr": Calls(Calls(builtins.getattr, Calls(builtins.__import__, "os"), "system"), f"touch {canary}"),
        "load": Calls(np.load, str(canary)),
        "f2py": Calls(np.f2py.run_main, [str(canary)]),
        "tofile": Calls(np.savetxt, str(canary), [1]),
        "partial": Calls(functools.partial, os.system, f"touch {canary}"),
        "copyreg": Calls(copyreg._reconstructor, object, object, None),
        "popen": Calls(subprocess.Popen, ["touch", str(canary)]),
        "open": Calls(builtins.open, str(canary), "w"),
        "bytearray": Calls(builtins.bytearray, 10**12),
    }


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", sorted(hostile("x")))
def test_nothing_is_run(tmp_path, name, protocol, refusal):
    canary = tmp_path / "canary"
    evil = hostile(canary)[name]
    for place in (evil, trajectories(states=[evil]), trajectories(extra=ragged([evil, 1]))):
        assert "a pickle that uses" in refusal(stored(tmp_path / "expert.pkl", place, protocol))
    np.save(tmp_path / "expert.npy", ragged([evil]), allow_pickle=True)
    assert "a pickle that uses" in refusal(tmp_path / "expert.npy")
    assert not canary.exists()


def test_the_hostile_pickle_would_have_run(tmp_path):
    pickle.loads(pickle.dumps(hostile(tmp_path / "canary")["system"]))
    assert (tmp_path / "canary").exists()


GLOBAL = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R"


@pytest.mark.parametrize(
    "code",
    [
        b"})" + b"\x85" * 10**6 + b"K\x01s.",  # a key of tuples in tuples: hashing it overflows the stack
        b"})" + b"K\0\x86" * 10**5 + b"K\x01s.",
        b"]" * 10**5 + b"a" * (10**5 - 1) + b".",
        b"Nr\xff\xff\xff\xff.",  # the memo's last place: tens of gigabytes
        b"\x8e" + b"\xff" * 7 + b"\x7f.",  # bytes that are not there
        b"\x96" + b"\xff" * 7 + b"\x7f.",
        GLOBAL + b"(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86cnumpy\ndtype\nX\x02\0\0\0f8\x85R\x89C\x00tb.",
        GLOBAL + b"(K\x01J\xff\xff\xff\x7f\x85cnumpy\ndtype\nX\x02\0\0\0O8\x85R\x89]tb.",
        GLOBAL + b"(K\x01J\xff\xff\xff\xffJ\xff\xff\xff\xff\x86cnumpy\ndtype\nX\x02\0\0\0f8\x85R\x89C\x08aaaaaaaatb.",
        b"cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        b"cnumpy\ndtype\nX\x02\0\0\0V9\x85R.",
        b"cnumpy\ndtype\nN}X\x0c\0\0\0__defaults__Ns\x86b.",  # changes a function
        b"cnumpy\ndtype\n}X\x09\0\0\0_functionNsb.",
        b"c_codecs\nencode\nX\x01\0\0\0aX\x03\0\0\0zip\x86R.",
        b"cbuiltins\nlist\n(K\x01\x85tR.",  # a list of something
        b"ccollections\ndefaultdict\ncbuiltins\nlist\n\x85RN}X\x0f\0\0\0default_factoryNs\x86b.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\n__builtins__\n.",
        b"\x8c\x05numpy\x8c\x0bdtype.__new\x93.",
        b"\x82\x01.",
        b"Pperson\n.",
        b"(ios\nsystem\n.",
        b"}.}.",
        b"0.",
        b"h\x05.",
        b"",
    ],
)
def test_instructions_that_are_no_data(tmp_path, code, refusal):
    (tmp_path / "expert.pkl").write_bytes(b"\x80\x04" + code)
    refusal(tmp_path / "expert.pkl")


def test_shared_parts_do_not_multiply(tmp_path, refusal):
    loop: list = []
    loop.append(loop)
    assert "too deeply" in refusal(stored(tmp_path / "expert.pkl", trajectories(states=loop)))


def shared(times: int) -> list:
    part: list = [0.0] * 10
    for _ in range(times):
        part = [part] * 10
    return part


BLOCK = bytes(100_000)
DTYPE = b"cnumpy\ndtype\nX\x02\0\0\0u1\x85R"


def bomb(kind: str) -> bytes:
    """A small pickle of a dict of large things."""
    data = BLOCK + b"\0" if kind == "text" else BLOCK
    start = b"\x80\x04}X\x01\0\0\0s]("
    frombuffer = b"cnumpy.core.numeric\n_frombuffer\n(h\x01h\x02J\xa0\x86\x01\0\x85X\x01\0\0\0CtR"
    store = b"B" + len(data).to_bytes(4, "little") + data + b"q\x01" + DTYPE + b"q\x02"
    if kind == "buffers":  # the same bytes as many arrays
        return start + store + 1000 * frombuffer + b"es."
    if kind == "copies":  # the same from bytes that can be changed, which have to be copied
        store = b"\x96" + len(data).to_bytes(8, "little") + data + b"q\x01" + DTYPE + b"q\x02"
        return start + store + 1000 * frombuffer + b"es."
    if kind == "texts":  # bytes of texts, over and over
        call = b"c_codecs\nencode\n(h\x01X\x06\0\0\0latin1tR"
        return start + b"X" + len(data).to_bytes(4, "little") + data + b"q\x01" + 1000 * call + b"es."
    return pickle.dumps(
        {
            "keys": {str(i): shared(3) for i in range(50)},  # a limit for each key would be none
            "lists": {"s": [[] for _ in range(20_000)]},
            "one long text": {"s": ["x" * 10_000, *range(100)]},
        }[kind],
        4,
    )


@pytest.mark.parametrize("kind", ["buffers", "copies", "texts", "keys", "lists", "one long text"])
def test_all_that_a_pickle_makes_counts_against_one_limit(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(_arrays, "ALWAYS", 1_000_000)
    (tmp_path / "expert.pkl").write_bytes(bomb(kind))
    with pytest.raises(DataError, match=r"bytes in memory from .*--expansion"):
        read(tmp_path / "expert.pkl", expansion=1.0)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_spoilt_files_are_refused_or_read(tmp_path, protocol):
    sound, path, chance = pickle.dumps(trajectories(), protocol), tmp_path / "expert.pkl", random.Random(protocol)
    refused = 0
    for _ in range(200):
        spoilt = bytearray(sound)
        spoilt[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        cut = sound[: chance.randrange(len(sound))]
        for content in (bytes(spoilt), cut):
            path.write_bytes(content)
            try:
                assert isinstance(read(path), Demonstrations)
            except DataError as error:
                assert len(str(error).splitlines()) == 1
                refused += 1
            else:
                assert content is not cut
    assert refused >= 200


def test_files_that_cannot_be_read(tmp_path, refusal):
    refusal(tmp_path / "none.pkl")
    (tmp_path / "half.npy").write_bytes(b"\x93NUMPY")
    refusal(tmp_path / "half.npy")
