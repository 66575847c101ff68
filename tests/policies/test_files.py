"""Files of policies and critics that nobody should trust are refused in one line, before they are used for anything."""

import json
import os
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from irleed import load_policy
from irleed.errors import DataError
from irleed.simulation.critics import SHIPPED, load_critic, load_teacher

TABLE, NETWORK, GAUSSIAN, MIXED = (f"irleed-{kind}-policy" for kind in ("tabular", "network", "gaussian", "mixed"))
NAN, INF = np.float32(np.nan), np.float32(np.inf)


def filled(*shape: int) -> np.ndarray:
    return np.full(shape, 0.5, np.float32)


def layers(members: int = 2, sizes: tuple[int, ...] = (3, 4, 2)) -> dict[str, np.ndarray]:
    found = {"centre": filled(members, sizes[0]), "spread": filled(members, sizes[0])}
    for n, (before, after) in enumerate(zip(sizes, sizes[1:], strict=False)):
        found |= {f"weights.{n}": filled(members, before, after), f"offsets.{n}": filled(members, after)}
    return found


def choice(count: float, free: float) -> dict[str, np.ndarray]:
    """The bounds of one entry with so many of two values."""
    value = np.tile(np.array([[0.0, 1.0]], np.float32), (2, 1, 1))
    told = {"count": np.full((2, 1), count, np.float32), "free": np.full((2, 1), free, np.float32)}
    return {"least": 0 * filled(2, 1), "most": filled(2, 1), "values": value, **told}


def tensors(form: str) -> dict[str, np.ndarray]:
    """A sound policy of a kind."""
    if form == TABLE:
        return {"probabilities": np.full((3, 2), 0.5)}
    if form == MIXED:  # one entry with two values
        return layers() | choice(2, 0)
    more = {"sharpness": filled(2)} if form == NETWORK else {"middle": filled(2, 1), "half": filled(2, 1)}
    return layers() | more


def write(path, form: str, changes: dict[str, np.ndarray | None] | None = None, **header: object):
    arrays = {name: array for name, array in (tensors(form) | (changes or {})).items() if array is not None}
    told = {"format": form, "version": "1", "activation": "relu"} | header
    save_file(arrays, path, metadata={"irleed": json.dumps(told)})
    return path


def refusal(path, load=load_policy) -> str:
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value).isprintable() and str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", [TABLE, NETWORK, GAUSSIAN, MIXED])
def test_what_the_tests_below_change_is_sound(tmp_path, form):
    load_policy(write(tmp_path / "sound", form))


@pytest.mark.parametrize(
    ("form", "changes", "phrase"),
    [
        (TABLE, {"probabilities": np.full((3, 2), 0.4)}, "state 0 from 0.4 on that sum to 0.8"),
        (TABLE, {"probabilities": np.array([[0.5, 0.5], [1.5, -0.5]])}, "state 1 from -0.5 on"),
        (TABLE, {"probabilities": np.array([[0.5, np.nan]])}, "state 0"),
        (TABLE, {"probabilities": np.array([[np.inf, 0.5]])}, "state 0"),
        (TABLE, {"probabilities": np.full(2, 0.5)}, "(2,)"),
        (TABLE, {"probabilities": np.zeros((0, 2))}, "shape [0, 2]"),
        (TABLE, {"probabilities": np.zeros((3, 0))}, "shape [3, 0]"),
        (TABLE, {"probabilities": np.full((3, 2), 1)}, "type I64"),
        (TABLE, {"\x1b[31mmore": np.zeros(1)}, "\\x1b[31mmore"),
        (NETWORK, {"spread": np.zeros((2, 3), np.float32)}, "spread 0"),
        (NETWORK, {"spread": -filled(2, 3)}, "spread -0.5"),
        (NETWORK, {"spread": np.full((2, 3), INF)}, "spread with NaN or infinity"),
        (NETWORK, {"spread": np.full((2, 3), 1e-45, np.float32)}, "spread 1.4"),
        (NETWORK, {"sharpness": np.zeros(2, np.float32)}, "sharpness 0"),
        (NETWORK, {"sharpness": -filled(2)}, "sharpness -0.5"),
        (NETWORK, {"weights.0": np.full((2, 3, 4), NAN)}, "weights.0 with NaN or infinity"),
        (NETWORK, {"weights.0": np.full((2, 3, 4), INF)}, "weights.0 with NaN or infinity"),
        (NETWORK, {"weights.1": np.zeros((2, 4, 2), np.float32)}, "weights.1 of zeros alone"),
        (NETWORK, layers(0) | {"sharpness": filled(0)}, "shape [0"),
        (NETWORK, layers(2, (3, 0, 2)), "0]"),
        (NETWORK, layers(2, (3, 4, 0)), "0]"),
        (NETWORK, layers(2, (3,) + 300 * (2,)), "300 layers"),
        (NETWORK, {"offsets.1": None}, "no tensor offsets.1"),
        (NETWORK, {"weights.1": filled(2, 5, 2)}, "weights.1 has the shape (2, 5, 2)"),
        (NETWORK, {"sharpness": filled(3)}, "sharpness has the shape (3,)"),
        (NETWORK, {"sharpness": np.array(0.5, np.float32)}, "sharpness has the shape ()"),
        (NETWORK, {"weights.one": filled(2, 2, 2)}, "no tensor weights.2"),
        (NETWORK, {"offsets.0": np.full((2, 4), 0.5)}, "offsets.0 of type float64"),
        (GAUSSIAN, {"half": np.zeros((2, 1), np.float32)}, "half 0"),
        (GAUSSIAN, {"half": -filled(2, 1)}, "half -0.5"),
        (GAUSSIAN, {"half": filled(2, 2)}, "bounds of 1 numbers"),
        (GAUSSIAN, {"middle": np.array([[0], [1]], np.float32)}, "bounds that differ between the members"),
        (
            GAUSSIAN,
            {"middle": np.full((2, 1), 3e38, np.float32), "half": np.full((2, 1), 3e38, np.float32)},
            "bounds that are not finite",
        ),
        (GAUSSIAN, layers(2, (3, 4, 3)), "layers with 3 outputs"),
        (MIXED, choice(3, 0), "neither choices nor numbers"),
        (MIXED, choice(0, 0), "neither choices nor numbers"),
        (MIXED, choice(1, 0.5), "neither choices nor numbers"),
        (MIXED, choice(1, 0), "layers with 2 outputs"),
        (MIXED, {"most": 0 * filled(2, 1)}, "whose lowest number is not the lowest"),
        (MIXED, {"most": np.full((2, 1), INF)}, "most with NaN or infinity"),
        (MIXED, {"values": filled(2, 2, 2)}, "beside those of others"),
        (MIXED, {"values": np.arange(4, dtype=np.float32).reshape(2, 1, 2)}, "bounds that differ"),
    ],
    ids=str,
)
def test_numbers_that_make_no_policy(tmp_path, form, changes, phrase):
    assert phrase in refusal(write(tmp_path / "broken", form, changes))


@pytest.mark.parametrize("header", [{"version": "99"}, {"version": 1.5}, {"version": None}, {"format": ["a"]}], ids=str)
@pytest.mark.parametrize("form", [TABLE, NETWORK, GAUSSIAN, MIXED])
def test_other_versions_and_formats(tmp_path, form, header):
    assert next(iter(header)) in refusal(write(tmp_path / "other", form, **header))


def test_unknown_activations(tmp_path):
    assert "activation ['relu']" in refusal(write(tmp_path / "other", NETWORK, activation=["relu"]))


def raw(path, header: bytes | dict, data: bytes = b"", length: int | None = None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


META = {"__metadata__": {"irleed": json.dumps({"format": TABLE, "version": "1"})}}


def entry(shape, dtype: object = "F64", place=(0, 16)) -> dict:
    return META | {"probabilities": {"dtype": dtype, "shape": shape, "data_offsets": list(place)}}


@pytest.mark.parametrize(
    ("header", "phrase"),
    [
        (entry([1, 2], "F8_E4M3"), "type F8_E4M3"),
        (entry([1, 2], "\x1b[31m"), "type \\x1b[31m"),
        (entry([1, 2], ["F64"]), "type ['F64']"),
        (entry([1 << 62, 2]), "shape [4611686018427387904, 2]"),
        (entry([1 << 62, 4]), "shape"),
        (entry([-1, -2]), "shape [-1, -2]"),
        (entry([1.0, 2]), "shape [1.0, 2]"),
        (entry([True, 2]), "shape [True, 2]"),
        (entry([1] * 1000), "shape [1, 1"),
        (entry("12"), "shape 12"),
        (entry([1, 2], place=(0, 15)), "bytes [0, 15]"),
        (entry([1, 2], place=(8, 24)), "gaps"),
        (entry([1, 2], place=(-16, 0)), "bytes [-16, 0]"),
        (entry([1, 2], place=(0, 1, 2)), "bytes [0, 1, 2]"),
        (entry([1, 2]) | {"other": entry([1, 2])["probabilities"]}, "overlap"),
        (entry([2, 2], place=(0, 32)), "and a header that says"),
        (META | {"probabilities": {"dtype": "F64"}}, "without dtype, shape and data_offsets"),
        (META | {"probabilities": 3}, "without dtype, shape and data_offsets"),
        (entry([1, 2]) | {"__metadata__": 3}, "__metadata__"),
        (entry([1, 2]) | {"__metadata__": {"irleed": 3}}, "__metadata__"),
        (entry([1, 2]) | {"__metadata__": {"irleed": "[" * 100_000}}, "recursion"),
        (b'{"a":' + b"[" * 500_000, "recursion"),
        (b'{"__metadata__":{},"__metadata__":{}}', "comes twice"),
        (b'{"a":{"dtype":"F64","dtype":"F32"}}', "comes twice"),
        (b'{"a":NaN}', "number NaN"),
        (b'{"a":' + b"9" * 5000 + b"}", "digits"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe{}", "decode"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_headers_that_lie(tmp_path, header, phrase):
    for load in (load_policy, load_critic):
        assert phrase in refusal(raw(tmp_path / "lies", header, np.full(2, 0.5).tobytes()), load)


def test_headers_that_are_longer_than_the_file_or_than_any_policy_needs(tmp_path):
    for length in (0, 1, 1 << 40, (1 << 64) - 1):
        assert "half of one" in refusal(raw(tmp_path / "long", b"{}", length=length))
    assert "half of one" in refusal(raw(tmp_path / "spaces", b"{}" + b" " * (1 << 21)))


def test_pipes_and_folders_are_not_read(tmp_path):
    """Reading a pipe that nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    for load in (load_policy, load_critic):
        assert "a folder, device or pipe" in refusal(tmp_path / "pipe", load)
        assert "a folder, device or pipe" in refusal(tmp_path, load)


@pytest.mark.parametrize("form", [NETWORK, GAUSSIAN])
def test_outputs_that_overflow_are_no_actions(tmp_path, form):
    """Every number of the file is finite; the products are not, and the first action would be taken silently."""
    large = {name: np.full_like(array, 3e38) for name, array in layers().items() if name.startswith("weights")}
    policy = load_policy(write(tmp_path / "large", form, large))
    with pytest.raises(DataError, match="the policy's outputs: got NaN or infinity"):
        policy.predict(np.ones(3), deterministic=True)


def critic(path, changes: dict[str, np.ndarray | None], **header: str):
    own = {name: array[0] for name, array in layers(1).items()} | changes
    told = {"format": "irleed-critic", "version": "1"} | header
    arrays = {name: array for name, array in own.items() if array is not None}
    save_file(arrays, path, metadata={"irleed": json.dumps(told)})
    return path


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"spread": np.zeros(3, np.float32)}, "spread 0"),
        ({"spread": None}, "no tensor spread"),
        ({"weights.0": np.full((3, 4), NAN)}, "weights.0 with NaN or infinity"),
        ({"weights.1": np.zeros((4, 2), np.float32)}, "weights.1 of zeros alone"),
        ({"weights.1": filled(5, 2)}, "weights.1 has the shape (5, 2)"),
        ({"offsets.1": None}, "no tensor offsets.1"),
        ({"weights.0": filled(3)}, "weights.0 has the shape (3,)"),
        ({f"weights.{n}": filled(4, 4) for n in range(300)}, "300 layers"),
        ({"more": filled(1)}, "unknown tensor more"),
        (dict.fromkeys(layers()), "0 layers"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_critics_that_are_none(tmp_path, changes, phrase):
    assert phrase in refusal(critic(tmp_path / "critic", {"weights.0": filled(3, 4), **changes}), load_critic)


def test_critics_of_other_versions(tmp_path):
    load_critic(critic(tmp_path / "sound", {}))
    assert "version 99" in refusal(critic(tmp_path / "newer", {}, version="99"), load_critic)
    assert "format irleed-tabular-policy" in refusal(critic(tmp_path / "other", {}, format=TABLE), load_critic)


def test_what_comes_with_the_package_is_read():
    for name in SHIPPED["critics"]:
        assert len(load_critic(name).weights) == 3
    for name in SHIPPED["policies"]:
        assert load_teacher(name).size == 1
