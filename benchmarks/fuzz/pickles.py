"""Hostile pickles: programs that run code, grow without bound, or rebuild arrays from lies."""

import io
import os
import pickle
import pickletools
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import values, zips
from fuzz.case import SECRET, Case

CALLS = (
    ("os", "system", ("id",)), ("posix", "system", ("id",)), ("subprocess", "Popen", (["id"],)),
    ("builtins", "eval", ("__import__('os').system('id')",)), ("builtins", "exec", ("import os; os.system('id')",)),
    ("builtins", "open", ("/etc/passwd",)), ("pty", "spawn", ("/bin/sh",)), ("webbrowser", "open",
     ("http://127.0.0.1:9",)),
    ("builtins", "__import__", ("antigravity",)), ("importlib", "import_module", ("this",)), ("runpy", "run_path",
     ("/x",)),
    ("numpy", "load", ("/etc/passwd",)), ("numpy.testing._private.utils", "runstring", ("1", {})),
    ("shutil", "rmtree", ("/nothing",)), ("socket", "create_connection", (("127.0.0.1", 9),)), ("time", "sleep", (60,)),
    ("operator", "attrgetter", ("system",)), ("functools", "partial", (print,)), ("timeit", "timeit", ("import os",)),
    ("numpy", "fromfile", ("/etc/passwd",)), ("numpy", "memmap", ("/etc/passwd",)), ("numpy", "zeros", (1 << 33,)),
    ("builtins", "bytearray", (1 << 33,)), ("builtins", "list", (range(1 << 33),)), ("builtins", "getattr", (1,
     "real")),
    ("pathlib", "Path", ("/etc/passwd",)), ("torch", "load", ("/etc/passwd",)), ("_codecs", "decode", (b"x", "hex")),
    ("collections", "Counter", ("aaa",)), ("numpy.core.multiarray", "scalar", (1,)), ("numpy", "ndarray", ((1 << 33,),
     )),
    ("numpy._core.multiarray", "_reconstruct", (1, 2, 3)), ("numpy", "dtype", ("O",)), ("numpy", "dtype", ("(999,)f8",
     )),
    ("_codecs", "encode", ("x" * 1000, "zip")), ("collections", "defaultdict", (1,)), ("builtins", "list", ()),
)  # fmt: skip


def columns() -> dict[str, Any]:
    """What IQ-Learn stores: lists of trajectories."""
    parts = values.sample()
    return {
        "states": [list(part["obs"][:-1]) for part in parts],
        "next_states": [list(part["obs"][1:]) for part in parts],
        "actions": [part["action"] for part in parts],
        "rewards": [part["reward"] for part in parts],
        "dones": [[False] * (len(part["action"]) - 1) + [True] for part in parts],
        "lengths": [len(part["action"]) for part in parts],
    }


class Call:
    """Pickled, it is a call of any name."""

    def __init__(self, module: str, name: str, arguments: tuple[Any, ...], state: Any = None):
        self.module, self.name, self.arguments, self.state = module, name, arguments, state


class Named:
    """Pickled, it is a name."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name


PICKLER: Any = pickle._Pickler  # pyright: ignore[reportAttributeAccessIssue]


class Writer(PICKLER):
    """Writes calls of names that need not exist."""

    def save(self, obj: Any, *others: Any, **more: Any) -> None:
        if isinstance(obj, Named):
            self._name(obj)
        elif isinstance(obj, Call):
            self._name(obj)
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
            if obj.state is not None:
                self.save(obj.state)
                self.write(pickle.BUILD)
        else:
            super().save(obj, *others, **more)

    def _name(self, obj: Any) -> None:
        if self.proto < 4:
            self.write(b"c" + obj.module.encode() + b"\n" + obj.name.encode() + b"\n")
        else:
            self.save(obj.module)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)


def written(value: Any, protocol: int) -> bytes:
    """A pickle."""
    stream = io.BytesIO()
    sys.setrecursionlimit(20_000)  # in the process that makes this case
    Writer(stream, protocol).dump(value)
    return stream.getvalue()


def place(case: Case, found: dict[str, Any], value: Any) -> None:
    """Put a value in one of the places where the reader looks."""
    key, way = case.pick(list(found) or ["states"]), case.random.random()
    if way < 0.4:
        found[key] = value
    elif way < 0.8 and isinstance(found.get(key), list) and found[key]:
        found[key][int(case.random.integers(len(found[key])))] = value
    else:
        found[case.pick(("extra", "infos", "__class__"))] = value


def calls(case: Case, found: dict[str, Any]) -> None:
    """A call of something that runs code, opens files or takes memory."""
    module, name, arguments = case.pick(CALLS)
    case.note(f"{module}.{name}")
    state = case.pick(
        (None, None, {}, {"_function": os.system}, (None, {"a": 1}), 5, (1, (1 << 40,), "f8", False, b""))
    )
    place(case, found, Call(module, name, arguments, state))


def _array(shape: Any, dtype: Any, data: Any, order: Any = False) -> Call:
    begin = (Named("numpy", "ndarray"), (0,), b"b")
    return Call("numpy.core.multiarray", "_reconstruct", begin, (1, shape, dtype, order, data))


def _dtype(code: Any, state: Any = None) -> Call:
    return Call("numpy", "dtype", (code, False, True), state)


def arrays(case: Case, found: dict[str, Any]) -> None:
    """An array whose shape, type and bytes do not belong together."""
    shape = case.pick(
        ((1 << 40,), (-1,), (-2, -4), (), (0,), (8,), (1 << 62, 4), (0, 1 << 40), (1,) * 64, [8], "8", (2.5,))
    )
    code = case.pick(
        ("f8", "f8", "i8", "u1", "O8", "V8", "U1", "U0", "S8", "M8", "U999999", "(1000,1000)f8", "f8,i4", "?", 8)
    )
    state = case.pick(
        (None, (3, "<", None, None, None, -1, -1, 0), (3, ">", None, None, None, -1, -1, 0), (3, "x"), (), 5,
         (3, "|", (_dtype("f8"), (1 << 20,)), None, None, -1, -1, 0), (3, "<", None, ("a",), {"a": 1}, 8, 1, 0))
    )  # fmt: skip
    data = case.pick((b"", bytes(8), bytes(64), "x" * 64, "\xff" * 64, [1, 2], None, [None] * 8, bytearray(64), 5))
    case.note(f"{code} of shape {shape}")
    kind = case.pick(("_reconstruct", "_frombuffer", "scalar"))
    if kind == "_reconstruct":
        place(case, found, _array(shape, _dtype(code, state), data, case.pick((False, True, "F", 7))))
    elif kind == "_frombuffer":
        place(
            case,
            found,
            Call("numpy._core.numeric", "_frombuffer", (data, _dtype(code, state), shape, case.pick("CFAK"))),
        )
    else:
        place(case, found, Call("numpy.core.multiarray", "scalar", (_dtype(code, state), data)))


def shared(case: Case, found: dict[str, Any]) -> None:
    """A few bytes that are meant many times over."""
    kind = case.pick(("lists", "tuples", "array", "every key", "_frombuffer", "encode", "dicts"))
    case.note(kind)
    big = np.zeros(case.pick((1000, 1_000_000)))
    value: Any = [0.0] * 10
    if kind in ("lists", "tuples", "dicts"):
        for _ in range(case.pick((5, 9, 25, 60))):
            value = [value] * 10 if kind == "lists" else (value,) * 10 if kind == "tuples" else {"a": value, "b": value}
    elif kind == "array":
        value = [big] * case.pick((99, 1000, 100_000))
    elif kind == "every key":
        found |= {f"key {number}": [big] * 90 for number in range(case.pick((10, 300)))}
    elif kind == "_frombuffer":
        data, dtype = bytearray(big.nbytes), _dtype("f8")
        made = [
            Call("numpy.core.numeric", "_frombuffer", (data, dtype, big.shape, "C"))
            for _ in range(case.pick((50, 2000)))
        ]
        value = made
    else:
        text = "x" * big.nbytes
        value = [Call("_codecs", "encode", (text, "latin1")) for _ in range(case.pick((50, 2000)))]
    place(case, found, value)


def itself(case: Case, found: dict[str, Any]) -> None:
    """A list, an array or a dict that has itself in it."""
    kind = case.pick(("list", "dict", "all", "array"))
    value: Any = []
    if kind == "list":
        value.append(value)
    elif kind == "dict":
        value = {}
        value["a"] = value
    elif kind == "array":
        value = np.empty(2, object)
        value[0], value[1] = [value], 1
    else:
        value = found
    place(case, found, value)


def deep(case: Case, found: dict[str, Any]) -> None:
    """Lists in lists, more than a stack is deep."""
    depth = case.pick((20, 40, 500))
    value: Any = case.pick((0.0, np.zeros(3)))
    kind = case.pick((list, tuple))
    for _ in range(depth):
        value = kind([value])
    place(case, found, value)


def odd(case: Case, found: dict[str, Any]) -> None:
    """A value of another kind."""
    huge = 1 << case.pick((64, 10_000, 8_000_000))
    place(
        case, found, case.pick((huge, -huge, None, "x", b"x" * 100, values.name(case), 1e308, float("nan"), {1: 2},
            {}, [], (),
                                [[]], [[], [1]], bytearray(9), 1.5, {"a": [1]}, np.array(["a", None], object)))
    )  # fmt: skip


def keys(case: Case, found: dict[str, Any]) -> None:
    """A key that is no name, or a hostile one."""
    key: Any = case.pick((1, None, b"states", (1, 2), 1.5, values.name(case), "__setstate__", "\ud800"))
    found[key] = case.pick(([1.0], [], 5))


def missing(case: Case, found: dict[str, Any]) -> None:
    """Something is not there."""
    if found:
        del found[case.pick(list(found))]


def numbers(case: Case, found: dict[str, Any]) -> None:
    """The arrays of a trajectory are hostile."""
    lists = [key for key in ("states", "actions", "rewards", "next_states") if isinstance(found.get(key), list)]
    if not lists:
        return
    key = case.pick(lists)
    held = {key: np.asarray(found[key][0])} if found[key] else {key: np.zeros(3)}
    case.mutate(held, values.ARRAYS[:3], 1)
    found[key][:1] = list(held.values())


CONTENT = (calls, calls, arrays, arrays, shared, shared, itself, deep, odd, keys, missing, numbers)
RAW = {
    "persistent": b"\x80\x04\x8c\x04name\x51.", "persistent, text": b"Pname\n.", "instance": b"(i" + b"os\nsystem\n.",
    "object": b"(cos\nsystem\nX\x02\0\0\0ido.",
    "new object": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85\x81.",
    "new object, names": b"\x80\x04\x8c\x02os\x8c\x06system\x93)}\x92.", "extension": b"\x80\x02\x82\x01.",
    "extension 4": b"\x80\x02\x84\xff\xff\xff\x7f.", "integer": b"I" + b"9" * 2_000_000 + b"\n.",
    "long": b"L" + b"9" * 2_000_000 + b"L\n.", "float": b"F1e999\n.", "string": b"S'\\x41'\n.",
    "unicode": b"V\\u0041\n.",
    "put": b"\x80\x02]r\xff\xff\xff\x7f.", "put text": b"]p999999999999999\n.", "get": b"h\x05.",
    "long get": b"j\xff\xff\xff\xff.",
    "frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.", "bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\0\0x.",
    "byte array": b"\x80\x05\x96\0\0\0\0\x04\0\0\0.", "buffer": b"\x80\x05\x97.", "read-only": b"\x80\x05\x97\x98.",
    "set": b"\x80\x04\x8f(K\x01\x90.", "frozen set": b"\x80\x04(K\x01\x91.", "duplicate": b"]2\x86.", "pop": b"]0.",
    "marks": b"(" * 1_000_000 + b"t.", "pops": b"0" * 1000 + b".", "stop": b".", "nothing": b"",
    "protocol": b"\x80\xff}.",
    "unicode 8": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\0\0x.", "long 4": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "long 4 below": b"\x80\x02\x8b\xff\xff\xff\xff\x01.", "name": b"c" + b"x" * 1_000_000 + b"\ny\n)R.",
    "lines": b"cos\nsystem\n\n.", "memo": b"\x80\x04]" + b"\x94" * 3_000_000 + b".", "append": b"]" + b"]a" * 5,
    "lists": b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b".", "dict": b"\x80\x02(X\x01\0\0\0aK\x01d.",
    "none": b"N.",
    "set items": b"\x80\x04}(" + b"X\x01\0\0\0aK\x01" * 300_000 + b"u.", "twice": b"\x80\x02}.\x80\x02}.",
}  # fmt: skip


def scrambled(case: Case, content: bytes) -> bytes:
    """A sound pickle with instructions left out, doubled or exchanged: it still is a sequence of instructions."""
    begins = [position for _, _, position in pickletools.genops(content) if position is not None]
    ends = [*begins[1:], len(content)]
    parts = [content[begin:end] for begin, end in zip(begins, ends, strict=True)]
    for _ in range(case.whole(1, 6)):
        at, other = (int(x) for x in case.random.integers(0, len(parts), 2))
        kind = case.pick(("left out", "doubled", "exchanged", "inserted"))
        if kind == "left out" and len(parts) > 1:
            del parts[at]
            other = at = 0
        elif kind == "doubled":
            parts[at] *= case.whole(2, 100)
        elif kind == "exchanged":
            parts[at], parts[other] = parts[other], parts[at]
        else:
            parts.insert(
                at,
                case.pick(
                    (b"0", b"2", b"(", b"1", b"t", b"l", b"d", b"R", b"b", b"a", b"e", b"u", b"s", b"N", b"\x94")
                ),
            )
    return b"".join(parts)


def wrapped(case: Case, content: bytes) -> bytes:
    """The pickle in a `.npy` file, whose header may lie."""
    shape = case.pick(("()", "()", "(1,)", "(1099511627776,)", "(-1,)", "x"))
    begin = zips.header(case.pick(("'|O'", "'|O'", "'<f8'")), shape, version=case.pick((1, 1, 2, 3, 200)))
    if case.chance(0.2):
        begin = begin[:8] + struct.pack("<I", case.pick((0, 1 << 20, (1 << 32) - 1))) + begin[12:]
    return begin + content


def iq_learn(case: Case) -> Path:
    """A hostile pickle of trajectories."""
    kind, protocol = case.pick(("content",) * 6 + ("raw", "scrambled", "both")), case.pick((2, 3, 4, 5))
    found = columns()
    if kind in ("content", "both"):
        case.mutate(found, CONTENT)
    if kind == "raw":
        name = case.pick(list(RAW))
        case.note(f"raw: {name}")
        content = RAW[name]
    else:
        content = written(found, protocol)
    if kind in ("scrambled", "both"):
        case.note("scrambled")
        content = scrambled(case, content)
    npy = case.chance(0.3)
    path = case.home / ("given.npy" if npy else "given.pkl")
    path.write_bytes(wrapped(case, content) if npy else content)
    assert SECRET.encode() not in content
    return path
