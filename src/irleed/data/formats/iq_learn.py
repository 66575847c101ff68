"""Pickled demonstrations as IQ-Learn stores them: a dict of lists of trajectories, in a ``.pkl`` or a ``.npy`` file.

They are read without executing code from the file. A pickle is a program: its instructions are checked first, the few
names that it may use stand for functions of this module, arrays are made only of as many bytes as the file has, and all
objects made from a file count against one budget: parts that are stored once may be used many times.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from irleed._io.arrays import Budget
from irleed._io.text import printable
from irleed.data.demonstrations import Demonstrations, Episode
from irleed.data.formats import Format, ReadOptions, refuse
from irleed.data.validation import listed, native
from irleed.errors import DataError

NUMPY = b"\x93NUMPY"
MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
CODES = set(
    "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT BINGET LONG_BINGET NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 "
    "LONG1 LONG4 BINFLOAT BINSTRING SHORT_BINSTRING SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 SHORT_BINUNICODE "
    "BINUNICODE BINUNICODE8 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 GLOBAL STACK_GLOBAL REDUCE BUILD".split()
)
DEEPEST = 32  # nested tuples and lists: more than trajectories need, less than overflows the stack
OPERATION, VALUE, POINTER = 100, 40, 8  # bytes in memory of an instruction, of a value in a list, and of a reference
OFTEN = 1000  # instructions that are counted together

Take = Callable[[int], None]  # counts bytes against the budget


class _Array(list):
    """An array that is being read: numbers in `values`, objects as the entries of the list itself."""

    values: np.ndarray | None = None
    shape: tuple[int, ...] = (0,)

    def __init__(self, take: Take) -> None:
        super().__init__()
        self.take = take

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        if kind.dtype != object:
            self.values = _numbers(data, kind, shape, "F" if fortran else "C", self.take)
            return
        if type(data) is not list or fortran or math.prod(shape) != len(data) or 0 in shape or len(shape) > DEEPEST:
            raise ValueError("an array of objects with another shape than its entries")
        self.take(POINTER * len(data))
        self[:], self.shape = data, shape


class _Type:
    """The type of an array's entries: numbers, text or objects."""

    __slots__ = ("dtype",)

    def __init__(self, code: str, *_: Any) -> None:
        if not re.fullmatch(r"b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5}|O8?", code):
            raise ValueError(f"entries of type {code[:20]!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        if state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Name:
    """A function of this module that the file can call but not change."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a change of a function")


def _numbers(data: Any, kind: _Type, shape: Any, order: str, take: Take) -> np.ndarray:
    """An array of exactly these bytes, which are text in files of Python 2."""
    size = len(data) if isinstance(data, str) else memoryview(data).nbytes
    if kind.dtype == object or math.prod(shape) * kind.dtype.itemsize != size or min(shape, default=0) < 0:
        raise ValueError(f"{size} bytes for an array of another size")
    if not isinstance(data, bytes):
        take(size)
        data = data.encode("latin-1") if isinstance(data, str) else bytes(memoryview(data))
    return np.frombuffer(data, kind.dtype).reshape(shape, order="F" if order == "F" else "C")


def _encode(text: str, encoding: str, take: Take) -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(f"bytes encoded as {encoding[:20]!r}")
    take(len(text))
    return text.encode("latin-1")


def _names(take: Take) -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions for the names that a file may use."""
    calls: dict[str, Callable[..., Any]] = {
        "_reconstruct": lambda *_: _Array(take),
        "scalar": lambda kind, data: _numbers(data, kind, (1,), "C", take)[0],
        "_frombuffer": lambda data, kind, shape, order, *_: _numbers(data, kind, shape, order, take),
    }
    return {(module, name): call for name, call in calls.items() for module in MODULES} | {
        ("numpy", "dtype"): _Type,
        ("numpy", "ndarray"): lambda *_: _Array(take),
        ("_codecs", "encode"): lambda text, encoding: _encode(text, encoding, take),
        ("collections", "defaultdict"): lambda *_: {},  # of lists of trajectories, in IQ-Learn
        ("builtins", "list"): lambda: [],
        ("__builtin__", "list"): lambda: [],
    }


class _Unpickler(pickle.Unpickler):
    """An unpickler with `_names` that imports nothing."""

    def __init__(self, content: bytes, where: str, take: Take) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self.where, self.names = where, _names(take)

    def find_class(self, module: str, name: str) -> _Name:  # pyright: ignore[reportIncompatibleMethodOverride]
        if (module, name) not in self.names:
            found = ascii(f"{module}.{name}"[:80])
            refuse(
                self.where, f"a pickle that uses {found}", "arrays, lists and numbers only", "do not trust this file"
            )
        return _Name(self.names[module, name])


def _scan(content: bytes, where: str, take: Take) -> None:
    """Refuse instructions that data do not need, and those that would exhaust memory or the stack."""
    stack: list[int | None] = []  # depth of nested tuples in each entry; None is a mark
    memo: dict[int, int | None] = {}
    end = 0
    for count, (code, argument, position) in enumerate(pickletools.genops(content)):
        if not count % OFTEN:
            take(OFTEN * OPERATION)
        end, name = (position or 0) + 1, code.name
        if name not in CODES:
            refuse(where, f"a pickle with {name}", "arrays, lists and numbers only", "do not trust this file")
        if name.endswith("GET"):
            stack.append(memo[argument or 0])
        elif name.endswith("PUT") or name == "MEMOIZE":
            place = len(memo) if argument is None else argument
            if place > count:
                refuse(where, f"a pickle with entry {place}", f"at most {count} here", "do not trust this file")
            memo[place] = stack[-1]
        elif name == "MARK":
            stack.append(None)
        else:
            depth = _pop(stack, code) + name.startswith("TUPLE") if code.stack_before else 0
            if depth > DEEPEST:
                refuse(where, f"more than {DEEPEST} tuples in each other", "trajectories", "do not trust this file")
            stack.extend([depth] * len(code.stack_after))
    if end != len(content):
        refuse(where, f"{len(content) - end} bytes after the pickle", "none", "store one dict a file")


def _pop(stack: list[int | None], code: pickletools.OpcodeInfo) -> int:
    """Remove the entries that an instruction takes from the stack, and return the largest depth."""
    taken, single = [0], len(code.stack_before)
    if pickletools.markobject in code.stack_before:
        single = code.stack_before.index(pickletools.markobject)
        while (entry := stack.pop()) is not None:
            taken.append(entry)
    for _ in range(single):
        taken.append(stack.pop() or 0)
    return max(taken)


class _Converter:
    """Converts entries to plain lists and arrays, and counts their size as one array of numbers or text."""

    def __init__(self, take: Take) -> None:
        self.take, self.uncounted = take, 0
        self.values, self.longest = 0, 0  # in NumPy every text takes as much as the longest

    def of(self, entry: Any) -> Any:
        """A converted entry of the file."""
        plain = self._plain(entry, 0)
        self.take(self.uncounted + self.values * self.longest)
        return plain

    def _plain(self, value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("parts nested too deeply")
        if isinstance(value, _Array) and value.values is not None:
            value = value.values
        size = 1
        if isinstance(value, np.ndarray):
            size = value.size
            if value.dtype.kind == "U":
                self.longest = max(self.longest, value.dtype.itemsize)
        elif isinstance(value, str | bytes):
            self.longest = max(self.longest, 4 * len(value))
        self.values += size
        self.uncounted += VALUE + POINTER * size  # numbers may be converted to a larger dtype
        if self.uncounted > OFTEN * VALUE:
            self.take(self.uncounted)
            self.uncounted = 0
        if not isinstance(value, list | tuple):
            return value
        entries = [self._plain(entry, depth + 1) for entry in value]
        for width in value.shape[:0:-1] if isinstance(value, _Array) else ():
            self.take((VALUE + POINTER) * len(entries))
            entries = [entries[i : i + width] for i in range(0, len(entries), width)]
        return entries[0] if isinstance(value, _Array) and value.shape == () else entries


def load(path: Path, budget: Budget) -> dict[str, Any]:
    """The dict in the file, of lists, arrays, numbers and text."""
    where = printable(path)
    take = partial(budget.take, where)
    try:
        budget.admit(path)
        content = path.read_bytes()
        if content.startswith(NUMPY):
            content = content[_header(content) :]
        _scan(content, where, take)
        value = _Unpickler(content, where, take).load()
        if isinstance(value, _Array) and value.shape == () and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            got = "an array" if isinstance(value, _Array) else type(value).__name__
            refuse(where, got, "a dict of lists, its keys text", "store it as IQ-Learn does")
        return {key: _Converter(take).of(entry) for key, entry in value.items()}
    except DataError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        refuse(where, ascii(f"{type(error).__name__}: {error}"[:120]), "a sound pickle", "write the file again")


def _header(content: bytes) -> int:
    """Where the pickle begins in a .npy file."""
    width = 2 if content[6] == 1 else 4
    return 8 + width + int.from_bytes(content[8 : 8 + width], "little")


FIELDS = ("states", "next_states", "actions", "dones")  # required; rewards and lengths are optional


def _owners(data: dict[str, Any], reading: ReadOptions, path: Path, count: int) -> list[str]:
    if reading.named is None:
        return [path.stem] * count
    where = f"{printable(path)}, demonstrators"
    values = data.get(reading.named)
    if values is None:
        refuse(where, f"no {reading.named!r}", f"one of {listed(list(data))}", "name the key that says who acted")
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, list) or len(values) != count:
        got = f"{len(values)} values" if isinstance(values, list) else "no list"
        refuse(where, f"{got} of {reading.named!r}", f"{count}, one a trajectory", "name the key that says who acted")
    if not all(
        isinstance(value, str) or isinstance(value, int | np.integer) and abs(value) < 1 << 64 for value in values
    ):
        refuse(where, f"{reading.named!r} of other kinds", "texts or whole numbers", "name the key that says who acted")
    return [str(value) if isinstance(value, str) else f"{value:d}" for value in values]


def _trajectory(data: dict[str, Any], i: int, owner: str, path: Path) -> Episode:
    """Trajectory i, validated."""
    where = f"{printable(path)}, trajectory {i}"
    state, following, action, done = (_field(data, key, i, where) for key in FIELDS)
    if (
        done.ndim != 1
        or not len(done)
        or not done.shape == state.shape[:1] == action.shape[:1]
        or state.shape != following.shape
    ):
        got = ", ".join(
            f"{key} {array.shape}" for key, array in zip(FIELDS, (state, following, action, done), strict=True)
        )
        refuse(where, got, "as many of each, and states and next_states alike", "store one entry a step in each")
    length = _field(data, "lengths", i, where) if "lengths" in data else np.array(len(done))
    if length.shape != () or length != len(done):
        refuse(f"{where}, lengths", str(length)[:20].replace("\n", " "), len(done), "store the number of steps")
    differs = (state[1:] != following[:-1]).reshape(len(done) - 1, -1).any(1)
    if differs.any():
        got = "a next state that is not the state of the step after"
        refuse(f"{where}, step {np.argmax(differs)}", got, "the same", "store whole episodes, one a trajectory")
    ends = np.flatnonzero(done)
    if not np.isin(done, (0, 1)).all() or len(ends) and ends[0] != len(done) - 1:
        odd = np.argmax((done != 0) & ((done != 1) | (np.arange(len(done)) < len(done) - 1)))
        refuse(
            f"{where}, step {odd}", f"done {done[odd]}", "0 before the last step, 0 or 1 there", "split the episodes"
        )
    reward = _field(data, "rewards", i, where) if "rewards" in data else None
    return Episode(np.concatenate([state, following[-1:]]), action, bool(done[-1]), owner, reward)


def _field(data: dict[str, Any], key: str, i: int, where: str) -> np.ndarray:
    try:
        array = np.asarray(data[key][i])
    except ValueError:
        refuse(f"{where}, {key}", "entries of different shapes", "an array", "make all its entries alike")
    except (TypeError, LookupError, OverflowError, MemoryError) as error:
        refuse(f"{where}, {key}", ascii(str(error)[:80]), "an array of numbers", "store numbers only")
    return native(array, f"{where}, {key}")


def _recognises(path: Path) -> bool:
    """The beginning of a pickle, or of a .npy file of objects."""
    try:
        with path.open("rb") as file:
            start = file.read(256)
    except OSError:
        return False
    return (
        start[:1] == b"\x80"
        and start[1:2] in (b"\2", b"\3", b"\4", b"\5")
        or (start.startswith(NUMPY) and b"'descr': '|O'" in start)
    )


def _read(path: Path, reading: ReadOptions) -> Demonstrations:
    """Read every trajectory as an episode; the demonstrators are in a key of the dict, if it was named."""
    where = printable(path)
    if reading.obs not in ((), ("states",)) or reading.action not in (None, "actions"):
        got = f"a choice of {listed([*reading.obs, *filter(None, [reading.action])])}"
        refuse(where, got, "'states' and 'actions'", "leave the choice out: there are no others")
    data = load(path, reading.budget())
    missing = [key for key in FIELDS if key not in data]
    if missing:
        refuse(where, f"no {', '.join(missing)} among {listed(list(data))}", "a dict of these", "add them")
    count = {
        key: len(data[key]) if np.iterable(data[key]) else 0 for key in (*FIELDS, "rewards", "lengths") if key in data
    }
    if len(set(count.values())) > 1:
        got = ", ".join(f"{key} {number}" for key, number in count.items())
        refuse(where, got, "as many trajectories in each", "store one entry a trajectory in each")
    owners = _owners(data, reading, path, count["states"])
    episodes = [_trajectory(data, i, owner, path) for i, owner in enumerate(owners)]
    return Demonstrations.from_episodes(episodes, where=where)


FORMAT = Format(name="pickled demonstrations of IQ-Learn", recognises=_recognises, read=_read)
