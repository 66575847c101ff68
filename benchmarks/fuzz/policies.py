"""Hostile safetensors files of policies: headers that lie, shapes without data, numbers no policy has."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import links, values
from fuzz.case import Case

DTYPES = ("F8_E4M3", "F8_E5M2", "BF16", "F16", "F64", "I64", "BOOL", "U8", "F4", "X", "", 5, None, "C64", "F32 ")
CODES = {
    "f4": "F32",
    "f8": "F64",
    "f2": "F16",
    "i8": "I64",
    "i4": "I32",
    "u1": "U8",
    "b1": "BOOL",
    "i1": "I8",
    "u8": "U64",
    "i2": "I16",
}


def tabular() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a sound table."""
    return {"format": "irleed-tabular-policy", "version": "1"}, {"probabilities": np.full((4, 2), 0.5, np.float32)}


def network(
    members: int = 2, sizes: tuple[int, ...] = (8, 4), inputs: int = 3, gaussian: bool = False
) -> tuple[dict, dict]:
    """Header and arrays of a sound ensemble."""
    random, before = np.random.default_rng(0), inputs
    arrays: dict[str, Any] = {
        "centre": np.zeros((members, inputs), np.float32),
        "spread": np.ones((members, inputs), np.float32),
    }
    for layer, after in enumerate(sizes):
        arrays[f"weights.{layer}"] = random.normal(size=(members, before, after)).astype(np.float32)
        arrays[f"offsets.{layer}"] = np.zeros((members, after), np.float32)
        before = after
    if gaussian:
        ones = np.ones((members, sizes[-1] // 2 if sizes else 1), np.float32)
        arrays |= {"middle": 0 * ones, "half": ones}
    else:
        arrays["sharpness"] = np.ones(members, np.float32)
    form = "irleed-gaussian-policy" if gaussian else "irleed-network-policy"
    return {"format": form, "version": "1", "activation": "elu"}, arrays


def head(case: Case, target: dict[str, Any]) -> None:
    """The line of JSON is hostile."""
    key = case.pick(("format", "version", "activation", "extra"))
    target["head"][key] = case.pick(
        (
            "99",
            99,
            None,
            "",
            "tanh",
            "__import__('os')",
            [],
            {},
            "elu\0",
            values.name(case),
            True,
            "-1",
            "1.5",
            float("nan"),
        )
    )
    case.note(f"{key} = {ascii(target['head'][key])[:30]}")


def head_text(case: Case, target: dict[str, Any]) -> None:
    """The line of JSON is hardly JSON."""
    target["metadata"] = {"irleed": values.json_text(case, target["head"])}
    if case.chance(0.2):
        target["metadata"] = case.pick(
            ({}, {"irleed": 5}, {"irleed": None}, [], {"x": "y" * 10_000_000}, {"irleed": "{}"}, {"a": {"b": "c"}})
        )


def arrays(case: Case, target: dict[str, Any]) -> None:
    """Hostile arrays."""
    case.mutate(
        target["arrays"],
        (values.numbers, values.numbers, values.dtypes, values.shapes, values.missing, values.swapped),
        1,
    )


def zeros(case: Case, target: dict[str, Any]) -> None:
    """Spreads of zero, probabilities that do not sum to 1, and the like."""
    name = case.pick(list(target["arrays"]))
    value = case.pick((0, -1, 2, 1e-30, 1e30, np.inf, np.nan))
    case.note(f"{name} = {value}")
    target["arrays"][name] = np.full_like(target["arrays"][name], value)


def sizes(case: Case, target: dict[str, Any]) -> None:
    """A network of no members or no actions, of hundreds of layers, or very wide."""
    kind = case.pick(("members", "actions", "inputs", "layers", "many layers", "wide", "thousand members"))
    case.note(kind)
    gaussian = "middle" in target["arrays"]
    options: dict[str, dict[str, Any]] = {
        "members": {"members": 0}, "actions": {"sizes": (8, 0)}, "inputs": {"inputs": 0}, "layers": {"sizes": ()},
        "many layers": {"sizes": (2,) * case.pick((50, 300, 3000))}, "wide": {"sizes": (200_000, 4)},
        "thousand members": {"members": 20_000},
    }  # fmt: skip
    target["head"], target["arrays"] = network(**options[kind], gaussian=gaussian)


def lies(case: Case, target: dict[str, Any]) -> None:
    """The header claims other shapes, types or places than the data have."""
    said = target["said"]

    def change(entries: dict[str, Any]) -> None:
        entry = entries.get(case.pick(list(entries)) if entries else "")
        if not isinstance(entry, dict) or "shape" not in entry:
            return
        kind = case.pick(("shape", "dtype", "data_offsets"))
        entry[kind] = case.pick(
            {"shape": ([1 << 62], [1 << 31, 1 << 31], [-1], [0, 1 << 40], [], [1] * 40, "3", [1.5], [1 << 64], [None],
            [1 << 63, 2]),
             "dtype": DTYPES, "data_offsets": ([0, 1 << 40], [0, 0], [-8, 0], [8, 0], [0], [0, 8], [1 << 63, 1 << 63],
             "x", [0.5, 8])}[kind]
        )  # fmt: skip
        case.note(f"{kind} = {entry[kind]}")

    said.append(change)


def names(case: Case, target: dict[str, Any]) -> None:
    """A tensor has a hostile name."""
    name = values.name(case).encode("utf-8", "replace").decode()
    kept = case.pick(list(target["arrays"]) or ["x"])
    if case.chance(0.5) and kept in target["arrays"]:
        target["arrays"][name] = target["arrays"].pop(kept)
    else:
        target["arrays"][name] = np.zeros(2, np.float32)


def texts(case: Case, target: dict[str, Any]) -> None:
    """The text of the header is deep, doubled, too long or not there."""
    kind = case.pick(("deep", "doubled", "length", "more", "spaces", "nothing", "list"))
    case.note(kind)
    target["text"] = {
        "deep": lambda text: b'{"a":' * 100_000 + text + b"}" * 100_000,
        "doubled": lambda text: text[:-1] + b"," + text[1:],
        "length": lambda text: text, "more": lambda text: text, "spaces": lambda text: text + b" " * 50_000_000,
        "nothing": lambda text: b"", "list": lambda text: b"[" + text + b"]",
    }[kind]  # fmt: skip
    if kind == "length":
        target["length"] = case.pick((0, 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, 100_000_000))
    if kind == "more":
        target["tail"] = bytes(case.pick((1, 8, 10_000_000)))


MUTATIONS = (head, head_text, arrays, arrays, zeros, zeros, sizes, sizes, lies, lies, names, texts)


def write(target: dict[str, Any], path: Path) -> None:
    """A safetensors file of whatever the target says."""
    entries, body, at = {}, [], 0
    for name, array in target["arrays"].items():
        array = np.asarray(array)
        code = CODES.get(array.dtype.newbyteorder("=").str[1:], "F32")
        data = array.tobytes()
        entries[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    for change in target["said"]:
        change(entries)
    whole = {"__metadata__": target.get("metadata", {"irleed": json.dumps(target["head"])}), **entries}
    text = target.get("text", bytes)(json.dumps(whole).encode("utf-8", "surrogatepass"))
    length = target.get("length", len(text))
    path.write_bytes(struct.pack("<Q", length) + text + b"".join(body) + target.get("tail", b""))


def made(case: Case, path: Path) -> None:
    """Write a hostile policy."""
    kind = case.pick(("table", "network", "network", "gaussian"))
    header, held = tabular() if kind == "table" else network(gaussian=kind == "gaussian", sizes=(8, 4))
    target: dict[str, Any] = {"head": header, "arrays": held, "said": []}
    case.mutate(target, MUTATIONS)
    write(target, path)


def policy(case: Case) -> Path:
    """A hostile policy, on its own."""
    path = case.home / "policy.safetensors"
    made(case, path)
    if case.chance(0.05):
        links.alone(case, path)
    return path


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
